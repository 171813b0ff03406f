/* Managed memory: the driver moves pages on its own, and the engine tells it when.
 *
 * A page that has never been used, and one that was evicted, prefers the host and is mapped to the
 * device. An access to it that nobody announced goes over the bus, and takes no device memory. A
 * page that is populated or fetched prefers the device, and is prefetched. Both are advice.
 * Whatever it says, each access finds the right bytes.
 *
 * Dead bytes need no copy where the driver has cuMemDiscardBatchAsync (CUDA 13.0). A discard takes
 * the pages from the device by itself; a prefetch of discarded pages is slow (docs/results). */
#include "cuda/backing.h"

#include "cuda/memory.h"

#define MOST_REGIONS 1024u

struct managed {
    struct ebb_cuda_backing base;
    struct managed_region {
        CUdeviceptr first, allocated; /* an address, and the allocation that has it */
    } regions[MOST_REGIONS];
    uint32_t region_count;
};

static CUresult prefer(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                       CUdevice where)
{
    return backing->driver->cuMemAdvise(first, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, where);
}

static CUresult advise(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes)
{
    CUresult result = prefer(backing, first, bytes, CU_DEVICE_CPU);
    if (result == CUDA_SUCCESS)
        result = backing->driver->cuMemAdvise(first, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY,
                                              backing->device);
    return result;
}

static CUdeviceptr align(CUdeviceptr address)
{
    return (address + EBB_CUDA_UNIT_BYTES - 1) & ~(EBB_CUDA_UNIT_BYTES - 1);
}

static CUresult managed_reserve(struct ebb_cuda_backing *backing, uint64_t bytes,
                                CUdeviceptr *first)
{
    struct managed *managed = (struct managed *)backing;
    const struct ebb_cuda_driver *driver = backing->driver;
    CUdeviceptr allocated;
    if (managed->region_count == MOST_REGIONS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* A unit more, to align it: to free it and ask again would wait for the device. */
    CUresult result =
        driver->cuMemAllocManaged(&allocated, bytes + EBB_CUDA_UNIT_BYTES, CU_MEM_ATTACH_GLOBAL);
    if (result != CUDA_SUCCESS)
        return result;
    *first = align(allocated);
    result = advise(backing, *first, bytes);
    if (result == CUDA_SUCCESS)
        managed->regions[managed->region_count++] = (struct managed_region){*first, allocated};
    else
        driver->cuMemFree_v2(allocated);
    return result;
}

static void managed_release(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes)
{
    struct managed *managed = (struct managed *)backing;
    (void)bytes;
    for (uint32_t i = 0; i < managed->region_count; i++) {
        if (managed->regions[i].first != first)
            continue;
        backing->driver->cuMemFree_v2(managed->regions[i].allocated);
        managed->regions[i] = managed->regions[--managed->region_count];
        return;
    }
}

/* The pages come to the device, or stay where they are and prefer the host. Discarded pages and
 * those that were never used come without a copy. */
static CUresult bring(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                      CUstream lane)
{
    CUresult result = prefer(backing, first, bytes, backing->device);
    if (result == CUDA_SUCCESS)
        result = backing->driver->cuMemPrefetchAsync(first, bytes, backing->device, lane);
    if (result != CUDA_SUCCESS)
        prefer(backing, first, bytes, CU_DEVICE_CPU);
    return result;
}

static CUresult managed_populate(struct ebb_cuda_backing *backing, CUdeviceptr first,
                                 uint64_t bytes, CUstream lane)
{
    return bring(backing, first, bytes, lane);
}

static CUresult managed_fetch(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                              CUstream lane)
{
    return bring(backing, first, bytes, lane);
}

static CUresult managed_evict(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                              CUstream lane)
{
    CUresult result = prefer(backing, first, bytes, CU_DEVICE_CPU);
    if (result == CUDA_SUCCESS)
        result = backing->driver->cuMemPrefetchAsync(first, bytes, CU_DEVICE_CPU, lane);
    if (result != CUDA_SUCCESS)
        prefer(backing, first, bytes, backing->device);
    return result;
}

static CUresult discard(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                        CUstream lane)
{
    size_t size = bytes;
    return backing->driver->cuMemDiscardBatchAsync
               ? backing->driver->cuMemDiscardBatchAsync(&first, &size, 1, 0, lane)
               : CUDA_SUCCESS;
}

static CUresult managed_drop(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                             CUstream lane)
{
    if (!backing->driver->cuMemDiscardBatchAsync)
        return managed_evict(backing, first, bytes, lane);
    CUresult result = discard(backing, first, bytes, lane);
    return result == CUDA_SUCCESS ? prefer(backing, first, bytes, CU_DEVICE_CPU) : result;
}

/* The driver has no call that takes the pages. Discarded, they are not copied any more. */
static CUresult managed_forget(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                               CUstream lane)
{
    return discard(backing, first, bytes, lane);
}

static void managed_destroy(struct ebb_cuda_backing *backing)
{
    ebb__cuda_unreserve(backing, sizeof(struct managed));
}

static const struct ebb_cuda_backing_ops managed_ops = {
    .name = "managed",
    .can_evict = true,
    .is_coherent = true,
    .reserve = managed_reserve,
    .release = managed_release,
    .populate = managed_populate,
    .evict = managed_evict,
    .fetch = managed_fetch,
    .drop = managed_drop,
    .forget = managed_forget,
    .destroy = managed_destroy,
};

enum ebb_status ebb__managed_create(const struct ebb_cuda_config *config,
                                    struct ebb_cuda_backing **backing, struct ebb_error *error)
{
    const struct ebb_cuda_driver *driver = config->driver;
    int can = 0;
    if (driver->cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
                                     config->device) != CUDA_SUCCESS ||
        !can) {
        enum ebb_status status = ebb__fail(error, EBB_ERR_UNSUPPORTED, "CUDA",
                                           "the device has no concurrent access to managed memory");
        ebb__error_set_remedy(error, "A GPU of the Pascal generation or newer on Linux has it.");
        return status;
    }
    struct managed *managed = ebb__cuda_reserve(sizeof *managed);
    if (!managed)
        return ebb__fail(error, EBB_ERR_MEMORY, "CUDA", "memory is exhausted");
    ebb__backing_init(&managed->base, &managed_ops, config);
    *backing = &managed->base;
    return EBB_OK;
}
