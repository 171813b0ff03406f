/* A program as phrases: an iteration that is held, and the phrases between its repetitions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/tuning.h"
#include "model/watch.h"

#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define STEP_NS ((uint64_t)1000000)

struct stage {
    struct ebb_watch *watch;
    uint64_t serial, now_ns;
};

static void push(struct stage *stage, struct ebb_event event)
{
    stage->now_ns += STEP_NS;
    event.time_ns = stage->now_ns;
    assert_int_equal(ebb__watch_push(stage->watch, &event), EBB_OK);
}

/* A watch of a program that is observed from its begin on. */
static struct stage observed(void)
{
    struct stage stage = {.now_ns = 1};
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &stage.watch), EBB_OK);
    push(&stage, (struct ebb_event){.kind = EBB_EVENT_MARK, .mark = EBB_MARK_TRACE_ON});
    return stage;
}

static uint64_t bytes_of(unsigned kind, unsigned i)
{
    return (1 + i % 5) * MIB + kind * 65536 + i * 4096;
}

/* A block that is allocated and written. */
static void make(struct stage *stage, uint64_t size_bytes)
{
    push(stage, (struct ebb_event){
                    .kind = EBB_EVENT_ALLOC, .block = ++stage->serial, .size_bytes = size_bytes});
    push(stage, (struct ebb_event){
                    .kind = EBB_EVENT_ACCESS, .block = stage->serial, .access = EBB_ACCESS_WRITE});
}

static void drop_newest(struct stage *stage, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        push(stage, (struct ebb_event){.kind = EBB_EVENT_FREE, .block = stage->serial - i});
}

/* `kind` determines the sizes of `count` blocks. They are allocated, written, then freed. */
static void phrase(struct stage *stage, unsigned kind, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        make(stage, bytes_of(kind, i));
    drop_newest(stage, count);
}

/* Blocks [first, last) of a phrase, each freed at once. */
static void part(struct stage *stage, unsigned kind, unsigned first, unsigned last)
{
    for (unsigned i = first; i < last; i++) {
        push(stage, (struct ebb_event){.kind = EBB_EVENT_ALLOC,
                                       .block = ++stage->serial,
                                       .size_bytes = bytes_of(kind, i)});
        push(stage, (struct ebb_event){.kind = EBB_EVENT_FREE, .block = stage->serial});
    }
}

/* `count` blocks that stay. */
static void states(struct stage *stage, unsigned kind, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        push(stage, (struct ebb_event){.kind = EBB_EVENT_ALLOC,
                                       .block = ++stage->serial,
                                       .size_bytes = bytes_of(kind, i)});
}

static void step(struct stage *stage)
{
    phrase(stage, 0, 24);
}

/* Two batches. Between them the program waits for the runtime. */
static void evaluation(struct stage *stage, uint64_t waited_ns)
{
    phrase(stage, 1, 9);
    stage->now_ns += waited_ns;
    push(stage, (struct ebb_event){
                    .kind = EBB_EVENT_MARK, .mark = EBB_MARK_WAIT, .size_bytes = waited_ns});
    phrase(stage, 1, 9);
}

/* Groups of three steps and an evaluation. The iteration is held from its third step on. */
static struct stage held(unsigned groups, uint64_t waited_ns)
{
    struct stage stage = observed();
    for (unsigned i = 0; i < groups; i++) {
        step(&stage);
        step(&stage);
        step(&stage);
        if (i == 0) {
            assert_true(ebb__watch_found(stage.watch));
            assert_int_equal(ebb__watch_period_allocs(stage.watch), 24);
            ebb__watch_hold(stage.watch);
        }
        evaluation(&stage, waited_ns);
    }
    return stage;
}

static void a_held_iteration_stays(void **state)
{
    (void)state;
    struct stage stage = held(6, 0);
    assert_int_equal(ebb__watch_period_allocs(stage.watch), 24);
    assert_int_equal(ebb__watch_iterations(stage.watch), 18);
    assert_int_equal(ebb__watch_patterns(stage.watch), 1);
    ebb__watch_destroy(stage.watch);
}

/* What comes between cuts each third iteration in two. Two whole ones are still most of the group,
 * wherever the group is taken to begin. */
