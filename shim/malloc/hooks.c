/* The allocation functions of the program.
 *
 * A request of at least the threshold becomes a managed block, unless the loader makes it. A
 * smaller request, down to a least size, becomes an object in a slab, unless libc makes it. The
 * next allocator serves all others, and those that the runtime cannot serve. Pointers of any
 * allocator may arrive here. On success errno is unchanged. All calls of the runtime are under a
 * guard (guard.h). */
#include "guard.h"
#include "shim.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* Prototypes that libc declares elsewhere or with its own attributes. */
EXPORT void *malloc(size_t bytes);
EXPORT void free(void *pointer);
EXPORT void *calloc(size_t count, size_t bytes);
EXPORT void *realloc(void *pointer, size_t bytes);
EXPORT void *reallocarray(void *pointer, size_t count, size_t bytes);
EXPORT int posix_memalign(void **pointer, size_t alignment, size_t bytes);
EXPORT void *aligned_alloc(size_t alignment, size_t bytes);
EXPORT void *memalign(size_t alignment, size_t bytes);
EXPORT void *valloc(size_t bytes);
EXPORT void *pvalloc(size_t bytes);
EXPORT size_t malloc_usable_size(void *pointer);

static inline bool is_power_of_two(size_t number)
{
    return number && (number & (number - 1)) == 0;
}

static __attribute__((noinline)) void *block_alloc(size_t bytes, size_t alignment)
{
    struct ebb_runtime *runtime = ebb__shim_runtime();
    if (!runtime)
        return NULL;
    struct ebb_guard guard;
    ebb__guard_enter(&guard);
    void *pointer = ebb__runtime_alloc(runtime, bytes, alignment, false);
    ebb__guard_leave(&guard);
    return pointer;
}

/* Allocates an object that may need a new slab from the runtime. */
static __attribute__((noinline)) void *slab_alloc(struct ebb_slabs *slabs, size_t bytes,
                                                  size_t alignment)
{
    struct ebb_guard guard;
    ebb__guard_enter(&guard);
    void *pointer = ebb__slabs_alloc(slabs, bytes, alignment);
    ebb__guard_leave(&guard);
    return pointer;
}

static __attribute__((noinline)) void block_free(struct ebb_runtime *runtime, void *pointer)
{
    struct ebb_guard guard;
    ebb__guard_enter(&guard);
    ebb__runtime_free(runtime, pointer);
    ebb__guard_leave(&guard);
}

static __attribute__((noinline)) void slab_give(uintptr_t slab)
{
    struct ebb_guard guard;
    ebb__guard_enter(&guard);
    ebb__runtime_give_slab(ebb__shim_runtime_now(), slab);
    ebb__guard_leave(&guard);
}

static size_t block_bytes(struct ebb_runtime *runtime, const void *pointer)
{
    struct ebb_guard guard;
    ebb__guard_enter(&guard);
    size_t bytes = ebb__runtime_usable_bytes(runtime, pointer);
    ebb__guard_leave(&guard);
    return bytes;
}

/* Allocates a managed block or an object in a slab. Returns NULL if the next allocator must serve
 * the request. Keeps errno. */
static inline __attribute__((always_inline)) void *managed_alloc(size_t bytes, size_t alignment,
                                                                 bool zeroed)
{
    /* No object is larger than PTRDIFF_MAX. The next allocator rejects it and sets errno. */
    if (bytes < EBB_SMALL_LEAST_BYTES || bytes > PTRDIFF_MAX)
        return NULL;
    if (bytes >= ebb__shim_threshold && (ebb__shim_is_of_loader(__builtin_return_address(0)) ||
                                         ebb__shim_is_buffer_of_libc(__builtin_return_address(0))))
        return NULL;
    int saved = errno;
    void *pointer = NULL;
    if (bytes < ebb__shim_threshold) {
        struct ebb_slabs *slabs = ebb__shim_serving_slabs();
        if (slabs && bytes <= EBB_SMALL_MOST_BYTES &&
            !ebb__shim_is_of_libc(__builtin_return_address(0))) {
            pointer = ebb__slabs_alloc_there(slabs, bytes, alignment);
            if (!pointer)
                pointer = slab_alloc(slabs, bytes, alignment);
        }
    } else {
        pointer = block_alloc(bytes, alignment);
    }
    if (pointer && zeroed)
        memset(pointer, 0, bytes);
    errno = saved;
    return pointer;
}

/* Returns the runtime whose arena contains `pointer`, or NULL. */
static inline struct ebb_runtime *owner(const void *pointer)
{
    struct ebb_runtime *runtime = ebb__shim_runtime_now();
    return runtime && ebb__runtime_owns(runtime, pointer) ? runtime : NULL;
}

/* Returns the slabs that contain `pointer`, or NULL. */
static inline struct ebb_slabs *slabs_of(const void *pointer)
{
    struct ebb_slabs *slabs = ebb__shim_slabs();
    return slabs && ebb__slabs_own(slabs, pointer) ? slabs : NULL;
}

void *malloc(size_t bytes)
{
    void *pointer = managed_alloc(bytes, 1, false);
    if (pointer)
        return pointer;
    const struct ebb_next *next = ebb__shim_next();
    return next ? next->malloc(bytes) : ebb__shim_bootstrap_alloc(bytes, 16);
}

