/* Which gradients lie in the memory of data: the choice of Layrub within a layer.
 *
 * A backward layer makes the gradient of the data that it reads. After it has computed the gradient
 * of its weights, nobody needs the data, so the other gradient can lie there. Here, data is an
 * output of a forward layer that the iteration allocates. A layer uses it for the last time. In the
 * same layer a gradient is allocated that later backward layers use, and nobody else. Work space
 * does not outlive its layer, and gradients of weights are used by the update: both are none. */
#ifndef EBB_LAB_SWAP_SHARES_H
#define EBB_LAB_SWAP_SHARES_H

#include "model/stages.h"
#include "plan/plan.h"

/* Sets rules->shares, which the caller frees. In each layer the larger gradients choose first, and
 * take the smallest data that holds them. So as many bytes as possible are shared. EBB_ERR_MEMORY.
 * O(blocks log blocks + the square of a layer's blocks). */
EBB_NODISCARD enum ebb_status ebb__shares_choose(const struct ebb_plan_request *request,
                                                 const struct ebb_stages *stages,
                                                 struct ebb_plan_rules *rules,
                                                 struct ebb_error *error);

#endif
