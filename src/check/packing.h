/* The checker of packings: buffers that are live together must not overlap, and the figures of the
 * solution must be true. It shares no code with the pools. */
#ifndef EBB_CHECK_PACKING_H
#define EBB_CHECK_PACKING_H

#include "base/status.h"
#include "plan/pool/pool.h"

/* Returns EBB_OK if the packing is valid, EBB_ERR_FORMAT if not: `why` names the first violation,
 * with buffers by index. Two claims are not verified: that a bound above the load was proved, and
 * that a packing is the lowest. EBB_ERR_MEMORY. O(n log n + n * live) with a small constant. */
EBB_NODISCARD enum ebb_status ebb__check_packing(const struct ebb_pool_problem *problem,
                                                 const struct ebb_pool_solution *solution,
                                                 struct ebb_error *error);

#endif
