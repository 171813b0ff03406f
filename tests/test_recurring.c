/* Steps of some lengths come in any order, so that none follows itself. They are found by what they
 * allocate between two troughs of the live bytes, and each has a model of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/watch.h"

#include <stdlib.h>

#define MIB ((uint64_t)1 << 20)
#define STEP_NS ((uint64_t)1000000)
enum { LAYERS = 64, STATES = 12 };

struct stage {
    struct ebb_watch *watch;
    uint64_t serial, now_ns;
    uint64_t states[STATES];
    bool observed;
    unsigned steps;
};

static void push(struct stage *stage, struct ebb_event event)
{
    stage->now_ns += STEP_NS;
    event.time_ns = stage->now_ns;
    assert_int_equal(ebb__watch_push(stage->watch, &event), EBB_OK);
}

static void observe(struct stage *stage, bool on)
{
    stage->observed = on;
    push(stage, (struct ebb_event){.kind = EBB_EVENT_MARK,
                                   .mark = on ? EBB_MARK_TRACE_ON : EBB_MARK_TRACE_OFF});
}

static void use(struct stage *stage, uint64_t block)
{
    if (stage->observed)
        push(stage, (struct ebb_event){
                        .kind = EBB_EVENT_ACCESS, .block = block, .access = EBB_ACCESS_WRITE});
}

static uint64_t alloc(struct stage *stage, uint64_t bytes)
{
    push(stage, (struct ebb_event){
                    .kind = EBB_EVENT_ALLOC, .block = ++stage->serial, .size_bytes = bytes});
    use(stage, stage->serial);
    return stage->serial;
}

static void release(struct stage *stage, uint64_t block)
{
    push(stage, (struct ebb_event){.kind = EBB_EVENT_FREE, .block = block});
}

/* Forward, backward, and an optimizer that has a temporary block for each weight. Each length has
 * its own number of layers and sizes. `swap`: two layers change places. */
static void step(struct stage *stage, unsigned length, unsigned swap)
{
    uint64_t outputs[4 * LAYERS];
    unsigned layers = LAYERS + length % 3 * LAYERS;
    for (unsigned i = 0; i < layers; i++) {
        unsigned layer = swap && i / 2 == swap ? i ^ 1 : i;
        outputs[i] = alloc(stage, MIB + length * (uint64_t)65536 + layer * 4096);
    }
    for (unsigned i = layers; i-- > 0;) {
        use(stage, outputs[i]);
        release(stage, outputs[i]);
    }
    for (unsigned i = 0; i < STATES; i++) {
        uint64_t temporary = alloc(stage, MIB);
        if (stage->steps == 0)
            stage->states[i] = alloc(stage, 2 * MIB);
        use(stage, stage->states[i]);
        release(stage, temporary);
    }
    stage->steps++;
}

static struct stage *open_stage(void)
{
    struct stage *stage = calloc(1, sizeof *stage);
    assert_non_null(stage);
    assert_int_equal(ebb__watch_create(&stage->watch), EBB_OK);
    observe(stage, true);
    for (unsigned i = 0; i < 6; i++)
        alloc(stage, 3 * MIB);
    return stage;
}

static void close_stage(struct stage *stage)
{
    ebb__watch_destroy(stage->watch);
    free(stage);
}

/* Four lengths, each once in four steps, and never the same twice in a row. */
static unsigned length_of(unsigned step)
{
    static const unsigned order[] = {0, 1, 2, 3, 1, 3, 0, 2, 3, 0, 2, 1, 2, 0, 3, 1};
    return order[step % (sizeof order / sizeof order[0])];
}

static void is_model_of(const struct ebb_model *model, unsigned length)
{
    unsigned layers = LAYERS + length % 3 * LAYERS;
    assert_int_equal(ebb__model_count_allocs(model), layers + STATES);
    assert_true(model->has_accesses);
    uint64_t longest = 0;
    for (uint32_t i = 0; i < model->block_count; i++)
        longest = model->blocks[i].size_bytes > longest ? model->blocks[i].size_bytes : longest;
    assert_true(longest >= MIB + length * (uint64_t)65536 + (layers - 1) * 4096);
}

static void the_first_that_recurs_is_the_iteration(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    unsigned steps = 0;
    for (; steps < 10 && !ebb__watch_recurs(stage->watch); steps++)
        step(stage, length_of(steps), 0);
    assert_in_range(steps, 5, 9);
    assert_true(ebb__watch_recurs(stage->watch));
    struct ebb_model model;
    assert_int_equal(ebb__watch_model(stage->watch, &model, NULL, NULL), EBB_OK);
    /* It is found where the next step rises: the one before is what has recurred. */
    is_model_of(&model, length_of(steps - 2));
    ebb__model_fini(&model);
    close_stage(stage);
}

/* The iteration is held, and the other lengths are told as soon as they come again. */
static void the_others_are_told_as_steps_of_their_own(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    unsigned steps = 0, known = 0;
    while (steps < 10 && !ebb__watch_recurs(stage->watch))
        step(stage, length_of(steps++), 0);
    unsigned iteration = length_of(steps - 2);
    ebb__watch_hold(stage->watch);
    assert_true(ebb__watch_is_held(stage->watch));
    bool planned[4] = {false};
    planned[iteration] = true;
    for (; steps < 16; steps++) {
        struct ebb_watch_gap gap;
        while (ebb__watch_next_gap(stage->watch, &gap)) {
            unsigned length = length_of(steps - 2);
            assert_true(gap.whole);
            assert_int_not_equal(length, iteration);
            assert_int_equal(gap.known, planned[length]);
            assert_true(gap.traced);
            if (gap.known || !gap.repeats)
                continue;
            struct ebb_model model;
            assert_int_equal(ebb__watch_gap_model(stage->watch, &gap, &model, NULL), EBB_OK);
            is_model_of(&model, length);
            ebb__model_fini(&model);
            ebb__watch_know_gap(stage->watch, &gap);
            planned[length] = true;
            known++;
        }
        step(stage, length_of(steps), 0);
    }
    assert_int_equal(known, 3);
    assert_true(ebb__watch_recurs(stage->watch));
    close_stage(stage);
}

/* A step that follows itself is found by that, and sooner. */
static void an_exact_repetition_comes_first(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    for (unsigned i = 0; i < 8; i++)
        step(stage, 1, 0);
    assert_true(ebb__watch_found(stage->watch));
    assert_false(ebb__watch_recurs(stage->watch));
    close_stage(stage);
}

/* All steps are of one length, and the order within them varies. Equal ones are so by chance. */
static void what_varies_in_order_does_not_recur(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    for (unsigned i = 0; i < 40; i++) {
        step(stage, 1, 1 + i * 5 % 7);
        assert_false(ebb__watch_recurs(stage->watch));
    }
    close_stage(stage);
}

static void steps_that_all_differ_do_not_recur(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    for (unsigned i = 0; i < 100; i++)
        step(stage, i, 0);
    assert_false(ebb__watch_recurs(stage->watch));
    close_stage(stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_that_recurs_is_the_iteration),
        cmocka_unit_test(the_others_are_told_as_steps_of_their_own),
        cmocka_unit_test(an_exact_repetition_comes_first),
        cmocka_unit_test(what_varies_in_order_does_not_recur),
        cmocka_unit_test(steps_that_all_differ_do_not_recur),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
