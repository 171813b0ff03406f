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

struct ebb_runtime {
    struct core core;
    struct table table;
    struct addresses addresses;
    struct memory memory;
    struct transfer transfer;
    struct reclaim reclaim;
    struct replay replay;
    uint64_t unchecked; /* operations since the last check, in EBB_CHECK builds */
    bool full_said;     /* the warning that the device cannot hold further blocks has been given */
};

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

/* policy.c: the questions of mechanism to policy. The context is a struct ebb_runtime. */
extern const struct policy ebb__runtime_policy;

#endif
