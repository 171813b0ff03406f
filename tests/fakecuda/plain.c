/* Plain device memory and pinned host memory.
 *
 * cuMemFree waits for the device, as the real one does. Freed bytes are dropped, and their address
 * is closed: a later access is found.
 */
#include "fake.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

/* New memory holds anything. */
enum { POISON = 0xA5, POISON_BYTES = 1 << 20 };

size_t fake_pinned_bytes, fake_most_pinned_bytes; /* under memory_lock */

static CUresult allocate(CUdeviceptr *address, size_t bytes)
{
    CUcontext context;
    TRY(fake_usable(&context));
    TRY(fake_capture_unsafe());
    if (!address || !bytes)
        DONE(CUDA_ERROR_INVALID_VALUE);
    if (fake_fault(FAULT_ALLOC))
        DONE(CUDA_ERROR_OUT_OF_MEMORY);
    size_t held = (bytes + 511) / 512 * 512;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&memory_lock);
    CUdeviceptr at =
        held >= bytes && fake_bytes_fit(context->device, held) ? fake_arena_take(held, 4096) : 0;
    struct range *range = at ? fake_range_add(at, bytes, RANGE_PLAIN) : NULL;
    if (range) {
        range->device = context->device;
        range->context = context;
        range->held_bytes = held;
        memset(range->alias, POISON, bytes < POISON_BYTES ? bytes : POISON_BYTES);
        fake_bytes_add(context->device, BYTES_PLAIN, (long long)held, "an allocation");
        *address = at;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&memory_lock);
    DONE(result);
}

API cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    return allocate(address, bytes);
}

API cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                       unsigned element)
{
    if (!pitch || (element != 4 && element != 8 && element != 16))
        DONE(CUDA_ERROR_INVALID_VALUE);
    *pitch = (width + 511) / 512 * 512;
    return allocate(address, *pitch * height);
}

/* memory_lock is held. Ranges that only their own calls may release are refused. */
CUresult fake_free_now(struct range *range)
{
    CUdeviceptr address = range->address;
    size_t bytes = range->bytes;
    switch (range->kind) {
    case RANGE_PLAIN:
        fake_bytes_add(range->device, BYTES_PLAIN, -(long long)range->held_bytes, "a release");
        break;
    case RANGE_MANAGED:
        fake_managed_free(range);
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    fake_range_remove(range);
    fake_arena_give(address, bytes);
    return CUDA_SUCCESS;
}

static bool any_work(CUcontext context)
{
    for (struct CUstream_st *s = atomic_load(&context->streams); s; s = s->next)
        if (!fake_stream_done(s, atomic_load(&s->enqueued)))
            return true;
    return false;
}

API cuMemFree_v2(CUdeviceptr address)
{
    CUcontext context;
    TRY(fake_current(&context));
    if (!address)
        return CUDA_SUCCESS;
    TRY(fake_capture_unsafe());
    pthread_mutex_lock(&memory_lock);
    struct range *range = fake_range_find(address);
    bool whole = range && range->address == address;
    bool pooled = whole && range->kind == RANGE_POOL;
    if (whole)
        context = range->context ? range->context : context;
    pthread_mutex_unlock(&memory_lock);
    if (!whole) {
        fake_violation("bad-free", "cuMemFree(%#llx): %s", address,
                       range ? "inside an allocation" : fake_range_history(address));
        DONE(CUDA_ERROR_INVALID_VALUE);
    }
    if (any_work(context)) {
        fake_count(COUNT_FREES_SYNCING, 1);
        fake_wait_context(context);
    }
    if (pooled) {
        TRY(cuMemFreeAsync(address, NULL));
        return cuStreamSynchronize(NULL);
    }
    pthread_mutex_lock(&memory_lock);
    range = fake_range_find(address);
    CUresult result = range ? fake_free_now(range) : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&memory_lock);
    DONE(result ? result : atomic_load(&context->error));
}

/* --- pinned host memory ----------------------------------------------------------------------- */

bool fake_pinned_take(size_t bytes)
{
    if (fake_set.pinned_bytes && fake_pinned_bytes + bytes > fake_set.pinned_bytes)
        return false;
    fake_pinned_bytes += bytes;
    if (fake_pinned_bytes > fake_most_pinned_bytes)
        fake_most_pinned_bytes = fake_pinned_bytes;
    return true;
}

void fake_pinned_give(size_t bytes)
{
    fake_pinned_bytes -= bytes;
}

