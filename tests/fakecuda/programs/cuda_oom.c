/* Out of memory: the error comes, nothing else breaks, and memory that is released is there again.
 *
 * Options are --piece=N (bytes of an allocation) and --most=N (allocations). With --beyond, more
 * may be allocated than cuMemGetInfo tells, as with Ebb. With --hold, it says so, and keeps what
 * it has until its input ends. With --overrun, a copy writes behind memory of the host, for the
 * sanitizer to see.
 */
#include "words.h"

enum { MOST = 4096 };

int main(int count, char **arguments)
{
    size_t piece = (size_t)option(count, arguments, "piece", 1 << 20);
    size_t most = (size_t)option(count, arguments, "most", MOST);
    long is_beyond = option(count, arguments, "beyond", 0);
    CUdeviceptr at[MOST];
    size_t available, total, taken = 0;
    EXPECT(most <= MOST);
    words_open(0);
    CHECK(cuMemGetInfo_v2(&available, &total));
    CUresult result = CUDA_SUCCESS;
    if (option(count, arguments, "overrun", 0)) {
        CHECK(cuMemAlloc_v2(&at[0], 64));
        CHECK(cuMemsetD8_v2(at[0], 1, 64));
        CHECK(cuMemcpyDtoH_v2(malloc(32), at[0], 64));
    }
    while (taken < most && (result = cuMemAlloc_v2(&at[taken], piece)) == CUDA_SUCCESS)
        taken++;
    EXPECT(taken == most || result == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(taken * piece <= available || is_beyond);
    size_t left;
    CHECK(cuMemGetInfo_v2(&left, &total));
    EXPECT(left <= available - taken * piece || taken == 0 || is_beyond);
    unsigned words = (unsigned)(piece / 4), sample;
    for (size_t i = 0; i < taken; i++)
        CHECK(fill_words(at[i], words, (unsigned)i, NULL));
    for (size_t i = 0; i < taken; i++) {
        CHECK(cuMemcpyDtoH_v2(&sample, at[i] + piece - 4, 4));
        EXPECT(sample == i + words - 1);
    }
    EXPECT(cuMemAlloc_v2(&at[0], SIZE_MAX / 2) == CUDA_ERROR_OUT_OF_MEMORY || taken == 0);
    if (option(count, arguments, "hold", 0)) {
        puts("holds");
        fflush(stdout);
        while (getchar() != EOF)
            ;
    }
    for (size_t i = 1; i < taken; i++)
        CHECK(cuMemFree_v2(at[i]));
    CUdeviceptr again;
    if (taken > 1) {
        CHECK(cuMemAlloc_v2(&again, piece));
        CHECK(cuMemFree_v2(again));
    }
    printf("%zu allocations\n", taken);
    return 0;
}
