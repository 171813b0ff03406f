/* Addresses for plans of random models and trainings. Each address and each resident byte is
 * compared with a slow computation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/geometry.h"
#include "machine/machine.h"
#include "plan/place/place.h"
#include "plan/place/resident.h"
#include "plan/request/compile.h"
#include "runtime/script.h"
#include "synthetic.h"

#include <stdint.h>

#define PAGE ((uint64_t)4096)
#define UNIT EBB_HUGE_BYTES

static const struct ebb_machine machine = {"test", {0.1, 20000}, {0.1, 20000}, true, EBB_NO_COSTS};

static struct ebb_plan_request request_for(const struct ebb_model *model, uint64_t budget_bytes)
{
    return (struct ebb_plan_request){.model = model,
                                     .machine = &machine,
                                     .budget_bytes = budget_bytes,
                                     .page_bytes = PAGE,
                                     .smallest_block_bytes = PAGE,
                                     .effort_steps = 6000000,
                                     .newest_only = true};
}

static bool is_persistent(const struct ebb_model_block *block)
{
    return block->alloc_tick == EBB_TICK_NONE;
}

static bool lives_at(const struct ebb_model *model, uint32_t block, uint32_t tick)
{
    const struct ebb_model_block *known = &model->blocks[block];
    uint32_t age = (tick + model->tick_count - known->alloc_tick) % model->tick_count;
    return is_persistent(known) || age < known->span_ticks;
}

static bool leaves(const struct ebb_plan *plan, uint32_t block)
{
    for (uint32_t i = 0; i < plan->absence_count; i++)
        if (plan->absences[i].block == block)
            return true;
    return false;
}

static uint64_t end_of(const struct ebb_plan_request *request, const struct ebb_places *places,
                       uint32_t block)
{
    return places->offsets[block] + ebb__plan_block_bytes(request, &request->model->blocks[block]);
}

/* Blocks that live at the same time do not overlap. Only blocks that may be placed are placed. */
static void check_addresses(const struct ebb_plan_request *request, const struct ebb_plan *plan,
                            const struct ebb_places *places)
{
    const struct ebb_model *model = request->model;
    uint32_t count = 0;
    for (uint32_t b = 0; b < model->block_count; b++) {
        if (places->offsets[b] == EBB_PLACE_NONE)
            continue;
        count++;
        assert_false(is_persistent(&model->blocks[b]) || leaves(plan, b));
        assert_true(model->blocks[b].span_ticks <= model->tick_count);
        assert_int_equal(places->offsets[b] % PAGE, 0);
        assert_true(end_of(request, places, b) <= places->placement_bytes);
        for (uint32_t a = 0; a < b; a++) {
            if (places->offsets[a] == EBB_PLACE_NONE ||
                places->offsets[a] >= end_of(request, places, b) ||
                places->offsets[b] >= end_of(request, places, a))
                continue;
            for (uint32_t tick = 0; tick < model->tick_count; tick++)
                assert_false(lives_at(model, a, tick) && lives_at(model, b, tick));
        }
    }
    assert_int_equal(count, places->count);
    assert_true(count == 0 ? places->placement_bytes == 0 : places->placement_bytes > 0);
}

/* The bytes of all blocks just after an event, with nothing absent. Units of the static placement
 * are counted as a whole. */
static uint64_t bytes_at(const struct ebb_plan_request *request, const struct ebb_places *places,
                         uint32_t tick)
{
    uint64_t bytes = 0;
    for (uint32_t b = 0; b < request->model->block_count; b++)
        if (lives_at(request->model, b, tick) && places->offsets[b] == EBB_PLACE_NONE)
            bytes += ebb__plan_block_bytes(request, &request->model->blocks[b]);
    for (uint64_t unit = 0; unit * UNIT < places->placement_bytes; unit++)
        for (uint32_t b = 0; b < request->model->block_count; b++)
            if (places->offsets[b] != EBB_PLACE_NONE && lives_at(request->model, b, tick) &&
                places->offsets[b] < (unit + 1) * UNIT &&
                end_of(request, places, b) > unit * UNIT) {
                bytes += UNIT;
                break;
            }
    return bytes;
}

/* The resident bytes of the blocks at a time between events. No block is placed. */
static uint64_t resident_at(const struct ebb_plan_request *request, const struct ebb_plan *plan,
                            uint64_t ns)
{
    const struct ebb_model *model = request->model;
    uint64_t bytes = 0;
    uint32_t tick = model->tick_count - 1;
    while (tick > 0 && model->time_ns[tick] > ns)
        tick--;
    if (model->time_ns[tick] > ns)
        tick = model->tick_count - 1;
    for (uint32_t b = 0; b < model->block_count; b++) {
        bool absent = false;
        for (uint32_t i = 0; i < plan->absence_count; i++) {
            const struct ebb_absence *absence = &plan->absences[i];
            uint64_t out = absence->out_end_ns;
            uint64_t in = absence->drops ? model->time_ns[absence->to_tick] : absence->in_start_ns;
            if (absence->block == b && out != in)
                absent |= out < in ? ns >= out && ns < in : ns >= out || ns < in;
        }
        bytes += lives_at(model, b, tick) && !absent
                     ? ebb__plan_block_bytes(request, &model->blocks[b])
                     : 0;
    }
    return bytes;
}

