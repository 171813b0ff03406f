/* Native memory: pages of the device that never leave it while their block lives.
 *
 * Each unit has a physical allocation of its own, so that cached units can be returned to the
 * driver. Nothing is evicted: for recording, and as the plain case. */
#include "cuda/backing.h"

#include "cuda/memory.h"

/* Handles of units by address: a table of the regions, each with its array. */
#define MOST_REGIONS 64u

struct native_region {
    CUdeviceptr first;
    uint64_t bytes;
    CUmemGenericAllocationHandle *handles;
};

struct native {
    struct ebb_cuda_backing base;
    struct native_region regions[MOST_REGIONS];
    _Atomic uint32_t region_count;
};

static size_t handles_bytes(uint64_t bytes)
{
    return (size_t)(bytes / EBB_CUDA_UNIT_BYTES) * sizeof(CUmemGenericAllocationHandle);
}

static CUresult native_reserve(struct ebb_cuda_backing *backing, uint64_t bytes, CUdeviceptr *first)
{
    struct native *native = (struct native *)backing;
    uint32_t count = atomic_load(&native->region_count);
    if (count == MOST_REGIONS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct native_region *region = &native->regions[count];
    region->handles = ebb__cuda_reserve(handles_bytes(bytes));
    if (!region->handles)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = backing->driver->cuMemAddressReserve(first, bytes, EBB_CUDA_UNIT_BYTES, 0, 0);
    if (result != CUDA_SUCCESS) {
        ebb__cuda_unreserve(region->handles, handles_bytes(bytes));
        return result;
    }
    region->first = *first;
    region->bytes = bytes;
    atomic_store(&native->region_count, count + 1);
    return CUDA_SUCCESS;
}

static CUmemGenericAllocationHandle *handle_of(struct native *native, CUdeviceptr unit)
{
    for (uint32_t i = 0; i < atomic_load(&native->region_count); i++) {
        struct native_region *region = &native->regions[i];
        if (region->handles && unit - region->first < region->bytes)
            return &region->handles[(unit - region->first) / EBB_CUDA_UNIT_BYTES];
    }
    return NULL;
}

static void unmap(struct native *native, CUdeviceptr unit)
{
    CUmemGenericAllocationHandle *handle = handle_of(native, unit);
    if (!handle || !*handle)
        return;
    native->base.driver->cuMemUnmap(unit, EBB_CUDA_UNIT_BYTES);
    native->base.driver->cuMemRelease(*handle);
    *handle = 0;
}

static CUresult native_drop(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                            CUstream lane)
{
    (void)lane;
    for (uint64_t i = 0; i < bytes; i += EBB_CUDA_UNIT_BYTES)
        unmap((struct native *)backing, first + i);
    return CUDA_SUCCESS;
}

static CUresult map(struct native *native, CUdeviceptr unit)
{
    const struct ebb_cuda_driver *driver = native->base.driver;
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = native->base.device}};
    CUmemGenericAllocationHandle *handle = handle_of(native, unit), made;
    if (*handle)
        return CUDA_SUCCESS;
    CUresult result = driver->cuMemCreate(&made, EBB_CUDA_UNIT_BYTES, &properties, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->cuMemMap(unit, EBB_CUDA_UNIT_BYTES, 0, made, 0);
    if (result == CUDA_SUCCESS)
        *handle = made;
    else
        driver->cuMemRelease(made);
    return result;
}

static CUresult native_populate(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                                CUstream lane)
{
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = backing->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = CUDA_SUCCESS;
    for (uint64_t i = 0; i < bytes && result == CUDA_SUCCESS; i += EBB_CUDA_UNIT_BYTES)
        result = map((struct native *)backing, first + i);
    if (result == CUDA_SUCCESS)
        result = backing->driver->cuMemSetAccess(first, bytes, &access, 1);
    if (result != CUDA_SUCCESS)
        native_drop(backing, first, bytes, lane);
    return result;
}

static void native_release(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes)
{
    struct native *native = (struct native *)backing;
    native_drop(backing, first, bytes, NULL);
    backing->driver->cuMemAddressFree(first, bytes);
    for (uint32_t i = 0; i < atomic_load(&native->region_count); i++) {
        struct native_region *region = &native->regions[i];
        if (region->handles && region->first == first) {
            ebb__cuda_unreserve(region->handles, handles_bytes(bytes));
            region->handles = NULL;
        }
    }
}

static CUresult native_forget(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                              CUstream lane)
{
    (void)backing;
    (void)first;
    (void)bytes;
    (void)lane;
    return CUDA_SUCCESS;
}

static void native_destroy(struct ebb_cuda_backing *backing)
{
    ebb__cuda_unreserve(backing, sizeof(struct native));
}

static const struct ebb_cuda_backing_ops native_ops = {
    .name = "native",
    .reserve = native_reserve,
    .release = native_release,
    .populate = native_populate,
    .drop = native_drop,
    .forget = native_forget,
    .destroy = native_destroy,
};

enum ebb_status ebb__native_create(const struct ebb_cuda_config *config,
                                   struct ebb_cuda_backing **backing, struct ebb_error *error)
{
    const struct ebb_cuda_driver *driver = config->driver;
    int can = 0;
    if (!driver->cuMemAddressReserve || !driver->cuMemAddressFree || !driver->cuMemCreate ||
        !driver->cuMemMap || !driver->cuMemUnmap || !driver->cuMemRelease ||
        !driver->cuMemSetAccess ||
        driver->cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                     config->device) != CUDA_SUCCESS ||
        !can)
        return ebb__fail(error, EBB_ERR_UNSUPPORTED, "CUDA",
                         "the device has no virtual memory management");
    struct native *native = ebb__cuda_reserve(sizeof *native);
    if (!native)
        return ebb__fail(error, EBB_ERR_MEMORY, "CUDA", "memory is exhausted");
    ebb__backing_init(&native->base, &native_ops, config);
    *backing = &native->base;
    return EBB_OK;
}
