#include "plan/plan.h"

#include "plan/swap/swap.h"

#include <string.h>

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
    return ebb__plan_by(policy->name, policy->reactive, policy->make, request, plan, error);
}

enum ebb_status ebb__plan_zero_stall(const struct ebb_policy *policy,
                                     const struct ebb_plan_request *request, struct ebb_plan *plan,
                                     struct ebb_error *error)
{
    if (!policy)
        return no_policy(error);
    if (policy->zero_stall)
        return ebb__plan_by(policy->name, policy->reactive, policy->zero_stall, request, plan,
                            error);
    struct ebb_plan none;
    struct ebb_plan_request roomy = *request;
    roomy.budget_bytes = UINT64_MAX / 4;
    enum ebb_status status = ebb__plan_by("none", false, ebb__swap_none, &roomy, &none, error);
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
