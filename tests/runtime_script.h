/* Makes a script from a model, with the default policy and packing. Include it after cmocka. */
#ifndef EBB_TESTS_RUNTIME_SCRIPT_H
#define EBB_TESTS_RUNTIME_SCRIPT_H

#include "machine/machine.h"
#include "plan/plan.h"
#include "plan/request/compile.h"

/* A request with sizes in whole pages and `limit_ns` of time for the planner. */
static inline struct ebb_plan_request request_for(const struct ebb_model *model,
                                                  const struct ebb_machine *machine,
                                                  uint64_t budget_bytes, uint64_t limit_ns)
{
    return (struct ebb_plan_request){.model = model,
                                     .machine = machine,
                                     .budget_bytes = budget_bytes,
                                     .page_bytes = 4096,
                                     .smallest_block_bytes = 4096,
                                     .time_limit_ns = limit_ns};
}

/* Makes a script, with static placement if `placed`. Asserts that it has an absence if the budget
 * is below the peak. Release it with free(). */
static inline struct ebb_script *script_from(const struct ebb_plan_request *request, bool placed)
{
    struct ebb_plan plan;
    struct ebb_places places;
    struct ebb_error error;
    struct ebb_script *script;
    assert_int_equal(ebb__plan_make(ebb__plan_policy("ebb"), request, &plan, &error), EBB_OK);
    assert_true(plan.feasible);
    assert_true(plan.absence_count > 0 || request->budget_bytes >= request->model->peak_bytes);
    if (placed)
        assert_int_equal(ebb__place_blocks(request, &plan, &places, &error), EBB_OK);
    assert_int_equal(ebb__compile_script(request->model, &plan, placed ? &places : NULL, &script),
                     EBB_OK);
    assert_true(ebb__script_valid(script, script->bytes));
    if (placed)
        ebb__places_fini(&places);
    ebb__plan_fini(&plan);
    return script;
}

#endif
