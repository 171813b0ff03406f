#include "plan/plan.h"

#include "plan/swap/swap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ZERO_STALL_STEPS 16 /* bisection to peak / 65,536 */

typedef enum ebb_status (*planner)(const struct ebb_plan_request *request, struct ebb_plan *plan,
                                   struct ebb_error *error);

/* A name may stand for a variant, behind a colon; the planner reads it from plan->policy. */
struct policy {
    const char *name;
    planner make;
    planner zero_stall; /* the policy's own way to the smallest budget without a stall, or NULL */
    bool reactive;
};

static const struct policy policies[] = {
    {"ebb", ebb__swap_ebb, ebb__swap_ebb_zero_stall, false},
    {"appobmem", ebb__swap_appobmem, ebb__swap_appobmem_zero_stall, false},
    {"autoswap", ebb__swap_autoswap, ebb__swap_autoswap_zero_stall, false},
    {"autoswap:vote", ebb__swap_autoswap, ebb__swap_autoswap_zero_stall, false},
    {"autoswap:doa", ebb__swap_autoswap, ebb__swap_autoswap_zero_stall, false},
    {"autoswap:aoa", ebb__swap_autoswap, ebb__swap_autoswap_zero_stall, false},
    {"autoswap:wdoa", ebb__swap_autoswap, ebb__swap_autoswap_zero_stall, false},
    {"autoswap:swdoa", ebb__swap_autoswap, ebb__swap_autoswap_zero_stall, false},
    {"autoswap:bo", ebb__swap_autoswap, ebb__swap_autoswap_zero_stall, false},
    {"vdnn:all", ebb__swap_vdnn, NULL, false},
    {"vdnn:conv", ebb__swap_vdnn, NULL, false},
    {"fifo", ebb__swap_fifo, NULL, false},
    {"lru", ebb__swap_lru, NULL, true},
    {"none", ebb__swap_none, NULL, false},
};

#define POLICY_COUNT (sizeof policies / sizeof policies[0])

static const struct policy *policy_find(const char *name)
{
    for (size_t i = 0; i < POLICY_COUNT; i++)
        if (strcmp(policies[i].name, name) == 0)
            return &policies[i];
    return NULL;
}

const char *ebb__plan_policy_name(size_t index)
{
    return index < POLICY_COUNT ? policies[index].name : NULL;
}

bool ebb__plan_policy_known(const char *policy)
{
    return policy_find(policy) != NULL;
}

bool ebb__plan_policy_reactive(const char *policy)
{
    const struct policy *found = policy_find(policy);
    return found && found->reactive;
}

static enum ebb_status unknown_policy(const char *policy, struct ebb_error *error)
{
    char known[256] = "";
    for (size_t i = 0; i < POLICY_COUNT; i++) {
        strncat(known, i ? ", " : "known: ", sizeof known - strlen(known) - 1);
        strncat(known, policies[i].name, sizeof known - strlen(known) - 1);
    }
    ebb__fail(error, EBB_ERR_ARGUMENT, policy, "no policy of this name");
    ebb__error_set_remedy(error, "%s", known);
    return EBB_ERR_ARGUMENT;
}

static enum ebb_status plan_by(const struct policy *policy, planner make,
                               const struct ebb_plan_request *request, struct ebb_plan *plan,
                               struct ebb_error *error)
{
    struct ebb_plan made = {.reactive = policy->reactive};
    snprintf(made.policy, sizeof made.policy, "%s", policy->name);
    enum ebb_status status = make(request, &made, error);
    if (status)
        ebb__plan_fini(&made);
    else
        *plan = made;
    return status;
}

enum ebb_status ebb__plan_make(const char *policy, const struct ebb_plan_request *request,
                               struct ebb_plan *plan, struct ebb_error *error)
{
    const struct policy *found = policy_find(policy);
    if (!found)
        return unknown_policy(policy, error);
    return plan_by(found, found->make, request, plan, error);
}

enum ebb_status ebb__plan_search_zero_stall(const struct ebb_plan_request *request,
                                            struct ebb_plan *plan, struct ebb_error *error)
{
    struct ebb_plan_request lower = *request;
    uint64_t started_ns = ebb__now_ns(), before_ns = plan->plan_ns;
    uint64_t high = plan->budget_bytes;
    uint64_t low = plan->smallest_feasible_bytes ? plan->smallest_feasible_bytes - 1 : 0;
    for (int step = 0; step < ZERO_STALL_STEPS && low < high && high - low > 1; step++) {
        struct ebb_plan tried;
        lower.budget_bytes = low + (high - low) / 2;
        enum ebb_status status = ebb__plan_make(plan->policy, &lower, &tried, error);
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

enum ebb_status ebb__plan_zero_stall(const char *policy, const struct ebb_plan_request *request,
                                     struct ebb_plan *plan, struct ebb_error *error)
{
    const struct policy *found = policy_find(policy);
    if (!found)
        return unknown_policy(policy, error);
    if (found->zero_stall)
        return plan_by(found, found->zero_stall, request, plan, error);
    struct ebb_plan none;
    struct ebb_plan_request roomy = *request;
    roomy.budget_bytes = UINT64_MAX / 4;
    enum ebb_status status = ebb__plan_make("none", &roomy, &none, error);
    if (status)
        return status;
    roomy.budget_bytes = none.peak_bytes;
    ebb__plan_fini(&none);
    status = plan_by(found, found->make, &roomy, plan, error);
    if (status)
        return status;
    if (plan->stall_ns == 0)
        status = ebb__plan_search_zero_stall(request, plan, error);
    if (status)
        ebb__plan_fini(plan);
    return status;
}

void ebb__plan_fini(struct ebb_plan *plan)
{
    free(plan->absences);
    plan->absences = NULL;
    plan->absence_count = 0;
}
