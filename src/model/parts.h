/* Which units of a large block have one history, and so are one part of it. */
#ifndef EBB_MODEL_PARTS_H
#define EBB_MODEL_PARTS_H

#include "model.h"

/* Divide the blocks of a model of which only some units are used at a time into parts, see struct
 * ebb_model_block. Of the uses of a part in one operation the first remains an event.
 *   unit_at_tick  which unit of EBB_HUGE_BYTES an ACCESS is to; EBB_TICK_NONE: the whole block
 * load, peak and gaps are no longer valid: ebb__model_derive() is to follow. On error the model is
 * untouched. EBB_ERR_MEMORY, EBB_ERR_LIMIT. O(ticks + accesses log accesses). */
EBB_NODISCARD enum ebb_status ebb__model_divide(struct ebb_model *model,
                                                const uint32_t *unit_at_tick);

#endif
