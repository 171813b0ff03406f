/* A profile of another batch size gets the sizes of this run: once the first step is over, and once
 * more if the replay strays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/tuning.h"
#include "parent/internal.h"
#include "synthetic.h"

#define KIB ((uint64_t)1 << 10)
enum { LAYERS = 24, WEIGHTS = 6 };

/* The iteration of the earlier run. */
static struct ebb_model make_step(unsigned batch)
{
    struct maker maker = {0};
    uint32_t outputs[LAYERS], weight = make_persistent(&maker, 500 * KIB);
    uint64_t now = 0;
    for (unsigned i = 0; i < LAYERS; i++) {
        outputs[i] = make_block(&maker, output_of(i, batch));
        make_event(&maker, now += 1000, EBB_EVENT_ALLOC, outputs[i], 0);
        make_event(&maker, now += 1000, EBB_EVENT_ACCESS, weight, EBB_ACCESS_READ);
    }
    for (unsigned i = LAYERS; i-- > 0;) {
        uint32_t gradient = make_block(&maker, gradient_of(i));
        make_event(&maker, now += 1000, EBB_EVENT_ALLOC, gradient, 0);
        make_event(&maker, now += 1000, EBB_EVENT_FREE, outputs[i], 0);
        make_event(&maker, now += 1000, EBB_EVENT_FREE, gradient, 0);
    }
    return make_model(&maker, now + 1000);
}

struct stage {
    struct process process;
    struct ebb_profile_iteration *planned; /* what the profile holds now */
    uint64_t serial, now_ns;
};

static void push(struct stage *stage, enum ebb_event_kind kind, uint64_t serial, uint64_t bytes)
{
    struct ebb_event event = {.kind = (uint8_t)kind,
                              .block = serial,
                              .size_bytes = bytes,
                              .time_ns = stage->now_ns += 1000};
    ebb__parent_note_event(&stage->process, &event);
    assert_int_equal(ebb__watch_push(stage->process.stream.watch, &event), EBB_OK);
}

static uint64_t allocate(struct stage *stage, uint64_t bytes)
{
    push(stage, EBB_EVENT_ALLOC, ++stage->serial, bytes);
    return stage->serial;
}

static void use(struct stage *stage, uint64_t bytes)
{
    push(stage, EBB_EVENT_FREE, allocate(stage, bytes), bytes);
}

/* A step of this run. The first one makes states. If `extra_bytes` is not 0, one more block comes
 * behind the fourth gradient. */
static void step(struct stage *stage, unsigned batch, bool first, uint64_t extra_bytes)
{
    uint64_t outputs[LAYERS];
    for (unsigned i = 0; i < LAYERS; i++)
        outputs[i] = allocate(stage, output_of(i, batch));
    for (unsigned i = LAYERS; i-- > 0;) {
        uint64_t gradient = allocate(stage, gradient_of(i));
        push(stage, EBB_EVENT_FREE, outputs[i], output_of(i, batch));
        push(stage, EBB_EVENT_FREE, gradient, gradient_of(i));
        if (extra_bytes && i == LAYERS - 4)
            use(stage, extra_bytes);
    }
    for (unsigned i = 0; first && i < 2 * LAYERS; i++)
        allocate(stage, gradient_of(i / 2));
}

static void stray(struct stage *stage)
{
    struct ebb_event event = {.kind = EBB_EVENT_MARK, .mark = EBB_MARK_PLAN_OFF};
    event.time_ns = stage->now_ns += 1000;
    ebb__parent_note_event(&stage->process, &event);
}

/* Batch 8 has been learnt, and this run begins. */
static struct stage *open_stage(void)
{
    struct stage *stage = must(calloc(1, sizeof *stage));
    struct recall *recall = &stage->process.recall;
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &stage->process.stream.watch), EBB_OK);
    struct ebb_model model = make_step(8);
    ebb__profile_add(&recall->profile, &model, WEIGHTS + 2);
    recall->is_other = true;
    stage->planned = &recall->profile.iterations[0];
    for (unsigned i = 0; i < WEIGHTS; i++)
        allocate(stage, 500 * KIB);
    return stage;
}

static void close_stage(struct stage *stage)
{
    ebb__watch_destroy(stage->process.stream.watch);
    ebb__steps_fini(&stage->process.stream.steps);
    ebb__profile_fini(&stage->process.recall.profile);
    ebb__batch_end(&stage->process);
    free(stage);
}

