/* A clock made of accesses, for iterations that have no other clock events. */
#ifndef EBB_MODEL_ACCESS_CLOCK_H
#define EBB_MODEL_ACCESS_CLOCK_H

#include "model.h"

/* Makes some accesses the only clock events of the model. Each is a use of a unit of a persistent
 * block that has not been used for a while. They are a few ms apart
 * (src/runtime/replay/access_clock.c observes them). Blocks that are allocated and freed are then
 * indistinguishable: their uses are removed, so that they are never evicted. If there are too few
 * suitable uses, the model has no clock.
 *   unit_at_tick  as for ebb__model_divide(), or NULL
 * EBB_ERR_MEMORY. O(ticks). */
EBB_NODISCARD enum ebb_status ebb__access_clock_choose(struct ebb_model *model,
                                                       const uint32_t *unit_at_tick);

#endif
