/* A fork in the middle of work. The child has no driver, says so, and ends. The parent goes on.
 *
 * Option: --room=N, the bytes of the allocation. */
#include "words.h"
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 4000 };

int main(int count, char **arguments)
{
    CUdeviceptr x, unused;
    CUstream stream;
    unsigned now[WORDS];
    words_open(0);
    CHECK(cuStreamCreate(&stream, 0));
    long room = option(count, arguments, "room", sizeof(now));
    EXPECT(room >= (long)sizeof(now));
    CHECK(cuMemAlloc_v2(&x, (size_t)room));
    CHECK(fill_words(x, WORDS, 1, stream));
    for (int i = 0; i < 20; i++)
        CHECK(mix_words(x, x, WORDS, 3, stream));
    pid_t child = fork();
    if (child == 0) {
        CUresult alloc = cuMemAlloc_v2(&unused, 64), init = cuInit(0);
        CUresult sync = cuStreamSynchronize(stream);
        _exit(alloc == CUDA_ERROR_NOT_INITIALIZED && init == CUDA_ERROR_NOT_INITIALIZED &&
                      sync == CUDA_ERROR_NOT_INITIALIZED
                  ? 0
                  : 1);
    }
    for (int i = 0; i < 20; i++)
        CHECK(mix_words(x, x, WORDS, 3, stream));
    int status;
    waitpid(child, &status, 0);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(cuMemcpyDtoHAsync_v2(now, x, sizeof(now), stream));
    CHECK(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < WORDS; i++) {
        unsigned expected = 1 + i;
        for (int k = 0; k < 40; k++)
            expected = words_mixed(expected, expected, 3);
        EXPECT(now[i] == expected);
    }
    CHECK(cuMemFree_v2(x));
    return 0;
}
