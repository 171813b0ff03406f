/* Virtual memory management: reservations, physical handles, mappings and access rights.
 *
 * A handle owns a piece of the arena's memory file. A mapping names a handle and who may use it. A
 * mapping that the host may use is a second mapping of the file at the reserved address.
 *
 * cuMemUnmap does not wait for kernels: one that runs finds nothing there.
 */
#include "fake.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct handle {
    CUmemAllocationProp properties;
    size_t bytes;
    CUdeviceptr place; /* in the arena, closed to the host */
    int device;        /* or CU_DEVICE_CPU */
    unsigned references, mappings;
};

enum { GRANULE = 2 << 20 };

static void drop(struct handle *handle)
{
    if (handle->references || handle->mappings)
        return;
    if (handle->device != CU_DEVICE_CPU)
        fake_bytes_add(handle->device, BYTES_VMM, -(long long)handle->bytes, "a release");
    else
        fake_pinned_give(handle->bytes);
    fake_arena_give(handle->place, handle->bytes);
    free(handle);
}

API cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
                                  CUmemAllocationGranularity_flags option)
{
    (void)option;
    TRY(fake_ready());
    if (!granularity || !properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        DONE(CUDA_ERROR_INVALID_VALUE);
    *granularity = GRANULE;
    return CUDA_SUCCESS;
}

API cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wish,
                        unsigned long long flags)
{
    TRY(fake_ready());
    (void)wish; /* a wish only */
    if (!address || !bytes || bytes % GRANULE || flags || (alignment & (alignment - 1)))
        DONE(CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&memory_lock);
    CUdeviceptr at = fake_arena_take(bytes, alignment > GRANULE ? alignment : GRANULE);
    if (at)
        fake_range_add(at, bytes, RANGE_RESERVED);
    pthread_mutex_unlock(&memory_lock);
    *address = at;
    DONE(at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

/* The first mapping that touches the bytes, or NULL. */
static struct range *mapping_in(CUdeviceptr address, size_t bytes)
{
    struct range *range;
    for (size_t i = 0; (range = fake_range_at(i)); i++)
        if (range->kind == RANGE_MAPPED && range->address < address + bytes &&
            address < range->address + range->bytes)
            return range;
    return NULL;
}

static struct range *reservation_of(CUdeviceptr address, size_t bytes)
{
    struct range *range;
    for (size_t i = 0; (range = fake_range_at(i)); i++)
        if (range->kind == RANGE_RESERVED && range->address <= address &&
            address + bytes <= range->address + range->bytes)
            return range;
    return NULL;
}

API cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    TRY(fake_ready());
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory_lock);
    struct range *range = reservation_of(address, bytes);
    if (range && range->address == address && range->bytes == bytes &&
        !mapping_in(address, bytes)) {
        fake_range_remove(range);
        fake_arena_give(address, bytes);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&memory_lock);
    DONE(result);
}

static CUresult place_of(const CUmemAllocationProp *properties, int *device)
{
    if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    switch (properties->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        *device = properties->location.id;
        return fake_device_valid(*device);
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        *device = CU_DEVICE_CPU;
        return fake_set.driver_version >= 12020 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

API cuMemCreate(CUmemGenericAllocationHandle *to, size_t bytes,
                const CUmemAllocationProp *properties, unsigned long long flags)
{
    int device;
    TRY(fake_ready());
    TRY(place_of(properties, &device));
    if (!to || !bytes || bytes % GRANULE || flags)
        DONE(CUDA_ERROR_INVALID_VALUE);
    if (fake_fault(FAULT_CREATE))
        DONE(CUDA_ERROR_OUT_OF_MEMORY);
    struct handle *handle = calloc(1, sizeof(*handle));
    if (!handle)
        DONE(CUDA_ERROR_OUT_OF_MEMORY);
    handle->properties = *properties;
    handle->bytes = bytes;
    handle->device = device;
    handle->references = 1;
    pthread_mutex_lock(&memory_lock);
    bool is_host = device == CU_DEVICE_CPU;
    bool fits = is_host ? fake_pinned_take(bytes) : fake_bytes_fit(device, bytes);
    if (fits)
        handle->place = fake_arena_take(bytes, GRANULE);
    if (handle->place && !is_host)
        fake_bytes_add(device, BYTES_VMM, (long long)bytes, "cuMemCreate");
    if (!handle->place && fits && is_host)
        fake_pinned_give(bytes);
    pthread_mutex_unlock(&memory_lock);
    if (!handle->place) {
        free(handle);
        DONE(CUDA_ERROR_OUT_OF_MEMORY);
    }
    fake_count(COUNT_CREATES, 1);
    *to = (CUmemGenericAllocationHandle)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

static struct handle *handle_of(CUmemGenericAllocationHandle handle)
{
    return (struct handle *)(uintptr_t)handle;
}

API cuMemRelease(CUmemGenericAllocationHandle handle)
{
    TRY(fake_ready());
    if (!handle || !handle_of(handle)->references)
        DONE(CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&memory_lock);
    handle_of(handle)->references--;
    drop(handle_of(handle));
    pthread_mutex_unlock(&memory_lock);
    return CUDA_SUCCESS;
}

/* Adjacent mappings are adjacent for the fake itself, too: an access may cross their border. */
static void map_alias(const struct range *range, CUdeviceptr place)
{
    mmap(range->alias, range->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
         fake_arena_descriptor(), (off_t)fake_arena_offset(place));
    madvise(range->alias, range->bytes, MADV_DONTFORK);
}

API cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle to,
             unsigned long long flags)
{
    TRY(fake_ready());
    struct handle *handle = handle_of(to);
    if (!handle || !bytes || flags || offset || address % GRANULE || bytes % GRANULE ||
        bytes > handle->bytes)
        DONE(CUDA_ERROR_INVALID_VALUE);
    if (fake_fault(FAULT_MAP))
        DONE(CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory_lock);
    if (reservation_of(address, bytes) && !mapping_in(address, bytes)) {
        struct range *range = fake_range_add(address, bytes, RANGE_MAPPED);
        range->handle = handle;
        range->device = handle->device;
        range->place = handle->place;
        map_alias(range, handle->place);
        handle->mappings++;
        fake_count(COUNT_MAPS, 1);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&memory_lock);
    DONE(result);
}

static void open_for_host(const struct range *range, bool open)
{
    void *at = (void *)(uintptr_t)range->address;
    CUdeviceptr place = open ? range->handle->place : range->address;
    mmap(at, range->bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE,
         MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fake_arena_descriptor(),
         (off_t)fake_arena_offset(place));
    madvise(at, range->bytes, MADV_DONTFORK);
}

/* The bytes must be whole mappings. */
API cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    TRY(fake_ready());
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory_lock);
    struct range *range;
    while ((range = mapping_in(address, bytes)) && range->address >= address &&
           range->address + range->bytes <= address + bytes) {
        struct handle *handle = range->handle;
        if (range->host_access)
            open_for_host(range, false);
        map_alias(range, range->address);
        fake_range_remove(range);
        handle->mappings--;
        drop(handle);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&memory_lock);
    DONE(range ? CUDA_ERROR_INVALID_VALUE : result);
}

