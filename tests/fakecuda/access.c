/* Every access of a kernel, copy or fill to memory. It is checked at the moment it happens: the
 * address must be mapped, alive, and open to the device. A bad one makes the context fail.
 */
#include "fake.h"
#include <stdlib.h>

static bool is_open(const struct range *range, CUcontext context, int mode)
{
    int device = context->device;
    bool writes = mode & (FAKECUDA_WRITE | MODE_ATOMIC);
    switch (range->kind) {
    case RANGE_RESERVED:
        return false;
    case RANGE_POOL:
        return range->live && (range->device == device || range->readable >> device & 1);
    case RANGE_MAPPED:
        return (writes ? range->writable : range->readable) >> device & 1;
    case RANGE_PLAIN:
    case RANGE_IMPORTED:
        return range->device == device || context->peers[range->device] || mode & MODE_COPY;
    default:
        return true;
    }
}

/* Says why, and fails the context. memory_lock is not held. */
static void *refuse(CUcontext context, CUdeviceptr address, size_t bytes, int mode, const char *who,
                    const char *why)
{
    fake_violation("illegal-address", "%s %s %zu bytes at %#llx: %s", who,
                   mode & FAKECUDA_WRITE ? "writes" : "reads", bytes, address, why);
    fake_context_fail(context, CUDA_ERROR_ILLEGAL_ADDRESS);
    return NULL;
}

static const char *why_closed(const struct range *range)
{
    if (range->kind == RANGE_RESERVED)
        return "the address is reserved, but nothing is mapped there";
    if (range->kind == RANGE_MAPPED)
        return "the mapping is not open to this device (cuMemSetAccess)";
    if (range->kind == RANGE_POOL && !range->live)
        return "the pool's block is not allocated at this point of the stream";
    return "memory of another device, without peer access";
}

/* An access may cross into an adjacent mapping, and into nothing else. */
static const char *check(struct range *range, CUcontext context, CUdeviceptr address, size_t bytes,
                         int mode)
{
    if (!range)
        return fake_range_history(address);
    if (!is_open(range, context, mode))
        return why_closed(range);
    CUdeviceptr end = range->address + range->bytes;
    if (bytes <= end - address)
        return NULL;
    struct range *next = range->kind == RANGE_MAPPED ? fake_range_find(end) : NULL;
    if (!next || next->kind != RANGE_MAPPED)
        return "the end is outside of the allocation";
    return check(next, context, end, bytes - (size_t)(end - address), mode);
}

/* Each part of an access that crosses mappings is remembered with its own mapping. */
static void check_races(struct range *range, struct op *op, struct CUstream_st *stream,
                        CUdeviceptr address, size_t bytes, int mode, const char *who)
{
    while (bytes && range) {
        size_t inside = (size_t)(range->address + range->bytes - address);
        size_t part = bytes < inside ? bytes : inside;
        fake_race_check(range, op, stream, (size_t)(address - range->address), part, mode, who);
        address += part;
        bytes -= part;
        range = bytes ? fake_range_find(address) : NULL;
    }
}

void *fake_access(CUcontext context, struct op *op, struct CUstream_st *stream, CUdeviceptr address,
                  size_t bytes, int mode, const char *who)
{
    fake_count(COUNT_CHECKS, 1);
    pthread_mutex_lock(&memory_lock);
    struct range *range = fake_range_find(address);
    const char *why = check(range, context, address, bytes, mode);
    char *at = NULL;
    if (!why) {
        at = range->alias + (address - range->address);
        if (range->kind == RANGE_MANAGED && bytes)
            fake_managed_touch(range, address, bytes, context->device, mode);
        if (mode & MODE_ATOMIC)
            fake_race_word(op, stream, address, mode);
        if (fake_set.races)
            check_races(range, op, stream, address, bytes, mode, who);
    }
    pthread_mutex_unlock(&memory_lock);
    return why ? refuse(context, address, bytes, mode, who, why) : (void *)at;
}

bool fake_is_known(const void *pointer, struct range *copy)
{
    pthread_mutex_lock(&memory_lock);
    struct range *range = fake_range_find((CUdeviceptr)(uintptr_t)pointer);
    if (range)
        *copy = *range;
    pthread_mutex_unlock(&memory_lock);
    return range != NULL;
}