static bool scale(struct stage *stage)
{
    return ebb__batch_scale(&stage->process);
}

/* The model allocates what a step of this batch does. */
static void is_of_batch(const struct stage *stage, unsigned batch, uint64_t extra_bytes)
{
    const struct ebb_model *model = &stage->planned->model;
    unsigned allocs = 0;
    for (uint32_t i = 0; i < model->tick_count; i++) {
        if (model->events[i].kind != EBB_EVENT_ALLOC)
            continue;
        uint64_t bytes = model->blocks[model->events[i].block].size_bytes;
        unsigned at = allocs++;
        if (extra_bytes && at == LAYERS + 4)
            assert_int_equal(bytes, extra_bytes);
        at -= extra_bytes && at > LAYERS + 4;
        if (at < LAYERS)
            assert_int_equal(bytes, output_of(at, batch));
        else if (at != LAYERS + 4 || !extra_bytes || bytes != extra_bytes)
            assert_int_equal(bytes, gradient_of(2 * LAYERS - 1 - at));
    }
    assert_int_equal(allocs, 2 * LAYERS + (extra_bytes != 0));
}

/* After the first step, and not before. It stays while nothing strays. */
static void after_the_first_step(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    assert_false(scale(stage));
    step(stage, 6, true, 0);
    assert_true(scale(stage));
    is_of_batch(stage, 6, 0);
    assert_int_equal(stage->process.recall.profile.iteration_count, 1);
    assert_int_equal(stage->planned->first_serial, WEIGHTS + 2);
    for (unsigned i = 0; i < 4; i++) {
        step(stage, 6, false, 0);
        assert_false(scale(stage));
    }
    assert_false(ebb__batch_settles(&stage->process));
    close_stage(stage);
}

/* Later steps allocate what the first one did not. The next scaling begins with the original. */
static void strays_and_is_scaled_again(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    step(stage, 12, true, 0);
    assert_true(scale(stage));
    is_of_batch(stage, 12, 0);
    step(stage, 12, false, 777 * KIB);
    stray(stage);
    assert_true(ebb__batch_settles(&stage->process));
    step(stage, 12, false, 777 * KIB);
    assert_true(scale(stage));
    is_of_batch(stage, 12, 777 * KIB);
    assert_false(ebb__batch_settles(&stage->process));
    step(stage, 12, false, 777 * KIB);
    assert_false(scale(stage));
    close_stage(stage);
}

/* An evaluation ends the replay, but it is in no iteration: nothing changes. */
static void strays_for_an_evaluation(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    step(stage, 6, true, 0);
    assert_true(scale(stage));
    for (unsigned i = 0; i < 3; i++) {
        step(stage, 6, false, 0);
        for (unsigned layer = 0; layer < LAYERS / 2; layer++)
            use(stage, output_of(layer, 6));
        stray(stage);
        assert_true(ebb__batch_settles(&stage->process));
        step(stage, 6, false, 0);
        step(stage, 6, false, 0);
        assert_false(scale(stage));
        assert_false(ebb__batch_settles(&stage->process));
        is_of_batch(stage, 6, 0);
    }
    close_stage(stage);
}

/* A program that is never the same is not scaled for ever. */
static void at_most_so_often(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    unsigned times = 0;
    step(stage, 6, true, 0);
    for (unsigned i = 0; i < 20; i++) {
        times += scale(stage);
        stray(stage);
        step(stage, 6, false, (700 + i / 2) * KIB);
    }
    assert_int_equal(times, ebb__tuning()->recall_patience);
    assert_false(ebb__batch_settles(&stage->process));
    close_stage(stage);
}

/* Of a run with the same arguments, or one whose plan is followed, nothing is scaled. */
static void what_is_not_scaled(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct stage *stage = open_stage();
        stage->process.recall.is_other = i != 0;
        stage->process.recall.followed = i == 1;
        stage->process.stream.replaying = i == 2;
        step(stage, 6, true, 0);
        step(stage, 6, false, 0);
        assert_false(scale(stage));
        is_of_batch(stage, 8, 0);
        close_stage(stage);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_the_first_step),     cmocka_unit_test(strays_and_is_scaled_again),
        cmocka_unit_test(strays_for_an_evaluation), cmocka_unit_test(at_most_so_often),
        cmocka_unit_test(what_is_not_scaled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
