/* Signal masks, for the device without userfaultfd: a thread that blocks SIGSEGV is killed at its
 * next fault. So the shim removes SIGSEGV from every mask that is passed to the kernel. Masks are
 * set by calls that set a thread's mask, by calls that sleep with another mask, by handlers, and by
 * contexts.
 *
 * If the program reads the mask of a handler or a thread, it sees SIGSEGV as it has set it. */
#include "device/os.h"
#include "shim.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define OURS ((uint64_t)1 << (SIGSEGV - 1))
#define KERNEL_BYTES sizeof(uint64_t) /* of a kernel's set; libc's is larger */

EXPORT int sigprocmask(int how, const sigset_t *restrict set, sigset_t *restrict before);
EXPORT int pthread_sigmask(int how, const sigset_t *restrict set, sigset_t *restrict before);
EXPORT int sighold(int number);
EXPORT int sigblock(int mask);
EXPORT int sigsetmask(int mask);

static _Atomic bool keeping;

bool ebb__shim_keeps_signal(void)
{
    return atomic_load_explicit(&keeping, memory_order_relaxed);
}

const sigset_t *ebb__shim_mask(const sigset_t *set, sigset_t *copy)
{
    if (!set || !ebb__shim_keeps_signal())
        return set;
    *copy = *set;
    sigdelset(copy, SIGSEGV);
    return copy;
}

/* `next` gets copies of the sets, since the program's may lie in blocks. */
static int change(int (*next)(int, const sigset_t *, sigset_t *), int how, const sigset_t *set,
                  sigset_t *before)
{
    sigset_t copy, told;
    if (set)
        copy = *set;
    if (set && how != SIG_UNBLOCK && ebb__shim_keeps_signal())
        sigdelset(&copy, SIGSEGV);
    int result = next(how, set ? &copy : NULL, before ? &told : NULL);
    if (result == 0 && before)
        memcpy(before, &told, KERNEL_BYTES); /* the kernel does not write more */
    return result;
}

int sigprocmask(int how, const sigset_t *restrict set, sigset_t *restrict before)
{
    int (*next)(int, const sigset_t *, sigset_t *);
    EBB_BEHIND(next, sigprocmask);
    return change(next, how, set, before);
}

int pthread_sigmask(int how, const sigset_t *restrict set, sigset_t *restrict before)
{
    int (*next)(int, const sigset_t *, sigset_t *);
    EBB_BEHIND(next, pthread_sigmask);
    return change(next, how, set, before);
}

/* Obsolete functions. */
int sighold(int number)
{
    if (number == SIGSEGV && ebb__shim_keeps_signal())
        return 0;
    int (*next)(int);
    EBB_BEHIND(next, sighold);
    return next(number);
}

int sigblock(int mask)
{
    int (*next)(int);
    EBB_BEHIND(next, sigblock);
    return next(ebb__shim_keeps_signal() ? mask & ~(int)OURS : mask);
}

int sigsetmask(int mask)
{
    int (*next)(int);
    EBB_BEHIND(next, sigsetmask);
    return next(ebb__shim_keeps_signal() ? mask & ~(int)OURS : mask);
}

/* Dispatches by the number of the call. The runtime never sets a mask with SIGSEGV that way. */
bool ebb__shim_masks(long number, const long a[6], long *result)
{
    uint64_t mask;
    if (number != SYS_rt_sigprocmask || a[0] == SIG_UNBLOCK || a[1] == 0 ||
        (size_t)a[3] != sizeof mask || !ebb__shim_keeps_signal())
        return false;
    memcpy(&mask, (const void *)a[1], sizeof mask);
    mask &= ~OURS;
    *result = ebb__os_call(SYS_rt_sigprocmask, (uintptr_t)a[0], (uintptr_t)&mask, (uintptr_t)a[2],
                           sizeof mask, 0, 0);
    return true;
}

/* The kernel will use the masks in this context and in those linked to it. */
void ebb__shim_mask_contexts(const ucontext_t *context)
{
    for (; context && ebb__shim_keeps_signal(); context = context->uc_link)
        if (sigismember(&context->uc_sigmask, SIGSEGV) == 1)
            sigdelset((sigset_t *)(uintptr_t)&context->uc_sigmask, SIGSEGV);
}

void ebb__shim_keep_signal(void)
{
    atomic_store(&keeping, true);
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGSEGV);
    pthread_sigmask(SIG_UNBLOCK, &ours, NULL);
    ebb__shim_give_signal_stacks();
}
