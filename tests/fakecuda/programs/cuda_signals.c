/* A program that takes a signal with sigwait(), as servers do. It blocks the signal after its first
 * allocation. No thread that is not its own may take it. */
#include "words.h"
#include <signal.h>

int main(void)
{
    CUdeviceptr at;
    sigset_t taken;
    int signal = 0;
    unsigned found[4];
    words_open(0);
    CHECK(cuMemAlloc_v2(&at, 4 << 20));
    CHECK(fill_words(at, 4, 1, NULL));
    sigemptyset(&taken);
    sigaddset(&taken, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &taken, NULL);
    kill(getpid(), SIGUSR1);
    sigwait(&taken, &signal);
    EXPECT(signal == SIGUSR1);
    CHECK(cuMemcpyDtoH_v2(found, at, sizeof(found)));
    EXPECT(found[3] == 4);
    puts("good");
    return 0;
}
