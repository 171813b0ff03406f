/* Large blocks in the model: units with the same history become one part, whatever other units
 * do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/geometry.h"
#include "base/vec.h"
#include "check/check.h"
#include "machine/machine.h"
#include "model/model.h"
#include "plan/plan.h"
#include "synthetic.h"

#define UNIT EBB_HUGE_BYTES

struct trace {
    EBB_VEC(struct ebb_event) events;
    uint64_t serial, time_ns, pace_ns; /* pace_ns: time between events; 0: 10 us */
};

static void push(struct trace *trace, enum ebb_event_kind kind, uint64_t block, uint64_t size,
                 uint8_t flags)
{
    struct ebb_event event = {.time_ns = trace->time_ns += trace->pace_ns ? trace->pace_ns : 10000,
                              .block = block,
                              .size_bytes = size,
                              .kind = (uint8_t)kind,
                              .access = kind == EBB_EVENT_ACCESS ? EBB_ACCESS_WRITE : 0,
                              .flags = flags};
    assert_true(ebb_vec_push(&trace->events, event));
}

static void use(struct trace *trace, uint64_t block, uint32_t unit, uint64_t size)
{
    uint64_t end = (unit + 1) * UNIT;
    push(trace, EBB_EVENT_ACCESS, block, end < size ? end : size, EBB_EVENT_PART);
}

static uint64_t begin(struct trace *trace, uint64_t size)
{
    push(trace, EBB_EVENT_ALLOC, ++trace->serial, size, 0);
    return trace->serial;
}

static void check_planned(const struct ebb_model *model, uint64_t percent)
{
    const struct ebb_machine machine = {"test", {2, 0}, {2, 0}, true, EBB_NO_COSTS};
    struct ebb_plan_request request = {.model = model,
                                       .machine = &machine,
                                       .budget_bytes = model->peak_bytes * percent / 100,
                                       .page_bytes = 4096,
                                       .smallest_block_bytes = 4096,
                                       .effort_steps = 600000};
    struct ebb_plan plan;
    struct ebb_error error;
    assert_int_equal(ebb__plan_make(ebb__plan_policy("ebb"), &request, &plan, &error), EBB_OK);
    const struct ebb_check_request check = {model, &machine, request.budget_bytes, 4096};
    if (plan.feasible && ebb__check_plan(&check, &plan, &error) != EBB_OK)
        fail_msg("%s: %s", error.what, error.why);
    ebb__plan_fini(&plan);
}

/* Units 0 to 2 hold one tensor, units 3 and 4 another, unit 5 none, and unit 6 a third. The block
 * ends in unit 7. */
static void parts_by_history(void **state)
{
    (void)state;
    struct trace trace = {0};
    const uint64_t size = 7 * UNIT + 5000, scratch = 300000;
    size_t first = 0, period = 0;
    for (unsigned iteration = 0; iteration < 4; iteration++) {
        first = trace.events.count;
        uint64_t block = begin(&trace, size);
        static const struct {
            uint32_t from, to;
        } steps[] = {{0, 3}, {3, 5}, {6, 7}, {3, 5}, {0, 3}};
        for (size_t i = 0; i < 5; i++) {
            uint64_t small = begin(&trace, scratch + i);
            push(&trace, EBB_EVENT_ACCESS, small, scratch + i, 0);
            /* The order does not matter, and some units are used twice. */
            for (uint32_t unit = steps[i].to; unit-- > steps[i].from;)
                use(&trace, block, unit, size);
            use(&trace, block, steps[i].from, size);
            push(&trace, EBB_EVENT_FREE, small, scratch + i, 0);
        }
        push(&trace, EBB_EVENT_FREE, block, size, 0);
        period = trace.events.count - first;
    }
    struct ebb_model model;
    struct ebb_error error;
    struct ebb_event_span span = {trace.events.items, trace.events.count};
    assert_int_equal(ebb__model_build(span, 2 * period, period, &model, &error), EBB_OK);
    assert_int_equal(model.block_count, 5 + 3);
    assert_int_equal(model.clock_count, 12);
    static const uint32_t from[] = {0, 3, 6}, count[] = {3, 2, 1}, uses[] = {2, 2, 1};
    for (uint32_t i = 0; i < 3; i++) {
        const struct ebb_model_block *part = &model.blocks[i];
        assert_int_equal(part->part_first, from[i]);
        assert_int_equal(part->part_count, count[i]);
        assert_int_equal(part->size_bytes, count[i] * UNIT);
        assert_int_equal(part->allocated_bytes, size);
        assert_int_equal(part->serial, model.blocks[0].serial);
        assert_int_equal(part->access_count, uses[i]);
        for (uint32_t k = 0; k < part->access_count; k++) {
            const struct ebb_model_event *event =
                &model.events[model.accesses[part->first_access + k].tick];
            assert_int_equal(event->block, i);
            assert_int_equal(event->kind, EBB_EVENT_ACCESS);
        }
        const struct ebb_model_event *alloc = &model.events[part->alloc_tick];
        const struct ebb_model_event *end = &model.events[part->free_tick];
        assert_int_equal(alloc->block, i);
        assert_int_equal(alloc->kind, EBB_EVENT_ALLOC);
        assert_int_equal(alloc->clock, i == 0);
        assert_int_equal(end->block, i);
        assert_int_equal(end->kind, EBB_EVENT_FREE);
        assert_int_equal(end->clock, i == 0);
        /* A part's pages are allocated at its first use. */
        uint32_t first_use = model.accesses[part->first_access].tick;
        assert_true(part->alloc_tick < first_use);
        for (uint32_t tick = part->alloc_tick + 1; i > 0 && tick < first_use; tick++)
            assert_false(model.events[tick].clock);
    }
    /* All three parts live at the last use of unit 6. Apart from them, only that step's scratch
     * lives. */
    assert_int_equal(model.peak_bytes, 6 * UNIT + scratch + 4);
    check_planned(&model, 70);
    ebb__model_fini(&model);
    ebb_vec_free(&trace.events);
}

