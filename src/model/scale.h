/* The model of a program, made from one of a run with another batch size.
 *
 * The iteration has the same events. Blocks of weights, gradients and states have the same sizes.
 * The sizes of the others have the same ratio, that of the batches. The allocations of the new run
 * tell which are which: by an alignment of two lists of sizes. There a size agrees with itself, and
 * with itself times the ratio. */
#ifndef EBB_MODEL_SCALE_H
#define EBB_MODEL_SCALE_H

#include "model/model.h"
#include "model/watch.h"

/* What is known of the new run. */
struct ebb_scale_run {
    const struct ebb_watch_block *newest; /* allocations, in order: of an iteration at least */
    size_t count;
    const struct ebb_watch_block *live; /* blocks; may be NULL if there are none */
    size_t live_count;
};

/* Scales `model` to the new run. The iteration in it need not begin where the model begins.
 *   scaled  out; release with ebb__model_fini(). Persistent blocks keep their sizes, but for those
 *           whose size is scaled in the new run, under about the same serial. Parts keep theirs.
 *           It lacks the blocks that the new run does not allocate: they are too small to be
 *           managed. Those that only the new run allocates live as the blocks allocated before
 *           them. Times are those of `model` times the ratio.
 * EBB_INFEASIBLE if the sizes do not tell one ratio, or agree with too few allocations. It may be
 * another program, or the iteration is not over. EBB_ERR_MEMORY. O(allocations of the
 * model * count) time and memory. */
EBB_NODISCARD enum ebb_status ebb__model_scale(const struct ebb_model *model,
                                               const struct ebb_scale_run *run,
                                               struct ebb_model *scaled);

#endif
