/* Blocks that live longer than an iteration, for example an output that the next step still reads.
 * Two instances are live at once. A plan for the block must fit the real accesses of both. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/size.h"
#include "base/vec.h"
#include "check/check.h"
#include "model/analyse.h"
#include "policies.h"
#include "sim/simulate.h"

#include <string.h>

enum { LAPS = 6, TICKS = 8 };
#define TURN_NS 100000000u
#define STEP_NS (TURN_NS / 10)
#define KEPT_BYTES (4 * EBB_MIB)
#define SCRATCH_BYTES EBB_MIB
#define PEAK_BYTES (11 * EBB_MIB)

/* A step makes a block, uses it at 1, reads the previous step's block at 4, and frees that at 7. */
static struct ebb_model build(void)
{
    EBB_VEC(struct ebb_event) events = {0};
    for (uint64_t lap = 0; lap < LAPS; lap++) {
        uint64_t at = lap * TURN_NS, kept = 3 * lap + 1, old = kept - 3;
        const struct ebb_event step[TICKS] = {
            {at, kept, KEPT_BYTES, EBB_EVENT_ALLOC, 0, 0, 0, 0},
            {at + STEP_NS, kept, KEPT_BYTES, EBB_EVENT_ACCESS, EBB_ACCESS_WRITE, 0, 0, 0},
            {at + 2 * STEP_NS, kept + 1, SCRATCH_BYTES, EBB_EVENT_ALLOC, 0, 0, 0, 0},
            {at + 3 * STEP_NS, kept + 2, 2 * SCRATCH_BYTES, EBB_EVENT_ALLOC, 0, 0, 0, 0},
            {at + 4 * STEP_NS, old, KEPT_BYTES, EBB_EVENT_ACCESS, EBB_ACCESS_READ, 0, 0, 0},
            {at + 5 * STEP_NS, kept + 2, 2 * SCRATCH_BYTES, EBB_EVENT_FREE, 0, 0, 0, 0},
            {at + 6 * STEP_NS, kept + 1, SCRATCH_BYTES, EBB_EVENT_FREE, 0, 0, 0, 0},
            {at + 7 * STEP_NS, old, KEPT_BYTES, EBB_EVENT_FREE, 0, 0, 0, 0},
        };
        for (size_t i = 0; i < TICKS; i++)
            if (lap || (i != 4 && i != 7))
                assert_true(ebb_vec_push(&events, step[i]));
    }
    struct ebb_analysis analysis;
    struct ebb_event_span span = {events.items, events.count};
    assert_int_equal(ebb__analyse(span, &analysis, NULL), EBB_OK);
    assert_true(analysis.has_model);
    struct ebb_model model = analysis.model;
    memset(&analysis.model, 0, sizeof analysis.model);
    ebb__analysis_fini(&analysis);
    ebb_vec_free(&events);
    return model;
}

/* The block that outlives its iteration. */
static uint32_t kept_of(const struct ebb_model *model)
{
    uint32_t found = EBB_TICK_NONE;
    for (uint32_t i = 0; i < model->block_count; i++)
        if (model->blocks[i].size_bytes == KEPT_BYTES) {
            assert_int_equal(found, EBB_TICK_NONE);
            found = i;
        }
    assert_int_not_equal(found, EBB_TICK_NONE);
    return found;
}

static void is_built_with_all_its_life(void **state)
{
    (void)state;
    struct ebb_model model = build();
    const struct ebb_model_block *kept = &model.blocks[kept_of(&model)];
    assert_int_equal(model.tick_count, TICKS);
    assert_int_equal(ebb__model_iteration_ns(&model), TURN_NS);
    assert_int_equal(kept->span_ticks, TICKS + 7);
    assert_int_equal(kept->free_tick, (kept->alloc_tick + kept->span_ticks) % TICKS);
    assert_int_equal(kept->access_count, 2);
    static const uint64_t load_mib[TICKS] = {8, 8, 9, 11, 11, 9, 8, 4}; /* from the ALLOC on */
    for (uint32_t i = 0; i < TICKS; i++)
        assert_int_equal(model.load_bytes[(kept->alloc_tick + i) % TICKS], load_mib[i] * EBB_MIB);
    assert_int_equal(model.peak_bytes, PEAK_BYTES);
    ebb__model_fini(&model);
}

/* Gaps are never too long. Each ends at the next event that uses any instance, or is at least an
 * iteration long and so never planned. */
static void gaps_claim_no_more_than_there_is(void **state)
{
    (void)state;
    struct ebb_model model = build();
    uint32_t kept = kept_of(&model), seen = 0;
    for (uint32_t i = 0; i < model.gap_count; i++) {
        const struct ebb_gap *gap = &model.gaps[i];
        if (gap->block != kept)
            continue;
        seen++;
        if (gap->length_ns >= TURN_NS)
            continue;
        uint32_t at = gap->from_tick;
        do
            at = (at + 1) % TICKS;
        while (model.events[at].block != kept);
        assert_int_equal(at, gap->to_tick);
    }
    assert_int_equal(seen, 2);
    ebb__model_fini(&model);
}

/* The real uses of an instance that was allocated at 0. */
static const uint64_t true_uses_ns[] = {STEP_NS, TURN_NS + 4 * STEP_NS};