static void an_iteration_that_is_cut_stays(void **state)
{
    (void)state;
    for (unsigned cut = 1; cut < 24; cut++) {
        struct stage stage = observed();
        for (unsigned i = 0; i < 3; i++)
            part(&stage, 0, 0, 24);
        assert_int_equal(ebb__watch_period_allocs(stage.watch), 24);
        ebb__watch_hold(stage.watch);
        for (unsigned group = 0; group < 12; group++) {
            part(&stage, 0, 0, cut);
            part(&stage, 1, 0, 18);
            part(&stage, 0, cut, 24);
            part(&stage, 0, 0, 24);
            part(&stage, 0, 0, 24);
        }
        assert_true(ebb__watch_is_held(stage.watch));
        assert_int_equal(ebb__watch_period_allocs(stage.watch), 24);
        assert_int_equal(ebb__watch_patterns(stage.watch), 1);
        ebb__watch_destroy(stage.watch);
    }
}

static void without_it_the_group_is_the_iteration(void **state)
{
    (void)state;
    struct stage stage = {.now_ns = 1};
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &stage.watch), EBB_OK);
    for (unsigned i = 0; i < 6; i++) {
        step(&stage);
        step(&stage);
        step(&stage);
        evaluation(&stage, 0);
    }
    assert_int_equal(ebb__watch_period_allocs(stage.watch), 3 * 24 + 2 * 9);
    struct ebb_watch_longer longer;
    assert_false(ebb__watch_longer(stage.watch, &longer));
    ebb__watch_destroy(stage.watch);
}

static void what_comes_between_is_measured(void **state)
{
    (void)state;
    struct stage stage = held(5, 40 * STEP_NS);
    step(&stage);
    step(&stage);
    struct ebb_watch_longer longer;
    assert_true(ebb__watch_longer(stage.watch, &longer));
    assert_int_equal(longer.iterations, 3);
    uint64_t events = 3 * 24 * 3 + 2 * 9 * 3 + 1;
    assert_int_equal(longer.duration_ns, (events + 40) * STEP_NS);
    assert_int_equal(longer.beside_ns, (2 * 9 * 3 + 1 + 40) * STEP_NS);
    assert_int_equal(longer.waited_ns, 40 * STEP_NS);
    double held = 3.0 * 24 * 3 / (3 * 24), beside = (2.0 * 9 * 3 + 1 + 40) / (2 * 9);
    assert_true(longer.pace > beside / held - 1e-9 && longer.pace < beside / held + 1e-9);
    size_t iterations = ebb__watch_iterations(stage.watch);
    ebb__watch_take_longer(stage.watch);
    assert_int_equal(ebb__watch_iterations(stage.watch), iterations);
    assert_int_equal(ebb__watch_period_allocs(stage.watch), 3 * 24 + 2 * 9);
    assert_false(ebb__watch_longer(stage.watch, &longer));
    ebb__watch_destroy(stage.watch);
}

/* Steps are known, and not held. Then two batches of an evaluation are observed, so that they have
 * more events than two steps. They are no longer for that. */
static void observing_makes_nothing_longer(void **state)
{
    (void)state;
    struct stage stage = {.now_ns = 1};
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &stage.watch), EBB_OK);
    for (unsigned i = 0; i < 3; i++)
        part(&stage, 0, 0, 24);
    assert_int_equal(ebb__watch_period_allocs(stage.watch), 24);
    for (unsigned i = 0; i < 2 * 18; i++) {
        push(&stage, (struct ebb_event){.kind = EBB_EVENT_ALLOC,
                                        .block = ++stage.serial,
                                        .size_bytes = bytes_of(1, i % 18)});
        for (unsigned use = 0; use < 4; use++)
            push(&stage, (struct ebb_event){.kind = EBB_EVENT_ACCESS, .block = stage.serial});
        push(&stage, (struct ebb_event){.kind = EBB_EVENT_FREE, .block = stage.serial});
    }
    assert_int_equal(ebb__watch_period_allocs(stage.watch), 24);
    part(&stage, 0, 0, 24);
    assert_int_equal(ebb__watch_patterns(stage.watch), 1);
    ebb__watch_destroy(stage.watch);
}

/* A micro-batch. Each block has a gradient, which stays if it is the step's first one. Otherwise it
 * is freed as soon as it has been added. */