/* A block that is always touched as a whole stays whole, as if its units had never been
 * observed. */
static void whole_blocks_stay(void **state)
{
    (void)state;
    struct trace trace = {0};
    const uint64_t size = 9 * UNIT + 1;
    size_t period = 0;
    for (unsigned iteration = 0; iteration < 3; iteration++) {
        uint64_t block = begin(&trace, size);
        for (uint32_t unit = 0; unit < 10; unit++)
            use(&trace, block, unit, size);
        uint64_t other = begin(&trace, 1000000);
        push(&trace, EBB_EVENT_ACCESS, other, 1000000, 0);
        push(&trace, EBB_EVENT_FREE, other, 1000000, 0);
        for (uint32_t unit = 10; unit-- > 0;)
            use(&trace, block, unit, size);
        push(&trace, EBB_EVENT_FREE, block, size, 0);
        period = trace.events.count / (iteration + 1);
    }
    struct ebb_model model;
    struct ebb_error error;
    struct ebb_event_span span = {trace.events.items, trace.events.count};
    assert_int_equal(ebb__model_build(span, period, period, &model, &error), EBB_OK);
    assert_int_equal(model.block_count, 2);
    assert_int_equal(model.tick_count, 7);
    assert_int_equal(model.blocks[0].size_bytes, size);
    assert_int_equal(model.blocks[0].part_count, 0);
    assert_int_equal(model.blocks[0].access_count, 2);
    ebb__model_fini(&model);
    ebb_vec_free(&trace.events);
}

/* Builds the model of an iteration. One operation copies `inputs` blocks to a new one of as many
 * bytes, each `stride` units behind the one before. `idle` units lie beside. */
static struct ebb_model concatenation(unsigned inputs, unsigned stride, unsigned idle,
                                      uint64_t pace_ns)
{
    struct trace trace = {.pace_ns = pace_ns};
    size_t period = 0;
    for (unsigned iteration = 0; iteration < 3; iteration++) {
        uint64_t made[64], beside = begin(&trace, (idle + 1) * UNIT);
        push(&trace, EBB_EVENT_ACCESS, beside, (idle + 1) * UNIT, 0);
        for (unsigned i = 0; i < inputs; i++) {
            made[i] = begin(&trace, UNIT);
            push(&trace, EBB_EVENT_ACCESS, made[i], UNIT, 0);
        }
        uint64_t all = begin(&trace, inputs * UNIT);
        for (unsigned i = 0; i < inputs; i++) {
            push(&trace, EBB_EVENT_ACCESS, made[i], UNIT, 0);
            use(&trace, all, i * stride % inputs, inputs * UNIT);
        }
        for (unsigned i = 0; i < inputs; i++)
            push(&trace, EBB_EVENT_FREE, made[i], UNIT, 0);
        uint64_t result = begin(&trace, UNIT / 2);
        push(&trace, EBB_EVENT_ACCESS, result, UNIT / 2, 0);
        push(&trace, EBB_EVENT_FREE, result, UNIT / 2, 0);
        push(&trace, EBB_EVENT_FREE, all, inputs * UNIT, 0);
        push(&trace, EBB_EVENT_FREE, beside, (idle + 1) * UNIT, 0);
        period = trace.events.count / (iteration + 1);
    }
    struct ebb_model model;
    struct ebb_error error;
    struct ebb_event_span span = {trace.events.items, trace.events.count};
    assert_int_equal(ebb__model_build(span, period, period, &model, &error), EBB_OK);
    ebb_vec_free(&trace.events);
    return model;
}

/* An operation that is long and uses most of the memory counts as several. So its inputs may leave
 * before its output is whole, and a plan needs less than all of both. */
static void a_large_operation_is_several(void **state)
{
    (void)state;
    struct ebb_model model = concatenation(16, 1, 0, 2000000);
    uint64_t most = 0;
    unsigned parts = 0;
    for (uint32_t i = 0; i < model.block_count; i++)
        if (model.blocks[i].part_count) {
            parts++;
            most = model.blocks[i].size_bytes > most ? model.blocks[i].size_bytes : most;
        }
    assert_in_range(parts, 5, 16);
    assert_in_range(most, 1, 4 * UNIT);
    assert_true(model.peak_bytes > 30 * UNIT);
    check_planned(&model, 70);
    ebb__model_fini(&model);
}

