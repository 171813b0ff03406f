/* Least recently used: shows the cost of having no plan.
 *
 * Problem: keep a budget without knowledge of the future. Method: if memory is needed, the least
 * recently used block is evicted. An absent block is fetched on access (src/sim/reactive.h). A run
 * without a script does the same; the plan only predicts it. Source: folklore. Other policies are
 * compared with it. */
#include "base/clock.h"
#include "lab/swap/policies.h"
#include "sim/reactive.h"

enum ebb_status ebb__swap_lru(const struct ebb_plan_request *request, struct ebb_plan *plan,
                              struct ebb_error *error)
{
    uint64_t started_ns = ebb__now_ns();
    struct ebb_reactive_request reactive = {.model = request->model,
                                            .machine = request->machine,
                                            .budget_bytes = request->budget_bytes,
                                            .page_bytes = request->page_bytes,
                                            .smallest_block_bytes = request->smallest_block_bytes};
    struct ebb_reactive_result result;
    enum ebb_status status = ebb__simulate_reactive(&reactive, &result, error);
    if (status)
        return status;
    plan->budget_bytes = request->budget_bytes;
    plan->smallest_feasible_bytes = result.smallest_feasible_bytes;
    plan->absences = result.absences;
    plan->absence_count = result.absence_count;
    plan->peak_bytes = result.peak_bytes;
    plan->feasible = result.peak_bytes <= request->budget_bytes;
    plan->stall_ns = result.stall_ns;
    plan->iteration_ns = result.iteration_ns;
    plan->moved_out_bytes = result.moved_out_bytes;
    plan->moved_in_bytes = result.moved_in_bytes;
    plan->plan_ns = ebb__now_ns() - started_ns;
    return EBB_OK;
}
