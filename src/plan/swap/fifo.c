/* First in, first out: what the lanes permit.
 *
 * If the load exceeds the budget, the block whose gap began first is evicted. Blocks are fetched in
 * order of need as soon as there is memory. The load is the only foresight. In a training iteration
 * the first stored block is needed last, so this is also latest need first. No schedule that moves
 * the same bytes over the same lanes is then much faster. It stalls if the lanes are the limit, and
 * moves more than necessary if gaps differ in length. O(n^2) at worst. */
#include "plan/swap/swap.h"

enum ebb_status ebb__swap_fifo(const struct ebb_plan_request *request, struct ebb_plan *plan,
                               struct ebb_error *error)
{
    struct ebb_swap swap;
    enum ebb_status status = ebb__swap_init_within(&swap, request, error);
    if (status)
        return status;
    bool met = ebb__swap_select(&swap, request->budget_bytes, EBB_SWAP_FIRST_IN);
    ebb__swap_trigger_early(&swap, request->budget_bytes);
    status = ebb__swap_finish(&swap, plan, error);
    if (!status && !met)
        plan->feasible = false;
    ebb__swap_fini(&swap);
    return status;
}
