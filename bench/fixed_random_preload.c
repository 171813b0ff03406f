/* Preloaded by bench/darknet.py: a program that seeds its random numbers by the clock, and draws them in
 * several threads, does the same in every run. The first thread has a generator of its own; the others,
 * whose order is not fixed, always draw the same number. */
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
