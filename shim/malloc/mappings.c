/* Calls of the program that change mappings of its blocks: mprotect, madvise, mlock, mbind, munmap,
 * mremap, mmap over them. Outside of blocks these calls are made unchanged.
 *
 * A block's pages may be absent then, and a mapping that differs from its neighbours cannot be
 * moved. So advice that cannot change a byte is ignored, and advice to discard bytes clears them.
 * Before a call that changes a mapping, the block is fetched and kept resident until it is freed
 * (src/runtime/keep.c). Making accessible memory accessible changes nothing.
 *
 * syscall() with the number of such a call is handled here, too. Calls by the program's own
 * instructions are not seen. Most devices cope with their effects: they move smaller pieces, and
 * keep or copy what cannot be moved. The device without userfaultfd cannot. If such a call makes an
 * absent block readable, it reads as zeros. */
#include "device/host.h"
#include "device/os.h"
#include "guard.h"
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

EXPORT int mprotect(void *address, size_t bytes, int protection);
EXPORT int pkey_mprotect(void *address, size_t bytes, int protection, int key);
EXPORT int madvise(void *address, size_t bytes, int advice);
EXPORT int posix_madvise(void *address, size_t bytes, int advice);
EXPORT int mlock(const void *address, size_t bytes);
EXPORT int mlock2(const void *address, size_t bytes, unsigned flags);
EXPORT int munlock(const void *address, size_t bytes);
EXPORT int mlockall(int flags);
EXPORT long mbind(void *address, unsigned long bytes, int mode, const unsigned long *nodes,
                  unsigned long most_node, unsigned flags);
EXPORT int munmap(void *address, size_t bytes);
EXPORT void *mremap(void *address, size_t bytes, size_t new_bytes, int flags, ...);
EXPORT void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t at);
EXPORT void *mmap64(void *address, size_t bytes, int protection, int flags, int file, off64_t at);
EXPORT void *shmat(int id, const void *address, int flags);
EXPORT int shmdt(const void *address);

static _Atomic uintptr_t arena_first, arena_last;

void ebb__shim_know_arena(struct ebb_device_range arena)
{
    atomic_store(&arena_first, arena.base);
    atomic_store(&arena_last, arena.base + arena.bytes);
}

/* Returns the runtime if [address, + bytes) overlaps its blocks' addresses. NULL: the shim does not
 * handle the call. */
static struct ebb_runtime *runtime_for(const void *address, size_t bytes)
{
    uintptr_t first = (uintptr_t)address, last = atomic_load(&arena_last);
    if (first >= last || bytes > UINTPTR_MAX - first || first + bytes <= atomic_load(&arena_first))
        return NULL;
    return ebb__shim_runtime_now();
}

static bool is_in_arena(const void *address, size_t bytes)
{
    uintptr_t base = atomic_load(&arena_first), all = atomic_load(&arena_last) - base;
    uintptr_t at = (uintptr_t)address - base;
    return at < all && bytes <= all - at && ebb__shim_runtime_now();
}

/* Makes unmapped parts of the arena inaccessible. Otherwise a later mmap() without an address could
 * map memory there, which would be mistaken for blocks. */
static void close_holes(const void *address, size_t bytes)
{
    uintptr_t first = (uintptr_t)address, last = first + bytes;
    uintptr_t from = atomic_load(&arena_first), to = atomic_load(&arena_last);
    if (!runtime_for(address, bytes))
        return;
    int saved = errno;
    ebb__host_close_holes(NULL, first > from ? first : from,
                          (last < to ? last : to) - (first > from ? first : from));
    errno = saved;
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + EBB_PAGE_BYTES - 1) & ~(size_t)(EBB_PAGE_BYTES - 1);
}

static bool is_aligned(const void *address)
{
    return (uintptr_t)address % EBB_PAGE_BYTES == 0;
}

/* Keeps the blocks there resident until they are freed, since the program may change their
 * mapping. */