static void absence_fits(const struct ebb_model *model, const struct ebb_absence *absence)
{
    const struct ebb_model_block *block = &model->blocks[absence->block];
    if (block->span_ticks <= model->tick_count)
        return;
    uint64_t alloc_ns = model->time_ns[block->alloc_tick];
    uint64_t from_ns = (model->time_ns[absence->from_tick] + TURN_NS - alloc_ns) % TURN_NS;
    uint64_t out_ns = (absence->out_start_ns + TURN_NS - alloc_ns) % TURN_NS;
    uint64_t back_ns = (absence->in_end_ns + TURN_NS - alloc_ns) % TURN_NS;
    out_ns += out_ns < from_ns ? TURN_NS : 0;
    back_ns += back_ns < out_ns ? TURN_NS : 0;
    if (absence->drops)
        back_ns = UINT64_MAX;
    for (size_t i = 0; i < 2; i++)
        assert_false(true_uses_ns[i] > out_ns && true_uses_ns[i] < back_ns);
}

static void plans_fit_every_instance(void **state)
{
    (void)state;
    struct ebb_model model = build();
    struct ebb_machine machine;
    uint32_t absences = 0;
    assert_int_equal(ebb__machine_named("pcie4", &machine, NULL), EBB_OK);
    const struct ebb_policy *policy;
    for (size_t p = 0; (policy = policy_at(p)); p++)
        for (uint64_t mib = 3; mib <= 12 && !needs_layers(policy); mib++)
            for (int newest = 0; newest < 2; newest++) {
                struct ebb_plan_request request = {.model = &model,
                                                   .machine = &machine,
                                                   .budget_bytes = mib * EBB_MIB,
                                                   .page_bytes = 4096,
                                                   .smallest_block_bytes = 4096,
                                                   .time_limit_ns = 20000000,
                                                   .newest_only = newest};
                struct ebb_plan plan;
                struct ebb_error error;
                assert_int_equal(ebb__plan_make(policy, &request, &plan, &error), EBB_OK);
                struct ebb_check_request check = {&model, &machine, mib * EBB_MIB, 4096};
                if (plan.feasible && ebb__check_plan(&check, &plan, &error))
                    fail_msg("%s, %llu MiB: %s", policy->name, (unsigned long long)mib, error.why);
                assert_true(plan.reactive || plan.feasible || mib < 11);
                for (uint32_t i = 0; i < plan.absence_count && !plan.reactive; i++)
                    absence_fits(&model, &plan.absences[i]);
                absences += plan.absence_count;
                ebb__plan_fini(&plan);
            }
    assert_true(absences > 0);
    ebb__model_fini(&model);
}

/* A plan that drops the block while its younger instance is used is refused, even if its gap is
 * valid. */
static void checker_knows_that_it_is_used_again(void **state)
{
    (void)state;
    struct ebb_model model = build();
    struct ebb_machine machine;
    assert_int_equal(ebb__machine_named("pcie4", &machine, NULL), EBB_OK);
    uint32_t kept = kept_of(&model), alloc = model.blocks[kept].alloc_tick;
    struct ebb_check_request check = {&model, &machine, 12 * EBB_MIB, 4096};
    struct ebb_plan_request request = {&model, &machine, 12 * EBB_MIB, 4096, 4096, 0, false,
                                       0,      0,        NULL,         NULL, 0};
    struct ebb_plan plan;
    struct ebb_error error;
    assert_int_equal(ebb__plan_make(ebb__plan_policy("none"), &request, &plan, &error), EBB_OK);
    assert_int_equal(plan.peak_bytes, PEAK_BYTES);
    assert_int_equal(ebb__check_plan(&check, &plan, &error), EBB_OK);
    struct ebb_absence dropped = {.block = kept,
                                  .from_tick = (alloc + 1) % TICKS,
                                  .to_tick = model.blocks[kept].free_tick,
                                  .drops = true,
                                  .out_start_ns = model.time_ns[(alloc + 2) % TICKS],
                                  .out_end_ns = model.time_ns[(alloc + 3) % TICKS]};
    ebb__plan_fini(&plan);
    plan.absences = &dropped;
    plan.absence_count = 1;
    plan.moved_out_bytes = KEPT_BYTES;
    assert_int_equal(ebb__check_plan(&check, &plan, &error), EBB_ERR_FORMAT);
    dropped.from_tick = (alloc + 4) % TICKS; /* one iteration too early by the model's own ticks */
    dropped.out_start_ns = dropped.out_end_ns = model.time_ns[(alloc + 5) % TICKS];
    assert_int_equal(ebb__check_plan(&check, &plan, &error), EBB_ERR_FORMAT);
    ebb__model_fini(&model);
}

static void simulator_counts_both_instances(void **state)
{
    (void)state;
    struct ebb_model model = build();
    struct ebb_machine machine;
    assert_int_equal(ebb__machine_named("pcie4", &machine, NULL), EBB_OK);
    struct ebb_sim_request request = {&model, &machine, NULL, 0, PEAK_BYTES, 4096, NULL};
    struct ebb_sim_result result;
    assert_int_equal(ebb__simulate(&request, NULL, &result, NULL), EBB_OK);
    assert_true(result.steady && result.feasible);
    assert_int_equal(result.peak_bytes, PEAK_BYTES);
    assert_int_equal(result.stall_ns, 0);
    request.budget_bytes = PEAK_BYTES - 1;
    assert_int_equal(ebb__simulate(&request, NULL, &result, NULL), EBB_OK);
    assert_false(result.feasible);
    ebb__model_fini(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_built_with_all_its_life),
        cmocka_unit_test(gaps_claim_no_more_than_there_is),
        cmocka_unit_test(plans_fit_every_instance),
        cmocka_unit_test(checker_knows_that_it_is_used_again),
        cmocka_unit_test(simulator_counts_both_instances),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
