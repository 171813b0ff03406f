/* Direct system calls for the device's own mappings and descriptors. The shim replaces libc's
 * functions of the same names (mappings.c, descriptors.c) for the program's calls. */
#ifndef EBB_DEVICE_OS_H
#define EBB_DEVICE_OS_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

/* Bypasses libc's syscall(), which the shim also replaces. Sets errno as libc does. */
static inline long ebb__os_call(long number, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d,
                                uintptr_t e, uintptr_t f)
{
#ifdef __x86_64__
    long result;
    register uintptr_t r10 __asm__("r10") = d;
    register uintptr_t r8 __asm__("r8") = e;
    register uintptr_t r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
#elif defined __aarch64__
    register long x8 __asm__("x8") = number;
    register uintptr_t x0 __asm__("x0") = a;
    register uintptr_t x1 __asm__("x1") = b;
    register uintptr_t x2 __asm__("x2") = c;
    register uintptr_t x3 __asm__("x3") = d;
    register uintptr_t x4 __asm__("x4") = e;
    register uintptr_t x5 __asm__("x5") = f;
    __asm__ volatile("svc #0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory", "cc");
    long result = (long)x0;
#else
#error "the instruction for system calls of this processor is not known here"
#endif
    if (result > -4096 && result < 0) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

/* Calls fstat() for one of Ebb's descriptors, which the shim's fstat() hides. */
static inline int ebb__os_status(int descriptor, struct stat *status)
{
    return (int)ebb__os_call(SYS_fstat, (uintptr_t)descriptor, (uintptr_t)status, 0, 0, 0, 0);
}

/* read() into a buffer of Ebb. The shim's read() calls the runtime, whose lock may be held. */
static inline ssize_t ebb__os_read(int descriptor, void *to, size_t bytes)
{
    return (ssize_t)ebb__os_call(SYS_read, (uintptr_t)descriptor, (uintptr_t)to, bytes, 0, 0, 0);
}

static inline ssize_t ebb__os_read_at(int descriptor, void *to, size_t bytes, uint64_t at)
{
    return (ssize_t)ebb__os_call(SYS_pread64, (uintptr_t)descriptor, (uintptr_t)to, bytes, at, 0,
                                 0);
}

static inline int ebb__os_advise(uintptr_t address, uint64_t bytes, int advice)
{
    return (int)ebb__os_call(SYS_madvise, address, bytes, (uintptr_t)advice, 0, 0, 0);
}

static inline int ebb__os_protect(uintptr_t address, uint64_t bytes, int protection)
{
    return (int)ebb__os_call(SYS_mprotect, address, bytes, (uintptr_t)protection, 0, 0, 0);
}

/* Maps new private memory at `address` in place of whatever is there. Like all memory of the
 * device, it is in no core dump. */
static inline bool ebb__os_map_anew(uintptr_t address, uint64_t bytes, int protection)
{
    if (ebb__os_call(SYS_mmap, address, bytes, (uintptr_t)protection,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, (uintptr_t)-1,
                     0) == -1)
        return false;
    ebb__os_advise(address, bytes, MADV_DONTDUMP);
    return true;
}

/* False if any part of [address, + bytes) is unmapped. */
static inline bool ebb__os_is_mapped(uintptr_t address, uint64_t bytes)
{
    return ebb__os_call(SYS_msync, address, bytes, MS_ASYNC, 0, 0, 0) == 0;
}

/* Maps [address, + bytes), which must be unmapped, without access and without memory. Returns false
 * if anything is mapped there. */
static inline bool ebb__os_map_in_hole(uintptr_t address, uint64_t bytes)
{
    return ebb__os_call(SYS_mmap, address, bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE,
                        (uintptr_t)-1, 0) != -1;
}

/* Moves pages, and keeps an empty mapping at the source. */
static inline bool ebb__os_remap(uintptr_t target, uintptr_t source, uint64_t bytes)
{
    return ebb__os_call(SYS_mremap, source, bytes, bytes,
                        MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, target, 0) != -1;
}

/* True if [address, + bytes) is in more than one mapping, or in none. The system call tries to grow
 * the mapping by a page. It always fails, since the next address is mapped. EFAULT means split or
 * unmapped. */
static inline bool ebb__os_is_split(uintptr_t address, uint64_t bytes)
{
    return ebb__os_call(SYS_mremap, address, bytes, bytes + 4096, 0, 0, 0) == -1 && errno == EFAULT;
}

/* The same in pieces, for a source of several mappings. Adds to *moved. Returns false and sets
 * errno if a page could not be moved. */
static inline bool ebb__os_remap_pieces(uintptr_t target, uintptr_t source, uint64_t bytes,
                                        uint64_t *moved)
{
    const uint64_t page = 4096;
    uint64_t piece = bytes;
    while (*moved < bytes) {
        if (piece > bytes - *moved)
            piece = bytes - *moved;
        /* Test this first. Linux 6.1 does not move several mappings at once, but fails only after
         * it has unmapped the target. Another thread that touches the target then would be
         * killed. */
        if (piece > page && ebb__os_is_split(source + *moved, piece)) {
            piece = (piece / 2 + page - 1) & ~(page - 1);
            continue;
        }
        if (ebb__os_remap(target + *moved, source + *moved, piece)) {
            *moved += piece;
            piece = bytes - *moved;
        } else if (errno == EFAULT && piece > page) {
            piece = (piece / 2 + page - 1) & ~(page - 1);
        } else {
            return false;
        }
    }
    return true;
}

#endif
