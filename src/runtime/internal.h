/* The runtime as a whole: its parts, from the lowest to the highest, and the functions that need
 * all of them.
 *
 * A part calls only lower parts. It asks higher ones through policy (core/core.h).
 * tests/test_layers.py checks it. */
#ifndef EBB_RUNTIME_INTERNAL_H
#define EBB_RUNTIME_INTERNAL_H

#include "base/check.h"
#include "runtime/reclaim/reclaim.h"
#include "runtime/replay/replay.h"
#include "runtime/runtime.h"

/* When accesses are observed: observe.c. */
struct observing {
    bool always;
    bool departures;      /* while scripts are known, and none of them is followed, */
    uint64_t allocations; /* but for so many allocations at least */
    uint64_t until;       /* the departure is observed up to this number of allocations */
    bool lacks;           /* it began while blocks of the static placement were live */
};

/* The process steps back from the run, for good: retire.c. */
enum retirement {
    RETIREMENT_NOT_YET = 0,
    RETIREMENT_UNDER_WAY, /* a thread brings all blocks back */
    RETIREMENT_OVER,
};

struct ebb_runtime {
    struct core core;
    struct table table;
    struct addresses addresses;
    struct memory memory;
    struct transfer transfer;
    struct reclaim reclaim;
    struct replay replay;
    struct observing observing;
    uint64_t unchecked; /* operations since the last check, in EBB_CHECK builds */
    bool full_said;     /* the warning that the device cannot hold further blocks has been given */
    enum retirement retirement;
    bool all_back;                /* each block was there when it was over */
    struct ebb_ledger own_ledger; /* of a retired process; of its slots, only the first is used */
};

/* retire.c, in the child of a fork: it is as retired as its parent. */
void ebb__retire_forked(struct ebb_runtime *runtime);

/* keep.c: the living block or part that has `address`, whatever its kind. NULL: none. */
struct block *ebb__keep_live_at(struct ebb_runtime *runtime, uintptr_t address);

/* check.c: checks the invariants after an operation, in EBB_CHECK builds */
#if EBB_CHECKS
void ebb__runtime_check(struct ebb_runtime *runtime);
#else
static inline void ebb__runtime_check(struct ebb_runtime *runtime)
{
    (void)runtime;
}
#endif

/* runtime.c */
void ebb__runtime_announce(struct ebb_runtime *runtime); /* tells the parent that the runtime
                                                            works */

/* faults.c: the block that a thread may have to wait for, if it touches `address`. NULL: none. */
struct block *ebb__runtime_look_at(struct ebb_runtime *runtime, uintptr_t address, bool write);
/* faults.c: the program uses a block. `absent`: it must be fetched for that. */
void ebb__runtime_used(struct ebb_runtime *runtime, struct block *block, bool write, bool absent);

/* observe.c: starts or stops observing accesses, as `observing` wants it. */
void ebb__observe_as_wanted(struct ebb_runtime *runtime);
/* The same where it may have changed. The usual case is inline. */
static inline void ebb__observe_departures(struct ebb_runtime *runtime)
{
    if (runtime->observing.departures && (runtime->table.uses.trace || !runtime->replay.current ||
                                          ebb__sizes_doubtful(&runtime->replay)))
        ebb__observe_as_wanted(runtime);
}

/* policy.c: the questions of mechanism to policy. The context is a struct ebb_runtime. */
extern const struct policy ebb__runtime_policy;

#endif
