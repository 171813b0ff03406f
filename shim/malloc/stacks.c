/* Stacks in blocks: a thread may run on memory from malloc.
 *
 * A thread with the runtime's lock must not touch an absent page, in particular of its own stack.
 * The kernel must be able to write there when a signal arrives. So if the program names a stack in
 * advance, its block is fetched first and stays resident until it is freed. This concerns
 * pthread_attr_setstack(), sigaltstack() and contexts. Other switches of stacks are found when the
 * thread enters the runtime. The guard looks at its stack pointer, and the keeper thread (keeper.c)
 * makes that block resident before the thread continues. Thread-local storage lies above a given
 * stack, and counts as part of it.
 *
 * Not covered: a switch of stacks without these functions, if the stack is absent and its thread
 * has not allocated on it before. If the kernel cannot wait for a page, a signal on this stack ends
 * the program. So does a fault that the device reports by a signal. */
#include "stacks.h"

#include "guard.h"
#include "shim.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int pthread_attr_setstack(pthread_attr_t *attributes, void *stack, size_t bytes);

EXPORT int sigaltstack(const stack_t *restrict stack, stack_t *restrict before);

EXPORT int swapcontext(ucontext_t *restrict from, const ucontext_t *restrict to);

EXPORT int setcontext(const ucontext_t *to);

/* The stack fields of a context that was saved, not made, may have any value. */
#define MOST_BYTES ((size_t)256 << 20)

/* Keeps [stack, + bytes) resident, since it will be a stack. */
static void keep(const void *stack, size_t bytes)
{
    struct ebb_runtime *runtime = ebb__stacks_has(stack) ? ebb__shim_runtime_now() : NULL;
    if (!runtime || bytes == 0 || bytes > MOST_BYTES)
        return;
    int saved = errno;
    const char *last = (const char *)stack + bytes - 1;
    if (!ebb__stacks_stay(runtime, stack) || !ebb__stacks_stay(runtime, last)) {
        struct ebb_guard guard;
        ebb__guard_enter(&guard);
        ebb__runtime_keep(runtime, stack, bytes);
        ebb__guard_leave(&guard);
    }
    errno = saved;
}

int pthread_attr_setstack(pthread_attr_t *attributes, void *stack, size_t bytes)
{
    keep(stack, bytes);
    int (*next)(pthread_attr_t *, void *, size_t);
    EBB_BEHIND(next, pthread_attr_setstack);
    return next(attributes, stack, bytes);
}

int sigaltstack(const stack_t *restrict stack, stack_t *restrict before)
{
    if (stack && !(stack->ss_flags & SS_DISABLE))
        keep(stack->ss_sp, stack->ss_size);
    return ebb__shim_signal_stack(stack, before);
}

/* These two return to their caller by the context that they save or take. So the call is the last
 * one and a jump, with no frame of the shim in between. */
int swapcontext(ucontext_t *restrict from, const ucontext_t *restrict to)
{
    keep(to->uc_stack.ss_sp, to->uc_stack.ss_size);
    ebb__shim_mask_contexts(to);
    int (*next)(ucontext_t *, const ucontext_t *);
    EBB_BEHIND(next, swapcontext);
    return next(from, to);
}

int setcontext(const ucontext_t *to)
{
    keep(to->uc_stack.ss_sp, to->uc_stack.ss_size);
    ebb__shim_mask_contexts(to);
    int (*next)(const ucontext_t *);
    EBB_BEHIND(next, setcontext);
    return next(to);
}
