/* bench/darknet.py preloads it to make a program repeatable that seeds its random numbers by the
 * clock and draws them in several threads. The first thread has its own generator. The other
 * threads, whose order varies, always draw the same number. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static unsigned long long state = 1;

time_t time(time_t *now)
{
    if (now)
        *now = 1;
    return 1;
}

void srand(unsigned seed)
{
    state = seed;
}

int rand(void)
{
    if (syscall(SYS_gettid) != getpid())
        return RAND_MAX / 3;
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (int)(state >> 33);
}