void free(void *pointer)
{
    struct ebb_runtime *runtime = owner(pointer);
    if (runtime) {
        int saved = errno;
        block_free(runtime, pointer);
        errno = saved;
        return;
    }
    struct ebb_slabs *slabs = slabs_of(pointer);
    if (slabs) {
        int saved = errno;
        uintptr_t slab = 0;
        ebb__slabs_free_there(slabs, pointer, &slab);
        if (slab)
            slab_give(slab);
        errno = saved;
        return;
    }
    if (!pointer || ebb__shim_bootstrap_owns(pointer))
        return;
    const struct ebb_next *next = ebb__shim_next();
    if (next)
        next->free(pointer);
}

void *calloc(size_t count, size_t bytes)
{
    size_t all;
    if (__builtin_mul_overflow(count, bytes, &all)) {
        errno = ENOMEM;
        return NULL;
    }
    void *pointer = managed_alloc(all, 1, true);
    if (pointer)
        return pointer;
    const struct ebb_next *next = ebb__shim_next();
    return next ? next->calloc(count, bytes) : ebb__shim_bootstrap_alloc(all, 16);
}

static size_t usable_bytes(void *pointer)
{
    struct ebb_runtime *runtime = owner(pointer);
    if (runtime)
        return block_bytes(runtime, pointer);
    struct ebb_slabs *slabs = slabs_of(pointer);
    if (slabs)
        return ebb__slabs_usable_bytes(slabs, pointer);
    const struct ebb_next *next = ebb__shim_next();
    return next && next->malloc_usable_size ? next->malloc_usable_size(pointer) : 0;
}

static void *move_to(void *pointer, size_t had, size_t bytes)
{
    void *moved = malloc(bytes);
    if (!moved)
        return NULL;
    memcpy(moved, pointer, had < bytes ? had : bytes);
    free(pointer);
    return moved;
}

void *realloc(void *pointer, size_t bytes)
{
    if (!pointer)
        return malloc(bytes);
    if (ebb__shim_bootstrap_owns(pointer)) {
        /* The old size is unknown, but the bytes after the object in the buffer are readable. */
        void *moved = malloc(bytes);
        if (moved)
            memcpy(moved, pointer, bytes < 4096 ? bytes : 4096);
        return moved;
    }
    bool in_slab = slabs_of(pointer) != NULL;
    if (in_slab || owner(pointer)) {
        if (bytes == 0) {
            free(pointer);
            return NULL;
        }
        size_t had = usable_bytes(pointer);
        if (in_slab && bytes <= had && bytes > had / 2)
            return pointer;
        return move_to(pointer, had, bytes);
    }
    const struct ebb_next *next = ebb__shim_next();
    if (next->malloc_usable_size) {
        void *moved = managed_alloc(bytes, 1, false);
        if (moved) {
            size_t had = next->malloc_usable_size(pointer);
            memcpy(moved, pointer, had < bytes ? had : bytes);
            next->free(pointer);
            return moved;
        }
    }
    return next->realloc(pointer, bytes);
}

void *reallocarray(void *pointer, size_t count, size_t bytes)
{
    size_t all;
    if (__builtin_mul_overflow(count, bytes, &all)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(pointer, all);
}

int posix_memalign(void **pointer, size_t alignment, size_t bytes)
{
    if (!is_power_of_two(alignment) || alignment % sizeof(void *))
        return EINVAL;
    void *managed = managed_alloc(bytes, alignment, false);
    if (managed) {
        *pointer = managed;
        return 0;
    }
    const struct ebb_next *next = ebb__shim_next();
    if (next)
        return next->posix_memalign(pointer, alignment, bytes);
    *pointer = ebb__shim_bootstrap_alloc(bytes, alignment);
    return *pointer ? 0 : ENOMEM;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    void *managed = is_power_of_two(alignment) ? managed_alloc(bytes, alignment, false) : NULL;
    if (managed)
        return managed;
    const struct ebb_next *next = ebb__shim_next();
    return next ? next->aligned_alloc(alignment, bytes)
                : ebb__shim_bootstrap_alloc(bytes, alignment);
}

void *memalign(size_t alignment, size_t bytes)
{
    void *managed = is_power_of_two(alignment) ? managed_alloc(bytes, alignment, false) : NULL;
    if (managed)
        return managed;
    const struct ebb_next *next = ebb__shim_next();
    return next ? next->memalign(alignment, bytes) : ebb__shim_bootstrap_alloc(bytes, alignment);
}

void *valloc(size_t bytes)
{
    return memalign(EBB_PAGE_BYTES, bytes);
}

void *pvalloc(size_t bytes)
{
    size_t rounded = (bytes + EBB_PAGE_BYTES - 1) & ~(size_t)(EBB_PAGE_BYTES - 1);
    if (rounded < bytes) {
        errno = ENOMEM;
        return NULL;
    }
    return memalign(EBB_PAGE_BYTES, rounded);
}

size_t malloc_usable_size(void *pointer)
{
    return pointer && !ebb__shim_bootstrap_owns(pointer) ? usable_bytes(pointer) : 0;
}
