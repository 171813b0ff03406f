/* The exact search: is there a packing within a height? See exact.c for the method. */
#ifndef EBB_PLAN_POOL_EXACT_H
#define EBB_PLAN_POOL_EXACT_H

#include "base/effort.h"
#include "plan/pool/pool.h"
#include "plan/pool/sections.h"

enum ebb_pool_verdict {
    EBB_POOL_FOUND,
    EBB_POOL_IMPOSSIBLE, /* proved */
    EBB_POOL_TIME_OUT,
};

/* Search for a packing within `height_bytes` until `effort` has reached `limit_steps`. Where it is
 * found, `offsets` holds it; where the effort is out, they may hold a higher one, or are all UINT64_MAX.
 * turns[], 0 at first, counts the turns of the two searches: handed back, a further search, for any
 * height, goes on with others. EBB_ERR_MEMORY. Memory O(buffers^2), touched as far as a search goes
 * deep. */
EBB_NODISCARD enum ebb_status ebb__pool_exact(const struct ebb_pool_problem *problem,
                                              const struct ebb_pool_sections *sections,
                                              uint64_t height_bytes, struct ebb_effort *effort,
                                              uint64_t limit_steps, uint64_t turns[2],
                                              uint64_t *offsets, enum ebb_pool_verdict *verdict);

#endif