static CUresult host_allocate(void **pointer, size_t bytes, unsigned flags)
{
    CUcontext context;
    TRY(fake_usable(&context));
    TRY(fake_capture_unsafe());
    if (!pointer || !bytes || flags > 7)
        DONE(CUDA_ERROR_INVALID_VALUE);
    if (fake_fault(FAULT_HOST))
        DONE(CUDA_ERROR_OUT_OF_MEMORY);
    pthread_mutex_lock(&memory_lock);
    bool fits = fake_pinned_take(bytes);
    void *at = fits ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                    : MAP_FAILED;
    struct range *range =
        at == MAP_FAILED ? NULL : fake_range_add((CUdeviceptr)(uintptr_t)at, bytes, RANGE_HOST);
    if (range) {
        range->flags = flags | CU_MEMHOSTALLOC_DEVICEMAP; /* unified addressing: always mapped */
        range->context = context;
        range->device = context->device;
        *pointer = at;
    } else if (fits) {
        fake_pinned_give(bytes);
    }
    pthread_mutex_unlock(&memory_lock);
    DONE(range ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

API cuMemAllocHost_v2(void **pointer, size_t bytes)
{
    return host_allocate(pointer, bytes, 0);
}

API cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    return host_allocate(pointer, bytes, flags);
}

static struct range *host_range(const void *pointer, enum range_kind kind)
{
    struct range *range = fake_range_find((CUdeviceptr)(uintptr_t)pointer);
    return range && range->kind == kind && range->address == (CUdeviceptr)(uintptr_t)pointer ? range
                                                                                             : NULL;
}

API cuMemFreeHost(void *pointer)
{
    CUcontext context;
    TRY(fake_current(&context));
    if (!pointer)
        DONE(CUDA_ERROR_INVALID_VALUE);
    if (any_work(context))
        fake_wait_context(context);
    pthread_mutex_lock(&memory_lock);
    struct range *range = host_range(pointer, RANGE_HOST);
    if (range) {
        size_t bytes = range->bytes;
        fake_pinned_give(bytes);
        fake_range_remove(range);
        munmap(pointer, bytes);
    }
    pthread_mutex_unlock(&memory_lock);
    DONE(range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

API cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags)
{
    CUcontext context;
    TRY(fake_usable(&context));
    TRY(fake_capture_unsafe());
    if (!pointer || !bytes || flags > 15)
        DONE(CUDA_ERROR_INVALID_VALUE);
    if (fake_fault(FAULT_HOST))
        DONE(CUDA_ERROR_OUT_OF_MEMORY);
    pthread_mutex_lock(&memory_lock);
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
    CUresult result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (!fake_range_find(address) && !fake_range_find(address + bytes - 1)) {
        struct range *range = fake_range_add(address, bytes, RANGE_REGISTERED);
        result = range ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        if (range) {
            range->flags = flags;
            range->context = context;
            range->device = context->device;
        }
    }
    pthread_mutex_unlock(&memory_lock);
    DONE(result);
}

API cuMemHostUnregister(void *pointer)
{
    CUcontext context;
    TRY(fake_current(&context));
    fake_wait_context(context);
    pthread_mutex_lock(&memory_lock);
    struct range *range = host_range(pointer, RANGE_REGISTERED);
    if (range)
        fake_range_remove(range);
    pthread_mutex_unlock(&memory_lock);
    DONE(range ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

API cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *pointer, unsigned flags)
{
    CUcontext context;
    TRY(fake_usable(&context));
    pthread_mutex_lock(&memory_lock);
    struct range *range = fake_range_find((CUdeviceptr)(uintptr_t)pointer);
    bool host = range && (range->kind == RANGE_HOST || range->kind == RANGE_REGISTERED);
    pthread_mutex_unlock(&memory_lock);
    if (!address || flags || !host)
        DONE(CUDA_ERROR_INVALID_VALUE);
    *address = (CUdeviceptr)(uintptr_t)pointer;
    return CUDA_SUCCESS;
}

API cuMemHostGetFlags(unsigned *flags, void *pointer)
{
    CUcontext context;
    TRY(fake_usable(&context));
    pthread_mutex_lock(&memory_lock);
    struct range *range = fake_range_find((CUdeviceptr)(uintptr_t)pointer);
    bool host = range && range->kind == RANGE_HOST;
    if (host)
        *flags = range->flags;
    pthread_mutex_unlock(&memory_lock);
    DONE(host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
