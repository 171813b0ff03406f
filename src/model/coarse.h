/* The model of a large iteration at a lower resolution in time, for forecasts. Plans for it take a
 * bounded time, however many events the iteration has. */
#ifndef EBB_MODEL_COARSE_H
#define EBB_MODEL_COARSE_H

#include "model/model.h"

/* Makes a model of at most `most_ticks` events, which is at least 16. Blocks whose events are in
 * the same slices of the iteration become one block. A block that lives within a slice is no block
 * of its own. The load of a slice is at least the most of the original. Marks and launches are left
 * out. On EBB_OK release with ebb__model_fini(). EBB_ERR_MEMORY.
 * O(events * log(blocks)). */
EBB_NODISCARD enum ebb_status ebb__model_coarsen(const struct ebb_model *model, uint32_t most_ticks,
                                                 struct ebb_model *coarse, struct ebb_error *error);

#endif
