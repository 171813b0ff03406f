/* Checks the input of a packing: are the buffers exactly the residencies of the model's blocks,
 * under the absences of a plan? It shares no code with pool/model.c, which makes the buffers.
 *
 *   - The instants contain each tick once, in order, and each end of a copy out and each start of a
 *     copy in once. Each copy's instant is at its time, between the two uses around its absence.
 *   - Each residency has exactly one buffer in each iteration of the circle, with the same begin
 *     and end. A residency longer than the circle has one permanent buffer for each instance that
 *     exists at one time.
 *   - Sizes are those of the blocks, rounded up to pages. The load is that of the residencies. */
#ifndef EBB_LAB_CHECK_RESIDENCY_H
#define EBB_LAB_CHECK_RESIDENCY_H

#include "base/status.h"
#include "lab/pool/model.h"

/* EBB_OK if all of this holds. Otherwise EBB_ERR_FORMAT; `why` names the first violation found.
 * EBB_ERR_MEMORY. The absences must have passed ebb__check_plan() before.
 * O(ticks + absences + buffers). */
EBB_NODISCARD enum ebb_status ebb__check_residencies(const struct ebb_pool_source *source,
                                                     const struct ebb_pool_blocks *blocks,
                                                     struct ebb_error *error);

#endif
