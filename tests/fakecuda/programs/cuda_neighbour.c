/* Work of a second device on blocks of the first. The argument is the case:
 *
 *   copied: the default stream of device 1 copies a block of device 0, and frees it
 *   read: the same to the host, where device 1 has no memory of its own
 *   pooled: a block of device 0's pool is allocated in the default stream of device 1
 *   reset: a stream of device 1 has used blocks of device 0. Then device 1 is reset
 */
#include "contexts.h"

static void open_two_devices(void)
{
    own = words_open(1);
    memset(words_functions, 0, sizeof(words_functions));
    primary = words_open(0);
}

static void copied(int is_read)
{
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 1},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemoryPool usual;
    CUevent event;
    CUdeviceptr to;
    unsigned *read;
    open_two_devices();
    CHECK(cuMemHostAlloc((void **)&read, sizeof(host), 0));
    CHECK(cuCtxSetCurrent(own));
    if (!is_read)
        CHECK(cuMemAlloc_v2(&to, sizeof(host)));
    CHECK(cuCtxSetCurrent(primary));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuDeviceGetDefaultMemPool(&usual, 0));
    cuMemPoolSetAccess(usual, &access, 1); /* refused where devices cannot reach each other */
    for (unsigned round = 1; round <= ROUNDS; round++) {
        CUdeviceptr used, next;
        CHECK(cuMemAllocAsync(&used, sizeof(host), NULL));
        CHECK(fill_words(used, WORDS, round, NULL));
        CHECK(cuEventRecord(event, NULL));
        CHECK(cuCtxSetCurrent(own));
        CHECK(cuStreamWaitEvent(NULL, event, 0));
        for (int i = 0; i < 3; i++)
            CHECK(is_read ? cuMemcpyDtoHAsync_v2(read, used, sizeof(host), NULL)
                          : cuMemcpyPeerAsync(to, own, used, primary, sizeof(host), NULL));
        CHECK(cuMemFreeAsync(used, NULL));
        CHECK(cuCtxSetCurrent(primary));
        CHECK(cuMemAllocAsync(&next, sizeof(host), NULL));
        CHECK(fill_words(next, WORDS, 0x10000000, NULL));
        await(own);
        CHECK(cuCtxSetCurrent(own));
        if (!is_read)
            expect_words(to, round);
        for (unsigned i = 0; is_read && i < WORDS; i++)
            EXPECT(read[i] == round + i);
        CHECK(cuCtxSetCurrent(primary));
        CHECK(cuMemFreeAsync(next, NULL));
    }
}

static void pooled(void)
{
    CUmemoryPool usual;
    CUstream stream;
    open_two_devices();
    CHECK(cuDeviceGetDefaultMemPool(&usual, 0));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned round = 1; round <= ROUNDS; round++) {
        CUdeviceptr used[2], other, next;
        for (int i = 0; i < 2; i++)
            CHECK(cuMemAllocAsync(&used[i], sizeof(host), stream));
        for (int i = 0; i < 10; i++)
            CHECK(fill_words(used[i % 2], WORDS, 0x10000000, stream));
        for (int i = 0; i < 2; i++)
            CHECK(cuMemFreeAsync(used[i], stream));
        CHECK(cuCtxSetCurrent(own));
        CHECK(cuMemAllocFromPoolAsync(&other, sizeof(host), usual, NULL));
        CHECK(cuCtxSetCurrent(primary));
        CHECK(cuMemAllocAsync(&next, sizeof(host), NULL));
        CHECK(fill_words(next, WORDS, round, NULL));
        CHECK(cuCtxSynchronize());
        expect_words(next, round);
        CHECK(cuMemFreeAsync(next, NULL));
        CHECK(cuMemFreeAsync(other, NULL));
        CHECK(cuCtxSynchronize());
    }
}

static void reset(void)
{
    CUstream stream, mine;
    CUdeviceptr some;
    open_two_devices();
    CHECK(cuCtxSetCurrent(own));
    CHECK(cuMemAlloc_v2(&some, 4096));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuCtxSetCurrent(primary));
    CHECK(cuStreamCreate(&mine, CU_STREAM_NON_BLOCKING));
    for (unsigned round = 1; round <= ROUNDS; round++) {
        CHECK(cuMemAllocAsync(&some, sizeof(host), mine));
        CHECK(fill_words(some, WORDS, round, mine));
        CHECK(cuStreamSynchronize(mine));
        CHECK(cuMemFreeAsync(some, stream));
    }
    await(own);
    CHECK(cuDevicePrimaryCtxReset_v2(1));
    take_what_is_freed();
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "copied";
    if (!strcmp(name, "pooled"))
        pooled();
    else if (!strcmp(name, "reset"))
        reset();
    else
        copied(!strcmp(name, "read"));
    puts("good");
    return 0;
}
