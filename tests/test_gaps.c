/* Phrases between repetitions of a held iteration are found and told apart. Each is modelled with
 * the iteration behind it, which has the accesses of another repetition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/watch.h"

#define MIB ((uint64_t)1 << 20)
#define STEP_NS ((uint64_t)1000000)

struct stage {
    struct ebb_watch *watch;
    uint64_t serial, now_ns;
    uint64_t weight, rest; /* the block that lives for good, and what a step leaves to the next */
    bool observed, announced; /* announced: what is not observed has the times of calls */
    unsigned for_allocs;      /* how many allocations are still observed; 0: no end is set */
    uint64_t cost_ns;         /* what observing a few uses costs, as the process estimates it */
    unsigned uses;
};

static void push(struct stage *stage, struct ebb_event event)
{
    stage->now_ns += stage->announced && !stage->observed ? 1 : STEP_NS;
    event.time_ns = stage->now_ns;
    assert_int_equal(ebb__watch_push(stage->watch, &event), EBB_OK);
}

static void observe(struct stage *stage, bool on)
{
    push(stage, (struct ebb_event){.kind = EBB_EVENT_MARK,
                                   .mark = on ? EBB_MARK_TRACE_ON : EBB_MARK_TRACE_OFF});
    stage->observed = on;
}

static uint64_t alloc(struct stage *stage, uint64_t bytes)
{
    if (stage->for_allocs && --stage->for_allocs == 0)
        observe(stage, false);
    push(stage, (struct ebb_event){
                    .kind = EBB_EVENT_ALLOC, .block = ++stage->serial, .size_bytes = bytes});
    return stage->serial;
}

static void use(struct stage *stage, uint64_t block, enum ebb_access_kind access)
{
    if (stage->observed || stage->announced)
        push(stage, (struct ebb_event){.kind = EBB_EVENT_ACCESS,
                                       .block = block,
                                       .access = (uint8_t)access,
                                       .flags = stage->announced ? EBB_EVENT_ANNOUNCED : 0});
    if (stage->observed && stage->cost_ns && ++stage->uses % 4 == 0)
        push(stage, (struct ebb_event){.kind = EBB_EVENT_MARK,
                                       .mark = EBB_MARK_OBSERVED,
                                       .size_bytes = stage->cost_ns});
}

static void release(struct stage *stage, uint64_t block)
{
    push(stage, (struct ebb_event){.kind = EBB_EVENT_FREE, .block = block});
}

static uint64_t bytes_of(unsigned kind, unsigned i)
{
    return (1 + i % 5) * MIB + kind * 65536 + i * 4096;
}

/* `count` blocks of sizes that `kind` tells are allocated and written, and the weight is read; then
 * they are freed. */
static void phrase(struct stage *stage, unsigned kind, unsigned count)
{
    uint64_t first = stage->serial + 1;
    for (unsigned i = 0; i < count; i++) {
        use(stage, alloc(stage, bytes_of(kind, i)), EBB_ACCESS_WRITE);
        use(stage, stage->weight, EBB_ACCESS_READ);
    }
    for (unsigned i = count; i-- > 0;)
        release(stage, first + i);
}

/* A step reads what the step before it has left, and leaves a block of its own. */
static void step(struct stage *stage)
{
    use(stage, stage->rest, EBB_ACCESS_READ);
    release(stage, stage->rest);
    phrase(stage, 0, 24);
    stage->rest = alloc(stage, 7 * MIB);
    use(stage, stage->rest, EBB_ACCESS_WRITE);
}

/* A step with the start and the end of a usual one, and another middle. */
static void changed_step(struct stage *stage)
{
    use(stage, stage->rest, EBB_ACCESS_READ);
    release(stage, stage->rest);
    uint64_t first = stage->serial + 1;
    for (unsigned i = 0; i < 33; i++) {
        bool is_new = i >= 12 && i < 29;
        if (i == 13)
            observe(stage, true);
        use(stage, alloc(stage, bytes_of(is_new ? 9 : 0, i < 29 ? i : i - 9)), EBB_ACCESS_WRITE);
        use(stage, stage->weight, EBB_ACCESS_READ);
        if (i == 29)
            observe(stage, false);
    }
    for (unsigned i = 33; i-- > 0;)
        release(stage, first + i);
    stage->rest = alloc(stage, 7 * MIB);
}

/* Observed steps, then the iteration is held, and no longer observed. */
static struct stage held_on(bool device)
{
    struct stage stage = {.now_ns = 1, .announced = device, .cost_ns = device ? 0 : 2 * STEP_NS};
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &stage.watch), EBB_OK);
    observe(&stage, true);
    stage.weight = alloc(&stage, 9 * MIB);
    stage.rest = alloc(&stage, 7 * MIB);
    for (unsigned i = 0; i < 4; i++)
        step(&stage);
    assert_int_equal(ebb__watch_period_allocs(stage.watch), 25);
    ebb__watch_hold(stage.watch);
    observe(&stage, false);
    return stage;
}

static struct stage held(void)
{
    return held_on(false);
}