static void keep(const void *address, size_t bytes)
{
    struct ebb_runtime *runtime = runtime_for(address, bytes);
    if (!runtime)
        return;
    int saved = errno;
    struct ebb_guard guard;
    ebb__guard_enter(&guard);
    ebb__runtime_keep(runtime, address, whole_pages(bytes));
    ebb__guard_leave(&guard);
    errno = saved;
}

static bool is_kept(struct ebb_runtime *runtime, const void *address, size_t bytes)
{
    struct ebb_guard guard;
    ebb__guard_enter(&guard);
    bool kept = ebb__runtime_is_kept(runtime, address, whole_pages(bytes));
    ebb__guard_leave(&guard);
    return kept;
}

int pkey_mprotect(void *address, size_t bytes, int protection, int key)
{
    keep(address, bytes);
    int (*next)(void *, size_t, int, int);
    EBB_BEHIND(next, pkey_mprotect);
    return next(address, bytes, protection, key);
}

int mprotect(void *address, size_t bytes, int protection)
{
    struct ebb_runtime *runtime = runtime_for(address, bytes);
    if (runtime && is_aligned(address)) {
        if (protection == (PROT_READ | PROT_WRITE) && !is_kept(runtime, address, bytes))
            return 0;
        keep(address, bytes);
    }
    int (*next)(void *, size_t, int);
    EBB_BEHIND(next, mprotect);
    return next(address, bytes, protection);
}

enum meaning {
    MEANS_NOTHING, /* the bytes do not change */
    MEANS_TOUCH,   /* the pages must be resident */
    MEANS_CLEAR,   /* the bytes become zero */
    MEANS_UNDO,    /* reverts a change that only a kept block can have */
    MEANS_CHANGE,  /* the mapping changes */
};

static enum meaning meaning_of(int advice)
{
    switch (advice) {
    case MADV_NORMAL:
    case MADV_RANDOM:
    case MADV_SEQUENTIAL:
    case MADV_WILLNEED:
    case MADV_FREE: /* the bytes may stay unchanged */
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
    case MADV_COLLAPSE:
    case MADV_COLD:
    case MADV_PAGEOUT:
    case MADV_MERGEABLE:
    case MADV_UNMERGEABLE:
    case MADV_DONTDUMP: /* no block is in a core dump anyway */
    case MADV_DODUMP:
        return MEANS_NOTHING;
    case MADV_POPULATE_READ:
    case MADV_POPULATE_WRITE:
        return MEANS_TOUCH;
    case MADV_DONTNEED:
    case MADV_DONTNEED_LOCKED:
        return MEANS_CLEAR;
    case MADV_DOFORK:
    case MADV_KEEPONFORK:
        return MEANS_UNDO;
    default:
        return MEANS_CHANGE;
    }
}

static void touch(const char *address, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += EBB_PAGE_BYTES)
        (void)*(volatile const char *)(address + at);
}

int madvise(void *address, size_t bytes, int advice)
{
    int (*next)(void *, size_t, int);
    EBB_BEHIND(next, madvise);
    struct ebb_runtime *runtime = runtime_for(address, bytes);
    if (!runtime || !is_aligned(address))
        return next(address, bytes, advice);
    enum meaning meaning = meaning_of(advice);
    bytes = whole_pages(bytes);
    /* A kept block has the kernel's own semantics, whatever the program has changed in it. */
    if (meaning != MEANS_CHANGE && !is_kept(runtime, address, bytes)) {
        if (meaning == MEANS_CLEAR)
            memset(address, 0, bytes);
        else if (meaning == MEANS_TOUCH)
            touch(address, bytes);
        return 0;
    }
    if (meaning == MEANS_NOTHING)
        return 0;
    keep(address, bytes);
    return next(address, bytes, advice);
}

