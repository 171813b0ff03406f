/* What the driver knows of an address. */
#include "fake.h"

static CUresult memory_type(const struct range *range)
{
    return (CUresult)(range->kind == RANGE_HOST || range->kind == RANGE_REGISTERED
                          ? CU_MEMORYTYPE_HOST
                          : CU_MEMORYTYPE_DEVICE);
}

/* Bytes of a value, or 0 if the attribute is unknown here. */
static size_t value_of(const struct range *r, CUpointer_attribute attribute, CUdeviceptr address,
                       uint64_t *value)
{
    bool host = r->kind == RANGE_HOST || r->kind == RANGE_REGISTERED;
    bool mapped = r->kind == RANGE_MAPPED;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *value = (uint64_t)(uintptr_t)r->context;
        return 8;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *value = (uint64_t)memory_type(r);
        return 4;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *value = address;
        return 8;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *value = host || r->kind == RANGE_MANAGED ? address : 0;
        return 8;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *value = 0;
        return 4;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *value = r->id;
        return 8;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *value = r->kind == RANGE_MANAGED;
        return 4;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *value = (uint64_t)(unsigned)(r->device);
        return 4;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *value = r->kind == RANGE_PLAIN;
        return 4;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *value = r->address;
        return 8;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *value = r->bytes;
        return 8;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *value = r->kind != RANGE_RESERVED;
        return 4;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *value = mapped ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0;
        return 8;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *value = 0;
        return 4;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *value = mapped && !r->writable ? 0 : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        return 4;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *value = (uint64_t)(uintptr_t)r->pool;
        return 8;
    default:
        return 0;
    }
}

API cuPointerGetAttribute(void *to, CUpointer_attribute attribute, CUdeviceptr address)
{
    TRY(fake_ready());
    struct range range;
    uint64_t value = 0;
    if (!to || !fake_is_known((const void *)(uintptr_t)address, &range) ||
        range.kind == RANGE_RESERVED)
        DONE(CUDA_ERROR_INVALID_VALUE);
    size_t bytes = value_of(&range, attribute, address, &value);
    if (!bytes)
        DONE(CUDA_ERROR_NOT_SUPPORTED);
    memcpy(to, &value, bytes);
    return CUDA_SUCCESS;
}

/* Unlike the single form, unknown pointers are no error: their values are 0. */
API cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **to,
                           CUdeviceptr address)
{
    TRY(fake_ready());
    struct range range = {0};
    bool known = fake_is_known((const void *)(uintptr_t)address, &range);
    for (unsigned i = 0; i < count; i++) {
        uint64_t value = 0;
        size_t bytes = value_of(&range, attributes[i], address, &value);
        if (!bytes)
            DONE(CUDA_ERROR_NOT_SUPPORTED);
        if (!known)
            value = attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? (uint64_t)-2 : 0;
        memcpy(to[i], &value, bytes);
    }
    return CUDA_SUCCESS;
}

API cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    TRY(fake_ready());
    struct range range;
    if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ||
        !fake_is_known((const void *)(uintptr_t)address, &range))
        DONE(CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

API cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    TRY(fake_ready());
    struct range range;
    if (!fake_is_known((const void *)(uintptr_t)address, &range))
        DONE(CUDA_ERROR_NOT_FOUND);
    if (base)
        *base = range.address;
    if (bytes)
        *bytes = range.bytes;
    return CUDA_SUCCESS;
}

/* --- attributes of managed ranges ------------------------------------------------------------- */

static int last_location(const struct range *range, size_t first, size_t last)
{
    int where = CU_DEVICE_INVALID;
    for (size_t i = first; i <= last; i++) {
        const struct page *page = &range->pages[i];
        int here = page->host ? CU_DEVICE_CPU : CU_DEVICE_INVALID;
        for (int d = 0; d < MOST_DEVICES; d++)
            if (page->devices == 1u << d && !page->host)
                here = d;
        if (i > first && here != where)
            return CU_DEVICE_INVALID;
        where = here;
    }
    return where;
}

API cuMemRangeGetAttribute(void *to, size_t bytes, CUmem_range_attribute attribute,
                           CUdeviceptr address, size_t length)
{
    TRY(fake_ready());
    if (!to || bytes < 4 || bytes % 4 || !length)
        DONE(CUDA_ERROR_INVALID_VALUE);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory_lock);
    struct range *range = fake_range_find(address);
    if (range && range->kind == RANGE_MANAGED &&
        length <= range->address + range->bytes - address) {
        size_t first = (size_t)(address - range->address) / fake_set.page_bytes;
        size_t last = (size_t)(address + length - 1 - range->address) / fake_set.page_bytes;
        const struct page *page = &range->pages[first];
        int *values = to;
        result = CUDA_SUCCESS;
        if (attribute == CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY)
            *values = page->read_mostly;
        else if (attribute == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION)
            *values = page->preferred;
        else if (attribute == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION)
            *values = last_location(range, first, last);
        else if (attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY)
            for (size_t i = 0, d = 0; i < bytes / 4; i++, d++) {
                while (d < MOST_DEVICES && !(page->accessed_by >> d & 1))
                    d++;
                values[i] = d < MOST_DEVICES ? (int)d : CU_DEVICE_INVALID;
            }
        else
            result = CUDA_ERROR_NOT_SUPPORTED;
    }
    pthread_mutex_unlock(&memory_lock);
    DONE(result);
}

API cuMemRangeGetAttributes(void **to, size_t *bytes, CUmem_range_attribute *attributes,
                            size_t count, CUdeviceptr address, size_t length)
{
    for (size_t i = 0; i < count; i++)
        TRY(cuMemRangeGetAttribute(to[i], bytes[i], attributes[i], address, length));
    return CUDA_SUCCESS;
}
