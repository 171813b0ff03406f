/* Host memory that has what is absent from the device, as the run counts it: all engines of all
 * processes share one limit. It is a ledger as that of a device's budget (runtime/ledger.h).
 *
 * Each backing has one. It is entered before memory is taken, so that the limit is never exceeded,
 * but for what kernels are about to use. Taking and giving is for one thread at a time, the mover's
 * while it runs. Reading is thread-safe. */
#ifndef EBB_CUDA_AWAY_H
#define EBB_CUDA_AWAY_H

#include "runtime/ledger.h"

struct cuda_away {
    struct ebb_ledger *ledger; /* NULL: nobody counts */
    struct ebb_ledger_slot *slot;
    _Atomic uint64_t bytes; /* entered by this engine */
};

/* Most bytes that this engine may have: the limit without what others have. */
static inline uint64_t ebb__away_limit(const struct cuda_away *away)
{
    return away->ledger ? ebb__ledger_share(away->ledger, atomic_load(&away->ledger->budget_bytes),
                                            atomic_load(&away->bytes), 0)
                        : UINT64_MAX;
}

/* Enters `bytes` within the limit. False if they exceed it. */
static inline bool ebb__away_take(struct cuda_away *away, uint64_t bytes)
{
    if (away->ledger && !ebb__ledger_reserve(away->ledger, away->slot, bytes))
        return false;
    atomic_fetch_add(&away->bytes, bytes);
    return true;
}

/* Enters them even if they exceed the limit. */
static inline void ebb__away_force(struct cuda_away *away, uint64_t bytes)
{
    if (away->ledger)
        ebb__ledger_force(away->ledger, away->slot, bytes);
    atomic_fetch_add(&away->bytes, bytes);
}

static inline void ebb__away_give(struct cuda_away *away, uint64_t bytes)
{
    if (away->ledger)
        ebb__ledger_release(away->ledger, away->slot, bytes);
    atomic_fetch_sub(&away->bytes, bytes);
}

#endif
