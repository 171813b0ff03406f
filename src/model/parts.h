/* Division of a large block into parts: runs of units with the same history. */
#ifndef EBB_MODEL_PARTS_H
#define EBB_MODEL_PARTS_H

#include "model.h"

/* Divides the blocks of a model that are used unit by unit into parts, see struct ebb_model_block.
 * Of the uses of a part in one operation, only the first remains an event.
 *   unit_at_tick  the unit of EBB_HUGE_BYTES that an ACCESS uses; EBB_TICK_NONE: the whole block
 * load, peak and gaps are then invalid: call ebb__model_derive(). On error the model is untouched.
 * EBB_ERR_MEMORY, EBB_ERR_LIMIT. O(ticks + accesses log accesses). */
EBB_NODISCARD enum ebb_status ebb__model_divide(struct ebb_model *model,
                                                const uint32_t *unit_at_tick);

#endif
