/* Policies whose engine swaps passively beside its plan: if memory is lacking, it evicts what the
 * plan does not, and it fetches on access. The simulator does that by the plan's rules
 * (src/sim/passive.c). */
#ifndef EBB_LAB_SWAP_ENGINE_H
#define EBB_LAB_SWAP_ENGINE_H

#include "plan/swap/swap.h"

/* The rules of such a plan; for swap->rules, which outlives the swap's use. */
struct ebb_plan_rules ebb__engine_rules(const struct ebb_plan_request *request);

/* As ebb__swap_finish(), for a swap with these rules. The smallest budget is what one operation
 * needs, whatever the plan evicts. */
EBB_NODISCARD enum ebb_status ebb__engine_finish(struct ebb_swap *swap, struct ebb_plan *plan,
                                                 struct ebb_error *error);

#endif
