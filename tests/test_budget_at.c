/* Budgets for given slow-downs, and a program on a processor of another speed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "plan/request/budget_at.h"
#include "synthetic.h"

#define MIB ((uint64_t)1 << 20)

static const struct ebb_machine lanes = {"test", {1, 0}, {1, 0}, true, EBB_NO_COSTS};

static struct ebb_plan_terms terms_of(const char *policy, const struct ebb_model *model,
                                      const struct ebb_machine *machine)
{
    struct ebb_plan_terms terms = ebb__plan_terms(ebb__plan_policy(policy), model, machine, 0);
    terms.page_bytes = 1; /* no trace of the runtime: nothing is set aside */
    return terms;
}

static uint64_t budget_at(const struct ebb_plan_terms *terms, double slowdown)
{
    struct ebb_budget_at found;
    assert_int_equal(ebb__plan_budget_at(terms, terms->model->peak_bytes, slowdown, &found, NULL),
                     EBB_OK);
    assert_true(found.budget_bytes == 0 || found.slowdown <= slowdown);
    return found.budget_bytes;
}

/* A budget that is found works, and more slowness needs less of it. */
static void more_slowness_needs_less(void **state)
{
    (void)state;
    struct ebb_model model = make_training(8, 8 * MIB, 5000000, 3);
    struct ebb_plan_terms terms = terms_of("fifo", &model, &lanes);
    uint64_t none = budget_at(&terms, 0), some = budget_at(&terms, 0.05);
    uint64_t much = budget_at(&terms, 0.5);
    assert_true(none <= model.peak_bytes && much < none && much <= some);
    struct ebb_planned planned;
    terms.budget_bytes = much;
    assert_int_equal(ebb__planned_make(&terms, &planned, NULL), EBB_OK);
    assert_true(planned.plan.feasible);
    assert_true((double)planned.plan.stall_ns <= 0.5 * (double)ebb__model_iteration_ns(&model));
    ebb__planned_fini(&planned);
    /* Without eviction the peak is needed, however slow it may be. */
    terms = terms_of("none", &model, &lanes);
    assert_true(budget_at(&terms, 1) > model.peak_bytes - model.peak_bytes / 100);
    ebb__model_fini(&model);
}

/* What transfers cost beside waits counts. */
static void overhead_counts(void **state)
{
    (void)state;
    struct ebb_model model = make_training(8, 8 * MIB, 5000000, 3);
    struct ebb_machine dear = lanes;
    dear.costs.fixed_ns = ebb__model_iteration_ns(&model);
    struct ebb_plan_terms cheap = terms_of("fifo", &model, &lanes);
    struct ebb_plan_terms terms = terms_of("fifo", &model, &dear);
    assert_true(budget_at(&terms, 0.5) > budget_at(&cheap, 0.5));
    ebb__model_fini(&model);
}

/* On a processor that is four times as fast, a lane is as good as one of a quarter of its rate. */
static void a_faster_processor_is_a_slower_lane(void **state)
{
    (void)state;
    struct ebb_model model = make_training(8, 8 * MIB, 5000000, 3);
    struct ebb_model fast = make_training(8, 8 * MIB, 5000000, 3);
    uint64_t iteration_ns = ebb__model_iteration_ns(&model), gap_ns = model.gaps[0].from_ns;
    ebb__model_scale_time(&fast, 0.25);
    assert_true(ebb__model_iteration_ns(&fast) == iteration_ns / 4);
    assert_true(fast.gaps[0].from_ns <= gap_ns / 4 && fast.gaps[0].from_ns + 1 >= gap_ns / 4);
    struct ebb_machine slow = lanes;
    slow.out.ns_per_byte = slow.in.ns_per_byte = 4;
    struct ebb_plan_terms one = terms_of("fifo", &model, &slow);
    struct ebb_plan_terms other = terms_of("fifo", &fast, &lanes);
    assert_int_equal(budget_at(&one, 0.2), budget_at(&other, 0.2));
    struct ebb_plan_terms before = terms_of("fifo", &model, &lanes);
    assert_true(budget_at(&before, 0.2) < budget_at(&other, 0.2));
    ebb__model_fini(&model);
    ebb__model_fini(&fast);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_slowness_needs_less),
        cmocka_unit_test(overhead_counts),
        cmocka_unit_test(a_faster_processor_is_a_slower_lane),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
