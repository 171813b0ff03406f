#ifndef PROGRAM_CONTEXTS_H
#define PROGRAM_CONTEXTS_H

/* Work in two contexts: the primary one of device 0, and another one. Only the former has blocks
 * that are managed. */

#include "words.h"

enum { WORDS = 1 << 18, ROUNDS = 8 };

static unsigned host[WORDS];
static CUcontext own, primary;

static inline void await(CUcontext context)
{
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuCtxSynchronize());
    CHECK(cuCtxSetCurrent(primary));
}

static inline void expect_words(CUdeviceptr at, unsigned value)
{
    CHECK(cuMemcpyDtoH_v2(host, at, sizeof(host)));
    for (unsigned i = 0; i < WORDS; i++)
        EXPECT(host[i] == value + i);
}

/* What one stream frees is taken in another, behind work that is still to come. */
static inline void take_what_is_freed(void)
{
    CUstream first, second;
    CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    for (unsigned round = 1; round <= ROUNDS; round++) {
        CUdeviceptr used, next;
        CHECK(cuMemAllocAsync(&used, sizeof(host), first));
        for (unsigned i = 0; i < 5; i++)
            CHECK(fill_words(used, WORDS, 0x10000000, first));
        CHECK(cuMemFreeAsync(used, first));
        CHECK(cuMemAllocAsync(&next, sizeof(host), second));
        CHECK(fill_words(next, WORDS, round, second));
        CHECK(cuCtxSynchronize());
        expect_words(next, round);
        CHECK(cuMemFreeAsync(next, second));
    }
}

#endif
