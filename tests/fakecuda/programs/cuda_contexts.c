/* Contexts other than the primary one, and what ends with a context. The argument is the case:
 *
 *   blocking, other, default, thread: a block is used in such a stream of an own context, and is
 *       freed in its order. Its memory goes to a block in the primary context's stream
 *   waited: as `other`, and the primary context is waited for, but not the other one
 *   beside: work in both contexts on blocks that do not fit together
 *   destroyed: a context ends with a stream in it that has used a block
 *   captured: a context ends with a capture in it. Afterwards, blocks come and go as before
 *   reset: references outlive a reset. After the last release the context is not active
 *   green: part of the primary context, which outlives the program's own reference
 *   unseen: another library's reference, which came from the driver without an entry point
 *   pool: the device's pool ends. Then its default pool is the current one
 *   freed: a free of some block waits for a kernel, and for a copy to the host
 *   meets, word: work in the default stream of an own context waits for what is queued behind it
 *   timed: kernels are late in a stream of a context that ends, and then in others
 *   ends N: N contexts end, each with streams that have used blocks. Then work is ordered as before
 */
#include "contexts.h"
#include <dlfcn.h>

enum { BLOCKS = 12 };

static void open_both(void)
{
    primary = words_open(0);
    CHECK(cuCtxCreate_v2(&own, 0, 0));
    CHECK(cuCtxSetCurrent(primary));
}

static void hand_over(CUstream stream, int waits)
{
    CUevent event;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (unsigned round = 1; round <= ROUNDS; round++) {
        CUdeviceptr used, next;
        CHECK(cuMemAllocAsync(&used, sizeof(host), NULL));
        CHECK(fill_words(used, WORDS, 1, NULL));
        CHECK(cuEventRecord(event, NULL));
        CHECK(cuCtxSetCurrent(own));
        CHECK(cuStreamWaitEvent(stream, event, 0));
        for (int i = 0; i < 5; i++)
            CHECK(fill_words(used, WORDS, 0x10000000, stream));
        CHECK(cuMemFreeAsync(used, stream));
        CHECK(cuCtxSetCurrent(primary));
        if (waits)
            CHECK(cuCtxSynchronize());
        CHECK(cuMemAllocAsync(&next, sizeof(host), NULL));
        CHECK(fill_words(next, WORDS, round, NULL));
        await(own);
        expect_words(next, round);
        CHECK(cuMemFreeAsync(next, NULL));
    }
}

static void in_own(const char *kind)
{
    CUstream stream = NULL;
    open_both();
    CHECK(cuCtxSetCurrent(own));
    if (!strcmp(kind, "thread"))
        stream = CU_STREAM_PER_THREAD;
    else if (strcmp(kind, "default") != 0)
        CHECK(cuStreamCreate(&stream, !strcmp(kind, "blocking") ? CU_STREAM_DEFAULT
                                                                : CU_STREAM_NON_BLOCKING));
    CHECK(cuCtxSetCurrent(primary));
    hand_over(stream, !strcmp(kind, "waited"));
}

static void take_blocks(CUdeviceptr *at, unsigned first, unsigned count)
{
    for (unsigned i = first; i < first + count; i++)
        CHECK(cuMemAlloc_v2(&at[i], sizeof(host)));
}

static void beside(void)
{
    CUdeviceptr at[BLOCKS];
    CUstream stream;
    open_both();
    take_blocks(at, 0, BLOCKS);
    CHECK(cuCtxSetCurrent(own));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned round = 1; round <= ROUNDS; round++) {
        unsigned first = round % BLOCKS;
        CHECK(cuCtxSetCurrent(own));
        for (unsigned i = 0; i < 6; i++)
            CHECK(fill_words(at[first], WORDS, round * 100 + i, stream));
        await(primary);
        for (unsigned i = 1; i < 6; i++)
            CHECK(fill_words(at[(first + i) % BLOCKS], WORDS, round * 100 + i, NULL));
        await(own);
        expect_words(at[first], round * 100 + 5);
        CHECK(cuCtxSynchronize());
    }
}

