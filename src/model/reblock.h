/* A model with other blocks: some have other sizes, some leave, some come.
 *
 * A larger batch makes blocks large enough to be managed that were not. Of these only the sizes are
 * known, and which allocation they follow. They are taken to be used and freed with that one, which
 * belongs to the same layer as a rule: they are its twins. */
#ifndef EBB_MODEL_REBLOCK_H
#define EBB_MODEL_REBLOCK_H

#include "model/model.h"

struct ebb_model_twin {
    uint32_t of;         /* index of the block whose life it has; no part, not persistent */
    uint64_t size_bytes; /* as requested */
};

/* Makes a model of the same iteration with other blocks. Those that stay are in the same order, and
 * twins come behind them. Each event of a block is followed by the same event of its twins.
 *   sizes   [block_count]: new size of each block; 0: it leaves, with its events
 *   twins   `count` of them, of blocks that stay; those of a block in the order of their allocation
 *   made    out; release with ebb__model_fini(). Load, peak and gaps are missing: the caller calls
 *           ebb__model_derive().
 * EBB_ERR_MEMORY. O(ticks + blocks + accesses of blocks and twins). */
EBB_NODISCARD enum ebb_status ebb__model_reblock(const struct ebb_model *model,
                                                 const uint64_t *sizes,
                                                 const struct ebb_model_twin *twins, size_t count,
                                                 struct ebb_model *made);

#endif