int posix_madvise(void *address, size_t bytes, int advice)
{
    int saved = errno;
    /* POSIX_MADV_DONTNEED must not lose a byte. The other values are those of madvise(). */
    int why = advice == POSIX_MADV_DONTNEED ? 0 : madvise(address, bytes, advice) ? errno : 0;
    errno = saved;
    return why;
}

int mlock(const void *address, size_t bytes)
{
    keep(address, bytes);
    int (*next)(const void *, size_t);
    EBB_BEHIND(next, mlock);
    return next(address, bytes);
}

int mlock2(const void *address, size_t bytes, unsigned flags)
{
    keep(address, bytes);
    int (*next)(const void *, size_t, unsigned);
    EBB_BEHIND(next, mlock2);
    return next(address, bytes, flags);
}

int munlock(const void *address, size_t bytes)
{
    struct ebb_runtime *runtime = runtime_for(address, bytes);
    if (runtime && !is_kept(runtime, address, bytes))
        return 0;
    int (*next)(const void *, size_t);
    EBB_BEHIND(next, munlock);
    return next(address, bytes);
}

/* Reads the next line of a list of mappings, byte by byte from `buffer`. Returns false after the
 * last line. */
struct lines {
    int file;
    size_t used, at;
    char buffer[4096];
};

static bool next_range(struct lines *lines, uintptr_t *first, uintptr_t *last)
{
    char line[64];
    size_t length = 0;
    for (;;) {
        if (lines->at == lines->used) {
            ssize_t got = ebb__os_read(lines->file, lines->buffer, sizeof lines->buffer);
            if (got <= 0)
                return false;
            lines->used = (size_t)got;
            lines->at = 0;
        }
        char next = lines->buffer[lines->at++];
        if (next == '\n')
            break;
        if (length + 1 < sizeof line)
            line[length++] = next;
    }
    line[length] = 0;
    char *dash;
    *first = strtoul(line, &dash, 16);
    *last = *dash == '-' ? strtoul(dash + 1, NULL, 16) : 0;
    return true;
}

/* Locks all current mappings except the runtime's own ranges, which are far larger than memory. */
static int lock_mappings(unsigned flags)
{
    struct lines lines = {.file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC)};
    if (lines.file < 0)
        return -1;
    uintptr_t first, last, ours_first, ours_last;
    ebb__host_reserved(&ours_first, &ours_last);
    int result = 0;
    while (result == 0 && next_range(&lines, &first, &last)) {
        if ((first >= ours_first && last <= ours_last) || last <= first)
            continue;
        /* ENOMEM may also mean that the line is outdated, or a mapping of the kernel's own. */
        if (ebb__os_call(SYS_mlock2, first, last - first, flags, 0, 0, 0) != 0 && errno == EPERM)
            result = -1;
    }
    close(lines.file);
    return result;
}

int mlockall(int flags)
{
    int (*next)(int), result = 0;
    EBB_BEHIND(next, mlockall);
    if (flags & ~(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) || !(flags & (MCL_CURRENT | MCL_FUTURE)))
        return next(flags); /* which refuses it */
    if (flags & MCL_CURRENT)
        result = ebb__shim_runtime_now() ? lock_mappings(flags & MCL_ONFAULT ? MLOCK_ONFAULT : 0)
                                         : next(flags & ~MCL_FUTURE);
    /* Later mappings are locked when touched: the runtime's ranges are mostly empty. */
    return result == 0 && flags & MCL_FUTURE ? next(MCL_FUTURE | MCL_ONFAULT) : result;
}

long mbind(void *address, unsigned long bytes, int mode, const unsigned long *nodes,
           unsigned long most_node, unsigned flags)
{
    keep(address, bytes);
    return syscall(SYS_mbind, address, bytes, mode, nodes, most_node, flags);
}

