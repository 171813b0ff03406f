/* Protects the shim's descriptors. Programs close descriptors that they did not open (daemons,
 * subprocess helpers), and a closed userfaultfd would turn absent pages into zeros. A close() of a
 * protected descriptor succeeds and does nothing. A dup2() onto one fails with EBUSY, which the
 * kernel also permits. The shim's fstat() hides them, so that a program that counts its inherited
 * descriptors finds the same as without Ebb. A syscall() with the number of such a call is handled
 * here, too. */
#include "device/os.h"
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define MOST_DESCRIPTORS 1024 /* each nested fork holds at least two more */

EXPORT int close(int descriptor);
EXPORT int dup2(int from, int to);
EXPORT int dup3(int from, int to, int flags);
EXPORT int close_range(unsigned first, unsigned last, int flags);
EXPORT void closefrom(int first);
EXPORT int fstat(int descriptor, struct stat *status);
EXPORT int fstat64(int descriptor, struct stat64 *status);

static _Atomic int protected[MOST_DESCRIPTORS]; /* descriptor + 1; 0: free entry */
static _Atomic int protected_end;               /* entries from here on were never used */

void ebb__shim_protect(int descriptor)
{
    for (int i = 0; i < MOST_DESCRIPTORS; i++) {
        int expected = 0, end = atomic_load(&protected_end);
        while (end <= i && !atomic_compare_exchange_weak(&protected_end, &end, i + 1))
            ;
        if (atomic_compare_exchange_strong(&protected[i], &expected, descriptor + 1))
            return;
    }
}

void ebb__shim_unprotect(int descriptor)
{
    for (int i = 0; i < atomic_load(&protected_end); i++) {
        int expected = descriptor + 1;
        if (atomic_compare_exchange_strong(&protected[i], &expected, 0))
            return;
    }
}

static bool is_protected(int descriptor)
{
    if (descriptor < 0)
        return false;
    int end = atomic_load_explicit(&protected_end, memory_order_acquire);
    for (int i = 0; i < end; i++)
        if (atomic_load_explicit(&protected[i], memory_order_relaxed) == descriptor + 1)
            return true;
    return false;
}

int close(int descriptor)
{
    if (is_protected(descriptor))
        return 0;
    int (*next)(int);
    EBB_BEHIND(next, close);
    return next(descriptor);
}

int dup2(int from, int to)
{
    if (from != to && is_protected(to)) {
        errno = EBUSY;
        return -1;
    }
    if (from == to)
        return ebb__os_call(SYS_fcntl, (uintptr_t)from, F_GETFD, 0, 0, 0, 0) < 0 ? -1 : to;
    return (int)ebb__os_call(SYS_dup3, (uintptr_t)from, (uintptr_t)to, 0, 0, 0, 0);
}

int dup3(int from, int to, int flags)
{
    if (is_protected(to)) {
        errno = EBUSY;
        return -1;
    }
    return (int)ebb__os_call(SYS_dup3, (uintptr_t)from, (uintptr_t)to, (uintptr_t)flags, 0, 0, 0);
}

static int seen(int descriptor, unsigned long long inode, unsigned mode)
{
    if (!is_protected(descriptor) && !ebb__join_is_hello(descriptor, inode, mode))
        return 0;
    errno = EBADF;
    return -1;
}

int fstat(int descriptor, struct stat *status)
{
    ebb__shim_wait_in(status, sizeof *status);
    int (*next)(int, struct stat *);
    EBB_BEHIND(next, fstat);
    return next(descriptor, status) ? -1 : seen(descriptor, status->st_ino, status->st_mode);
}

int fstat64(int descriptor, struct stat64 *status)
{
    ebb__shim_wait_in(status, sizeof *status);
    int (*next)(int, struct stat64 *);
    EBB_BEHIND(next, fstat64);
    return next(descriptor, status) ? -1 : seen(descriptor, status->st_ino, status->st_mode);
}

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

static int close_all(unsigned first, unsigned last, int flags)
{
    return (int)ebb__os_call(SYS_close_range, first, last, (uintptr_t)flags, 0, 0, 0);
}

/* Closes [first, last], except the protected descriptors. */
int close_range(unsigned first, unsigned last, int flags)
{
    while (first <= last) {
        unsigned stop = last;
        bool found = false;
        for (int i = 0; i < atomic_load(&protected_end); i++) {
            unsigned kept = (unsigned)atomic_load(&protected[i]) - 1;
            if (kept != (unsigned)-1 && kept >= first && kept <= stop) {
                stop = kept;
                found = true;
            }
        }
        if (!found)
            return close_all(first, last, flags);
        if (stop > first && close_all(first, stop - 1, flags) != 0)
            return -1;
        first = stop + 1;
    }
    return 0;
}

void closefrom(int first)
{
    close_range(first < 0 ? 0u : (unsigned)first, ~0u, 0);
}

bool ebb__shim_describes(long number, const long a[6], long *result)
{
    switch (number) {
    case SYS_close:
        *result = close((int)a[0]);
        return true;
    case SYS_close_range:
        *result = close_range((unsigned)a[0], (unsigned)a[1], (int)a[2]);
        return true;
#ifdef SYS_dup2
    case SYS_dup2:
        *result = dup2((int)a[0], (int)a[1]);
        return true;
#endif
    case SYS_dup3:
        *result = dup3((int)a[0], (int)a[1], (int)a[2]);
        return true;
    default:
        return false;
    }
}
