/* Makes plans for tests, checks them, and simulates them from their absences alone. Include it
 * after cmocka. */
#ifndef EBB_TESTS_PLAN_RIG_H
#define EBB_TESTS_PLAN_RIG_H

#include "check/check.h"
#include "plan/plan.h"
#include "policies.h"
#include "sim/simulate.h"

/* A machine with lanes of the given GB/s and a latency of 50 us for each transfer. */
static inline struct ebb_machine machine_of(double out_gbps, double in_gbps, bool duplex)
{
    return (struct ebb_machine){
        "test", {1 / out_gbps, 50000}, {1 / in_gbps, 50000}, duplex, EBB_NO_COSTS};
}

static inline struct ebb_plan make(const char *policy, const struct ebb_plan_request *request)
{
    struct ebb_plan plan;
    struct ebb_error error;
    if (ebb__plan_make(policy_named(policy), request, &plan, &error) != EBB_OK)
        fail_msg("%s: %s", error.what, error.why);
    assert_int_equal(plan.budget_bytes, request->budget_bytes);
    return plan;
}

/* Asserts that the checker accepts the plan, and that the simulator gets the same figures from its
 * absences alone. */
static inline void assert_holds(const struct ebb_plan_request *request, const struct ebb_plan *plan)
{
    struct ebb_check_request check = {request->model, request->machine, plan->budget_bytes,
                                      request->page_bytes};
    struct ebb_error error;
    if (ebb__check_plan(&check, plan, &error) != EBB_OK)
        fail_msg("%s at %llu of %llu: %s", plan->policy, (unsigned long long)plan->budget_bytes,
                 (unsigned long long)request->model->peak_bytes, error.why);
    for (uint32_t i = 1; i < plan->absence_count; i++)
        assert_true(plan->absences[i - 1].out_start_ns <= plan->absences[i].out_start_ns);
    if (plan->reactive)
        return;
    struct ebb_sim_request again = {request->model,      request->machine,   plan->absences,
                                    plan->absence_count, plan->budget_bytes, request->page_bytes,
                                    &plan->rules};
    struct ebb_sim_result result;
    assert_int_equal(ebb__simulate(&again, NULL, &result, NULL), EBB_OK);
    assert_int_equal(result.iteration_ns, plan->iteration_ns);
    assert_int_equal(result.stall_ns, plan->stall_ns);
    assert_int_equal(result.peak_bytes, plan->peak_bytes);
    assert_int_equal(result.moved_out_bytes, plan->moved_out_bytes);
    assert_int_equal(result.moved_in_bytes, plan->moved_in_bytes);
    assert_int_equal(result.feasible, plan->feasible);
}

#endif