static struct ebb_plan plan_of(const char *policy, const struct ebb_plan_request *request)
{
    struct ebb_plan plan;
    struct ebb_error error;
    assert_int_equal(ebb__plan_make(ebb__plan_policy(policy), request, &plan, &error), EBB_OK);
    return plan;
}

static struct ebb_places places_of(const struct ebb_plan_request *request,
                                   const struct ebb_plan *plan)
{
    struct ebb_places places;
    struct ebb_error error;
    assert_int_equal(ebb__place_blocks(request, plan, &places, &error), EBB_OK);
    check_addresses(request, plan, &places);
    return places;
}

static void nothing_absent(void **state)
{
    (void)state;
    uint32_t placed = 0, all = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct ebb_model model = make_random(seed, 80, 3 * EBB_MIB, 1000);
        struct ebb_plan_request request = request_for(&model, UINT64_MAX);
        struct ebb_plan plan = plan_of("none", &request);
        uint64_t exact = plan.peak_bytes;
        struct ebb_places places = places_of(&request, &plan);
        uint64_t peak = 0;
        for (uint32_t tick = 0; tick < model.tick_count; tick++) {
            uint64_t bytes = bytes_at(&request, &places, tick);
            peak = bytes > peak ? bytes : peak;
        }
        assert_int_equal(places.peak_bytes, peak);
        for (uint32_t b = 0; b < model.block_count; b++)
            if (!is_persistent(&model.blocks[b]) && model.blocks[b].span_ticks > 0 &&
                model.blocks[b].span_ticks <= model.tick_count)
                assert_true(places.offsets[b] != EBB_PLACE_NONE);
        /* Without spare bytes for the empty part of a unit, fewer blocks are placed, and all
         * fit. */
        for (uint64_t spare = 0; spare <= 4 * EBB_MIB; spare += EBB_MIB) {
            request.budget_bytes = exact + spare;
            struct ebb_places fewer = places_of(&request, &plan);
            assert_true(fewer.peak_bytes <= request.budget_bytes);
            placed += fewer.count;
            all += places.count;
            ebb__places_fini(&fewer);
        }
        ebb__places_fini(&places);
        ebb__plan_fini(&plan);
        ebb__model_fini(&model);
    }
    assert_true(placed > all / 4 && placed < all);
}

/* Compares a plan's resident bytes with a sum at every instant of a change. */
static void absent_blocks_do_not_count(void **state)
{
    (void)state;
    unsigned absent = 0, infeasible = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct ebb_model model = make_random(seed, 120, EBB_MIB, 200000);
        struct ebb_plan_request request = request_for(&model, model.peak_bytes * 7 / 10);
        struct ebb_plan plan = plan_of("ebb", &request);
        uint64_t *nowhere = must(malloc((model.block_count + 1u) * sizeof *nowhere));
        memset(nowhere, 0xff, (model.block_count + 1u) * sizeof *nowhere);
        struct ebb__resident resident;
        assert_int_equal(ebb__resident_init(&resident, &request, &plan, nowhere, 1), EBB_OK);
        uint64_t found = ebb__resident_peak(&resident, NULL), slow = 0;
        for (uint32_t i = 0; i < model.tick_count + plan.absence_count; i++) {
            uint32_t absence = i - model.tick_count;
            bool event = i < model.tick_count;
            uint64_t bytes = event || plan.absences[absence].drops
                                 ? resident_at(&request, &plan, event ? model.time_ns[i] : 0)
                                 : resident_at(&request, &plan, plan.absences[absence].in_start_ns);
            slow = bytes > slow ? bytes : slow;
        }
        /* Between events of one instant there may be more for a moment. */
        assert_true(found >= slow);
        if (plan.stall_ns == 0 && plan.feasible)
            assert_true(found <= plan.peak_bytes);
        absent += plan.absence_count;
        infeasible += !plan.feasible;
        ebb__resident_fini(&resident);
        struct ebb_places places = places_of(&request, &plan);
        assert_true(places.peak_bytes <= request.budget_bytes || !plan.feasible ||
                    places.count == 0);
        ebb__places_fini(&places);
        ebb__plan_fini(&plan);
        ebb__model_fini(&model);
        free(nowhere);
    }
    assert_true(absent > 100 && infeasible < 50);
}

/* While a program waits, its time stands still. Many events may then have one time, and a block may
 * return and be freed in it. It is never counted less than not at all. */
