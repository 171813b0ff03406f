/* Layers and phases in the model. Marks keep their values through all that makes a model. Stages
 * are the runs of events between them, on a circle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/geometry.h"
#include "base/vec.h"
#include "model/scale.h"
#include "model/stages.h"

struct trace {
    EBB_VEC(struct ebb_event) events;
    uint64_t serial;
};

static void push(struct trace *trace, enum ebb_event_kind kind, uint64_t block, uint64_t size)
{
    struct ebb_event event = {.time_ns = 1000 * trace->events.count,
                              .block = block,
                              .size_bytes = size,
                              .kind = (uint8_t)kind};
    assert_true(ebb_vec_push(&trace->events, event));
}

static void mark(struct trace *trace, enum ebb_mark kind, uint64_t value)
{
    push(trace, EBB_EVENT_MARK, 0, value);
    trace->events.items[trace->events.count - 1].mark = (uint8_t)kind;
}

static uint64_t begin(struct trace *trace, uint64_t size)
{
    push(trace, EBB_EVENT_ALLOC, ++trace->serial, size);
    return trace->serial;
}

/* Two layers forward, their loss, two layers backward, and an update under the last layer's
 * mark. */
enum { PERIOD = 19 };

static void iterate(struct trace *trace, uint64_t scale)
{
    uint64_t output[3];
    mark(trace, EBB_MARK_PHASE, EBB_PHASE_FORWARD);
    for (uint64_t layer = 1; layer <= 2; layer++) {
        mark(trace, EBB_MARK_LAYER, layer);
        output[layer] = begin(trace, layer * scale);
        push(trace, EBB_EVENT_ACCESS, output[layer], 0);
    }
    mark(trace, EBB_MARK_LAYER, 0);
    push(trace, EBB_EVENT_ACCESS, output[2], 0);
    mark(trace, EBB_MARK_PHASE, EBB_PHASE_BACKWARD);
    for (uint64_t layer = 2; layer >= 1; layer--) {
        mark(trace, EBB_MARK_LAYER, layer);
        push(trace, EBB_EVENT_ACCESS, output[layer], 0);
        push(trace, EBB_EVENT_FREE, output[layer], 0);
    }
    mark(trace, EBB_MARK_PHASE, EBB_PHASE_UPDATE);
    uint64_t state = begin(trace, 5);
    push(trace, EBB_EVENT_FREE, state, 5);
}

static struct ebb_model model_of(const struct trace *trace, size_t first, size_t period)
{
    struct ebb_model model;
    struct ebb_error error;
    struct ebb_event_span span = {trace->events.items, trace->events.count};
    if (ebb__model_build(span, first, period, &model, &error) != EBB_OK)
        fail_msg("%s: %s", error.what, error.why);
    return model;
}

/* The same six stages, wherever the iteration is cut. */
static void any_cut(void **state)
{
    (void)state;
    struct trace trace = {0};
    for (int i = 0; i < 4; i++)
        iterate(&trace, 100);
    assert_int_equal(trace.events.count, 4 * PERIOD);
    for (size_t cut = 0; cut < PERIOD; cut++) {
        struct ebb_model model = model_of(&trace, PERIOD + cut, PERIOD);
        struct ebb_stages stages;
        assert_int_equal(model.mark_count, 8);
        assert_true(ebb__model_has_layers(&model));
        assert_int_equal(ebb__stages_init(&model, &stages, NULL), EBB_OK);
        assert_int_equal(stages.count, 6);
        static const struct ebb_stage wanted[] = {
            {2, 1, EBB_PHASE_FORWARD},   {5, 2, EBB_PHASE_FORWARD},   {8, 0, EBB_PHASE_FORWARD},
            {11, 2, EBB_PHASE_BACKWARD}, {14, 1, EBB_PHASE_BACKWARD}, {17, 1, EBB_PHASE_UPDATE}};
        for (uint32_t i = 0; i < 6; i++) {
            const struct ebb_stage *want = &wanted[i];
            uint32_t at = stages.at[(want->first_tick + PERIOD - cut) % PERIOD];
            uint32_t next = stages.at[(wanted[(i + 1) % 6].first_tick + PERIOD - cut) % PERIOD];
            assert_int_equal(stages.items[at].layer, want->layer);
            assert_int_equal(stages.items[at].phase, want->phase);
            assert_int_equal(ebb__stage_before(&stages, next), at);
            /* A stage that is cut in two begins before the iteration's end. */
            assert_int_equal((stages.items[at].first_tick + cut) % PERIOD, want->first_tick);
        }
        for (uint32_t i = 1; i < 6; i++)
            assert_true(stages.items[i - 1].first_tick < stages.items[i].first_tick);
        ebb__stages_fini(&stages);
        ebb__model_fini(&model);
    }
    ebb_vec_free(&trace.events);
}

