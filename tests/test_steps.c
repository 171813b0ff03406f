/* Steps are counted as the programmer of a training counts them: on streams made like such ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/steps.h"

#include <stdlib.h>

#define MIB ((uint64_t)1 << 20)
enum { LAYERS = 12 };

struct program {
    struct ebb_steps steps;
    uint64_t now_ns;
    bool planned;
};

static void event(struct program *program, enum ebb_event_kind kind, uint64_t bytes)
{
    program->now_ns += 1000;
    struct ebb_event made = {
        .kind = (uint8_t)kind, .block = 1, .size_bytes = bytes, .time_ns = program->now_ns};
    assert_int_equal(ebb__steps_push(&program->steps, &made, program->planned), EBB_OK);
}

static void takes(struct program *program, uint64_t bytes)
{
    event(program, EBB_EVENT_ALLOC, bytes);
}

static void gives(struct program *program, uint64_t bytes)
{
    event(program, EBB_EVENT_FREE, bytes);
}

/* Forward and backward of `layers` outputs of `bytes`. Each has an intermediate result of the same
 * size, and leaves a gradient of `gradient` bytes. */
static void trains(struct program *program, unsigned layers, uint64_t bytes, uint64_t gradient)
{
    for (unsigned i = 0; i < layers; i++) {
        takes(program, bytes);
        takes(program, bytes);
        gives(program, bytes);
    }
    for (unsigned i = 0; i < layers; i++) {
        takes(program, bytes);
        if (gradient)
            takes(program, gradient);
        gives(program, bytes);
        gives(program, bytes);
    }
}

/* The same without gradients: an output lives until the next one is there. */
static void evaluates(struct program *program, uint64_t bytes)
{
    takes(program, bytes);
    for (unsigned i = 1; i < LAYERS; i++) {
        takes(program, bytes);
        gives(program, bytes);
    }
    gives(program, bytes);
}

static const struct ebb_steps_rule nothing_known;

static uint64_t count_of(struct program *program)
{
    struct ebb_steps_found found;
    assert_int_equal(ebb__steps_find(&program->steps, nothing_known, &found), EBB_OK);
    ebb__steps_fini(&program->steps);
    return found.count;
}

/* Weights, each drawn by way of a second block: a loop before the training. */
static void begins(struct program *program)
{
    for (unsigned i = 0; i < 90; i++) {
        takes(program, 2 * MIB);
        takes(program, 2 * MIB);
        gives(program, 2 * MIB);
    }
}

static void loops_before_and_evaluations_are_none(void **state)
{
    (void)state;
    for (unsigned steps = 3; steps < 30; steps += 4) {
        struct program program = {0};
        begins(&program);
        for (unsigned i = 0; i < steps; i++) {
            trains(&program, LAYERS, 4 * MIB, 0);
            for (unsigned k = 0; i % 3 == 2 && k < 5; k++)
                evaluates(&program, 4 * MIB);
        }
        assert_int_equal(count_of(&program), steps);
    }
}

/* An optimizer's state appears in the first step, and is most of what is held then. */
static void the_base_may_rise(void **state)
{
    (void)state;
    struct program program = {0};
    begins(&program);
    for (unsigned i = 0; i < 12; i++) {
        trains(&program, LAYERS, 4 * MIB, 0);
        if (i == 0)
            takes(&program, 2000 * MIB);
    }
    assert_int_equal(count_of(&program), 12);
}

/* A program that loses memory in each step. */
static void the_base_may_rise_in_each_step(void **state)
{
    (void)state;
    struct program program = {0};
    for (unsigned i = 0; i < 9; i++) {
        takes(&program, 6 * MIB);
        trains(&program, LAYERS, 4 * MIB, 0);
    }
    assert_int_equal(count_of(&program), 9);
}

static void a_step_of_micro_batches_is_one(void **state)
{
    (void)state;
    for (unsigned micro = 2; micro <= 5; micro++) {
        struct program program = {0};
        begins(&program);
        for (unsigned i = 0; i < 20; i++) {
            for (unsigned k = 0; k < micro; k++)
                trains(&program, LAYERS, 4 * MIB, k == 0 ? MIB : 0);
            for (unsigned k = 0; k < LAYERS; k++)
                gives(&program, MIB);
        }
        assert_int_equal(count_of(&program), 20);
    }
}

/* Gradients stay until the next step has made its own. Then all micro-batches begin at the same
 * base, and only the planned iteration tells how many a step has. */
