/* The ledger: the budget of a run, shared by all its processes. Another one has the limit of host
 * memory for what has left devices.
 *
 * It is shared memory that the parent creates. A runtime enters every page for managed blocks, in
 * any state, before the page exists. Therefore the sum cannot exceed the budget.
 *
 * Each process has a *slot*, which records its own share of the sum. If the process dies, the
 * parent subtracts that share. A process may be killed between changing the sum and recording the
 * change. Therefore it counts the changes that it has begun and those that it has ended. If all
 * living processes have ended every change they began, the dead processes account for the rest of
 * the sum.
 *
 * A *life line* shows that a process lives. It is a file description of the process's own, with a
 * lock on one byte of the ledger's file: the byte at the slot's number. It needs neither a hello
 * nor a pid. The kernel releases the lock if the process dies in any way, or calls exec. Slot 0 is
 * for processes without a slot of their own. Their share is subtracted when their socket closes. */
#ifndef EBB_RUNTIME_LEDGER_H
#define EBB_RUNTIME_LEDGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define EBB_LEDGER_MAGIC 0x3272656764656c45ull
#define EBB_LEDGER_SLOTS 4096u /* most processes at a time: a limit of storage */

enum ebb_ledger_slot_state {
    EBB_LEDGER_FREE = 0,
    EBB_LEDGER_USED = 1,
    EBB_LEDGER_DEAD = 2, /* its process has ended; its share is still in the sum */
};

struct ebb_ledger_slot {
    _Alignas(64) _Atomic uint32_t state; /* enum ebb_ledger_slot_state */
    _Atomic uint32_t process_id;         /* for people; may differ in the process's own pid
                                            namespace */
    _Atomic uint64_t begun, ended;       /* numbers of changes */
    _Atomic uint64_t held_bytes;
};

struct ebb_ledger {
    uint64_t magic;
    uint64_t slot_count;           /* slots that the file has space for */
    _Atomic uint64_t budget_bytes; /* UINT64_MAX: no budget yet, or none at all */
    _Atomic uint64_t held_bytes;
    _Atomic uint64_t peak_bytes;          /* largest held_bytes since the budget came into force */
    _Atomic uint64_t learning_peak_bytes; /* largest held_bytes before that */
    _Atomic uint64_t over_bytes;          /* largest excess over the budget that was necessary; 0:
                                          never */
    _Atomic uint32_t in_force;            /* held_bytes has been within the budget at least once */
    _Atomic uint64_t starving_bytes;      /* pages that a process waits for and others hold */
    _Atomic uint32_t starving_process;    /* the process that waits */
    _Atomic uint64_t passed_on;  /* number of such requests that the parent has looked at */
    _Atomic uint32_t slots_used; /* slots from this number on have never been used */
    struct ebb_ledger_slot slots[EBB_LEDGER_SLOTS];
};

/* Smallest size of a ledger's file, used if a limit on file sizes forbids more. It has few
 * slots. */
#define EBB_LEDGER_LEAST_BYTES ((uint64_t)4096)

/* Makes a ledger of zeros one with that budget. */
static inline void ebb__ledger_init(struct ebb_ledger *ledger, uint64_t slot_count,
                                    uint64_t budget_bytes)
{
    ledger->magic = EBB_LEDGER_MAGIC;
    ledger->slot_count = slot_count;
    atomic_store(&ledger->budget_bytes, budget_bytes);
    atomic_store(&ledger->in_force, budget_bytes != UINT64_MAX);
}

/* Gives the calling process a slot of its own. Returns its life line, which the process must keep
 * open. Returns -1 if there is none; the process then shares slots[0]. `descriptor`: the ledger's
 * file, or another process's life line. */
int ebb__ledger_enter(struct ebb_ledger *ledger, int descriptor, struct ebb_ledger_slot **slot);
/* The parent subtracts the shares of processes that have ended. Returns the number of such
 * processes. One caller at a time. */
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

/* Record in the slot that a change of the sum begins, and that it has ended. The sum is changed by
 * a read-modify-write. A thread that sees the new sum therefore sees `begun`, too. The numbers of a
 * slot are changed so, too: by threads of its process, and slots[0] by several processes. */
static inline void ebb__ledger_begin(struct ebb_ledger_slot *slot)
{
    atomic_fetch_add(&slot->begun, 1);
}

static inline void ebb__ledger_end(struct ebb_ledger_slot *slot, uint64_t bytes)
{
    atomic_fetch_add(&slot->held_bytes, bytes);
    atomic_fetch_add(&slot->ended, 1);
}

/* Enters `bytes` within the budget. False if they exceed it. */
static inline bool ebb__ledger_reserve(struct ebb_ledger *ledger, struct ebb_ledger_slot *slot,
                                       uint64_t bytes)
{
    uint64_t held = atomic_load(&ledger->held_bytes);
    ebb__ledger_begin(slot);
    do {
        uint64_t budget = atomic_load(&ledger->budget_bytes);
        if (bytes > budget || held > budget - bytes) {
            ebb__ledger_end(slot, 0);
            return false;
        }
    } while (!atomic_compare_exchange_weak(&ledger->held_bytes, &held, held + bytes));
    ebb__ledger_end(slot, bytes);
    ebb__ledger_note(ledger, held + bytes);
    return true;
}

/* Enters `bytes` even if they exceed the budget: one operation may need more than the budget. */
static inline void ebb__ledger_force(struct ebb_ledger *ledger, struct ebb_ledger_slot *slot,
                                     uint64_t bytes)
{
    ebb__ledger_begin(slot);
    uint64_t held = atomic_fetch_add(&ledger->held_bytes, bytes) + bytes;
    ebb__ledger_end(slot, bytes);
    uint64_t budget = atomic_load(&ledger->budget_bytes);
    if (held > budget && atomic_load(&ledger->in_force))
        ebb__ledger_raise(&ledger->over_bytes, held - budget);
    ebb__ledger_note(ledger, held);
}

/* Bytes of `budget` that the blocks of a process may fill. The process holds `own` bytes in all.
 * Excluded are the bytes of other processes, and its own small blocks, which no plan evicts. */
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
    ebb__ledger_begin(slot);
    atomic_fetch_sub(&ledger->held_bytes, bytes);
    ebb__ledger_end(slot, (uint64_t)0 - bytes);
}

#endif