static void assert_whole(const struct ebb_model *model)
{
    for (uint32_t i = 0; i < model->block_count; i++)
        assert_int_equal(model->blocks[i].part_count, 0);
}

/* One that is short is not divided, as no plan could act within it. */
static void a_short_operation_is_one(void **state)
{
    (void)state;
    struct ebb_model model = concatenation(16, 1, 0, 10000);
    assert_whole(&model);
    ebb__model_fini(&model);
}

/* One that comes to its units in any order may come back to each of them. */
static void a_scattered_operation_is_one(void **state)
{
    (void)state;
    struct ebb_model model = concatenation(64, 23, 0, 2000000);
    assert_whole(&model);
    check_planned(&model, 70);
    ebb__model_fini(&model);
}

/* A part that is used throughout an operation has a use at its end, too. No plan may evict it
 * between. */
static void a_long_use_has_an_end(void **state)
{
    (void)state;
    struct ebb_model model = concatenation(4, 1, 32, 2000000);
    bool seen = false;
    for (uint32_t i = 0; i < model.block_count; i++) {
        const struct ebb_model_block *block = &model.blocks[i];
        if (block->size_bytes != 4 * UNIT)
            continue;
        const struct ebb_model_access *uses = &model.accesses[block->first_access];
        seen = true;
        assert_int_equal(block->access_count, 4);
        uint64_t used_ns = ebb__model_ns_between(&model, uses[0].tick, uses[3].tick);
        assert_int_equal(used_ns, 3 * 2 * 2000000);
    }
    assert_true(seen);
    ebb__model_fini(&model);
}

/* Random programs have large blocks. Some are persistent, some live across the iteration's end,
 * some for several iterations. Each use belongs to the part that holds its unit, and every plan
 * passes the checker. */
static void random_programs(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        uint64_t random = seed;
        enum { SLOTS = 6, STEPS = 40, ITERATIONS = 6 };
        uint64_t sizes[SLOTS], live[SLOTS] = {0};
        struct trace trace = {.pace_ns = seed % 2 ? 1000000 : 10000};
        for (size_t i = 0; i < SLOTS; i++)
            sizes[i] = chance(&random) % 3 ? 1 + chance(&random) % (12 * UNIT) : 65536 + i;
        uint64_t weights = begin(&trace, 5 * UNIT), program = chance(&random);
        size_t period = 0;
        for (unsigned iteration = 0; iteration < ITERATIONS; iteration++) {
            size_t before = trace.events.count;
            uint64_t choice = program;
            for (unsigned step = 0; step < STEPS; step++) {
                size_t slot = chance(&choice) % SLOTS;
                uint64_t what = chance(&choice) % 4, where = chance(&choice),
                         span = chance(&choice);
                if (what == 0) {
                    if (live[slot])
                        push(&trace, EBB_EVENT_FREE, live[slot], sizes[slot], 0);
                    live[slot] = begin(&trace, sizes[slot]);
                    continue;
                }
                uint64_t block = what == 3 ? weights : live[slot];
                uint64_t size = what == 3 ? 5 * UNIT : sizes[slot];
                uint32_t units = (uint32_t)((size + UNIT - 1) / UNIT);
                uint32_t from = (uint32_t)(where % units);
                for (uint32_t unit = from; block && unit < units && unit <= from + span % 4; unit++)
                    use(&trace, block, unit, size);
            }
            period = trace.events.count - before;
        }
        struct ebb_model model;
        struct ebb_error error;
        struct ebb_event_span span = {trace.events.items, trace.events.count};
        size_t first = trace.events.count - 2 * period;
        if (ebb__model_build(span, first, period, &model, &error) != EBB_OK)
            fail_msg("seed %llu: %s %s", (unsigned long long)seed, error.what, error.why);
        uint64_t live_bytes = 0;
        for (uint32_t i = 0; i < model.block_count; i++) {
            const struct ebb_model_block *block = &model.blocks[i];
            bool later = block->part_count && block->part_first;
            live_bytes += block->size_bytes;
            if (!block->part_count)
                continue;
            assert_true(block->size_bytes > 0);
            assert_true(block->part_first * UNIT + block->size_bytes <= block->allocated_bytes);
            if (later) {
                const struct ebb_model_block *before = block - 1;
                assert_int_equal(before->serial, block->serial);
                assert_true(before->part_first + before->part_count <= block->part_first);
            }
        }
        assert_true(live_bytes > 0);
        check_planned(&model, 60);
        check_planned(&model, 85);
        ebb__model_fini(&model);
        ebb_vec_free(&trace.events);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_by_history),
        cmocka_unit_test(whole_blocks_stay),
        cmocka_unit_test(a_large_operation_is_several),
        cmocka_unit_test(a_short_operation_is_one),
        cmocka_unit_test(a_scattered_operation_is_one),
        cmocka_unit_test(a_long_use_has_an_end),
        cmocka_unit_test(random_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
