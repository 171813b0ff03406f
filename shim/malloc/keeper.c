/* The keeper: a thread that makes the block under another thread's stack resident before that
 * thread takes the runtime's lock. They communicate by a lock-free mailbox in memory that is always
 * resident. */
#include "stacks.h"

#include "shim.h"

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The runtime's own frames need far less below its caller's. */
#define BELOW_BYTES ((uintptr_t)16 << 10)
#define LETTERS 64 /* threads that can wait at a time */

enum { LETTER_FREE, LETTER_TAKEN, LETTER_SENT, LETTER_ANSWERED };

static struct letter {
    _Atomic uint32_t state;
    const void *frame, *thread;
    uint64_t signals;
} letters[LETTERS];

static _Atomic uint32_t sent; /* letters sent so far */

_Atomic uintptr_t ebb__stacks_first, ebb__stacks_last;

static void sleep_on(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

bool ebb__stacks_stay(const struct ebb_runtime *runtime, const void *address)
{
    return !ebb__stacks_has(address) || ebb__runtime_stays(runtime, address);
}

static void *keeper(void *argument)
{
    struct ebb_runtime *runtime = argument;
    for (;;) {
        uint32_t seen = atomic_load(&sent);
        for (struct letter *letter = letters; letter < letters + LETTERS; letter++) {
            if (atomic_load(&letter->state) != LETTER_SENT)
                continue;
            if (ebb__stacks_has(letter->frame))
                ebb__runtime_keep(runtime, (const char *)letter->frame - BELOW_BYTES,
                                  BELOW_BYTES + 1);
            if (ebb__stacks_has(letter->thread))
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
    for (size_t i = 0; i < LETTERS;
         i++) /* in the child of a fork: letters of the forking process's threads */
        atomic_store(&letters[i].state, LETTER_FREE);
    if (!ebb__join_start_thread(keeper, runtime))
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
    if (!runtime || (ebb__stacks_stay(runtime, frame) && ebb__stacks_stay(runtime, thread)))
        return false;
    /* No system call may use an address on this stack until it is kept resident. */
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