static void micro_batch(struct stage *stage, uint64_t gradients[24], bool is_first)
{
    uint64_t before[24];
    memcpy(before, gradients, sizeof before);
    for (unsigned i = 0; i < 24; i++)
        push(stage, (struct ebb_event){.kind = EBB_EVENT_ALLOC,
                                       .block = ++stage->serial,
                                       .size_bytes = bytes_of(0, i)});
    uint64_t last = stage->serial;
    for (unsigned i = 24; i-- > 0;) {
        uint64_t made = ++stage->serial;
        if (is_first && before[i])
            push(stage, (struct ebb_event){.kind = EBB_EVENT_FREE, .block = before[i]});
        push(stage, (struct ebb_event){
                        .kind = EBB_EVENT_ALLOC, .block = made, .size_bytes = bytes_of(2, i)});
        if (is_first)
            gradients[i] = made;
        else
            push(stage, (struct ebb_event){.kind = EBB_EVENT_FREE, .block = made});
        push(stage, (struct ebb_event){.kind = EBB_EVENT_FREE, .block = last - 23 + i});
    }
}

/* Steps of some micro-batches and an optimizer. The micro-batch is held. It is no iteration, since
 * the gradients of the first one live until the next step. */
static void micro_batches_are_no_iteration(void **state)
{
    (void)state;
    for (unsigned count = 2; count <= 4; count++) {
        struct stage stage = {.now_ns = 1};
        uint64_t gradients[24] = {0};
        bool was_held = false;
        assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &stage.watch), EBB_OK);
        for (unsigned i = 0; i < 6; i++) {
            for (unsigned batch = 0; batch < count; batch++) {
                micro_batch(&stage, gradients, batch == 0);
                if (ebb__watch_period_allocs(stage.watch) == 48)
                    ebb__watch_hold(stage.watch);
                was_held |= ebb__watch_is_held(stage.watch);
            }
            phrase(&stage, 1, 9);
        }
        assert_int_equal(ebb__watch_period_allocs(stage.watch), count * 48 + 9);
        assert_false(ebb__watch_is_held(stage.watch));
        assert_true(was_held || count == 2); /* of two, the step is found at once */
        assert_int_equal(ebb__watch_accumulates(stage.watch), was_held);
        assert_true(ebb__watch_iterations(stage.watch) <= 6);
        ebb__watch_destroy(stage.watch);
    }
}

/* Folds of four steps, each with a new model. The gradients of a fold's first step stay, too. But
 * the step is the iteration: much more is made between the folds. */
static void folds_are_no_iteration(void **state)
{
    (void)state;
    struct stage stage = {.now_ns = 1};
    uint64_t gradients[24] = {0}, model = 0;
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &stage.watch), EBB_OK);
    for (unsigned fold = 0; fold < 6; fold++) {
        for (unsigned i = 0; model && i < 24; i++)
            push(&stage, (struct ebb_event){.kind = EBB_EVENT_FREE, .block = model + i});
        model = stage.serial + 1;
        for (unsigned i = 0; i < 24; i++)
            make(&stage, 2 * bytes_of(2, i) + 8192);
        for (unsigned batch = 0; batch < 4; batch++) {
            micro_batch(&stage, gradients, batch == 0);
            if (ebb__watch_period_allocs(stage.watch) == 48)
                ebb__watch_hold(stage.watch);
        }
        phrase(&stage, 1, 9);
    }
    assert_int_equal(ebb__watch_period_allocs(stage.watch), 48);
    assert_true(ebb__watch_is_held(stage.watch));
    assert_false(ebb__watch_accumulates(stage.watch));
    ebb__watch_destroy(stage.watch);
}

/* From some step on, each has more: a layer is not frozen any more. Blocks come in two places, so
 * less than half of the step is as before. After three it takes the place of the held one. */
static void a_step_that_has_changed_is_taken(void **state)
{
    (void)state;
    struct stage stage = observed();
    for (unsigned i = 0; i < 6; i++)
        phrase(&stage, 0, 24);
    ebb__watch_hold(stage.watch);
    assert_int_equal(ebb__watch_period_allocs(stage.watch), 24);
    for (unsigned step = 0; step < 4; step++) {
        for (unsigned i = 0; i < 24; i++) {
            make(&stage, bytes_of(0, i));
            if (i == 5 || i == 18)
                make(&stage, bytes_of(7, i));
        }
        drop_newest(&stage, 26);
        assert_int_equal(ebb__watch_period_allocs(stage.watch), step < 2 ? 24 : 26);
    }
    ebb__watch_destroy(stage.watch);
}