/* Parts of blocks add events before marks and drop others. */
static void parts_move_marks(void **state)
{
    (void)state;
    struct trace trace = {0};
    uint64_t weight = begin(&trace, 40 * EBB_HUGE_BYTES);
    for (int i = 0; i < 3; i++) {
        for (uint64_t unit = 0; unit < 40; unit++) {
            if (unit == 20)
                iterate(&trace, 100);
            push(&trace, EBB_EVENT_ACCESS, weight, (unit + 1) * EBB_HUGE_BYTES);
            trace.events.items[trace.events.count - 1].flags = EBB_EVENT_PART;
        }
    }
    struct ebb_model model = model_of(&trace, 1 + PERIOD + 40, PERIOD + 40);
    struct ebb_stages stages;
    assert_true(model.block_count > 4);
    assert_int_equal(model.mark_count, 8);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(model.events[model.marks[i].tick].kind, EBB_EVENT_MARK);
    assert_int_equal(model.marks[2].value, 2);
    assert_int_equal(ebb__stages_init(&model, &stages, NULL), EBB_OK);
    assert_int_equal(stages.count, 6);
    ebb__stages_fini(&stages);
    ebb__model_fini(&model);
    ebb_vec_free(&trace.events);
}

/* A model of another batch size has the marks, too. */
static void scaling_keeps_marks(void **state)
{
    (void)state;
    struct trace trace = {0};
    for (int i = 0; i < 3; i++)
        iterate(&trace, 1 << 20);
    struct ebb_model model = model_of(&trace, PERIOD, PERIOD), scaled;
    const struct ebb_watch_block newest[] = {{1, 2 << 20, true}, {2, 4 << 20, true}, {3, 5, false},
                                             {4, 2 << 20, true}, {5, 4 << 20, true}, {6, 5, false}};
    const struct ebb_scale_run run = {.newest = newest, .count = 6};
    assert_int_equal(ebb__model_scale(&model, &run, &scaled), EBB_OK);
    ebb__model_fini(&model);
    struct ebb_stages stages;
    assert_int_equal(ebb__stages_init(&scaled, &stages, NULL), EBB_OK);
    assert_int_equal(stages.count, 6);
    ebb__stages_fini(&stages);
    ebb__model_fini(&scaled);
    ebb_vec_free(&trace.events);
}

/* The error says what is missing. Other marks, and values that are none, count as no layer. */
static void what_is_missing(void **state)
{
    (void)state;
    static const struct {
        enum ebb_mark kind;
        uint64_t value;
        const char *why;
    } steps[] = {
        {EBB_MARK_LAYER, 0, "the trace has no layer marks"},
        {EBB_MARK_LAYER, UINT64_MAX, "the trace does not mark both phases, forward and backward"},
        {EBB_MARK_PHASE, EBB_PHASE_FORWARD,
         "the trace does not mark both phases, forward and backward"},
        {EBB_MARK_PHASE, 99, "the trace does not mark both phases, forward and backward"},
        {EBB_MARK_PHASE, EBB_PHASE_BACKWARD, NULL}};
    struct trace trace = {0};
    uint64_t block = begin(&trace, 7);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        mark(&trace, steps[i].kind, steps[i].value);
        push(&trace, EBB_EVENT_ACCESS, block, 0);
        struct ebb_model model = model_of(&trace, 1, trace.events.count - 1);
        struct ebb_stages stages;
        struct ebb_error error = {0};
        enum ebb_status status = ebb__stages_init(&model, &stages, &error);
        assert_int_equal(status, steps[i].why ? EBB_ERR_UNSUPPORTED : EBB_OK);
        assert_int_equal(ebb__model_has_layers(&model), steps[i].why == NULL);
        if (status) {
            assert_string_equal(error.why, steps[i].why);
        } else {
            assert_int_equal(stages.items[stages.count - 1].layer, UINT32_MAX);
            ebb__stages_fini(&stages);
        }
        ebb__model_fini(&model);
    }
    /* Without marks, nothing is kept. */
    push(&trace, EBB_EVENT_FREE, begin(&trace, 3), 3);
    struct ebb_model model = model_of(&trace, trace.events.count - 2, 2);
    assert_null(model.marks);
    assert_int_equal(model.mark_count, 0);
    ebb__model_fini(&model);
    ebb_vec_free(&trace.events);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_cut),
        cmocka_unit_test(parts_move_marks),
        cmocka_unit_test(scaling_keeps_marks),
        cmocka_unit_test(what_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
