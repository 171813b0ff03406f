/* The ledger: the budget of a run, shared by all its processes.
 *
 * One page of shared memory, made by the parent. Every page that an engine holds for managed
 * blocks, in whatever state, is entered here before it exists, so that the sum cannot pass the
 * budget. The parent takes out what a process held when it dies. */
#ifndef EBB_ENGINE_LEDGER_H
#define EBB_ENGINE_LEDGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define EBB_LEDGER_MAGIC 0x3172656764656c45ull

struct ebb_ledger {
    uint64_t magic;
    _Atomic uint64_t budget_bytes; /* UINT64_MAX: none (yet) */
    _Atomic uint64_t held_bytes;
    _Atomic uint64_t peak_bytes;          /* of held_bytes since the budget came into force */
    _Atomic uint64_t learning_peak_bytes; /* of held_bytes before */
    _Atomic uint64_t over_bytes;       /* most by which the budget had to be exceeded; 0: never */
    _Atomic uint32_t in_force;         /* held_bytes has been within the budget since */
    _Atomic uint64_t starving_bytes;   /* a process waits for pages that others hold */
    _Atomic uint32_t starving_process; /* which */
    _Atomic uint64_t passed_on;        /* such requests that the parent has looked at */
};

static inline void ebb__ledger_raise(_Atomic uint64_t *peak, uint64_t value)
{
    uint64_t seen = atomic_load_explicit(peak, memory_order_relaxed);
    while (seen < value && !atomic_compare_exchange_weak(peak, &seen, value))
        ;
}

static inline void ebb__ledger_note(struct ebb_ledger *ledger, uint64_t held)
{
    ebb__ledger_raise(
        atomic_load(&ledger->in_force) ? &ledger->peak_bytes : &ledger->learning_peak_bytes, held);
}

/* Enter `bytes`, within the budget: false where they do not fit. */
static inline bool ebb__ledger_reserve(struct ebb_ledger *ledger, uint64_t bytes)
{
    uint64_t held = atomic_load(&ledger->held_bytes);
    do {
        uint64_t budget = atomic_load(&ledger->budget_bytes);
        if (bytes > budget || held > budget - bytes)
            return false;
    } while (!atomic_compare_exchange_weak(&ledger->held_bytes, &held, held + bytes));
    ebb__ledger_note(ledger, held + bytes);
    return true;
}

/* Enter `bytes` although they may not fit: one operation needs more than the budget. */
static inline void ebb__ledger_force(struct ebb_ledger *ledger, uint64_t bytes)
{
    uint64_t held = atomic_fetch_add(&ledger->held_bytes, bytes) + bytes;
    uint64_t budget = atomic_load(&ledger->budget_bytes);
    if (held > budget && atomic_load(&ledger->in_force))
        ebb__ledger_raise(&ledger->over_bytes, held - budget);
    ebb__ledger_note(ledger, held);
}

/* What of `budget` the blocks of a process may fill that holds `own` bytes in all: not what the others
 * hold, nor its own small blocks, which never leave. */
static inline uint64_t ebb__ledger_share(const struct ebb_ledger *ledger, uint64_t budget,
                                         uint64_t own, uint64_t small)
{
    uint64_t held = atomic_load(&ledger->held_bytes);
    uint64_t taken = (held > own ? held - own : 0) + small;
    return budget > taken ? budget - taken : 0;
}

static inline void ebb__ledger_release(struct ebb_ledger *ledger, uint64_t bytes)
{
    atomic_fetch_sub(&ledger->held_bytes, bytes);
}

#endif
