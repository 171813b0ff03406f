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
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &stage->watch), EBB_OK);
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

/* The letter `index` of a word over 0, 1, 2 in which nothing follows itself, however long. It is
 * the number of ones between zeros of the Thue-Morse sequence. */
static unsigned square_free(unsigned index)
{
    unsigned zeros = 0, ones = 0;
    for (unsigned i = 1;; i++) {
        if (__builtin_parity(i)) {
            ones++;
        } else if (zeros++ == index) {
            return ones;
        } else {
            ones = 0;
        }
    }
}

static void steps_that_all_differ_do_not_recur(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    for (unsigned i = 0; i < 100; i++)
        step(stage, 3 * i + square_free(i), 0); /* of 64, 128 or 192 layers */
    assert_false(ebb__watch_recurs(stage->watch));
    close_stage(stage);
}

/* ---- steps of one shape ---------------------------------------------------------------------- */

/* No two are equal, all have the same number of layers. */
static unsigned any_length(unsigned step)
{
    return 3 * (step * 7 % 31);
}

static void steps_of_one_shape_are_an_iteration(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    unsigned steps = 0, longest = 0;
    for (; steps < 10 && !ebb__watch_recurs(stage->watch); steps++)
        step(stage, any_length(steps), 0);
    assert_in_range(steps, 3, 5); /* the first one makes the states */
    assert_true(ebb__watch_is_by_allocs(stage->watch));
    assert_int_equal(ebb__watch_period_allocs(stage->watch), LAYERS + STATES);
    for (unsigned i = 0; i < 6; i++)
        step(stage, any_length(steps++), 0);
    for (unsigned i = 1; i + 1 < steps; i++)
        longest = any_length(i) > longest ? any_length(i) : longest;
    struct ebb_model model;
    assert_int_equal(ebb__watch_model(stage->watch, &model, NULL, NULL), EBB_OK);
    assert_true(model.varies);
    assert_int_equal(ebb__model_count_allocs(&model), LAYERS + STATES);
    unsigned varying = 0;
    for (uint32_t i = 0; i < model.block_count; i++) {
        const struct ebb_model_block *block = &model.blocks[i];
        varying += block->varies;
        if (block->varies) /* the largest size that any step had there */
            assert_true(block->size_bytes >= MIB + longest * (uint64_t)65536);
        else
            assert_true(block->size_bytes <= 3 * MIB);
        assert_true(!block->varies || block->alloc_tick != EBB_TICK_NONE);
    }
    assert_int_equal(varying, LAYERS);
    ebb__model_fini(&model);
    close_stage(stage);
}

/* A step that has another shape is told beside it, if it comes again. */
static void another_shape_is_a_step_of_its_own(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    unsigned steps = 0, told = 0;
    for (; steps < 6; steps++)
        step(stage, any_length(steps), 0);
    ebb__watch_hold(stage->watch);
    assert_true(ebb__watch_is_held(stage->watch));
    for (; steps < 24; steps++) {
        struct ebb_watch_gap gap;
        while (ebb__watch_next_gap(stage->watch, &gap)) {
            assert_true(gap.whole);
            told += gap.repeats;
            if (gap.repeats)
                assert_int_equal(gap.allocs, 2 * LAYERS + STATES);
        }
        step(stage, steps % 4 ? any_length(steps) : 4, 0);
    }
    assert_in_range(told, 2, 4);
    assert_int_equal(ebb__watch_period_allocs(stage->watch), LAYERS + STATES);
    close_stage(stage);
}

/* Sizes that are the same for a while do not make it another iteration. */
static void equal_sizes_do_not_replace_the_shape(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    unsigned steps = 0;
    for (; steps < 6; steps++)
        step(stage, any_length(steps), 0);
    ebb__watch_hold(stage->watch);
    size_t pattern = ebb__watch_pattern(stage->watch);
    for (unsigned i = 0; i < 12; i++)
        step(stage, 9, 0);
    for (unsigned i = 0; i < 12; i++)
        step(stage, 6 + 3 * (i % 2), 0);
    assert_int_equal(ebb__watch_pattern(stage->watch), pattern);
    assert_in_range(ebb__watch_iterations(stage->watch), 26, 30);
    close_stage(stage);
}

/* Micro-batches of three lengths, whose gradients live until the optimizer has run. */
static void accumulate(struct stage *stage, unsigned number)
{
    uint64_t gradients[8];
    for (unsigned part = 0; part < 3; part++) {
        uint64_t outputs[LAYERS];
        for (unsigned i = 0; i < LAYERS; i++)
            outputs[i] = alloc(stage, MIB + any_length(3 * number + part) * (uint64_t)65536);
        for (unsigned i = 0; i < 8; i++) {
            uint64_t gradient = alloc(stage, 2 * MIB);
            if (part == 0)
                gradients[i] = gradient;
        }
        for (unsigned i = LAYERS; i-- > 0;)
            release(stage, outputs[i]);
        for (unsigned i = 0; i < 8 && part > 0; i++)
            release(stage, stage->serial - 7 + i);
    }
    for (unsigned i = 0; i < 8; i++) {
        uint64_t temporary = alloc(stage, MIB);
        release(stage, temporary);
        release(stage, gradients[i]);
    }
}

static void micro_batches_of_one_shape_are_no_iteration_for_long(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    for (unsigned i = 0; i < 10; i++)
        accumulate(stage, i);
    assert_true(ebb__watch_found(stage->watch));
    assert_int_equal(ebb__watch_period_allocs(stage->watch), 3 * (LAYERS + 8) + 8);
    close_stage(stage);
}

/* The engine of a device follows sizes only. */
static void shapes_are_found_on_demand_only(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    ebb__watch_destroy(stage->watch);
    assert_int_equal(ebb__watch_create(EBB_WATCH_SIZES, &stage->watch), EBB_OK);
    stage->serial = 0;
    for (unsigned i = 0; i < 20; i++)
        step(stage, any_length(i), 0);
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
        cmocka_unit_test(steps_of_one_shape_are_an_iteration),
        cmocka_unit_test(another_shape_is_a_step_of_its_own),
        cmocka_unit_test(equal_sizes_do_not_replace_the_shape),
        cmocka_unit_test(micro_batches_of_one_shape_are_no_iteration_for_long),
        cmocka_unit_test(shapes_are_found_on_demand_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
