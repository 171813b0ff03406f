/* Every policy of the table: its plans pass the checker, the simulator agrees with what they
 * predict, and what each is said to do it does; scores against sums by hand, choices and peaks
 * against brute force where that is small. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "check/check.h"
#include "plan/plan.h"
#include "plan/swap/bayes.h"
#include "plan/swap/straddle.h"
#include "sim/reactive.h"
#include "sim/simulate.h"
#include "synthetic.h"

#include <math.h>
#include <stdint.h>

static struct ebb_machine machine_of(double out_gbps, double in_gbps, bool duplex)
{
    return (struct ebb_machine){"test", {1 / out_gbps, 50000}, {1 / in_gbps, 50000}, duplex};
}

static struct ebb_plan make(const char *policy, const struct ebb_plan_request *request)
{
    struct ebb_plan plan;
    struct ebb_error error;
    if (ebb__plan_make(policy, request, &plan, &error) != EBB_OK)
        fail_msg("%s: %s", error.what, error.why);
    return plan;
}

/* The checker accepts it, and the simulator comes to the same figures from the absences alone. */
static void assert_holds(const struct ebb_plan_request *request, const struct ebb_plan *plan)
{
    struct ebb_check_request check = {request->model, request->machine, plan->budget_bytes,
                                      request->page_bytes};
    struct ebb_error error;
    if (ebb__check_plan(&check, plan, &error) != EBB_OK)
        fail_msg("%s at %llu of %llu: %s", plan->policy, (unsigned long long)plan->budget_bytes,
                 (unsigned long long)request->model->peak_bytes, error.why);
    if (plan->reactive)
        return;
    struct ebb_sim_request again = {request->model,      request->machine,   plan->absences,
                                    plan->absence_count, plan->budget_bytes, request->page_bytes};
    struct ebb_sim_result result;
    assert_int_equal(ebb__simulate(&again, NULL, &result, NULL), EBB_OK);
    assert_int_equal(result.iteration_ns, plan->iteration_ns);
    assert_int_equal(result.stall_ns, plan->stall_ns);
    assert_int_equal(result.peak_bytes, plan->peak_bytes);
    assert_int_equal(result.moved_out_bytes, plan->moved_out_bytes);
    assert_int_equal(result.moved_in_bytes, plan->moved_in_bytes);
    assert_int_equal(result.feasible, plan->feasible);
}

static void random_models(void **state)
{
    (void)state;
    uint32_t stalled[32] = {0}, feasible[32] = {0}, absences[32] = {0};
    for (uint64_t seed = 1; seed <= 90; seed++) {
        uint64_t rate = seed % 4; /* lanes from generous to hopeless */
        /* Blocks of up to 4 MiB: AutoSwap leaves those below 1 MiB alone. */
        struct ebb_model model =
            make_random(seed, 20 + (uint32_t)(seed % 7) * 30, 4 * EBB_MIB, 300000);
        struct ebb_machine machine = machine_of(rate == 0 ? 40 : 3.0 / (double)rate, 10, seed % 2);
        for (uint64_t percent = 100; percent >= 20; percent -= 10) {
            const char *policy;
            for (size_t p = 0; (policy = ebb__plan_policy_name(p)); p++) {
                if (strcmp(policy, "ebb") == 0)
                    continue; /* test_plan.c */
                struct ebb_plan_request request = {.model = &model,
                                                   .machine = &machine,
                                                   .budget_bytes = model.peak_bytes * percent / 100,
                                                   .page_bytes = seed % 3 ? 1 : 4096,
                                                   .smallest_block_bytes = seed % 5 ? 0 : 1000000,
                                                   .time_limit_ns = 1000000};
                struct ebb_plan plan = make(policy, &request);
                assert_holds(&request, &plan);
                assert_string_equal(plan.policy, policy);
                if (plan.feasible != (plan.smallest_feasible_bytes <= plan.budget_bytes))
                    fail_msg("%s, seed %llu, %llu %%: feasible is %d, smallest feasible %llu of "
                             "%llu",
                             policy, (unsigned long long)seed, (unsigned long long)percent,
                             plan.feasible, (unsigned long long)plan.smallest_feasible_bytes,
                             (unsigned long long)plan.budget_bytes);
                stalled[p] += plan.stall_ns > 0;
                feasible[p] += plan.feasible;
                absences[p] += plan.absence_count;
                ebb__plan_fini(&plan);
            }
        }
        ebb__model_fini(&model);
    }
    /* The cases must not all be of one kind. */
    const char *policy;
    for (size_t p = 0; (policy = ebb__plan_policy_name(p)); p++) {
        print_message("%-16s %4u feasible, %4u stall, %5u absences\n", policy, feasible[p],
                      stalled[p], absences[p]);
        if (strcmp(policy, "ebb") != 0 && strcmp(policy, "none") != 0)
            assert_true(feasible[p] > 60 && stalled[p] > 20 && absences[p] > 200);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
