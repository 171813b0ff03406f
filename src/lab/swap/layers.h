/* What policies by layers share: which blocks are outputs of layers, and which gaps lie between the
 * passes. And policies that know no budget: their plans are made for unlimited memory, and answer
 * whether the budget holds that. */
#ifndef EBB_LAB_SWAP_LAYERS_H
#define EBB_LAB_SWAP_LAYERS_H

#include "model/stages.h"
#include "plan/swap/swap.h"

/* True if a layer makes the block in forward. The block is then allocated there. A block that the
 * iteration does not allocate is written there. O(accesses of the block). */
bool ebb__layers_is_output(const struct ebb_model *model, const struct ebb_stages *stages,
                           uint32_t block);

/* The event at which a fetch starts one layer ahead: the layer before the one that needs the block
 * begins. */
uint32_t ebb__layers_fetch_tick(const struct ebb_stages *stages, const struct ebb_swap_gap *gap);

/* A choice for ebb__swap_narrow(); the context is the stages. True if forward uses an output for
 * the last time before the gap, and backward for the first time after it. There must be a whole
 * layer for its fetch after it has left. */
bool ebb__layers_is_migrated(const struct ebb_swap *swap, const struct ebb_swap_gap *gap,
                             const void *context, uint32_t *margin_ticks);

/* The same request without a budget. */
struct ebb_plan_request ebb__unlimited(const struct ebb_plan_request *request);

/* As ebb__swap_finish(), for a swap whose request is unlimited. The plan is then for
 * `budget_bytes`. It is feasible if they hold its peak, which is also the smallest budget. The plan
 * takes *rules over, also on an error. */
EBB_NODISCARD enum ebb_status ebb__unlimited_finish(struct ebb_swap *swap, uint64_t budget_bytes,
                                                    const struct ebb_plan_rules *rules,
                                                    struct ebb_plan *plan, struct ebb_error *error);

/* For such policies, as ebb__plan_zero_stall(): the only budget that the policy needs is its
 * peak. */
EBB_NODISCARD enum ebb_status ebb__unlimited_zero_stall(ebb_planner make,
                                                        const struct ebb_plan_request *request,
                                                        struct ebb_plan *plan,
                                                        struct ebb_error *error);

#endif