static void micro_batches_at_the_base_are_told(void **state)
{
    (void)state;
    for (unsigned micro = 2; micro <= 4; micro++) {
        struct program program = {0};
        struct ebb_steps_found found;
        struct ebb_steps_rule rule = {.batches = micro};
        uint64_t begin[21];
        begins(&program);
        takes(&program, LAYERS * MIB);
        for (unsigned i = 0; i < 20; i++) {
            program.planned = i >= 3;
            begin[i] = program.now_ns;
            for (unsigned k = 0; k < micro; k++)
                trains(&program, LAYERS, 4 * MIB, 0);
        }
        begin[20] = program.now_ns;
        assert_int_equal(ebb__steps_find(&program.steps, nothing_known, &found), EBB_OK);
        assert_int_equal(found.count, 20 * micro);
        assert_int_equal(ebb__steps_within(&program.steps, nothing_known, begin[5], begin[6]),
                         micro);
        assert_int_equal(ebb__steps_find(&program.steps, rule, &found), EBB_OK);
        assert_int_equal(found.count, 20);
        assert_int_equal(found.planned, 17);
        assert_int_equal(found.planned_from, 3);
        assert_in_range(found.median_ns, begin[6] - begin[5] - 10000, begin[6] - begin[5] + 10000);
        assert_int_equal(ebb__steps_within(&program.steps, rule, begin[5], begin[20]), 15);
        ebb__steps_fini(&program.steps);
    }
}

/* The gradients of one network stay until its next turn. */
static void two_optimizers_make_one_step(void **state)
{
    (void)state;
    struct program program = {0};
    begins(&program);
    for (unsigned i = 0; i < 20; i++) {
        for (unsigned k = 0; i && k < LAYERS; k++)
            gives(&program, MIB);
        trains(&program, LAYERS, 5 * MIB, MIB);
        for (unsigned k = 0; i && k < 6; k++)
            gives(&program, MIB);
        trains(&program, 6, 5 * MIB, MIB);
        if (i % 5 == 4)
            evaluates(&program, 5 * MIB);
    }
    assert_int_equal(count_of(&program), 20);
}

/* 32 moves, whose observations stay for four updates. */
static void a_rollout_and_its_updates_are_one(void **state)
{
    (void)state;
    struct program program = {0};
    begins(&program);
    for (unsigned i = 0; i < 20; i++) {
        for (unsigned k = 0; k < 32; k++) {
            takes(&program, 4 * MIB);
            evaluates(&program, MIB);
        }
        for (unsigned k = 0; k < 4; k++)
            trains(&program, LAYERS, 8 * MIB, 0);
        for (unsigned k = 0; k < 32; k++)
            gives(&program, 4 * MIB);
    }
    assert_int_equal(count_of(&program), 20);
}

/* Each seven steps a new model, before the old one and its optimizer are freed. */
static void folds_are_no_micro_batches(void **state)
{
    (void)state;
    struct program program = {0};
    for (unsigned i = 0; i < 42; i++) {
        if (i % 7 == 0) {
            takes(&program, 30 * MIB);
            gives(&program, i ? 90 * MIB : 0);
        }
        trains(&program, LAYERS, 8 * MIB, 0);
        if (i % 7 == 0)
            takes(&program, 60 * MIB);
        if (i % 7 == 6)
            evaluates(&program, 4 * MIB);
    }
    assert_int_equal(count_of(&program), 42);
}

/* A large model for each fold: the planned iteration tells what a step is. */
static void the_planned_iteration_tells(void **state)
{
    (void)state;
    struct program program = {0};
    uint64_t began_ns = 0, ended_ns = 0;
    for (unsigned i = 0; i < 42; i++) {
        if (i % 7 == 0)
            takes(&program, 400 * MIB);
        began_ns = program.now_ns;
        trains(&program, LAYERS, 4 * MIB, 0);
        ended_ns = program.now_ns;
        if (i % 7 == 6)
            gives(&program, 400 * MIB);
    }
    struct ebb_steps_found found;
    uint64_t swing = ebb__steps_swing(&program.steps, began_ns, ended_ns);
    assert_in_range(swing, (LAYERS - 1) * 4 * MIB, (LAYERS + 2) * 4 * MIB);
    assert_int_equal(ebb__steps_swing(&program.steps, 1, 2), 0);
    struct ebb_steps_rule rule = {.telling_bytes = swing};
    assert_int_equal(ebb__steps_find(&program.steps, nothing_known, &found), EBB_OK);
    assert_int_equal(found.count, 6);
    assert_int_equal(ebb__steps_find(&program.steps, rule, &found), EBB_OK);
    assert_int_equal(found.count, 42);
    ebb__steps_fini(&program.steps);
}

static void what_is_planned_is_told(void **state)
{
    (void)state;
    struct program program = {0};
    uint64_t begin[10], number;
    begins(&program);
    for (unsigned i = 0; i < 10; i++) {
        begin[i] = program.steps.events;
        program.planned = i == 3 || i >= 5;
        trains(&program, LAYERS, 4 * MIB, 0);
        program.planned = true; /* in between, it tells nothing */
        evaluates(&program, 4 * MIB);
        program.now_ns += i == 7 ? 5000000 : 0;
    }
    struct ebb_steps_found found;
    assert_int_equal(ebb__steps_find(&program.steps, nothing_known, &found), EBB_OK);
    assert_int_equal(found.count, 10);
    assert_int_equal(found.planned, 6);
    assert_int_equal(found.planned_from, 3);
    uint64_t ns = (LAYERS * 6 + LAYERS * 2) * 1000;
    assert_int_equal(found.median_ns, ns);
    assert_int_equal(found.min_ns, ns);
    assert_int_equal(found.max_ns, ns + 5000000);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(ebb__steps_at(&program.steps, nothing_known, begin[i] + 20, &number),
                         EBB_OK);
        assert_int_equal(number, i);
    }
    assert_int_equal(ebb__steps_at(&program.steps, nothing_known, 3, &number), EBB_OK);
    assert_int_equal(number, 0);
    ebb__steps_fini(&program.steps);
}