int munmap(void *address, size_t bytes)
{
    keep(address, bytes);
    if (bytes > 0 && is_aligned(address) && is_in_arena(address, whole_pages(bytes)))
        return ebb__os_map_anew((uintptr_t)address, whole_pages(bytes), PROT_NONE) ? 0 : -1;
    int (*next)(void *, size_t);
    EBB_BEHIND(next, munmap);
    int result = next(address, bytes);
    close_holes(address, whole_pages(bytes));
    return result;
}

void *mremap(void *address, size_t bytes, size_t new_bytes, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    void *target = flags & MREMAP_FIXED ? va_arg(arguments, void *) : NULL;
    va_end(arguments);
    keep(address, bytes);
    if (target)
        keep(target, new_bytes);
    void *(*next)(void *, size_t, size_t, int, void *);
    EBB_BEHIND(next, mremap);
    void *moved = next(address, bytes, new_bytes, flags, target);
    close_holes(address, whole_pages(bytes));
    return moved;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t at)
{
    if (flags & MAP_FIXED)
        keep(address, bytes);
    void *(*next)(void *, size_t, int, int, int, off_t);
    EBB_BEHIND(next, mmap);
    return next ? next(address, bytes, protection, flags, file, at)
                : (void *)syscall(SYS_mmap, address, bytes, protection, flags, file, at);
}

void *mmap64(void *address, size_t bytes, int protection, int flags, int file, off64_t at)
{
    return mmap(address, bytes, protection, flags, file, at);
}

void *shmat(int id, const void *address, int flags)
{
    struct shmid_ds segment;
    if (flags & SHM_REMAP && runtime_for(address, 1) && shmctl(id, IPC_STAT, &segment) == 0)
        keep(address, segment.shm_segsz);
    void *(*next)(int, const void *, int);
    EBB_BEHIND(next, shmat);
    return next(id, address, flags);
}

int shmdt(const void *address)
{
    int (*next)(const void *);
    EBB_BEHIND(next, shmdt);
    int result = next(address);
    if (runtime_for(address, 1))
        close_holes(address, atomic_load(&arena_last) - (uintptr_t)address);
    return result;
}

/* Dispatches a system call by its number to the function that replaces it. */
bool ebb__shim_maps(long number, const long a[6], long *result)
{
    switch (number) {
    case SYS_mprotect:
        *result = mprotect((void *)a[0], (size_t)a[1], (int)a[2]);
        return true;
    case SYS_pkey_mprotect:
        *result = pkey_mprotect((void *)a[0], (size_t)a[1], (int)a[2], (int)a[3]);
        return true;
    case SYS_madvise:
        *result = madvise((void *)a[0], (size_t)a[1], (int)a[2]);
        return true;
    case SYS_mlock:
        *result = mlock((const void *)a[0], (size_t)a[1]);
        return true;
    case SYS_mlock2:
        *result = mlock2((const void *)a[0], (size_t)a[1], (unsigned)a[2]);
        return true;
    case SYS_munlock:
        *result = munlock((const void *)a[0], (size_t)a[1]);
        return true;
    case SYS_mlockall:
        *result = mlockall((int)a[0]);
        return true;
    case SYS_munmap:
        *result = munmap((void *)a[0], (size_t)a[1]);
        return true;
    case SYS_mremap:
        *result = (long)mremap((void *)a[0], (size_t)a[1], (size_t)a[2], (int)a[3], (void *)a[4]);
        return true;
#ifdef SYS_shmat
    case SYS_shmat:
        *result = (long)shmat((int)a[0], (const void *)a[1], (int)a[2]);
        return true;
    case SYS_shmdt:
        *result = shmdt((const void *)a[0]);
        return true;
#endif
    case SYS_mbind:
        keep((void *)a[0], (size_t)a[1]);
        return false;
#ifdef SYS_mmap
    case SYS_mmap:
        if ((int)a[3] & MAP_FIXED)
            keep((void *)a[0], (size_t)a[1]);
        return false;
#endif
    default:
        return false;
    }
}
