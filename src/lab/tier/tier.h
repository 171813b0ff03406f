/* Policies for two tiers: which block lies where, and when it moves.
 *
 *     size_t count;
 *     const struct ebb_tier_policy *policies = ebb__tier_policies(&count);
 *     struct ebb_tier_row row;
 *     status = ebb__tier_run(&policies[0], &request, &row, &error);   // plans, simulates, checks
 *     ebb__tier_plan_fini(&row.plan);
 *
 * A policy either makes a plan, or is a memory of its own kind (a cache), which is simulated as it
 * is. Every plan passes the checker before it is a row. */
#ifndef EBB_LAB_TIER_TIER_H
#define EBB_LAB_TIER_TIER_H

#include "base/status.h"
#include "plan/tiers.h"
#include "sim/tiers.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes *plan, which is initialised. The caller releases it in any case. EBB_ERR_UNSUPPORTED if a
 * solver is missing. */
typedef enum ebb_status (*ebb_tier_planner)(const struct ebb_tier_request *request,
                                            const char *variant, struct ebb_tier_plan *plan,
                                            struct ebb_error *error);

struct ebb_tier_policy {
    const char *name;    /* `autotm:sync` */
    const char *variant; /* what the planner is told */
    ebb_tier_planner make;
    enum ebb_status (*simulate)(const struct ebb_tier_request *request,
                                struct ebb_tier_result *result, struct ebb_error *error);
    const char *freedom; /* what its authors' system may do */
};

struct ebb_tier_row {
    const struct ebb_tier_policy *policy;
    struct ebb_tier_plan plan; /* empty for a cache */
    struct ebb_tier_result result;
    uint64_t budget_bytes;
};

const struct ebb_tier_policy *ebb__tier_policies(size_t *count);
/* The policy of that name, or NULL. */
const struct ebb_tier_policy *ebb__tier_policy(const char *name);

/* Plans, simulates and checks. EBB_ERR_FORMAT if the plan is wrong. */
EBB_NODISCARD enum ebb_status ebb__tier_run(const struct ebb_tier_policy *policy,
                                            const struct ebb_tier_request *request,
                                            struct ebb_tier_row *row, struct ebb_error *error);

#endif
