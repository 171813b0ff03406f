/* The checker of packings: no two buffers that ever live together overlap, and the figures of the
 * solution are true. It shares no code with the pools. */
#ifndef EBB_CHECK_PACKING_H
#define EBB_CHECK_PACKING_H

#include "base/status.h"
#include "plan/pool/pool.h"

/* EBB_OK where it holds. EBB_ERR_FORMAT where it does not; `why` names the first violation found,
 * buffers by their index. That a bound above the load was proved, or that a packing is the lowest,
 * is believed. EBB_ERR_MEMORY. O(n log n + n * live) with a small constant. */
EBB_NODISCARD enum ebb_status ebb__check_packing(const struct ebb_pool_problem *problem,
                                                 const struct ebb_pool_solution *solution,
                                                 struct ebb_error *error);

#endif
