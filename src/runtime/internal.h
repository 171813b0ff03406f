/* The runtime as a whole: its parts, from the lowest to the highest, and what needs to know all of them.
 *
 * A part calls those before it only; upwards it asks policy (core/core.h). tests/test_layers.py checks it. */
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
    bool full_said;     /* that the device has no room for further blocks */
};

/* keep.c: the block or part, wherever it lies, that has `address`; NULL: none that is alive. */
struct block *ebb__keep_live_at(struct ebb_runtime *runtime, uintptr_t address);

/* check.c: after an operation, in EBB_CHECK builds */
#if EBB_CHECKS
void ebb__runtime_check(struct ebb_runtime *runtime);
#else
static inline void ebb__runtime_check(struct ebb_runtime *runtime)
{
    (void)runtime;
}
#endif

/* runtime.c */
void ebb__runtime_announce(struct ebb_runtime *runtime); /* it is at work: for the parent */

/* policy.c: what mechanism asks; the context is a struct ebb_runtime. */
extern const struct policy ebb__runtime_policy;

#endif