static void what_happens_at_one_time_has_an_order(void **state)
{
    (void)state;
    unsigned absent = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct ebb_model model = make_random(seed, 120, EBB_MIB, 200000);
        uint64_t *clock_ns = must(malloc((model.tick_count + 1u) * sizeof *clock_ns)), all = 0;
        uint32_t still = model.tick_count / 3;
        uint32_t clock = 0;
        for (uint32_t tick = 0; tick < model.tick_count; tick++)
            if (model.events[tick].clock)
                clock_ns[clock++] = model.time_ns[tick < still ? tick : still];
        clock_ns[clock] = ebb__model_iteration_ns(&model);
        ebb__model_retime(&model, clock_ns);
        struct ebb_plan_request request = request_for(&model, model.peak_bytes * 6 / 10);
        for (uint32_t b = 0; b < model.block_count; b++)
            all += 2 * ebb__plan_block_bytes(&request, &model.blocks[b]);
        struct ebb_plan plan = plan_of("ebb", &request);
        struct ebb_places places = places_of(&request, &plan);
        assert_true(places.peak_bytes <= all);
        absent += plan.absence_count;
        ebb__places_fini(&places);
        ebb__plan_fini(&plan);
        ebb__model_fini(&model);
        free(clock_ns);
    }
    assert_true(absent > 100);
}

static void trainings_are_placed_within_the_budget(void **state)
{
    (void)state;
    for (unsigned percent = 50; percent <= 100; percent += 10) {
        struct ebb_model model = make_training(24, 600 * EBB_MIB, 2000000000, percent);
        struct ebb_plan_request request = request_for(&model, 0);
        struct ebb_plan whole = plan_of("none", &request);
        request.budget_bytes = whole.peak_bytes * percent / 100;
        struct ebb_plan plan = plan_of("ebb", &request);
        assert_true(plan.feasible);
        struct ebb_places places = places_of(&request, &plan);
        uint32_t could = 0;
        for (uint32_t b = 0; b < model.block_count; b++)
            could += !is_persistent(&model.blocks[b]) && !leaves(&plan, b);
        assert_true(places.peak_bytes <= request.budget_bytes);
        assert_true(places.count * 10 >= could * 8);
        ebb__places_fini(&places);
        ebb__plan_fini(&plan);
        ebb__plan_fini(&whole);
        ebb__model_fini(&model);
    }
}

/* If the plan cannot keep the budget, only blocks that are never evicted may be placed. */
static void infeasible_plans_place_what_is_brief(void **state)
{
    (void)state;
    struct ebb_model model = make_training(24, 600 * EBB_MIB, 2000000000, 3);
    struct ebb_plan_request request = request_for(&model, 20 * EBB_MIB);
    struct ebb_plan plan = plan_of("ebb", &request);
    assert_false(plan.feasible);
    struct ebb_places places = places_of(&request, &plan);
    assert_true(places.count > 0);
    for (uint32_t b = 0; b < model.block_count; b++)
        assert_true(places.offsets[b] == EBB_PLACE_NONE || model.blocks[b].span_ticks <= 16);
    struct ebb_script *script;
    assert_int_equal(ebb__compile_script(&model, &plan, &places, &script), EBB_OK);
    assert_int_equal(script->peak_bytes, 0); /* the plan does not fit; these blocks do */
    free(script);
    ebb__places_fini(&places);
    ebb__plan_fini(&plan);
    ebb__model_fini(&model);
}

static void nothing_to_place(void **state)
{
    (void)state;
    struct ebb_model model = make_training(6, 20 * EBB_MIB, 20000000, 3);
    struct ebb_plan_request request = request_for(&model, model.peak_bytes * 8 / 10);
    struct ebb_plan plan = plan_of("fifo", &request);
    plan.reactive = true; /* as under a policy that decides nothing beforehand */
    struct ebb_places places = places_of(&request, &plan);
    assert_int_equal(places.count, 0);
    ebb__places_fini(&places);
    ebb__plan_fini(&plan);
    ebb__model_fini(&model);
    struct maker maker = {0};
    uint32_t weight = make_persistent(&maker, EBB_MIB);
    make_event(&maker, 10, EBB_EVENT_ACCESS, weight, EBB_ACCESS_READ);
    model = make_model(&maker, 100);
    request = request_for(&model, UINT64_MAX);
    plan = plan_of("none", &request);
    places = places_of(&request, &plan);
    assert_int_equal(places.count, 0);
    assert_int_equal(places.peak_bytes, EBB_MIB);
    ebb__places_fini(&places);
    ebb__plan_fini(&plan);
    ebb__model_fini(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_absent),
        cmocka_unit_test(absent_blocks_do_not_count),
        cmocka_unit_test(what_happens_at_one_time_has_an_order),
        cmocka_unit_test(trainings_are_placed_within_the_budget),
        cmocka_unit_test(infeasible_plans_place_what_is_brief),
        cmocka_unit_test(nothing_to_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