static void destroyed(void)
{
    CUdeviceptr at[BLOCKS];
    CUstream stream;
    open_both();
    take_blocks(at, 0, 8);
    CHECK(cuCtxSetCurrent(own));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(fill_words(at[0], WORDS, 7, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(fill_words(at[0], WORDS, 8, stream));
    CHECK(cuCtxDestroy_v2(own));
    CHECK(cuCtxSetCurrent(primary));
    CHECK(cuMemFree_v2(at[0]));
    take_blocks(at, 8, BLOCKS - 8);
    for (unsigned i = 1; i < BLOCKS; i++)
        CHECK(fill_words(at[i], WORDS, i, NULL));
    for (unsigned i = 1; i < BLOCKS; i++)
        expect_words(at[i], i);
}

static void captured(void)
{
    CUstream stream;
    CUdeviceptr at;
    open_both();
    CHECK(cuCtxSetCurrent(own));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuCtxDestroy_v2(own));
    CHECK(cuCtxSetCurrent(primary));
    for (unsigned i = 0; i < 100; i++) { /* of more bytes than device and host have */
        CHECK(cuMemAlloc_v2(&at, sizeof(host)));
        CHECK(fill_words(at, WORDS, i, NULL));
        expect_words(at, i);
        CHECK(cuMemFree_v2(at));
    }
}

static void expect_active(int expected)
{
    unsigned flags;
    int active;
    CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EXPECT(active == expected);
}

static void reset(void)
{
    CUdeviceptr at;
    CHECK(cuInit(0));
    for (unsigned round = 0; round < 2; round++) {
        CHECK(cuDevicePrimaryCtxRetain(&primary, 0));
        CHECK(cuCtxSetCurrent(primary));
        CHECK(cuMemAlloc_v2(&at, sizeof(host)));
        if (round == 0)
            CHECK(cuDevicePrimaryCtxReset_v2(0));
    }
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    expect_active(1);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    expect_active(0);
}

static void green(void)
{
    CUgreenCtx part;
    CUdeviceptr at;
    primary = words_open(0);
    CHECK(cuGreenCtxCreate(&part, (CUdevResourceDesc)1, 0, 1));
    CHECK(cuMemAlloc_v2(&at, sizeof(host)));
    CHECK(fill_words(at, WORDS, 5, NULL));
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    expect_active(1);
    expect_words(at, 5);
    CHECK(cuMemFree_v2(at));
    CHECK(cuGreenCtxDestroy(part));
    expect_active(0);
}

/* EBB_CUDA_DRIVER names the driver, if a library is before it. */
static void unseen(void)
{
    const char *path = getenv("EBB_CUDA_DRIVER");
    void *driver = dlopen(path ? path : "libcuda.so.1", RTLD_NOW);
    void *symbol = driver ? dlsym(driver, "cuDevicePrimaryCtxRetain") : NULL;
    CUresult (*retain)(CUcontext *, CUdevice);
    CUdeviceptr at;
    EXPECT(symbol);
    memcpy(&retain, &symbol, sizeof(retain));
    CHECK(cuInit(0));
    CHECK(retain(&primary, 0));
    CHECK(cuCtxSetCurrent(primary));
    CHECK(cuMemAlloc_v2(&at, sizeof(host)));
    words_open(0);
    CHECK(fill_words(at, WORDS, 5, NULL));
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    expect_words(at, 5);
    CHECK(cuMemFree_v2(at));
}

static void pool(void)
{
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemoryPool made, current, usual;
    CUdeviceptr at[BLOCKS];
    words_open(0);
    CHECK(cuMemPoolCreate(&made, &properties));
    CHECK(cuDeviceSetMemPool(0, made));
    CHECK(cuMemPoolDestroy(made));
    CHECK(cuDeviceGetMemPool(&current, 0));
    CHECK(cuDeviceGetDefaultMemPool(&usual, 0));
    EXPECT(current == usual);
    for (unsigned i = 0; i < BLOCKS; i++) {
        CUmemoryPool its = NULL;
        CHECK(cuMemAllocAsync(&at[i], sizeof(host), NULL));
        CHECK(fill_words(at[i], WORDS, i, NULL));
        CHECK(cuPointerGetAttribute(&its, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, at[i]));
        EXPECT(its == usual);
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        expect_words(at[i], i);
}

static void freed(void)
{
    CUdeviceptr from, to, other;
    CUstream first, second;
    unsigned *result;
    words_open(0);
    CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemHostAlloc((void **)&result, sizeof(host), 0));
    CHECK(cuMemAlloc_v2(&from, sizeof(host)));
    CHECK(cuMemAlloc_v2(&to, sizeof(host)));
    for (unsigned round = 0; round < ROUNDS; round++) {
        CHECK(cuMemAlloc_v2(&other, sizeof(host)));
        CHECK(fill_words(from, WORDS, round, first));
        CHECK(cuMemcpyDtoHAsync_v2(result, from, sizeof(host), first));
        CHECK(cuMemFree_v2(other));
        for (unsigned i = 0; i < WORDS; i++)
            EXPECT(result[i] == round + i);
        CHECK(cuMemcpyDtoDAsync_v2(to, from, sizeof(host), second));
        CHECK(cuStreamSynchronize(second));
        expect_words(to, round);
        CHECK(cuCtxSynchronize());
    }
}

static void meets(void)
{
    CUdeviceptr flag;
    unsigned both = 2;
    open_both();
    CHECK(cuMemAlloc_v2(&flag, sizeof(host)));
    CHECK(cuMemsetD32_v2(flag, 0, WORDS));
    CHECK(cuCtxSynchronize());
    CHECK(cuCtxSetCurrent(own));
    CHECK(words_launch(WORDS_MEET, NULL, (void *[]){&flag, &both}));
    CHECK(cuCtxSetCurrent(primary));
    CHECK(words_launch(WORDS_MEET, NULL, (void *[]){&flag, &both}));
    await(own);
    CHECK(cuCtxSynchronize());
}

static void word(void)
{
    CUdeviceptr flag, at;
    open_both();
    CHECK(cuMemAlloc_v2(&flag, sizeof(host)));
    CHECK(cuMemAlloc_v2(&at, sizeof(host)));
    CHECK(cuMemsetD32_v2(flag, 0, WORDS));
    CHECK(cuCtxSynchronize());
    CHECK(cuCtxSetCurrent(own));
    CHECK(cuStreamWaitValue32_v2(NULL, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    CHECK(fill_words(at, WORDS, 7, NULL));
    CHECK(cuCtxSetCurrent(primary));
    CHECK(cuStreamWriteValue32_v2(NULL, flag, 1, 0));
    await(own);
    expect_words(at, 7);
}

static void timed(void)
{
    CUdeviceptr at[BLOCKS];
    CUstream stream;
    open_both();
    for (unsigned i = 0; i < BLOCKS; i++)
        CHECK(cuMemAlloc_v2(&at[i], 4 * sizeof(host)));
    CHECK(cuCtxSetCurrent(own));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < 3 * BLOCKS; i++)
        CHECK(fill_words(at[i % BLOCKS], WORDS, i, stream));
    CHECK(cuCtxDestroy_v2(own));
    CHECK(cuCtxSetCurrent(primary));
    for (unsigned i = 0; i < 3 * BLOCKS; i++)
        CHECK(fill_words(at[i % BLOCKS], WORDS, i, NULL));
    for (unsigned i = 0; i < BLOCKS; i++)
        expect_words(at[i], 2 * BLOCKS + i);
}

static void ends(unsigned contexts)
{
    enum { STREAMS = 8, EACH = 8 };
    CUdeviceptr at, some;
    CUstream streams[STREAMS];
    primary = words_open(0);
    CHECK(cuMemAlloc_v2(&at, 64));
    for (unsigned n = 0; n < contexts; n++) {
        CHECK(cuCtxCreate_v2(&own, 0, 0));
        for (int i = 0; i < STREAMS; i++)
            CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        for (int i = 0; i < STREAMS * EACH; i++) {
            CHECK(fill_words(at, 1, 1, streams[i % STREAMS]));
            CHECK(cuCtxSetCurrent(primary));
            CHECK(cuMemAllocAsync(&some, 1 << 20, streams[i % STREAMS]));
            CHECK(cuCtxSetCurrent(own));
            CHECK(cuMemFreeAsync(some, streams[i % STREAMS]));
        }
        CHECK(cuCtxDestroy_v2(own));
        CHECK(cuCtxSetCurrent(primary));
    }
    take_what_is_freed();
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"beside", beside}, {"destroyed", destroyed}, {"captured", captured},
                 {"reset", reset},   {"green", green},         {"unseen", unseen},
                 {"pool", pool},     {"freed", freed},         {"meets", meets},
                 {"word", word},     {"timed", timed}};
    const char *name = count > 1 ? arguments[1] : "blocking";
    void (*run)(void) = NULL;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        if (!strcmp(name, cases[i].name))
            run = cases[i].run;
    if (run)
        run();
    else if (count > 2 && !strcmp(name, "ends"))
        ends((unsigned)atoi(arguments[2]));
    else
        in_own(name);
    puts("good");
    return 0;
}