static CUresult set_access(struct range *range, const CUmemAccessDesc *access)
{
    bool reads = access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    bool writes = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (access->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        if (fake_device_valid(access->location.id))
            return CUDA_ERROR_INVALID_DEVICE;
        uint8_t bit = (uint8_t)(1u << access->location.id);
        range->readable = (uint8_t)(reads ? range->readable | bit : range->readable & ~bit);
        range->writable = (uint8_t)(writes ? range->writable | bit : range->writable & ~bit);
        return CUDA_SUCCESS;
    }
    if (range->device != CU_DEVICE_CPU)
        return CUDA_ERROR_NOT_SUPPORTED; /* device memory is not for the host, on PCIe */
    range->host_access = reads;
    open_for_host(range, reads);
    return CUDA_SUCCESS;
}

API cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    TRY(fake_ready());
    if (!access || !count || !bytes)
        DONE(CUDA_ERROR_INVALID_VALUE);
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&memory_lock);
    for (size_t done = 0; !result && done < bytes;) {
        struct range *range = fake_range_find(address + done);
        if (!range || range->kind != RANGE_MAPPED || range->address != address + done ||
            range->bytes > bytes - done) {
            result = CUDA_ERROR_INVALID_VALUE;
            break;
        }
        for (size_t i = 0; !result && i < count; i++)
            result = set_access(range, &access[i]);
        done += range->bytes;
    }
    pthread_mutex_unlock(&memory_lock);
    DONE(result);
}

API cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
    TRY(fake_ready());
    pthread_mutex_lock(&memory_lock);
    struct range *range = fake_range_find(address);
    bool mapped = range && range->kind == RANGE_MAPPED;
    if (mapped && location->type == CU_MEM_LOCATION_TYPE_DEVICE)
        *flags = (unsigned long long)(range->writable >> location->id & 1
                                          ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                      : range->readable >> location->id & 1
                                          ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                          : CU_MEM_ACCESS_FLAGS_PROT_NONE);
    else if (mapped)
        *flags =
            range->host_access ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    pthread_mutex_unlock(&memory_lock);
    DONE(mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

API cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    TRY(fake_ready());
    pthread_mutex_lock(&memory_lock);
    struct range *range = fake_range_find((CUdeviceptr)(uintptr_t)address);
    bool mapped = range && range->kind == RANGE_MAPPED;
    if (mapped) {
        range->handle->references++;
        *handle = (CUmemGenericAllocationHandle)(uintptr_t)range->handle;
    }
    pthread_mutex_unlock(&memory_lock);
    DONE(mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

API cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                           CUmemGenericAllocationHandle handle)
{
    TRY(fake_ready());
    if (!handle || !properties)
        DONE(CUDA_ERROR_INVALID_VALUE);
    *properties = handle_of(handle)->properties;
    return CUDA_SUCCESS;
}

/* A descriptor stands for the handle within this process only. */
API cuMemExportToShareableHandle(void *to, CUmemGenericAllocationHandle handle,
                                 CUmemAllocationHandleType type, unsigned long long flags)
{
    TRY(fake_ready());
    if (!to || !handle || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !(handle_of(handle)->properties.requestedHandleTypes & type))
        DONE(CUDA_ERROR_INVALID_VALUE);
    int pair = memfd_create("fakecuda handle", MFD_CLOEXEC);
    if (pair < 0 || write(pair, &handle, sizeof(handle)) != sizeof(handle))
        DONE(CUDA_ERROR_OPERATING_SYSTEM);
    *(int *)to = pair;
    return CUDA_SUCCESS;
}

API cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *from,
                                   CUmemAllocationHandleType type)
{
    TRY(fake_ready());
    if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        pread((int)(intptr_t)from, handle, sizeof(*handle), 0) != sizeof(*handle))
        DONE(CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&memory_lock);
    handle_of(*handle)->references++;
    pthread_mutex_unlock(&memory_lock);
    return CUDA_SUCCESS;
}
