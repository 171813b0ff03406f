#include "lab/tier/tier.h"

#include "base/clock.h"
#include "check/tiers.h"
#include "lab/tier/policies.h"

#include <string.h>

#define OF_PLACES "any placement and copy at any operation"

static const struct ebb_tier_policy policies[] = {
    {"deeptm", "", ebb__tier_deeptm, NULL, OF_PLACES ", groups and runs of pages"},
    {"deeptm:-aggregation", "a", ebb__tier_deeptm, NULL, "without pages that small blocks share"},
    {"deeptm:-runs", "r", ebb__tier_deeptm, NULL, "each block is a transfer of its own"},
    {"deeptm:-prices", "p", ebb__tier_deeptm, NULL, "without the decomposed performance model"},
    {"deeptm:-heat", "h", ebb__tier_deeptm, NULL, "blocks in the order of their size"},
    {"deeptm:-regret", "w", ebb__tier_deeptm, NULL, "the weights of heat are fixed"},
    {"deeptm:-asynchronous", "s", ebb__tier_deeptm, NULL, "synchronous copies only"},
    {"deeptm:+learning", "L", ebb__tier_deeptm, NULL, "a trained network chooses the trials"},
    {"autotm:static", "static", ebb__tier_autotm, NULL, "one place for a block's whole life"},
    {"autotm:sync", "sync", ebb__tier_autotm, NULL, "any placement; synchronous copies"},
    {"autotm:async", "async", ebb__tier_autotm, NULL,
     "as sync, and copies that one operation near the use hides"},
    {"ebb", "", ebb__tier_ebb, NULL, "what is used is in fast memory"},
    {"sentinel", "", ebb__tier_sentinel, NULL,
     "reserved memory for short lives; copies at intervals; slow memory in place"},
    {"first-touch", "", ebb__tier_first_touch, NULL, "no copies"},
    {"hardware-cache", "", NULL, ebb__tier_cache, "a direct-mapped cache; no plan"},
};

const struct ebb_tier_policy *ebb__tier_policies(size_t *count)
{
    *count = sizeof policies / sizeof policies[0];
    return policies;
}

const struct ebb_tier_policy *ebb__tier_policy(const char *name)
{
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++)
        if (strcmp(policies[i].name, name) == 0)
            return &policies[i];
    return NULL;
}

static enum ebb_status plan_make(const struct ebb_tier_policy *policy,
                                 const struct ebb_tier_request *request, struct ebb_tier_row *row,
                                 struct ebb_error *error)
{
    uint64_t started_ns = ebb__now_ns();
    if (!ebb__tier_plan_init(&row->plan, request->operations))
        return ebb__fail(error, EBB_ERR_MEMORY, policy->name, "no memory to plan");
    enum ebb_status status = policy->make(request, policy->variant, &row->plan, error);
    row->plan.plan_ns = ebb__now_ns() - started_ns;
    if (!status)
        status = ebb__tiers_simulate(request, &row->plan, &row->result, error);
    if (status)
        return status;
    struct ebb_tier_claim claim = {request->budget_bytes, row->result.fast_peak_bytes,
                                   row->result.slow_peak_bytes, row->result.iteration_ns};
    return ebb__check_tiers(request->operations, request->machine, &row->plan, &claim, error);
}

enum ebb_status ebb__tier_run(const struct ebb_tier_policy *policy,
                              const struct ebb_tier_request *request, struct ebb_tier_row *row,
                              struct ebb_error *error)
{
    *row = (struct ebb_tier_row){.policy = policy, .budget_bytes = request->budget_bytes};
    if (policy->simulate)
        return policy->simulate(request, &row->result, error);
    enum ebb_status status = plan_make(policy, request, row, error);
    if (status)
        ebb__tier_plan_fini(&row->plan);
    return status;
}
