/* The exact search: does a packing within a given height exist? exact.c explains the method. */
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

/* Searches for a packing within `height_bytes` until `effort` has reached `limit_steps`. If one is
 * found, `offsets` holds it. If the effort is spent, `offsets` holds a higher one or only
 * UINT64_MAX. turns[], initially 0, counts the turns of the two searches. A further search with the
 * same turns[], for any height, continues with other turns. EBB_ERR_MEMORY. Memory O(buffers^2),
 * touched only as far as the search is deep. */
EBB_NODISCARD enum ebb_status ebb__pool_exact(const struct ebb_pool_problem *problem,
                                              const struct ebb_pool_sections *sections,
                                              uint64_t height_bytes, struct ebb_effort *effort,
                                              uint64_t limit_steps, uint64_t turns[2],
                                              uint64_t *offsets, enum ebb_pool_verdict *verdict);

#endif
