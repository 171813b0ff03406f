/* Blocks that are added to a model, each with the life of one that is there.
 *
 * A larger batch makes blocks large enough to be managed that were not. Of these only the sizes are
 * known, and which allocation they follow. They are taken to be used and freed with that one, which
 * belongs to the same layer as a rule. */
#ifndef EBB_MODEL_TWINS_H
#define EBB_MODEL_TWINS_H

#include "model/model.h"

struct ebb_model_twin {
    uint32_t of;         /* index of the block whose life it has; no part, not persistent */
    uint64_t size_bytes; /* as requested */
};

/* Adds blocks to `model`. Each event of a block is followed by the same event of its twins.
 *   twins   `count` of them, those of a block in the order of their allocation
 * Calls ebb__model_derive(). On error the model is as before, and EBB_ERR_MEMORY is returned, or
 * what ebb__model_derive() says. O(ticks + twins * accesses). */
EBB_NODISCARD enum ebb_status ebb__model_add_twins(struct ebb_model *model,
                                                   const struct ebb_model_twin *twins,
                                                   size_t count);

#endif
