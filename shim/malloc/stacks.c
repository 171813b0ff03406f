/* Stacks in blocks: a thread may run on memory that it has from malloc.
 *
 * Whoever has the runtime's lock must not touch an absent page, its own stack's least of all, and
 * the kernel must be able to write there when a signal comes. So a block is kept, brought home for
 * good, before it is run upon, where the program says so: pthread_attr_setstack(), sigaltstack(),
 * contexts. Switching of stacks that nobody sees is found when the thread enters the runtime: the
 * guard looks where it stands, and before it goes on another thread, the keeper (keeper.c), has
 * kept that block. Storage of the thread's own, which lies above a stack that was given for it,
 * counts like the stack.
 *
 * What this cannot cover: a stack that is switched to without these functions, and was absent
 * before its thread has ever allocated on it, on devices where the kernel cannot wait for a page:
 * a signal, or a fault that is one, finds no room there and ends the program. */
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

/* A context that was saved, not made, says anything of its stack. */
#define MOST_BYTES ((size_t)256 << 20)

/* [stack, + bytes) will be run upon. */
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

/* These two return to their caller by the context that they save or take: the call is the last
 * one, a jump, so that no frame of ours is in between. */
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
