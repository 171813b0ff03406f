/* The ledger: the budget of a run, shared by all its processes.
 *
 * Shared memory, made by the parent. Every page that an runtime holds for managed blocks, in whatever
 * state, is entered here before it exists, so that the sum cannot pass the budget.
 *
 * Each process has a *slot*, where it notes what of the sum is its own, so that the parent can take
 * that out when it dies. A process may be killed between changing the sum and noting it. Therefore
 * it counts the changes that it has begun and those that it has ended: while all living processes
 * have ended what they began, what the sum has beyond their slots is what the dead have left.
 *
 * That a process lives is told by its *life line*, a file description of its own with a lock on the
 * byte of the ledger's file that has the slot's number. Neither a hello nor a pid is needed for that,
 * and the kernel ends it when the process dies or calls exec, however it does. Slot 0 is for those
 * that have no other; what these hold is taken out when their socket closes. */
#ifndef EBB_RUNTIME_LEDGER_H
#define EBB_RUNTIME_LEDGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define EBB_LEDGER_MAGIC 0x3272656764656c45ull
#define EBB_LEDGER_SLOTS 4096u /* processes at a time: a limit of storage */

enum ebb_ledger_slot_state {
    EBB_LEDGER_FREE = 0,
    EBB_LEDGER_USED = 1,
    EBB_LEDGER_DEAD = 2, /* its process is gone, what it held is still in the sum */
};

struct ebb_ledger_slot {
    _Alignas(64) _Atomic uint32_t state; /* enum ebb_ledger_slot_state */
    _Atomic uint32_t process_id;         /* for people: where the process lives it may be another */
    _Atomic uint64_t begun, ended;       /* changes */
    _Atomic uint64_t held_bytes;
};

struct ebb_ledger {
    uint64_t magic;
    uint64_t slot_count;           /* that the file has room for */
    _Atomic uint64_t budget_bytes; /* UINT64_MAX: none (yet) */
    _Atomic uint64_t held_bytes;
    _Atomic uint64_t peak_bytes;          /* of held_bytes since the budget came into force */
    _Atomic uint64_t learning_peak_bytes; /* of held_bytes before */
    _Atomic uint64_t over_bytes;       /* most by which the budget had to be exceeded; 0: never */
    _Atomic uint32_t in_force;         /* held_bytes has been within the budget since */
    _Atomic uint64_t starving_bytes;   /* a process waits for pages that others hold */
    _Atomic uint32_t starving_process; /* which */
    _Atomic uint64_t passed_on;        /* such requests that the parent has looked at */
    _Atomic uint32_t slots_used;       /* none from here on has ever been used */
    struct ebb_ledger_slot slots[EBB_LEDGER_SLOTS];
};

/* The least that a ledger's file may have, where a limit on files forbids more: few slots. */
#define EBB_LEDGER_LEAST_BYTES ((uint64_t)4096)

/* The process that calls gets a slot of its own: returns its life line, which it must keep open, or
 * -1: none is to be had, and it shares slots[0]. `descriptor`: of the ledger's file, or another
 * process's life line. */
int ebb__ledger_enter(struct ebb_ledger *ledger, int descriptor, struct ebb_ledger_slot **slot);
/* The parent takes out what processes have left that are gone; returns how many were found. One caller. */
unsigned ebb__ledger_reap(struct ebb_ledger *ledger, int descriptor);

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

/* Add to what only one thread at a time changes, but for slots[0]: there is no need for more then. */
static inline void ebb__ledger_add(const struct ebb_ledger *ledger,
                                   const struct ebb_ledger_slot *slot, _Atomic uint64_t *number,
                                   uint64_t bytes)
{
    if (slot == ledger->slots)
        atomic_fetch_add(number, bytes);
    else
        atomic_store_explicit(number, atomic_load_explicit(number, memory_order_relaxed) + bytes,
                              memory_order_release);
}

/* Around a change of the sum: what the slot says of it. The sum is changed by a read-modify-write, which
 * whoever sees has seen `begun` by then. */
static inline void ebb__ledger_begin(struct ebb_ledger *ledger, struct ebb_ledger_slot *slot)
{
    ebb__ledger_add(ledger, slot, &slot->begun, 1);
}

static inline void ebb__ledger_end(struct ebb_ledger *ledger, struct ebb_ledger_slot *slot,
                                   uint64_t bytes)
{
    ebb__ledger_add(ledger, slot, &slot->held_bytes, bytes);
    ebb__ledger_add(ledger, slot, &slot->ended, 1);
}

/* Enter `bytes`, within the budget: false where they do not fit. */
static inline bool ebb__ledger_reserve(struct ebb_ledger *ledger, struct ebb_ledger_slot *slot,
                                       uint64_t bytes)
{
    uint64_t held = atomic_load(&ledger->held_bytes);
    ebb__ledger_begin(ledger, slot);
    do {
        uint64_t budget = atomic_load(&ledger->budget_bytes);
        if (bytes > budget || held > budget - bytes) {
            ebb__ledger_end(ledger, slot, 0);
            return false;
        }
    } while (!atomic_compare_exchange_weak(&ledger->held_bytes, &held, held + bytes));
    ebb__ledger_end(ledger, slot, bytes);
    ebb__ledger_note(ledger, held + bytes);
    return true;
}

/* Enter `bytes` although they may not fit: one operation needs more than the budget. */
static inline void ebb__ledger_force(struct ebb_ledger *ledger, struct ebb_ledger_slot *slot,
                                     uint64_t bytes)
{
    ebb__ledger_begin(ledger, slot);
    uint64_t held = atomic_fetch_add(&ledger->held_bytes, bytes) + bytes;
    ebb__ledger_end(ledger, slot, bytes);
    uint64_t budget = atomic_load(&ledger->budget_bytes);
    if (held > budget && atomic_load(&ledger->in_force))
        ebb__ledger_raise(&ledger->over_bytes, held - budget);
    ebb__ledger_note(ledger, held);
}

/* What of `budget` the blocks of a process may fill that holds `own` bytes in all: not what the
 * others hold, nor its own small blocks, which are never evicted by plan. */
static inline uint64_t ebb__ledger_share(const struct ebb_ledger *ledger, uint64_t budget,
                                         uint64_t own, uint64_t small)
{
    uint64_t held = atomic_load(&ledger->held_bytes);
    uint64_t taken = (held > own ? held - own : 0) + small;
    return budget > taken ? budget - taken : 0;
}

static inline void ebb__ledger_release(struct ebb_ledger *ledger, struct ebb_ledger_slot *slot,
                                       uint64_t bytes)
{
    ebb__ledger_begin(ledger, slot);
    atomic_fetch_sub(&ledger->held_bytes, bytes);
    ebb__ledger_end(ledger, slot, (uint64_t)0 - bytes);
}

#endif