/* A period that was announced early is none until it has been seen twice. */
static void one_period_is_not_measured(void **state)
{
    (void)state;
    struct stage stage = held(1, 0);
    struct ebb_watch_longer longer;
    for (unsigned i = 0; i < 3; i++) {
        step(&stage);
        assert_false(ebb__watch_longer(stage.watch, &longer));
    }
    assert_int_equal(ebb__watch_period_allocs(stage.watch), 24);
    ebb__watch_destroy(stage.watch);
}

static void something_else_takes_its_place_once_it_lasts(void **state)
{
    (void)state;
    struct stage stage = held(3, 0);
    size_t most = ebb__tuning()->held_iterations;
    for (size_t i = 0; i < most; i++)
        phrase(&stage, 2, 12);
    assert_int_equal(ebb__watch_period_allocs(stage.watch), 24);
    for (size_t i = 0; i < 2 * most; i++)
        phrase(&stage, 2, 12);
    assert_int_equal(ebb__watch_period_allocs(stage.watch), 12);
    ebb__watch_destroy(stage.watch);
}

/* One block has a size of its own, then many blocks follow. The first step allocates some more. So
 * a landmark is found in the steps before they repeat exactly. */
static void a_step_with_a_landmark(struct stage *stage, unsigned more)
{
    phrase(stage, 9, 1);
    phrase(stage, 3, 150 + more);
}

static void an_order_that_was_taken_to_vary_is_found_exactly(void **state)
{
    (void)state;
    struct stage stage = observed();
    a_step_with_a_landmark(&stage, 2);
    for (unsigned i = 0; i < 3; i++)
        a_step_with_a_landmark(&stage, 0);
    assert_int_equal(ebb__watch_patterns(stage.watch), 2); /* by a landmark, then exactly */
    ebb__watch_hold(stage.watch);
    for (unsigned i = 0; i < 6; i++) {
        evaluation(&stage, 0);
        a_step_with_a_landmark(&stage, 0);
        a_step_with_a_landmark(&stage, 0);
    }
    struct ebb_watch_longer longer;
    assert_true(ebb__watch_longer(stage.watch, &longer)); /* only an exact pattern can be held */
    assert_int_equal(longer.iterations, 2);
    assert_int_equal(ebb__watch_period_allocs(stage.watch), 151);
    ebb__watch_destroy(stage.watch);
}

/* The first step makes an optimizer's states, and something that it frees. It is believed early all
 * the same that the order does not vary. */
static void what_stays_delays_no_proof(void **state)
{
    (void)state;
    struct stage stage = observed();
    for (unsigned i = 0; i < 2; i++) {
        a_step_with_a_landmark(&stage, 0);
        if (i == 0) {
            states(&stage, 4, 6);
            part(&stage, 4, 20, 22);
        }
    }
    phrase(&stage, 9, 1);
    states(&stage, 3, 100);
    assert_int_equal(ebb__watch_period_allocs(stage.watch), 151);
    assert_true(ebb__watch_is_early(stage.watch));
    ebb__watch_destroy(stage.watch);
}

/* Another thread allocates a part of each step, so only three of ten blocks have a fixed order. */
static void interleaved_step(struct stage *stage, unsigned number)
{
    for (unsigned i = 0; i < 200; i++) {
        unsigned other = i ^ ((number + 1) * (i / 2 + 1) * 0x9e3779b1u >> 31);
        make(stage, bytes_of(i == 0 ? 9 : 3, i < 60 ? i : other));
    }
    drop_newest(stage, 200);
}

/* A part that is equal in two steps is no proof of one order. */
static void an_order_that_varies_stays_so(void **state)
{
    (void)state;
    struct stage stage = observed();
    for (unsigned i = 0; i < 12; i++)
        interleaved_step(&stage, i);
    assert_true(ebb__watch_found(stage.watch));
    assert_int_equal(ebb__watch_period_allocs(stage.watch), 200);
    assert_true(ebb__watch_patterns(stage.watch) <= 2); /* one may be believed at first */
    assert_false(ebb__watch_is_early(stage.watch));
    ebb__watch_destroy(stage.watch);
}

