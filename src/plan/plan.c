#include "plan/plan.h"

#include "plan/swap/swap.h"

#include <stdio.h>
#include <string.h>

#define ZERO_STALL_STEPS 16 /* bisection down to peak / 65,536 */

static const struct ebb_policy policies[] = {
    {"ebb", ebb__swap_ebb, ebb__swap_ebb_zero_stall, false, NULL},
    {"fifo", ebb__swap_fifo, NULL, false, NULL},
    {"none", ebb__swap_none, NULL, false, NULL},
};

const struct ebb_policy *ebb__plan_policies(size_t *count)
{
    *count = sizeof policies / sizeof policies[0];
    return policies;
}

const struct ebb_policy *ebb__plan_policy(const char *name)
{
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++)
        if (strcmp(policies[i].name, name) == 0)
            return &policies[i];
    return NULL;
}

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

static enum ebb_status plan_by(const char *name, bool reactive, ebb_planner make,
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

static enum ebb_status no_policy(struct ebb_error *error)
{
    return ebb__fail(error, EBB_ERR_ARGUMENT, "plan", "no policy of this name");
}

enum ebb_status ebb__plan_make(const struct ebb_policy *policy,
                               const struct ebb_plan_request *request, struct ebb_plan *plan,
                               struct ebb_error *error)
{
    if (!policy)
        return no_policy(error);
    return plan_by(policy->name, policy->reactive, policy->make, request, plan, error);
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
        enum ebb_status status = plan_by(plan->policy, plan->reactive, make, &lower, &tried, error);
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

enum ebb_status ebb__plan_zero_stall(const struct ebb_policy *policy,
                                     const struct ebb_plan_request *request, struct ebb_plan *plan,
                                     struct ebb_error *error)
{
    if (!policy)
        return no_policy(error);
    if (policy->zero_stall)
        return plan_by(policy->name, policy->reactive, policy->zero_stall, request, plan, error);
    struct ebb_plan none;
    struct ebb_plan_request roomy = *request;
    roomy.budget_bytes = UINT64_MAX / 4;
    enum ebb_status status = plan_by("none", false, ebb__swap_none, &roomy, &none, error);
    if (status)
        return status;
    roomy.budget_bytes = none.peak_bytes;
    ebb__plan_fini(&none);
    status = ebb__plan_make(policy, &roomy, plan, error);
    if (status)
        return status;
    if (plan->stall_ns == 0)
        status = ebb__plan_search_zero_stall(policy->make, request, plan, error);
    if (status)
        ebb__plan_fini(plan);
    return status;
}
