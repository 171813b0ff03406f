/* The system calls that concern the device's own mappings and descriptors, made directly: the functions
 * of libc of the same names are the shim's (mappings.c, descriptors.c), where they do what the program
 * means by them. */
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

/* Past libc's syscall(), which is the shim's, too. errno as libc sets it. */
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

/* fstat() of a descriptor of ours: the shim's function of that name hides them. */
static inline int ebb__os_status(int descriptor, struct stat *status)
{
    return (int)ebb__os_call(SYS_fstat, (uintptr_t)descriptor, (uintptr_t)status, 0, 0, 0, 0);
}

/* read() into a buffer of ours: the shim's function of that name asks the runtime, which may be locked. */
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

/* A new private mapping at `address`, in place of whatever is there; in no core dump, as all of the
 * device's. */
static inline bool ebb__os_map_anew(uintptr_t address, uint64_t bytes, int protection)
{
    if (ebb__os_call(SYS_mmap, address, bytes, (uintptr_t)protection,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, (uintptr_t)-1,
                     0) == -1)
        return false;
    ebb__os_advise(address, bytes, MADV_DONTDUMP);
    return true;
}

/* False: nothing is mapped in a part of [address, + bytes). */
static inline bool ebb__os_is_mapped(uintptr_t address, uint64_t bytes)
{
    return ebb__os_call(SYS_msync, address, bytes, MS_ASYNC, 0, 0, 0) == 0;
}

/* A mapping that takes no memory and permits no access, where nothing is mapped; false: something is. */
static inline bool ebb__os_map_in_hole(uintptr_t address, uint64_t bytes)
{
    return ebb__os_call(SYS_mmap, address, bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE,
                        (uintptr_t)-1, 0) != -1;
}

/* Move pages, and leave an empty mapping behind. */
static inline bool ebb__os_remap(uintptr_t target, uintptr_t source, uint64_t bytes)
{
    return ebb__os_call(SYS_mremap, source, bytes, bytes,
                        MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, target, 0) != -1;
}

/* True where [address, + bytes) is in more than one mapping, or in none. Asked by a request to grow in place
 * by a page, which fails in either case: what follows in the device's ranges is mapped. */
static inline bool ebb__os_is_split(uintptr_t address, uint64_t bytes)
{
    return ebb__os_call(SYS_mremap, address, bytes, bytes + 4096, 0, 0, 0) == -1 && errno == EFAULT;
}

/* The same in pieces where the source consists of several mappings; *moved counts on. False and errno
 * where a page could not be moved. */
static inline bool ebb__os_remap_pieces(uintptr_t target, uintptr_t source, uint64_t bytes,
                                        uint64_t *moved)
{
    const uint64_t page = 4096;
    uint64_t piece = bytes;
    while (*moved < bytes) {
        if (piece > bytes - *moved)
            piece = bytes - *moved;
        /* Asked first: Linux 6.1 does not move several mappings at once, but says so only when it has
         * unmapped the target, where another thread may look meanwhile and be killed. */
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
