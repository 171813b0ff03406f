/* Huge-rounded blocks: which blocks are rounded, and their size in a plan and in the runtime. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "plan/place/huge_round.h"
#include "runtime_program.h"

#define PEAK (70 * EBB_MIB)
#define ITERATION_NS ((uint64_t)80000000)

static const struct ebb_machine lanes = {"test", {0.5, 50000}, {0.5, 50000}, true, EBB_NO_COSTS};

static uint64_t in_units(uint64_t bytes)
{
    return (bytes + EBB_HUGE_BYTES - 1) / EBB_HUGE_BYTES * EBB_HUGE_BYTES;
}

static struct ebb_plan plan_of(const struct ebb_plan_request *request)
{
    struct ebb_plan plan;
    struct ebb_error error;
    assert_int_equal(ebb__plan_make(ebb__plan_policy("ebb"), request, &plan, &error), EBB_OK);
    return plan;
}

/* Only evicted blocks are rounded. The tail of such a block is half a unit or more, and it wastes a
 * quarter at most. */
static void only_what_is_evicted_and_wastes_little(void **state)
{
    (void)state;
    uint32_t seen = 0;
    for (uint64_t seed = 1; seed < 20; seed++) {
        struct ebb_model model =
            make_training(6 + (uint32_t)seed % 5, (40 + seed * 3) * EBB_MIB, ITERATION_NS, seed);
        struct ebb_plan_request request =
            request_for(&model, &lanes, model.peak_bytes * 6 / 10, 20000000);
        struct ebb_plan plan = plan_of(&request);
        struct ebb_huge_rounded huge_rounded;
        assert_int_equal(ebb__huge_round(&model, &plan, &huge_rounded), EBB_OK);
        uint8_t *leaves = must(calloc(model.block_count, 1));
        for (uint32_t i = 0; i < plan.absence_count; i++)
            leaves[plan.absences[i].block] = 1;
        uint32_t count = 0;
        for (uint32_t b = 0; b < model.block_count; b++) {
            uint64_t bytes = model.blocks[b].size_bytes, whole = in_units(bytes);
            bool expected = leaves[b] && model.blocks[b].alloc_tick != EBB_TICK_NONE &&
                            bytes % EBB_HUGE_BYTES >= EBB_HUGE_BYTES / 2 &&
                            whole - bytes <= whole / 4;
            assert_int_equal(huge_rounded.blocks[b], expected);
            assert_int_equal(huge_rounded.model.blocks[b].size_bytes, expected ? whole : bytes);
            count += expected;
        }
        assert_true(huge_rounded.count == count || huge_rounded.count == 0);
        seen += huge_rounded.count;
        free(leaves);
        ebb__huge_rounded_fini(&huge_rounded);
        ebb__plan_fini(&plan);
        ebb__model_fini(&model);
    }
    assert_true(seen > 10);
}

static void none_evicted_none_huge_rounded(void **state)
{
    (void)state;
    struct ebb_model model = make_training(8, PEAK, ITERATION_NS, 3);
    struct ebb_plan_request request = request_for(&model, &lanes, 2 * PEAK, 20000000);
    struct ebb_plan plan = plan_of(&request);
    struct ebb_huge_rounded huge_rounded;
    assert_int_equal(plan.absence_count, 0);
    assert_int_equal(ebb__huge_round(&model, &plan, &huge_rounded), EBB_OK);
    assert_int_equal(huge_rounded.count, 0);
    ebb__huge_rounded_fini(&huge_rounded);
    ebb__plan_fini(&plan);
    ebb__model_fini(&model);
}

/* The runtime gives rounded blocks whole units, keeps the budget, and preserves every byte. */
static void the_runtime_gives_whole_units(void **state)
{
    (void)state;
    struct rig *rig = rig_open(NO_BUDGET, false);
    struct program program;
    program_init(&program, rig, make_training(8, PEAK, ITERATION_NS, 3));
    const struct ebb_model *model = &program.model;
    struct ebb_plan_request request =
        request_for(model, &lanes, model->peak_bytes * 7 / 10, 100000000);
    struct ebb_plan first = plan_of(&request);
    struct ebb_huge_rounded huge_rounded;
    assert_int_equal(ebb__huge_round(model, &first, &huge_rounded), EBB_OK);
    assert_true(huge_rounded.count > 0);
    request.model = &huge_rounded.model;
    struct ebb_plan plan = plan_of(&request);
    assert_true(plan.feasible);
    struct ebb_places places;
    struct ebb_script *script;
    assert_int_equal(ebb__place_blocks(&request, &plan, &places, NULL), EBB_OK);
    places.huge_rounded = huge_rounded.blocks;
    assert_int_equal(ebb__compile_script(model, &plan, &places, &script), EBB_OK);
    assert_true(ebb__script_valid(script, script->bytes));
    assert_int_equal(ebb__runtime_set_script(rig->runtime, script, script->bytes), EBB_OK);
    program_lap(&program, rig, false, UINT32_MAX);
    assert_non_null(rig->runtime->replay.current);
    atomic_store(&rig->ledger.budget_bytes, request.budget_bytes);
    unsigned seen = 0;
    for (unsigned lap = 0; lap < 3; lap++) {
        for (uint32_t tick = 0; tick < model->tick_count; tick++) {
            const struct ebb_model_event *event = &model->events[tick];
            struct item *item = &program.items[event->block];
            if (event->kind == EBB_EVENT_ALLOC) {
                *item = make(rig, model->blocks[event->block].size_bytes, program.seeds++);
                pthread_mutex_lock(&rig->runtime->core.lock);
                const struct block *block = block_of(rig, item);
                bool whole = huge_rounded.blocks[event->block] && block->kind != BLOCK_STATIC;
                assert_int_equal(block->page_bytes,
                                 whole ? in_units(item->size) : ebb__whole_pages(item->size));
                seen += whole;
                pthread_mutex_unlock(&rig->runtime->core.lock);
            } else if (event->kind == EBB_EVENT_FREE) {
                drop(rig, item);
            } else {
                check(rig, item);
            }
        }
    }
    assert_true(seen >= 3);
    assert_true(atomic_load(&rig->counters->moved_in_bytes) > 0);
    assert_int_equal(atomic_load(&rig->counters->mismatches), 0);
    assert_true(held(rig) <= request.budget_bytes && over(rig) == 0);
    program_fini(&program);
    assert_int_equal(atomic_load(&rig->lost), 0);
    rig_close(rig);
    free(script);
    ebb__places_fini(&places);
    ebb__plan_fini(&first);
    ebb__plan_fini(&plan);
    ebb__huge_rounded_fini(&huge_rounded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_is_evicted_and_wastes_little),
        cmocka_unit_test(none_evicted_none_huge_rounded),
        cmocka_unit_test(the_runtime_gives_whole_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
