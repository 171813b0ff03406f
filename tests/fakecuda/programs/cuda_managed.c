/* Managed memory: prefetches, advice, discards, waits for values, and more than the device holds.
 *
 * Options: --buffers=N --words=N --passes=N. To plant an error: --discard-live discards what is
 * needed, --discard-race discards in another stream, without a wait. --drop-value leaves out a wait
 * for a value. What should have waited is queued before the value is written.
 */
#include "words.h"

enum { MOST = 64 };

static CUdeviceptr x[MOST];
static CUstream compute, mover;
static unsigned *flag;

static void prefetch(CUdeviceptr at, size_t bytes, int device, CUstream stream)
{
    CUmemLocation location = {device < 0 ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
                              device < 0 ? 0 : device};
    CHECK(cuMemPrefetchAsync_v2(at, bytes, location, 0, stream));
}

int main(int count, char **arguments)
{
    unsigned buffers = (unsigned)option(count, arguments, "buffers", 8);
    unsigned words = (unsigned)option(count, arguments, "words", 50000);
    unsigned passes = (unsigned)option(count, arguments, "passes", 3);
    size_t bytes = 4ull * words;
    if (buffers > MOST)
        return 2;
    words_open(0);
    CHECK(cuStreamCreate(&compute, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&mover, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemHostAlloc((void **)&flag, 64, 0));
    flag[0] = flag[1] = 0;
    CUdeviceptr flag_at = (CUdeviceptr)(uintptr_t)flag;
    for (unsigned i = 0; i < buffers; i++) {
        CHECK(cuMemAllocManaged(&x[i], bytes, CU_MEM_ATTACH_GLOBAL));
        CHECK(fill_words(x[i], words, i, compute));
    }
    CHECK(cuStreamSynchronize(compute));
    unsigned ticket = 0;
    for (unsigned pass = 0; pass < passes; pass++) {
        for (unsigned i = 0; i < buffers; i++) {
            prefetch(x[i], bytes, 0, mover);
            CHECK(cuStreamWriteValue32_v2(mover, flag_at, ++ticket, 0));
            CHECK(cuStreamWaitValue32_v2(compute, flag_at, ticket, CU_STREAM_WAIT_VALUE_GEQ));
            CHECK(mix_words(x[i], x[i], words, pass, compute));
            CHECK(cuStreamSynchronize(compute));
            prefetch(x[i], bytes, -1, mover);
        }
    }
    CHECK(cuMemAdvise_v2(x[0], bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
                         (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0}));
    CHECK(cuMemAdvise_v2(x[0], bytes, CU_MEM_ADVISE_SET_ACCESSED_BY,
                         (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 0}));
    CHECK(mix_words(x[0], x[0], words, passes, compute));
    CHECK(cuStreamSynchronize(compute));
    /* Two streams write the same words, one after the other by way of a word in memory. */
    long drops = option(count, arguments, "drop-value", 0);
    if (drops)
        CHECK(cuStreamWaitValue32_v2(mover, flag_at + 4, 1, CU_STREAM_WAIT_VALUE_GEQ));
    CHECK(mix_words(x[1 % buffers], x[0], words, 20, mover));
    CHECK(cuStreamWriteValue32_v2(mover, flag_at, ++ticket, 0));
    if (!drops)
        CHECK(cuStreamWaitValue32_v2(compute, flag_at, ticket, CU_STREAM_WAIT_VALUE_GEQ));
    CHECK(fill_words(x[1 % buffers], words, 1 % buffers, compute));
    __atomic_store_n(&flag[1], 1, __ATOMIC_RELEASE);
    for (unsigned pass = 0; pass < passes + (buffers == 1); pass++)
        CHECK(mix_words(x[1 % buffers], x[1 % buffers], words, pass, compute));
    if (option(count, arguments, "discard-live", 0))
        CHECK(cuMemDiscardBatchAsync(&x[0], &bytes, 1, 0, compute));
    if (option(count, arguments, "discard-race", 0)) {
        CHECK(mix_words(x[buffers - 1], x[0], words, 1, compute));
        CHECK(cuMemDiscardBatchAsync(&x[buffers - 1], &bytes, 1, 0, mover));
    }
    CHECK(cuCtxSynchronize());
    for (unsigned i = 0; i < buffers; i++) {
        const unsigned *host = (const unsigned *)(uintptr_t)x[i]; /* the host may read it */
        unsigned expected = i + words - 1;
        for (unsigned pass = 0; pass < passes + (i == 0); pass++)
            expected = words_mixed(expected, expected, pass);
        EXPECT(host[words - 1] == expected);
    }
    for (unsigned i = 0; i < buffers; i++)
        CHECK(cuMemFree_v2(x[i]));
    return 0;
}
