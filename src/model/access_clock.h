/* A clock out of accesses, for iterations that have no other. */
#ifndef EBB_MODEL_ACCESS_CLOCK_H
#define EBB_MODEL_ACCESS_CLOCK_H

#include "model.h"

/* Make some accesses the clock events of the model, and no others: uses of a unit of a persistent
 * block that has not been used for a while, a few ms apart (src/runtime/replay/access_clock.c sees
 * them). Blocks that are allocated and freed cannot be told from others then: their uses are
 * removed, so that they are never evicted. If there are too few such uses, the model has no clock.
 *   unit_at_tick  as for ebb__model_divide(), or NULL
 * EBB_ERR_MEMORY. O(ticks). */
EBB_NODISCARD enum ebb_status ebb__access_clock_choose(struct ebb_model *model,
                                                       const uint32_t *unit_at_tick);

#endif
