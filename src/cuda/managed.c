/* Managed memory: the driver moves pages on its own, and the engine tells it when.
 *
 * A page that has never been used, and one that was evicted, prefers the host and is mapped to the
 * device. An access to it that nobody announced goes over the bus, and takes no device memory. A
 * page that is populated or fetched prefers the device, and is prefetched. Both are advice: whatever
 * it says, each access finds the right bytes.
 *
 * Dead bytes need no copy where the driver has cuMemDiscardBatchAsync (CUDA 13.0). */
#include "cuda/backing.h"

#include "cuda/memory.h"

struct managed {
    struct ebb_cuda_backing base;
    bool can_discard;
};

static CUresult prefer(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                       CUdevice where)
{
    return backing->driver->cuMemAdvise(first, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, where);
}

static CUresult managed_reserve(struct ebb_cuda_backing *backing, uint64_t bytes,
                                CUdeviceptr *first)
{
    const struct ebb_cuda_driver *driver = backing->driver;
    CUresult result = driver->cuMemAllocManaged(first, bytes, CU_MEM_ATTACH_GLOBAL);
    if (result != CUDA_SUCCESS)
        return result;
    result = prefer(backing, *first, bytes, CU_DEVICE_CPU);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemAdvise(*first, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, backing->device);
    if (result == CUDA_SUCCESS && *first % EBB_CUDA_UNIT_BYTES)
        result = CUDA_ERROR_NOT_SUPPORTED; /* large allocations are aligned to 2 MiB */
    if (result != CUDA_SUCCESS)
        driver->cuMemFree_v2(*first);
    return result;
}

static void managed_release(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes)
{
    (void)bytes;
    backing->driver->cuMemFree_v2(first);
}

/* The pages come to the device, or stay where they are and prefer the host. */
static CUresult bring(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                      bool is_dead, CUstream lane)
{
    const struct ebb_cuda_driver *driver = backing->driver;
    CUresult result = prefer(backing, first, bytes, backing->device);
    if (result == CUDA_SUCCESS && is_dead && ((struct managed *)backing)->can_discard) {
        CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = backing->device};
        size_t size = bytes, zero = 0;
        result = driver->cuMemDiscardAndPrefetchBatchAsync(&first, &size, 1, &device, &zero, 1, 0,
                                                           lane);
    } else if (result == CUDA_SUCCESS) {
        result = driver->cuMemPrefetchAsync(first, bytes, backing->device, lane);
    }
    if (result != CUDA_SUCCESS)
        prefer(backing, first, bytes, CU_DEVICE_CPU);
    return result;
}

static CUresult managed_populate(struct ebb_cuda_backing *backing, CUdeviceptr first,
                                 uint64_t bytes, CUstream lane)
{
    return bring(backing, first, bytes, true, lane);
}

static CUresult managed_fetch(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                              bool keep_copy, CUstream lane)
{
    (void)keep_copy;
    return bring(backing, first, bytes, false, lane);
}

static CUresult managed_evict(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                              bool is_clean, CUstream lane)
{
    (void)is_clean;
    CUresult result = prefer(backing, first, bytes, CU_DEVICE_CPU);
    if (result == CUDA_SUCCESS)
        result = backing->driver->cuMemPrefetchAsync(first, bytes, CU_DEVICE_CPU, lane);
    if (result != CUDA_SUCCESS)
        prefer(backing, first, bytes, backing->device);
    return result;
}

static CUresult managed_drop(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                             CUstream lane)
{
    size_t size = bytes;
    if (((struct managed *)backing)->can_discard)
        backing->driver->cuMemDiscardBatchAsync(&first, &size, 1, 0, lane);
    return managed_evict(backing, first, bytes, true, lane);
}

/* The driver has no call that takes the pages. They are used again with their addresses. */
static void managed_forget(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes)
{
    (void)backing;
    (void)first;
    (void)bytes;
}

static void managed_destroy(struct ebb_cuda_backing *backing)
{
    ebb__cuda_unreserve(backing, sizeof(struct managed));
}

static const struct ebb_cuda_backing_ops managed_ops = {
    .name = "managed",
    .can_evict = true,
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
        enum ebb_status status =
            ebb__fail(error, EBB_ERR_UNSUPPORTED, "CUDA",
                      "the device has no concurrent access to managed memory");
        ebb__error_set_remedy(error, "A GPU of the Pascal generation or newer on Linux has it.");
        return status;
    }
    struct managed *managed = ebb__cuda_reserve(sizeof *managed);
    if (!managed)
        return ebb__fail(error, EBB_ERR_MEMORY, "CUDA", "memory is exhausted");
    managed->base.ops = &managed_ops;
    managed->base.driver = driver;
    managed->base.device = config->device;
    managed->can_discard =
        driver->cuMemDiscardBatchAsync && driver->cuMemDiscardAndPrefetchBatchAsync;
    *backing = &managed->base;
    return EBB_OK;
}
