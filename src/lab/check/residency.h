/* The checker of what is packed: are these buffers the residencies of the model's blocks, under the
 * absences of a plan? It shares no code with what makes the buffers.
 *
 *   - the instants are every tick once and in order, and every end of a copy out and start of a copy
 *     in once, each at its time and between the two uses that its absence lies between
 *   - every residency is exactly one buffer in each iteration on the circle, from where it begins to
 *     where it ends in the life of its block; or, where it outlives the circle, as many buffers as it
 *     has instances at once, there all the time
 *   - sizes are the blocks' own, rounded up to pages, and the load is that of the residencies */
#ifndef EBB_LAB_CHECK_RESIDENCY_H
#define EBB_LAB_CHECK_RESIDENCY_H

#include "base/status.h"
#include "lab/pool/model.h"

/* EBB_OK where it holds. EBB_ERR_FORMAT where it does not; `why` names the first violation found.
 * That the absences are those of a plan is for ebb__check_plan() to say, before. EBB_ERR_MEMORY.
 * O(ticks + absences + buffers). */
EBB_NODISCARD enum ebb_status ebb__check_residencies(const struct ebb_pool_source *source,
                                                     const struct ebb_pool_blocks *blocks,
                                                     struct ebb_error *error);

#endif