/* A phrase whose first block is not yet observed. */
static void departure(struct stage *stage, unsigned kind, unsigned count)
{
    uint64_t first = alloc(stage, 3 * MIB + kind);
    observe(stage, true);
    phrase(stage, kind, count);
    release(stage, first);
    stage->for_allocs = 13; /* the iteration is recognised by twelve */
}

static unsigned gaps_of(struct stage *stage, struct ebb_watch_gap *last)
{
    unsigned count = 0;
    while (ebb__watch_next_gap(stage->watch, last))
        count++;
    return count;
}

static void a_phrase_is_told_once_it_has_ended(void **state)
{
    (void)state;
    struct stage stage = held();
    struct ebb_watch_gap gap = {0}, again = {0};
    assert_false(ebb__watch_next_gap(stage.watch, &gap));
    departure(&stage, 1, 9);
    assert_false(ebb__watch_next_gap(stage.watch, &gap));
    step(&stage);
    step(&stage); /* tells that the one before it is whole */
    assert_int_equal(gaps_of(&stage, &gap), 1);
    assert_int_equal(gap.allocs, 10);
    assert_true(gap.traced);
    assert_false(gap.known);
    departure(&stage, 1, 9);
    step(&stage);
    step(&stage);
    assert_int_equal(gaps_of(&stage, &again), 1);
    assert_int_equal(again.hash, gap.hash);
    assert_false(again.known);
    ebb__watch_know_gap(stage.watch, &again);
    phrase(&stage, 2, 4);
    step(&stage);
    step(&stage);
    assert_int_equal(gaps_of(&stage, &again), 1);
    assert_int_equal(again.allocs, 4);
    assert_false(again.traced);
    struct ebb_model model;
    assert_int_equal(ebb__watch_gap_model(stage.watch, &again, &model, NULL), EBB_INFEASIBLE);
    ebb__watch_destroy(stage.watch);
}

static void what_is_known_is_left_out(void **state)
{
    (void)state;
    struct stage stage = held();
    struct ebb_watch_gap gap = {0};
    phrase(&stage, 1, 9);
    step(&stage);
    step(&stage);
    assert_int_equal(gaps_of(&stage, &gap), 1);
    ebb__watch_know_gap(stage.watch, &gap);
    phrase(&stage, 1, 9);
    phrase(&stage, 1, 9);
    phrase(&stage, 2, 5);
    step(&stage);
    phrase(&stage, 1, 9);
    step(&stage);
    step(&stage);
    assert_true(ebb__watch_next_gap(stage.watch, &gap));
    assert_int_equal(gap.allocs, 5);
    assert_false(gap.known);
    ebb__watch_know_gap(stage.watch, &gap);
    phrase(&stage, 2, 5);
    step(&stage);
    phrase(&stage, 1, 9);
    step(&stage);
    step(&stage);
    assert_true(ebb__watch_next_gap(stage.watch, &gap));
    assert_int_equal(gap.allocs, 9);
    assert_true(gap.known);
    assert_false(ebb__watch_next_gap(stage.watch, &gap));
    ebb__watch_destroy(stage.watch);
}

/* The uses of the block of `model` with this size, before and behind tick `middle`. */
static void count_uses(const struct ebb_model *model, uint64_t bytes, uint32_t middle,
                       unsigned uses[2])
{
    uses[0] = uses[1] = 0;
    for (uint32_t i = 0; i < model->block_count; i++)
        for (uint32_t k = 0;
             model->blocks[i].size_bytes == bytes && k < model->blocks[i].access_count; k++)
            uses[model->accesses[model->blocks[i].first_access + k].tick > middle]++;
}

/* Without the accesses of the observed repetition moved to it, the unobserved step would have none;
 * with those of the wrong blocks, other counts. */
static void a_phrase_and_a_step_become_one_cycle(void **state)
{
    (void)state;
    struct stage stage = held();
    struct ebb_watch_gap gap = {0};
    step(&stage);
    departure(&stage, 1, 9);
    step(&stage);
    step(&stage);
    assert_int_equal(gaps_of(&stage, &gap), 1);
    struct ebb_model model;
    assert_int_equal(ebb__watch_gap_model(stage.watch, &gap, &model, NULL), EBB_OK);
    assert_int_equal(ebb__model_count_allocs(&model), 10 + 25);
    uint32_t middle = 0, frees = 0;
    for (uint32_t tick = 0, allocs = 0; tick < model.tick_count; tick++) {
        allocs += model.events[tick].kind == EBB_EVENT_ALLOC;
        frees += model.events[tick].kind == EBB_EVENT_FREE;
        if (allocs == 10 && middle == 0)
            middle = tick;
    }
    assert_int_equal(frees, 10 + 25); /* each block ends once, also what a step leaves */
    unsigned weight[2], rest[2], early[2], late[2];
    count_uses(&model, 9 * MIB, middle + 2, weight);
    count_uses(&model, 7 * MIB, middle + 2, rest);
    count_uses(&model, 1 * MIB, middle + 2, early);
    count_uses(&model, 4 * MIB + 23 * 4096, middle + 2, late);
    assert_int_equal(weight[0], 9);
    assert_int_equal(weight[1], 24);
    assert_int_equal(rest[0], 0); /* written at the end of a step, read at the begin of the next */
    assert_int_equal(rest[1], 2);
    assert_int_equal(early[1], 1);
    assert_int_equal(late[1], 1);
    for (uint32_t tick = 0; tick < model.tick_count; tick++)
        assert_true(model.time_ns[tick] <= model.time_ns[tick + 1]);
    /* 35 allocations and frees, the uses in the phrase, and its mark of observing: the uses in the
     * step took time. */
    assert_in_range(ebb__model_iteration_ns(&model), 2 * 35 * STEP_NS,
                    (2 * 35 + 22 + 24) * STEP_NS);
    ebb__model_fini(&model);
    ebb__watch_destroy(stage.watch);
}

