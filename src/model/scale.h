/* The model of a program, made from one of a run with another batch size.
 *
 * The iteration has the same events. Blocks of weights, gradients and states have the same sizes.
 * The sizes of the others have the same ratio, that of the batches. The first allocations of the
 * new run tell which are which: by a longest common subsequence of two lists of sizes. There a size
 * agrees with itself, and with itself times the ratio. */
#ifndef EBB_MODEL_SCALE_H
#define EBB_MODEL_SCALE_H

#include "model/model.h"

/* Scales `model` to the new sizes.
 *   sizes   of the newest allocations, in order, `count` of them: of an iteration at least
 *   scaled  out; release with ebb__model_fini(). Persistent blocks and parts keep their sizes. It
 *           lacks the blocks that the new run does not allocate: they are too small to be managed.
 *           Those that only the new run allocates live as the blocks allocated before them.
 *           Times are those of `model` times the ratio.
 * EBB_INFEASIBLE if the sizes do not tell one ratio, or agree with too few allocations. It may be
 * another program, or the iteration is not over. EBB_ERR_MEMORY. O(allocations of the
 * model * count) time and memory. */
EBB_NODISCARD enum ebb_status ebb__model_scale(const struct ebb_model *model, const uint64_t *sizes,
                                               size_t count, struct ebb_model *scaled);

#endif
