/* One planner's plan, and the smallest budget at which it does not stall, by bisection. */
#include "plan/plan.h"

#include <stdio.h>

#define ZERO_STALL_STEPS 16 /* bisection down to peak / 65,536 */

/* What the machine charges for the transfers of one iteration. */
static uint64_t overhead_ns(const struct ebb_plan_request *request, const struct ebb_plan *plan)
{
    uint64_t ns = 0;
    for (uint32_t i = 0; i < plan->absence_count; i++) {
        const struct ebb_absence *absence = &plan->absences[i];
        uint64_t bytes = ebb__plan_block_bytes(request, &request->model->blocks[absence->block]);
        ns += ebb__machine_transfer_ns(request->machine, bytes) * (absence->drops ? 1 : 2);
    }
    return ns;
}

enum ebb_status ebb__plan_by(const char *name, bool reactive, ebb_planner make,
                             const struct ebb_plan_request *request, struct ebb_plan *plan,
                             struct ebb_error *error)
{
    struct ebb_plan made = {.reactive = reactive};
    snprintf(made.policy, sizeof made.policy, "%s", name);
    enum ebb_status status = make(request, &made, error);
    if (status) {
        ebb__plan_fini(&made);
        return status;
    }
    made.overhead_ns = overhead_ns(request, &made);
    *plan = made;
    return EBB_OK;
}

enum ebb_status ebb__plan_search_zero_stall(ebb_planner make,
                                            const struct ebb_plan_request *request,
                                            struct ebb_plan *plan, struct ebb_error *error)
{
    struct ebb_plan_request lower = *request;
    uint64_t started_ns = ebb__now_ns(), before_ns = plan->plan_ns;
    uint64_t high = plan->budget_bytes;
    uint64_t low = plan->smallest_feasible_bytes ? plan->smallest_feasible_bytes - 1 : 0;
    for (int step = 0; step < ZERO_STALL_STEPS && low < high && high - low > 1; step++) {
        struct ebb_plan tried;
        lower.budget_bytes = low + (high - low) / 2;
        enum ebb_status status =
            ebb__plan_by(plan->policy, plan->reactive, make, &lower, &tried, error);
        if (status)
            return status;
        bool works = tried.feasible && tried.stall_ns == 0;
        if (works) {
            ebb__plan_fini(plan);
            *plan = tried;
            high = lower.budget_bytes;
        } else {
            ebb__plan_fini(&tried);
            low = lower.budget_bytes;
        }
    }
    plan->plan_ns = before_ns + ebb__now_ns() - started_ns;
    return EBB_OK;
}