/* A loop of twelve blocks in an operation. Its last turn lasts until the loop comes again, and
 * contains all uses in between. They are none of the loop. */
static void what_follows_a_loop_is_not_in_it(void **state)
{
    (void)state;
    struct stage stage = observed();
    states(&stage, 4, 20);
    for (unsigned i = 0; i < 40; i++)
        part(&stage, 5, 0, 12);
    for (unsigned i = 0; i < 400; i++)
        push(&stage, (struct ebb_event){.kind = EBB_EVENT_ACCESS,
                                        .block = 1 + (i * 0x9e3779b1u >> 16) % 20,
                                        .access = EBB_ACCESS_READ});
    part(&stage, 5, 0, 1); /* the turn before it is whole now */
    assert_int_equal(ebb__watch_period_allocs(stage.watch), 12);
    struct ebb_model model;
    assert_int_equal(ebb__watch_model(stage.watch, &model, NULL, NULL), EBB_OK);
    for (uint32_t b = 0; b < model.block_count; b++)
        assert_true(model.blocks[b].alloc_tick != EBB_TICK_NONE ||
                    model.blocks[b].access_count == 0);
    ebb__model_fini(&model);
    ebb__watch_destroy(stage.watch);
}

/* ---- before a repetition is whole ------------------------------------------------------------ */

/* Forward, then `loops` times the same in a row. The first step makes states. */
static void looping_step(struct stage *stage, unsigned forward, unsigned loops, unsigned number)
{
    phrase(stage, 2, forward);
    for (unsigned i = 0; i < loops; i++)
        phrase(stage, 3, 70);
    if (number == 0)
        states(stage, 4, 8);
}

static struct stage two_steps(unsigned forward, unsigned loops)
{
    struct stage stage = observed();
    for (unsigned i = 0; i < 2; i++)
        looping_step(&stage, forward, loops, i);
    return stage;
}

static void a_step_is_believed_in_the_third(void **state)
{
    (void)state;
    struct stage stage = two_steps(150, 0);
    assert_false(ebb__watch_found(stage.watch));
    states(&stage, 2, 60); /* it begins as the phrase does */
    assert_int_equal(ebb__watch_period_allocs(stage.watch), 150);
    assert_true(ebb__watch_is_early(stage.watch));
    ebb__watch_destroy(stage.watch);
    stage = two_steps(150, 0);
    looping_step(&stage, 150, 0, 2);
    looping_step(&stage, 150, 0, 3);
    assert_int_equal(ebb__watch_period_allocs(stage.watch), 150);
    assert_false(ebb__watch_is_early(stage.watch)); /* it has come whole */
    ebb__watch_destroy(stage.watch);
}

/* A loop of 70 allocations in it does not stand in the way. */
static void a_loop_in_a_step_is_left_behind(void **state)
{
    (void)state;
    for (unsigned loops = 3; loops <= 12; loops += 9) {
        struct stage stage = two_steps(600, loops);
        assert_int_equal(ebb__watch_period_allocs(stage.watch), 70);
        states(&stage, 2, 590);
        assert_true(ebb__watch_is_early(stage.watch));
        assert_int_equal(ebb__watch_period_allocs(stage.watch), 600 + loops * 70);
        ebb__watch_destroy(stage.watch);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_held_iteration_stays),
        cmocka_unit_test(an_iteration_that_is_cut_stays),
        cmocka_unit_test(without_it_the_group_is_the_iteration),
        cmocka_unit_test(what_comes_between_is_measured),
        cmocka_unit_test(observing_makes_nothing_longer),
        cmocka_unit_test(micro_batches_are_no_iteration),
        cmocka_unit_test(folds_are_no_iteration),
        cmocka_unit_test(a_step_that_has_changed_is_taken),
        cmocka_unit_test(one_period_is_not_measured),
        cmocka_unit_test(something_else_takes_its_place_once_it_lasts),
        cmocka_unit_test(an_order_that_was_taken_to_vary_is_found_exactly),
        cmocka_unit_test(what_stays_delays_no_proof),
        cmocka_unit_test(an_order_that_varies_stays_so),
        cmocka_unit_test(what_follows_a_loop_is_not_in_it),
        cmocka_unit_test(a_step_is_believed_in_the_third),
        cmocka_unit_test(a_loop_in_a_step_is_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