/* More turns than are kept: loops before the training are forgotten, steps are counted. */
static void very_many_are_counted(void **state)
{
    (void)state;
    struct program program = {0};
    for (unsigned i = 0; i < 40000; i++) {
        takes(&program, MIB);
        gives(&program, MIB);
    }
    takes(&program, 20 * MIB);
    for (unsigned i = 0; i < 70000; i++) {
        program.planned = i >= 1000;
        trains(&program, 2, 40 * MIB, 0);
    }
    struct ebb_steps_found found;
    assert_int_equal(ebb__steps_find(&program.steps, nothing_known, &found), EBB_OK);
    assert_in_range(found.count, 69990, 70003);
    assert_in_range(found.planned_from, 995, 1003);
    assert_int_equal(found.count - found.planned_from, found.planned);
    ebb__steps_fini(&program.steps);
}

static void marks(struct program *program, enum ebb_mark mark, uint64_t value)
{
    struct ebb_event made = {.kind = EBB_EVENT_MARK,
                             .mark = (uint8_t)mark,
                             .size_bytes = value,
                             .time_ns = program->now_ns};
    assert_int_equal(ebb__steps_push(&program->steps, &made, program->planned), EBB_OK);
}

/* Each step waits once, in its middle: for its number of microseconds, by a cause of its own. */
static void trains_with_waits(struct program *program, unsigned steps)
{
    for (unsigned i = 0; i < steps; i++) {
        trains(program, LAYERS, 4 * MIB, 0);
        if (i == 2)
            marks(program, EBB_MARK_TRACE_ON, 0);
        if (i == 3)
            marks(program, EBB_MARK_TRACE_OFF, 0);
        if (i == 4)
            marks(program, EBB_MARK_PLAN_ON, 0);
        if (i == 6)
            marks(program, EBB_MARK_PLAN_OFF, 0);
        takes(program, 90 * MIB);
        marks(program, EBB_MARK_WAIT, 1000 * (i + 1));
        gives(program, 90 * MIB);
        gives(program, 0);
    }
}

static void lost_time_is_told_by_step(void **state)
{
    (void)state;
    static const enum ebb_lost_cause causes[] = {
        EBB_LOST_EVICTED, EBB_LOST_EVICTED, EBB_LOST_OBSERVED, EBB_LOST_EVICTED,
        EBB_LOST_LATE,    EBB_LOST_LATE,    EBB_LOST_SWITCHED, EBB_LOST_SWITCHED,
    };
    for (unsigned steps = 9; steps < 100000; steps *= 10) {
        struct program program = {0};
        struct ebb_steps_found found;
        trains_with_waits(&program, steps);
        assert_int_equal(ebb__steps_find(&program.steps, nothing_known, &found), EBB_OK);
        ebb__steps_fini(&program.steps);
        assert_int_equal(found.count, steps);
        assert_true(found.lost.has_waits);
        assert_int_equal(found.lost.count, steps < 20 ? steps : 20);
        for (unsigned i = 0; i < 8; i++)
            for (int c = 0; c < EBB_LOST_CAUSES; c++)
                assert_int_equal(found.lost.iterations[i].cause_ns[c],
                                 (int)causes[i] == c ? 1000 * (i + 1) : 0);
    }
}

static void nothing_is_no_step(void **state)
{
    (void)state;
    struct program program = {0};
    assert_int_equal(count_of(&program), 0);
    takes(&program, MIB);
    takes(&program, 9 * MIB);
    assert_int_equal(count_of(&program), 0);
    gives(&program, 100 * MIB); /* more than there is */
    takes(&program, MIB);
    ebb__steps_fini(&program.steps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_before_and_evaluations_are_none),
        cmocka_unit_test(the_base_may_rise),
        cmocka_unit_test(the_base_may_rise_in_each_step),
        cmocka_unit_test(a_step_of_micro_batches_is_one),
        cmocka_unit_test(micro_batches_at_the_base_are_told),
        cmocka_unit_test(two_optimizers_make_one_step),
        cmocka_unit_test(a_rollout_and_its_updates_are_one),
        cmocka_unit_test(folds_are_no_micro_batches),
        cmocka_unit_test(the_planned_iteration_tells),
        cmocka_unit_test(what_is_planned_is_told),
        cmocka_unit_test(very_many_are_counted),
        cmocka_unit_test(lost_time_is_told_by_step),
        cmocka_unit_test(nothing_is_no_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