/* The step behind the phrase was not observed, and the host ran ahead of the device in it. */
static void a_step_on_a_device_has_the_times_of_the_observed_one(void **state)
{
    (void)state;
    struct stage stage = held_on(true);
    struct ebb_watch_gap gap = {0};
    step(&stage);
    departure(&stage, 1, 9);
    step(&stage);
    step(&stage);
    assert_int_equal(gaps_of(&stage, &gap), 1);
    struct ebb_model model;
    assert_int_equal(ebb__watch_gap_model(stage.watch, &gap, &model, NULL), EBB_OK);
    for (uint32_t tick = 0; tick < model.tick_count; tick++)
        assert_true(model.time_ns[tick] <= model.time_ns[tick + 1]);
    /* 9 blocks of the phrase with two uses each, and 100 events of a step. */
    assert_in_range(ebb__model_iteration_ns(&model), (9 * 4 + 100 - 4) * STEP_NS,
                    (9 * 4 + 100 + 8) * STEP_NS);
    ebb__model_fini(&model);
    ebb__watch_destroy(stage.watch);
}

/* No step is whole any more. The phrase is told when it has come twice, and once more if it has not
 * been observed; not if it is known. */
static void a_phrase_in_each_step_is_told(void **state)
{
    (void)state;
    struct stage stage = held();
    struct ebb_watch_gap gap = {0};
    struct ebb_model model;
    unsigned told = 0;
    step(&stage);
    changed_step(&stage);
    assert_int_equal(gaps_of(&stage, &gap), 0);
    for (unsigned i = 0; i < 3; i++) {
        changed_step(&stage);
        told += gaps_of(&stage, &gap);
    }
    assert_in_range(told, 1, 3);
    assert_true(gap.repeats);
    assert_true(gap.traced);
    assert_int_equal(gap.allocs, 17);
    assert_int_equal(gap.left_at + gap.resumed_by, 17);
    assert_int_equal(ebb__watch_gap_model(stage.watch, &gap, &model, NULL), EBB_OK);
    assert_int_equal(ebb__model_count_allocs(&model), 34);
    unsigned weight[2], early[2];
    count_uses(&model, 9 * MIB, 0, weight);
    count_uses(&model, 1 * MIB, 0, early); /* of the start, which was not observed */
    assert_in_range(weight[0] + weight[1], 30, 33);
    assert_int_equal(early[0] + early[1], 1);
    ebb__model_fini(&model);
    ebb__watch_know_gap(stage.watch, &gap);
    for (unsigned i = 0; i < 3; i++)
        changed_step(&stage);
    assert_int_equal(gaps_of(&stage, &gap), 0);
    ebb__watch_destroy(stage.watch);
}

/* What is repeated instead has nothing of the held iteration: it is no phrase of it. */
static void another_iteration_is_no_phrase(void **state)
{
    (void)state;
    struct stage stage = held();
    struct ebb_watch_gap gap = {0};
    step(&stage);
    for (unsigned i = 0; i < 6; i++)
        phrase(&stage, 7, 30);
    assert_int_equal(gaps_of(&stage, &gap), 0);
    ebb__watch_destroy(stage.watch);
}

/* The batches of an evaluation begin as the step does. They have too little of it. */
static void batches_of_an_evaluation_are_no_changed_step(void **state)
{
    (void)state;
    struct stage stage = held();
    struct ebb_watch_gap gap = {0};
    step(&stage);
    for (unsigned batch = 0; batch < 4; batch++) {
        uint64_t first = alloc(&stage, 7 * MIB); /* the held iteration begins with it */
        for (unsigned i = 0; i < 9; i++)
            use(&stage, alloc(&stage, bytes_of(i < 8 ? 0 : 5, i)), EBB_ACCESS_WRITE);
        for (unsigned i = 10; i-- > 0;)
            release(&stage, first + i);
        assert_int_equal(gaps_of(&stage, &gap), 0);
    }
    ebb__watch_destroy(stage.watch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_phrase_in_each_step_is_told),
        cmocka_unit_test(another_iteration_is_no_phrase),
        cmocka_unit_test(batches_of_an_evaluation_are_no_changed_step),
        cmocka_unit_test(a_phrase_is_told_once_it_has_ended),
        cmocka_unit_test(what_is_known_is_left_out),
        cmocka_unit_test(a_phrase_and_a_step_become_one_cycle),
        cmocka_unit_test(a_step_on_a_device_has_the_times_of_the_observed_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
