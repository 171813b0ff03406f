/* The runtime as a whole: its parts, from the lowest to the highest, and what needs to know all of them.
 *
 * A part calls those before it only; upwards it asks policy (core/core.h). tests/test_layers.py checks it. */
#ifndef EBB_RUNTIME_INTERNAL_H
#define EBB_RUNTIME_INTERNAL_H

#include "base/check.h"
#include "runtime/reclaim/reclaim.h"
#include "runtime/replay/replay.h"

struct ebb_runtime {
    struct core core;
    struct uses uses;
    struct table table;
    struct space space;
    struct placement placement;
    struct slab_space slabs;
    struct memory memory;
    struct store_copies copies;
    struct store_health store;
    struct transfer transfer;
    struct replay replay;
    uint64_t next_serial;
    uint64_t alone_until_ns; /* other processes gave nothing: do not ask before */
    uint64_t unchecked;      /* operations since the last check, in EBB_CHECK builds */
    bool beyond;             /* the budget may be exceeded: nothing could leave */
    bool full_said;          /* that the device has no room for further blocks */
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
void ebb__runtime_announce(struct ebb_runtime *runtime);  /* it is at work: for the parent */
void ebb__runtime_init_sync(struct ebb_runtime *runtime); /* no lock needed */

#endif
