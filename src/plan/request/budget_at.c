#include "plan/request/budget_at.h"

#define STEPS 256 /* of the peak: finer than the planners' own chance */

/* Plans for `budget_bytes`. *slowdown is UINT64_MAX if no plan is feasible. */
static enum ebb_status slowdown_at(struct ebb_plan_terms terms, uint64_t budget_bytes,
                                   double *slowdown, struct ebb_error *error)
{
    struct ebb_planned planned;
    terms.budget_bytes = budget_bytes;
    enum ebb_status status = ebb__planned_make(&terms, &planned, error);
    if (status)
        return status;
    const struct ebb_plan *plan = &planned.plan;
    status = ebb__planned_check(&planned, error);
    *slowdown = plan->feasible ? (double)(plan->stall_ns + plan->overhead_ns) /
                                     (double)ebb__model_iteration_ns(terms.model)
                               : (double)UINT64_MAX;
    ebb__planned_fini(&planned);
    return status;
}

/* The policy's own search for the smallest budget without a stall: it is finer than bisection. */
static enum ebb_status without_stall(struct ebb_plan_terms terms, struct ebb_budget_at *found,
                                     struct ebb_error *error)
{
    struct ebb_planned planned;
    terms.effort_steps = 0;
    enum ebb_status status = ebb__planned_zero_stall(&terms, &planned, error);
    if (status)
        return status;
    status = ebb__planned_check(&planned, error);
    if (planned.plan.feasible && planned.plan.stall_ns + planned.plan.overhead_ns == 0)
        found->budget_bytes = planned.plan.budget_bytes;
    ebb__planned_fini(&planned);
    return status;
}

enum ebb_status ebb__plan_budget_at(const struct ebb_plan_terms *terms, uint64_t peak_bytes,
                                    double slowdown, struct ebb_budget_at *found,
                                    struct ebb_error *error)
{
    uint64_t low = 0, high = peak_bytes;
    double tried;
    *found = (struct ebb_budget_at){0};
    if (slowdown == 0)
        return without_stall(*terms, found, error);
    enum ebb_status status = slowdown_at(*terms, high, &tried, error);
    if (status || tried > slowdown)
        return status;
    *found = (struct ebb_budget_at){high, tried};
    while (!status && high - low > peak_bytes / STEPS + 1) {
        uint64_t middle = low + (high - low) / 2;
        status = slowdown_at(*terms, middle, &tried, error);
        if (!status && tried <= slowdown) {
            high = middle;
            *found = (struct ebb_budget_at){high, tried};
        } else {
            low = middle;
        }
    }
    return status;
}
