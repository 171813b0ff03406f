/* Functions that the shim replaces, found by dlsym(RTLD_NEXT): the next allocator and other libc
 * functions. The next allocator is libc's or a preloaded one, and must free its own pointers. dlsym
 * may allocate, so a small bump allocator serves it. */
#include "shim.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#define BOOTSTRAP_BYTES ((size_t)256 << 10)

static _Alignas(4096) unsigned char bootstrap[BOOTSTRAP_BYTES];
static _Atomic size_t bootstrap_used;

static struct ebb_next next;
static _Atomic int state; /* 0: not looked up, 1: being looked up, 2: known */

void *ebb__shim_bootstrap_alloc(size_t bytes, size_t alignment)
{
    if (alignment < 16)
        alignment = 16;
    if (bytes > BOOTSTRAP_BYTES || alignment > 4096)
        return NULL;
    size_t used = atomic_load(&bootstrap_used), start;
    do {
        start = (used + alignment - 1) & ~(alignment - 1);
        if (bytes > BOOTSTRAP_BYTES - start)
            return NULL;
    } while (!atomic_compare_exchange_weak(&bootstrap_used, &used, start + bytes));
    return bootstrap + start;
}

bool ebb__shim_bootstrap_owns(const void *pointer)
{
    return (uintptr_t)pointer - (uintptr_t)bootstrap < BOOTSTRAP_BYTES;
}

void ebb__shim_spare_next(bool on)
{
    atomic_store_explicit(&state, on ? 1 : 2, memory_order_release);
}

#define LOOK_UP(member, name)                                                                      \
    do {                                                                                           \
        void *symbol = dlsym(RTLD_NEXT, name);                                                     \
        memcpy(&next.member, &symbol, sizeof symbol);                                              \
    } while (0)

const struct ebb_next *ebb__shim_next(void)
{
    if (__builtin_expect(atomic_load_explicit(&state, memory_order_acquire) == 2, 1))
        return &next;
    int expected = 0;
    if (!atomic_compare_exchange_strong(&state, &expected, 1))
        return expected == 2 ? &next : NULL;
    LOOK_UP(malloc, "malloc");
    LOOK_UP(free, "free");
    LOOK_UP(calloc, "calloc");
    LOOK_UP(realloc, "realloc");
    LOOK_UP(memalign, "memalign");
    LOOK_UP(posix_memalign, "posix_memalign");
    LOOK_UP(aligned_alloc, "aligned_alloc");
    LOOK_UP(malloc_usable_size, "malloc_usable_size");
    atomic_store_explicit(&state, 2, memory_order_release);
    return &next;
}

/* Bounds of the section that holds the variables of EBB_BEHIND(). */
extern struct ebb_behind first_behind[] __asm__("__start_ebb_behind")
    __attribute__((visibility("hidden")));
extern struct ebb_behind last_behind[] __asm__("__stop_ebb_behind")
    __attribute__((visibility("hidden")));

void *ebb__shim_behind(struct ebb_behind *behind)
{
    void *function = atomic_load_explicit(&behind->function, memory_order_acquire);
    if (__builtin_expect(!function, 0)) {
        function = dlsym(RTLD_NEXT, behind->name);
        atomic_store_explicit(&behind->function, function, memory_order_release);
    }
    return function;
}

void ebb__shim_look_up_behind(void)
{
    for (struct ebb_behind *behind = first_behind; behind < last_behind; behind++)
        ebb__shim_behind(behind);
    dlerror(); /* hides errors for functions that an older libc lacks */
}
