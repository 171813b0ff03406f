/* Stacks in blocks: a thread may run on memory that it has from malloc.
 *
 * Whoever has the runtime's lock must not touch an absent page, its own stack's least of all, and
 * the kernel must be able to write there when a signal comes. So a block is fetched and kept for
 * good before a thread runs on it, where the program says so: pthread_attr_setstack(),
 * sigaltstack(), contexts. Switching of stacks that nobody sees is found when the thread enters the
 * runtime: the guard looks where it stands, and before it goes on another thread, the keeper, with
 * a stack of its own, has kept that block. Between the two is a mailbox without locks, in memory
 * that is always there. Storage of the thread's own, which lies above a stack that was given for
 * it, counts like the stack.
 *
 * What this cannot cover: a stack that is switched to without these functions, and was absent
 * before its thread has ever allocated on it, on devices where the kernel cannot wait for a page: a
 * signal, or a fault that is one, finds no room there and ends the program. */
#include "stacks.h"

#include "guard.h"
#include "shim.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int pthread_attr_setstack(pthread_attr_t *attributes, void *stack, size_t bytes);
EXPORT int sigaltstack(const stack_t *restrict stack, stack_t *restrict before);
EXPORT int swapcontext(ucontext_t *restrict from, const ucontext_t *restrict to);
EXPORT int setcontext(const ucontext_t *to);

/* The runtime's own frames, below that of its caller: far less. */
#define BELOW_BYTES ((uintptr_t)16 << 10)
/* A context that was saved, not made, says anything of its stack. */
#define MOST_BYTES ((size_t)256 << 20)
#define LETTERS 64 /* threads that wait at the same time */

enum { LETTER_FREE, LETTER_TAKEN, LETTER_SENT, LETTER_ANSWERED };

static struct letter {
    _Atomic uint32_t state;
    const void *frame, *thread;
    uint64_t signals;
} letters[LETTERS];
static _Atomic uint32_t sent; /* letters, ever */

_Atomic uintptr_t ebb__stacks_first, ebb__stacks_last;

static void sleep_on(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static bool is_in_block(const void *address)
{
    return ebb__stacks_own((uintptr_t)address);
}

static bool stays(const struct ebb_runtime *runtime, const void *address)
{
    return !is_in_block(address) || ebb__runtime_stays(runtime, address);
}

static void *keeper(void *argument)
{
    struct ebb_runtime *runtime = argument;
    for (;;) {
        uint32_t seen = atomic_load(&sent);
        for (struct letter *letter = letters; letter < letters + LETTERS; letter++) {
            if (atomic_load(&letter->state) != LETTER_SENT)
                continue;
            if (is_in_block(letter->frame))
                ebb__runtime_keep(runtime, (const char *)letter->frame - BELOW_BYTES,
                                  BELOW_BYTES + 1);
            if (is_in_block(letter->thread))
                ebb__runtime_keep(runtime, letter->thread, 1);
            atomic_store(&letter->state, LETTER_ANSWERED);
            wake(&letter->state);
        }
        sleep_on(&sent, seen);
    }
    return NULL;
}

bool ebb__stacks_start(struct ebb_runtime *runtime, struct ebb_device_range arena)
{
    for (size_t i = 0; i < LETTERS; i++) /* of the parent's threads, in the child of a fork */
        atomic_store(&letters[i].state, LETTER_FREE);
    if (!ebb__shim_start_thread(keeper, runtime))
        return false;
    atomic_store(&ebb__stacks_first, arena.base);
    atomic_store(&ebb__stacks_last, arena.base + arena.bytes);
    return true;
}

static struct letter *take_letter(void)
{
    for (size_t i = 0;; i = (i + 1) % LETTERS) {
        uint32_t expected = LETTER_FREE;
        if (atomic_compare_exchange_strong(&letters[i].state, &expected, LETTER_TAKEN))
            return &letters[i];
        if (i == LETTERS - 1)
            sched_yield();
    }
}

bool ebb__stacks_keep(const void *frame, const uint64_t *blocked, uint64_t *signals)
{
    struct ebb_runtime *runtime = ebb__shim_runtime_now();
    const void *thread = __builtin_thread_pointer();
    if (!runtime || (stays(runtime, frame) && stays(runtime, thread)))
        return false;
    /* No system call may be given an address on this stack until it is kept. */
    struct letter *letter = take_letter();
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, blocked, &letter->signals, sizeof letter->signals);
    letter->frame = frame;
    letter->thread = thread;
    atomic_store(&letter->state, LETTER_SENT);
    atomic_fetch_add(&sent, 1);
    wake(&sent);
    while (atomic_load(&letter->state) != LETTER_ANSWERED)
        sleep_on(&letter->state, LETTER_SENT);
    *signals = letter->signals;
    atomic_store(&letter->state, LETTER_FREE);
    return true;
}

/* [stack, + bytes) will be run upon. */
static void keep(const void *stack, size_t bytes)
{
    struct ebb_runtime *runtime = is_in_block(stack) ? ebb__shim_runtime_now() : NULL;
    if (!runtime || bytes == 0 || bytes > MOST_BYTES)
        return;
    int saved = errno;
    const char *last = (const char *)stack + bytes - 1;
    if (!stays(runtime, stack) || !stays(runtime, last)) {
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

/* These two return to their caller by the context that they save or take: the call is the last one, a
 * jump, so that no frame of ours is in between. */
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
