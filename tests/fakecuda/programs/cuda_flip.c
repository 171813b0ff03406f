/* Memory that changes its place at a stable address, between device and host handles, while other
 * streams work.
 *
 * To plant errors, `--flip-early` does not wait for the kernel, and `--no-access` leaves out
 * cuMemSetAccess. `--unmapped` launches a kernel on an address without memory. `--touch` reads
 * device memory in the host.
 */
#include "words.h"

enum { WORDS = 100000, GRANULE = 2 << 20 };

static CUmemGenericAllocationHandle create(CUmemLocationType type)
{
    CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {type, 0}};
    CUmemGenericAllocationHandle handle;
    CHECK(cuMemCreate(&handle, GRANULE, &p, 0));
    return handle;
}

static void map(CUdeviceptr at, CUmemGenericAllocationHandle handle, long no_access)
{
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(cuMemMap(at, GRANULE, 0, handle, 0));
    if (!no_access)
        CHECK(cuMemSetAccess(at, GRANULE, &access, 1));
}

/* A kernel's array lies in two mappings, and the border is inside one of its accesses. */
static void cross(CUstream stream)
{
    CUdeviceptr at;
    unsigned last;
    CHECK(cuMemAddressReserve(&at, 2 * GRANULE, 0, 0, 0));
    map(at + GRANULE, create(CU_MEM_LOCATION_TYPE_DEVICE), 0);
    map(at, create(CU_MEM_LOCATION_TYPE_DEVICE), 0);
    CHECK(fill_words(at + GRANULE - 40000, 20000, 3, stream));
    CHECK(mix_words(at + GRANULE - 40000, at + GRANULE - 40000, 20000, 3, stream));
    CHECK(cuMemcpyDtoHAsync_v2(&last, at + GRANULE + 39996, 4, stream));
    CHECK(cuStreamSynchronize(stream));
    EXPECT(last == words_mixed(20002, 20002, 3));
    CHECK(cuMemUnmap(at, 2 * GRANULE));
    CHECK(cuMemAddressFree(at, 2 * GRANULE));
}

int main(int count, char **arguments)
{
    long early = option(count, arguments, "flip-early", 0);
    long no_access = option(count, arguments, "no-access", 0);
    CUdeviceptr at, other;
    CUstream stream;
    void *copy;
    words_open(0);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAddressReserve(&at, GRANULE, 0, 0, 0));
    CHECK(cuMemAlloc_v2(&other, 4 * WORDS));
    CHECK(cuMemHostAlloc(&copy, GRANULE, 0));
    map(at, create(CU_MEM_LOCATION_TYPE_DEVICE), no_access);
    CHECK(fill_words(at, WORDS, 1, stream));
    for (int i = 0; i < 4; i++) {
        CUmemGenericAllocationHandle before, after;
        CHECK(mix_words(at, at, WORDS, 4, stream));
        CHECK(fill_words(other, WORDS, 1, NULL));
        if (!early)
            CHECK(cuStreamSynchronize(stream));
        CHECK(cuMemRetainAllocationHandle(&before, (void *)(uintptr_t)at));
        if (!early)
            CHECK(cuMemcpyDtoH_v2(copy, at, GRANULE));
        CHECK(cuMemUnmap(at, GRANULE));
        after = create(i % 2 ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST);
        map(at, after, no_access);
        CHECK(cuMemcpyHtoD_v2(at, copy, GRANULE));
        CHECK(cuMemRelease(before)); /* the retained one, and that of its creation */
        CHECK(cuMemRelease(before));
    }
    unsigned last, expected = WORDS;
    CHECK(cuMemcpyDtoH_v2(&last, at + 4 * (WORDS - 1), 4));
    for (int i = 0; i < 4; i++)
        expected = words_mixed(expected, expected, 4);
    EXPECT(last == expected);
    if (option(count, arguments, "unmapped", 0)) {
        CHECK(cuMemUnmap(at, GRANULE));
        CHECK(fill_words(at, WORDS, 1, stream));
        return cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS ? 0 : 1;
    }
    if (option(count, arguments, "touch", 0))
        return *(volatile int *)(uintptr_t)other;
    cross(stream);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree_v2(other));
    CHECK(cuMemFreeHost(copy));
    return 0;
}
