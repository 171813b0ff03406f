/* Analysis of whole traces and watching of running programs, on a synthetic training loop. The
 * public traces are tested, too, if they are available. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/analyse.h"
#include "model/watch.h"

#include "base/map.h"
#include "base/vec.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>

typedef EBB_VEC(struct ebb_event) events_vec;

static uint64_t random_state = 0x9E3779B97F4A7C15;

static uint64_t random_below(uint64_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % limit;
}

/* A training loop like a framework's. It has LAYERS layers and permanent weights. Momentum is
 * allocated in iteration 0. Activations are freed in the backward pass. Each layer has a
 * workspace. */
enum { LAYERS = 12, CLOCKS = 2 * LAYERS * 4 };

struct loop {
    events_vec events;
    uint64_t now, serial, weights[LAYERS], momentum[LAYERS], carried;
    bool traced, jitter, queue; /* queue: each iteration makes a block that is never freed */
    uint64_t slow;              /* ns that each clock event takes */
    size_t temporaries;         /* equal blocks, one after the other, at the end of the iteration */
    size_t trace_on_layer;      /* the layer at which tracing begins, once; 0: nowhere */
    size_t starts[64];
};

static void emit(struct loop *loop, uint8_t kind, uint64_t block, uint64_t size)
{
    struct ebb_event event = {
        .time_ns = loop->now, .block = block, .size_bytes = size, .kind = kind};
    assert_true(ebb_vec_push(&loop->events, event));
    if (kind == EBB_EVENT_ALLOC || kind == EBB_EVENT_FREE)
        loop->now += loop->slow;
}

static void emit_mark(struct loop *loop, uint8_t mark)
{
    struct ebb_event event = {.time_ns = loop->now, .kind = EBB_EVENT_MARK, .mark = mark};
    assert_true(ebb_vec_push(&loop->events, event));
}

static void touch(struct loop *loop, uint64_t block, uint8_t access)
{
    if (!loop->traced)
        return;
    emit(loop, EBB_EVENT_ACCESS, block, 0);
    loop->events.items[loop->events.count - 1].access = access;
    loop->now += 10; /* tracing costs time */
}

static uint64_t make(struct loop *loop, uint64_t size)
{
    emit(loop, EBB_EVENT_ALLOC, ++loop->serial, size);
    return loop->serial;
}

static uint64_t layer_bytes(size_t layer)
{
    return (3 + layer * 7 % 5) << 20;
}

static void begin_loop(struct loop *loop)
{
    memset(loop, 0, sizeof *loop);
    loop->slow = 100;
    for (size_t i = 0; i < LAYERS; i++)
        loop->weights[i] = make(loop, layer_bytes(i) / 2);
}

/* Records in `starts` the event with the least load before it: the iteration's first ALLOC, its
 * input. */
static void iterate(struct loop *loop, size_t number)
{
    uint64_t kept[LAYERS], gradient = 0;
    loop->starts[number] = loop->events.count;
    uint64_t input = make(loop, 9 << 20); /* a prefetched batch: freed in the next iteration */
    if (loop->carried)
        emit(loop, EBB_EVENT_FREE, loop->carried, 9 << 20);
    loop->carried = input;
    for (size_t i = 0; i < LAYERS; i++) {
        if (i && i == loop->trace_on_layer) {
            loop->trace_on_layer = 0;
            loop->traced = true;
            emit_mark(loop, EBB_MARK_TRACE_ON);
        }
        uint64_t space = make(loop, 2 << 20);
        kept[i] = make(loop, layer_bytes(i));
        touch(loop, loop->weights[i], EBB_ACCESS_READ);
        touch(loop, space, EBB_ACCESS_WRITE);
        touch(loop, kept[i], EBB_ACCESS_WRITE);
        emit(loop, EBB_EVENT_FREE, space, 2 << 20);
    }
    for (size_t i = LAYERS; i-- > 0;) {
        uint64_t next = make(loop, layer_bytes(i));
        touch(loop, kept[i], EBB_ACCESS_READ);
        touch(loop, next, EBB_ACCESS_WRITE);
        if (!loop->momentum[i])
            loop->momentum[i] = make(loop, layer_bytes(i) / 2);
        bool swapped = loop->jitter && random_below(2);
        if (swapped)
            emit(loop, EBB_EVENT_FREE, kept[i], layer_bytes(i));
        if (gradient)
            emit(loop, EBB_EVENT_FREE, gradient, layer_bytes(i + 1));
        if (!swapped)
            emit(loop, EBB_EVENT_FREE, kept[i], layer_bytes(i));
        gradient = next;
        touch(loop, loop->momentum[i], EBB_ACCESS_WRITE);
        touch(loop, loop->weights[i], EBB_ACCESS_WRITE);
    }
    emit(loop, EBB_EVENT_FREE, gradient, layer_bytes(0));
    if (loop->queue)
        make(loop, 1 << 20);
    for (size_t i = 0; i < loop->temporaries; i++) {
        uint64_t block = make(loop, 1 << 20);
        emit(loop, EBB_EVENT_FREE, block, 1 << 20);
    }
}

static struct ebb_event_span span_of(const struct loop *loop)
{
    return (struct ebb_event_span){loop->events.items, loop->events.count};
}

enum {
    CLOCK_EVENTS = 2 + LAYERS * 3 + LAYERS * 3, /* of one iteration */
    ACCESSES = LAYERS * 7,
};

static void test_training_loop(void **state)
{
    (void)state;
    for (size_t jitter = 0; jitter < 2; jitter++) {
        struct loop loop;
        begin_loop(&loop);
        loop.jitter = jitter;
        loop.traced = true;
        for (size_t i = 0; i < 8; i++)
            iterate(&loop, i);
        struct ebb_analysis analysis;
        struct ebb_error error;
        assert_int_equal(ebb__analyse(span_of(&loop), &analysis, &error), EBB_OK);
        assert_int_equal(analysis.iterations, 7); /* the first one allocates momentum */
        assert_int_equal(analysis.start_count, 7);
        for (size_t i = 0; i < 7; i++)
            assert_int_equal(analysis.starts[i], loop.starts[i + 1]);
        assert_int_equal(analysis.period_events, CLOCK_EVENTS + ACCESSES);
        assert_true(analysis.has_model);
        assert_true(analysis.has_accesses);
        assert_int_equal(analysis.model_first, loop.starts[6]);
        /* Weights and momentum; input, workspaces, activations, gradients. */
        assert_int_equal(analysis.model.block_count, 2 * LAYERS + 1 + 3 * LAYERS);
        assert_int_equal(analysis.peak_bytes, analysis.model.peak_bytes);
        assert_true(analysis.found_at_event < loop.starts[3] + 2);
        assert_true(analysis.first_periodic_event <= loop.starts[1]);
        assert_true(analysis.properties.extremalization > 0.1);
        assert_true(analysis.properties.extremalization < 1);
        if (!jitter) {
            assert_true(analysis.properties.iterative > 0.999);
            assert_true(analysis.properties.regularity > 0.97);
        } else {
            assert_true(analysis.properties.iterative > 0.9);
        }
        ebb__analysis_fini(&analysis);
        ebb_vec_free(&loop.events);
    }
}

/* Attention packs a matrix for each head, in a block of its own. Most allocations are that loop's,
 * and it covers the first iteration as well. */
static void a_loop_that_covers_more_is_none(void **state)
{
    (void)state;
    struct loop loop;
    begin_loop(&loop);
    loop.temporaries = 1500;
    for (size_t i = 0; i < 5; i++)
        iterate(&loop, i);
    struct ebb_analysis analysis;
    struct ebb_error error;
    assert_int_equal(ebb__analyse(span_of(&loop), &analysis, &error), EBB_OK);
    assert_int_equal(analysis.iterations, 4); /* the first one allocates momentum */
    assert_int_equal(analysis.period_events, CLOCK_EVENTS + 3000);
    ebb__analysis_fini(&analysis);
    ebb_vec_free(&loop.events);
}

/* Frees at the end of the program are not part of its last iteration. */
static void test_end_of_program(void **state)
{
    (void)state;
    struct loop loop;
    begin_loop(&loop);
    loop.traced = true;
    for (size_t i = 0; i < 5; i++)
        iterate(&loop, i);
    loop.traced = false;
    for (size_t i = 0; i < LAYERS; i++) {
        emit(&loop, EBB_EVENT_FREE, loop.weights[i], layer_bytes(i) / 2);
        emit(&loop, EBB_EVENT_FREE, loop.momentum[i], layer_bytes(i) / 2);
    }
    struct ebb_analysis analysis;
    assert_int_equal(ebb__analyse(span_of(&loop), &analysis, NULL), EBB_OK);
    assert_int_equal(analysis.iterations, 4);
    assert_int_equal(analysis.period_events, CLOCK_EVENTS + ACCESSES);
    assert_int_equal(analysis.model.block_count, 2 * LAYERS + 1 + 3 * LAYERS);
    assert_true(analysis.properties.iterative > 0.999);
    ebb__analysis_fini(&analysis);
    ebb_vec_free(&loop.events);
}

/* Serials may be large, and may switch between small and large ones. */
static void test_large_serials(void **state)
{
    (void)state;
    struct loop loop;
    begin_loop(&loop);
    for (size_t i = 0; i < 8; i++) {
        if (i == 3)
            loop.serial += (uint64_t)1 << 40;
        iterate(&loop, i);
    }
    struct ebb_analysis analysis;
    assert_int_equal(ebb__analyse(span_of(&loop), &analysis, NULL), EBB_OK);
    assert_int_equal(analysis.iterations, 7);
    assert_int_equal(analysis.period_events, CLOCK_EVENTS);
    assert_true(analysis.properties.iterative > 0.999);
    ebb__analysis_fini(&analysis);
    ebb_vec_free(&loop.events);
}

/* A loop whose accesses are traced in two iterations only. In the last of these, the optimizer's
 * are not, which allocates nothing and takes `unseen_ns`. */
static void trace_two_of_nine(struct loop *loop, uint64_t unseen_ns)
{
    begin_loop(loop);
    for (size_t i = 0; i < 9; i++) {
        loop->traced = i == 4 || i == 5;
        loop->slow = loop->traced ? 700 : 100 + i;
        if (i == 4)
            emit_mark(loop, EBB_MARK_TRACE_ON);
        if (i == 6) {
            emit_mark(loop, EBB_MARK_TRACE_OFF);
            loop->now += unseen_ns;
        }
        iterate(loop, i);
    }
}

/* The iteration whose end was not traced is not the model: it would lack uses. */
static void test_trace_ends_in_optimizer(void **state)
{
    (void)state;
    for (uint64_t unseen_ns = 100; unseen_ns < 100000000; unseen_ns *= 10) {
        struct loop loop;
        struct ebb_analysis analysis;
        trace_two_of_nine(&loop, unseen_ns);
        assert_int_equal(ebb__analyse(span_of(&loop), &analysis, NULL), EBB_OK);
        assert_true(analysis.has_accesses);
        assert_int_equal(analysis.model_first, loop.starts[unseen_ns > 1000000 ? 4 : 5]);
        ebb__analysis_fini(&analysis);
        ebb_vec_free(&loop.events);
    }
}

/* The iterations that are not traced give the times. */
static void test_times_of_untraced(void **state)
{
    (void)state;
    struct loop loop;
    trace_two_of_nine(&loop, 0);
    struct ebb_analysis analysis;
    assert_int_equal(ebb__analyse(span_of(&loop), &analysis, NULL), EBB_OK);
    assert_int_equal(analysis.iterations, 8);
    assert_int_equal(analysis.period_events, CLOCK_EVENTS + ACCESSES);
    assert_true(analysis.has_accesses);
    /* Tracing ends just before iteration 6 begins, so iteration 5 is traced as a whole. */
    assert_int_equal(analysis.model_first, loop.starts[5]);
    /* Iterations 1, 2, 3, 6 and 7 are known to their ends. The median is 103 ns an event. */
    assert_int_equal(ebb__model_iteration_ns(&analysis.model), CLOCK_EVENTS * 103);
    uint64_t clock = 0;
    for (uint32_t tick = 0; tick < analysis.model.tick_count; tick++)
        if (analysis.model.events[tick].clock)
            assert_int_equal(analysis.model.time_ns[tick], clock++ * 103);
    assert_int_equal(clock, CLOCK_EVENTS);
    assert_true(analysis.properties.iterative > 0.99);
    ebb__analysis_fini(&analysis);
    ebb_vec_free(&loop.events);
}

/* Marks of the program override detection. Here two rounds make one iteration. */
static void test_marks_win(void **state)
{
    (void)state;
    struct loop loop;
    begin_loop(&loop);
    loop.traced = true;
    size_t marks[8];
    for (size_t i = 0; i < 10; i++) {
        if (i % 2 == 0) {
            marks[i / 2] = loop.events.count;
            emit_mark(&loop, EBB_MARK_ITERATION);
        }
        iterate(&loop, i);
    }
    struct ebb_analysis analysis;
    assert_int_equal(ebb__analyse(span_of(&loop), &analysis, NULL), EBB_OK);
    assert_int_equal(analysis.iterations, 5);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(analysis.starts[i], marks[i]);
    assert_int_equal(analysis.period_events, 2 * (CLOCK_EVENTS + ACCESSES));
    assert_int_equal(analysis.model.block_count, 2 * LAYERS + 2 * (1 + 3 * LAYERS));
    ebb__analysis_fini(&analysis);
    ebb_vec_free(&loop.events);
}

/* If a program allocates only once, accesses are the clock. */
static void test_allocate_once(void **state)
{
    (void)state;
    struct loop loop;
    begin_loop(&loop);
    loop.traced = true;
    size_t begin = loop.events.count;
    for (size_t i = 0; i < 6; i++) {
        for (size_t k = 0; k < LAYERS; k++)
            touch(&loop, loop.weights[k], EBB_ACCESS_READ);
        for (size_t k = LAYERS; k-- > 0;)
            touch(&loop, loop.weights[k], EBB_ACCESS_WRITE);
    }
    struct ebb_analysis analysis;
    assert_int_equal(ebb__analyse(span_of(&loop), &analysis, NULL), EBB_OK);
    assert_int_equal(analysis.iterations, 6);
    assert_int_equal(analysis.period_events, 2 * LAYERS);
    assert_int_equal(analysis.first_periodic_event, begin);
    assert_int_equal(analysis.model.clock_count, 0);
    assert_int_equal(analysis.model.block_count, LAYERS);
    assert_int_equal(analysis.model.gap_count, 2 * LAYERS);
    ebb__analysis_fini(&analysis);
    ebb_vec_free(&loop.events);
}

static void test_nothing_repeats(void **state)
{
    (void)state;
    struct loop loop;
    begin_loop(&loop);
    struct ebb_analysis analysis;
    assert_int_equal(ebb__analyse(span_of(&loop), &analysis, NULL), EBB_OK);
    assert_int_equal(analysis.iterations, 0);
    assert_false(analysis.has_model);
    assert_true(analysis.peak_bytes > 0);
    ebb__analysis_fini(&analysis);
    struct ebb_event_span empty = {NULL, 0};
    assert_int_equal(ebb__analyse(empty, &analysis, NULL), EBB_OK);
    assert_int_equal(analysis.iterations, 0);
    ebb__analysis_fini(&analysis);
    /* The iteration is found, but its events are contradictory. */
    for (size_t i = 0; i < 5; i++)
        iterate(&loop, i);
    emit(&loop, EBB_EVENT_FREE, loop.carried, 9 << 20);
    emit(&loop, EBB_EVENT_FREE, loop.carried, 9 << 20);
    struct ebb_error error;
    assert_int_equal(ebb__analyse(span_of(&loop), &analysis, &error), EBB_ERR_FORMAT);
    ebb__analysis_fini(&analysis);
    ebb_vec_free(&loop.events);
}

static size_t push_new(struct ebb_watch *watch, const struct loop *loop, size_t from)
{
    for (; from < loop->events.count; from++)
        assert_int_equal(ebb__watch_push(watch, &loop->events.items[from]), EBB_OK);
    return from;
}

static void check_loop_model(const struct ebb_model *model)
{
    assert_int_equal(model->tick_count, CLOCK_EVENTS + ACCESSES);
    assert_int_equal(model->block_count, 2 * LAYERS + 1 + 3 * LAYERS);
    for (uint32_t i = 0; i < model->block_count; i++)
        assert_true(model->blocks[i].size_bytes > 0);
    for (uint32_t tick = 0; tick < model->tick_count; tick++)
        assert_true(model->time_ns[tick] <= model->time_ns[tick + 1]);
}

static void test_watch(void **state)
{
    (void)state;
    struct loop loop;
    begin_loop(&loop);
    struct ebb_watch *watch;
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &watch), EBB_OK);
    struct ebb_model model;
    uint64_t first;
    struct ebb_error error;
    size_t pushed = 0;
    for (size_t i = 0; i < 3; i++) {
        iterate(&loop, i);
        pushed = push_new(watch, &loop, pushed);
    }
    assert_true(ebb__watch_found(watch)); /* two whole iterations after iteration 0 */
    assert_true(ebb__watch_in_period(watch));
    assert_int_equal(ebb__watch_model(watch, &model, &first, &error), EBB_INFEASIBLE);
    /* Tracing begins in the middle of an iteration, and goes on for a little more than one
     * iteration. */
    loop.trace_on_layer = 5;
    iterate(&loop, 3);
    size_t cut = loop.starts[3];
    while (loop.events.items[cut].kind != EBB_EVENT_MARK)
        cut++;
    iterate(&loop, 4);
    size_t had = 0;
    for (; pushed < loop.events.count; pushed++) {
        assert_int_equal(ebb__watch_push(watch, &loop.events.items[pushed]), EBB_OK);
        if (ebb__watch_model(watch, &model, &first, &error) != EBB_OK)
            continue;
        check_loop_model(&model);
        ebb__model_fini(&model);
        had = pushed;
        break;
    }
    assert_true(had > cut && had <= cut + CLOCK_EVENTS + ACCESSES + 12);
    pushed = push_new(watch, &loop, had + 1);
    loop.traced = false;
    emit_mark(&loop, EBB_MARK_TRACE_OFF);
    emit_mark(&loop, EBB_MARK_PLAN_ON);
    for (size_t i = 5; i < 9; i++) {
        loop.slow = i < 8 ? 50 : 100; /* planned iterations must not give the times */
        iterate(&loop, i);
        if (i == 6) {
            emit(&loop, EBB_EVENT_ACCESS, loop.weights[3], 0);
            loop.events.items[loop.events.count - 1].flags = EBB_EVENT_DEMAND;
        }
        if (i == 7)
            emit_mark(&loop, EBB_MARK_PLAN_OFF);
    }
    iterate(&loop, 9);
    pushed = push_new(watch, &loop, pushed);
    const struct ebb_watch_iteration *iterations;
    assert_int_equal(ebb__watch_patterns(watch), 1);
    assert_int_equal(ebb__watch_period_clock_events(watch), CLOCK_EVENTS);
    assert_int_equal(ebb__watch_kept(watch, &iterations), 8); /* 1 to 8 */
    for (size_t i = 0; i < 8; i++) {
        size_t number = i + 1;
        assert_int_equal(iterations[i].first_event, loop.starts[number]);
        assert_int_equal(iterations[i].demand_faults, number == 6);
        assert_int_equal(iterations[i].planned, number >= 5 && number <= 7);
        assert_int_equal(iterations[i].traced, number == 4);
        assert_int_equal(iterations[i].start_ns, loop.events.items[loop.starts[number]].time_ns);
        assert_int_equal(iterations[i].duration_ns,
                         loop.events.items[loop.starts[number + 1]].time_ns -
                             iterations[i].start_ns);
    }
    assert_int_equal(ebb__watch_model(watch, &model, &first, &error), EBB_OK);
    assert_int_equal(first, loop.starts[4]);
    check_loop_model(&model);
    /* Iterations 1 and 2 are neither traced nor planned, and are known to their ends. */
    assert_int_equal(ebb__model_iteration_ns(&model), CLOCK_EVENTS * 100);
    ebb__model_fini(&model);

    /* Evaluation interrupts the training. The iterations of both are counted. */
    for (size_t i = 0; i < 80; i++)
        for (size_t k = 0; k < 5; k++) {
            uint64_t block = make(&loop, (11 + k) << 20);
            emit(&loop, EBB_EVENT_FREE, block, (11 + k) << 20);
        }
    iterate(&loop, 10);
    iterate(&loop, 11);
    iterate(&loop, 12);
    push_new(watch, &loop, pushed);
    size_t count = ebb__watch_kept(watch, &iterations);
    size_t training = 0;
    for (size_t i = 0; i < count; i++)
        training += iterations[i].duration_ns >= CLOCK_EVENTS * 50;
    assert_int_equal(training, 11);
    assert_true(count - training >= 75);
    assert_int_equal(ebb__watch_patterns(watch), 2);
    assert_int_equal(ebb__watch_pattern(watch), 1);
    assert_int_equal(iterations[count - 1].pattern, 0);
    ebb__watch_destroy(watch);
    ebb_vec_free(&loop.events);
}

/* A queue that fills does not delay the detection. The model has the ALLOC of each iteration, and
 * as many live instances as there were. */
static void test_watch_queue(void **state)
{
    (void)state;
    struct loop loop;
    begin_loop(&loop);
    loop.traced = true;
    loop.queue = true;
    emit_mark(&loop, EBB_MARK_TRACE_ON);
    for (size_t i = 0; i < 4; i++)
        iterate(&loop, i);
    struct ebb_watch *watch;
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &watch), EBB_OK);
    size_t pushed = 0;
    struct ebb_model model;
    uint64_t first;
    while (ebb__watch_model(watch, &model, &first, NULL) != EBB_OK) {
        assert_true(pushed < loop.events.count);
        assert_int_equal(ebb__watch_push(watch, &loop.events.items[pushed++]), EBB_OK);
    }
    assert_true(pushed <= loop.starts[3] + 2);
    assert_int_equal(model.tick_count, CLOCK_EVENTS + ACCESSES + 2);
    assert_int_equal(model.block_count, 2 * LAYERS + 2 + 3 * LAYERS);
    size_t queues = 0;
    for (uint32_t i = 0; i < model.block_count; i++) {
        if (model.blocks[i].size_bytes != 1 << 20)
            continue;
        queues++;
        assert_true(model.blocks[i].alloc_tick != EBB_TICK_NONE);
        assert_true(model.blocks[i].span_ticks % model.tick_count == model.tick_count - 1);
    }
    assert_int_equal(queues, 1);
    ebb__model_fini(&model);
    ebb__watch_destroy(watch);
    ebb_vec_free(&loop.events);
}

/* A repetition within an iteration does not become the iteration, not even after a departure from
 * the iteration. */
static void test_watch_inner(void **state)
{
    (void)state;
    struct ebb_watch *watch;
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &watch), EBB_OK);
    struct loop loop;
    begin_loop(&loop);
    loop.temporaries = 20;
    for (size_t i = 0; i < 10; i++) {
        iterate(&loop, i);
        if (i == 0 || i == 6)
            emit(&loop, EBB_EVENT_FREE, make(&loop, (100 + i) << 20), (100 + i) << 20);
    }
    push_new(watch, &loop, 0);
    /* The patterns are the temporaries of iteration 0, then the iteration, and no others. */
    assert_int_equal(ebb__watch_patterns(watch), 2);
    assert_int_equal(ebb__watch_period_clock_events(watch), CLOCK_EVENTS + 40);
    const struct ebb_watch_iteration *iterations;
    size_t count = ebb__watch_kept(watch, &iterations);
    assert_true(count >= 6 && count <= 9); /* nine, less those around the odd one */
    for (size_t i = 0; i < count; i++)     /* those of the temporaries are dropped */
        assert_int_equal(iterations[i].pattern, 1);
    assert_true(iterations[count - 1].last_event >= loop.starts[9]);
    ebb__watch_destroy(watch);
    ebb_vec_free(&loop.events);
}

static size_t held_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* There are more events than are kept. Iterations are still counted, and models still have the
 * weights. */
static void test_watch_forgets(void **state)
{
    (void)state;
    struct ebb_watch *watch;
    size_t held = held_bytes();
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &watch), EBB_OK);
    struct loop loop;
    begin_loop(&loop);
    size_t rounds = 0, total = 0;
    loop.traced = true;
    emit_mark(&loop, EBB_MARK_TRACE_ON);
    while (total < (1u << 22) + 100000) {
        iterate(&loop, rounds % 64);
        rounds++;
        total += push_new(watch, &loop, 0);
        loop.events.count = 0;
    }
    /* The memory held does not grow with the number of past events. */
    assert_true(held_bytes() - held < (size_t)24 << 20);
    const struct ebb_watch_iteration *iterations;
    size_t count = ebb__watch_kept(watch, &iterations);
    assert_int_equal(ebb__watch_iterations(watch), rounds - 2); /* all but the first and the last */
    for (size_t i = 0; i + 1 < count; i++)
        assert_int_equal(iterations[i].last_event, iterations[i + 1].first_event);
    assert_int_equal(ebb__watch_patterns(watch), 1);
    struct ebb_model model;
    uint64_t first;
    assert_int_equal(ebb__watch_model(watch, &model, &first, NULL), EBB_OK);
    check_loop_model(&model);
    assert_int_equal(first, iterations[count - 1].first_event);
    ebb__model_fini(&model);
    ebb__watch_destroy(watch);
    ebb_vec_free(&loop.events);
}

/* In a very long run, the oldest iterations are only counted, not kept. */
static void test_watch_counts_on(void **state)
{
    (void)state;
    struct ebb_watch *watch;
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &watch), EBB_OK);
    struct loop loop = {0};
    enum { ROUNDS = 9000, BLOCKS_EACH = 3, PLANNED_FROM = 100 };
    for (size_t i = 0; i < ROUNDS; i++) {
        if (i == PLANNED_FROM)
            emit_mark(&loop, EBB_MARK_PLAN_ON);
        for (size_t k = 0; k < BLOCKS_EACH; k++)
            emit(&loop, EBB_EVENT_FREE, make(&loop, (1 + k) << 20), 0);
        push_new(watch, &loop, 0);
        loop.events.count = 0;
    }
    const struct ebb_watch_iteration *iterations;
    struct ebb_watch_forgotten forgotten = ebb__watch_forgotten(watch);
    size_t count = ebb__watch_iterations(watch), kept = ebb__watch_kept(watch, &iterations);
    assert_in_range(count, ROUNDS - 2, ROUNDS);
    assert_int_equal(kept, count - forgotten.iterations);
    assert_in_range(kept, 1024, 2048);
    assert_in_range(forgotten.first_planned, PLANNED_FROM - 1, PLANNED_FROM + 1);
    assert_int_equal(forgotten.planned, forgotten.iterations - forgotten.first_planned);
    for (size_t i = 0; i + 1 < kept; i++) {
        assert_true(iterations[i].planned);
        assert_int_equal(iterations[i].last_event, iterations[i + 1].first_event);
    }
    assert_in_range(iterations[0].first_event / (2 * BLOCKS_EACH), forgotten.iterations,
                    forgotten.iterations + 2);
    ebb__watch_destroy(watch);
    ebb_vec_free(&loop.events);
}

/* A short loop runs until few of its events are kept. Then the program repeats something far
 * longer. */
static void test_watch_looks_far_again(void **state)
{
    (void)state;
    struct ebb_watch *watch;
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &watch), EBB_OK);
    struct loop loop = {0};
    enum { SHORT = 10, LONG = 40000 };
    for (size_t i = 0; i < 6000 * SHORT; i++)
        emit(&loop, EBB_EVENT_FREE, make(&loop, (1 + i % SHORT) << 20), 0);
    push_new(watch, &loop, 0);
    loop.events.count = 0;
    assert_int_equal(ebb__watch_patterns(watch), 1);
    assert_int_equal(ebb__watch_period_clock_events(watch), 2 * SHORT);
    size_t before = ebb__watch_iterations(watch);
    assert_true(before > 5990);
    uint64_t seed = 1;
    for (size_t k = 0; k < 4; k++) {
        uint64_t number = seed;
        for (size_t i = 0; i < LONG; i++) {
            number = number * 6364136223846793005u + 1442695040888963407u;
            emit(&loop, EBB_EVENT_FREE, make(&loop, 4096 + (number >> 40)), 0);
        }
    }
    push_new(watch, &loop, 0);
    assert_int_equal(ebb__watch_patterns(watch), 2);
    assert_int_equal(ebb__watch_period_clock_events(watch), 2 * LONG);
    ebb__watch_destroy(watch);
    ebb_vec_free(&loop.events);
}

/* Emits a mark, uses of `uses` older blocks, and `allocs` allocations, all of this `times`
 * times. */
static void emit_marked(struct loop *loop, size_t times, uint64_t mark, size_t uses, size_t allocs)
{
    for (size_t i = 0; i < times; i++) {
        emit(loop, EBB_EVENT_MARK, 0, mark);
        loop->events.items[loop->events.count - 1].mark = EBB_MARK_ITERATION;
        for (size_t k = 0; k < uses; k++)
            emit(loop, EBB_EVENT_ACCESS, 100000 + k, 4 << 20);
        for (size_t k = 0; k < allocs; k++)
            emit(loop, EBB_EVENT_FREE, make(loop, (20 + k) << 20), (20 + k) << 20);
    }
}

/* Iterations found by accesses give way to iterations found by allocations, whichever are found
 * first. They stay if the program allocates rarely. Iterations that the program itself marks stay,
 * too. */
static void test_watch_marked(void **state)
{
    (void)state;
    for (unsigned first = 0; first < 2; first++) {
        struct loop loop;
        begin_loop(&loop);
        struct ebb_watch *watch;
        assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &watch), EBB_OK);
        if (first == 0)
            emit_marked(&loop, 4, EBB_ITERATION_BY_ACCESSES, 80, 1);
        size_t pushed = push_new(watch, &loop, 0);
        assert_int_equal(ebb__watch_patterns(watch), 1 - first);
        for (size_t i = 0; i < 8; i++) {
            iterate(&loop, i);
            if (first == 0 || i > 2)
                emit_marked(&loop, 1, EBB_ITERATION_BY_ACCESSES, 0, 0);
            pushed = push_new(watch, &loop, pushed);
        }
        assert_int_equal(ebb__watch_patterns(watch), 2 - first);
        assert_int_equal(ebb__watch_pattern(watch), 2 - first);
        assert_int_equal(ebb__watch_period_clock_events(watch), CLOCK_EVENTS);
        ebb__watch_destroy(watch);
        ebb_vec_free(&loop.events);
    }
    for (unsigned said = 0; said < 2; said++) {
        struct loop loop;
        begin_loop(&loop);
        struct ebb_watch *watch;
        assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &watch), EBB_OK);
        emit_marked(&loop, 40, said ? 0 : EBB_ITERATION_BY_ACCESSES, said ? 10 : 100, 12);
        push_new(watch, &loop, 0);
        /* Marks of the program count from the third one on. */
        assert_int_equal(ebb__watch_patterns(watch), 1 + said);
        assert_int_equal(ebb__watch_pattern(watch), 1 + said);
        assert_int_equal(ebb__watch_iterations(watch), 39);
        ebb__watch_destroy(watch);
        ebb_vec_free(&loop.events);
    }
}

/* A loop over a batch within an operation looks like iterations by accesses, and so do the
 * iterations themselves. Since they allocate often, they are found exactly, although many accesses
 * lie between. */
static void test_watch_marked_within(void **state)
{
    (void)state;
    enum { ALLOCS = 100, USES = 1300, ITERATIONS = 8 };
    struct loop loop;
    begin_loop(&loop);
    struct ebb_watch *watch;
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &watch), EBB_OK);
    emit_marked(&loop, 4, EBB_ITERATION_BY_ACCESSES, 80, 1);
    size_t pushed = push_new(watch, &loop, 0);
    assert_int_equal(ebb__watch_patterns(watch), 1);
    assert_int_equal(ebb__watch_period_allocs(watch), 0);
    for (size_t i = 0; i < ITERATIONS; i++) {
        emit_marked(&loop, 1, EBB_ITERATION_BY_ACCESSES, USES, ALLOCS);
        pushed = push_new(watch, &loop, pushed);
        if (i > 3) {
            assert_int_equal(ebb__watch_period_allocs(watch), ALLOCS);
            assert_int_equal(ebb__watch_pattern(watch), 2);
        }
    }
    assert_int_equal(ebb__watch_period_clock_events(watch), 2 * ALLOCS);
    ebb__watch_destroy(watch);
    ebb_vec_free(&loop.events);
}

/* A loop at the start has left one mark by accesses, and the next one comes in the training. What
 * lies between is no iteration. The one that is found by allocations stays. */
static void test_watch_marked_apart(void **state)
{
    (void)state;
    enum { ALLOCS = 100, USES = 3000, ITERATIONS = 8 };
    for (size_t before = 0; before < 5 * ALLOCS; before += ALLOCS / 4) {
        struct loop loop;
        begin_loop(&loop);
        struct ebb_watch *watch;
        assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &watch), EBB_OK);
        emit_marked(&loop, 1, EBB_ITERATION_BY_ACCESSES, 0, 0);
        for (size_t i = 0; i < before; i++)
            make(&loop, (1000 + i) << 10);
        size_t pushed = push_new(watch, &loop, 0);
        for (size_t i = 0; i < ITERATIONS; i++) {
            for (size_t k = 0; k < USES; k++)
                emit(&loop, EBB_EVENT_ACCESS, 100000 + k, 4 << 20);
            if (i > 2)
                emit_marked(&loop, 1, EBB_ITERATION_BY_ACCESSES, 0, 0);
            for (size_t k = 0; k < ALLOCS; k++)
                emit(&loop, EBB_EVENT_FREE, make(&loop, (20 + k) << 20), (20 + k) << 20);
            pushed = push_new(watch, &loop, pushed);
            assert_int_equal(ebb__watch_period_allocs(watch), i > 0 ? ALLOCS : 0);
        }
        assert_int_equal(ebb__watch_patterns(watch), 1);
        ebb__watch_destroy(watch);
        ebb_vec_free(&loop.events);
    }
}

/* What lies before a mark of iterations that are found anew is no iteration. */
static void test_watch_marked_anew(void **state)
{
    (void)state;
    struct loop loop;
    begin_loop(&loop);
    struct ebb_watch *watch;
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &watch), EBB_OK);
    size_t pushed = 0;
    for (size_t run = 0; run < 3; run++) {
        emit_marked(&loop, 1, EBB_ITERATION_ANEW, 900 + 100 * run, 3);
        pushed = push_new(watch, &loop, pushed);
        assert_int_equal(ebb__watch_patterns(watch), run > 0);
        assert_int_equal(ebb__watch_found(watch) ? ebb__watch_iterations(watch) : 0, 3 * run);
        emit_marked(&loop, 3, EBB_ITERATION_BY_ACCESSES, 100, 1);
        pushed = push_new(watch, &loop, pushed);
        assert_int_equal(ebb__watch_iterations(watch), 3 * run + 3);
        assert_false(ebb__watch_is_marked(watch));
    }
    ebb__watch_destroy(watch);
    ebb_vec_free(&loop.events);
}

/* Random events: no crash, no hang, no contradiction. */
static void test_watch_random(void **state)
{
    (void)state;
    for (size_t round = 0; round < 200; round++) {
        struct ebb_watch *watch;
        assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &watch), EBB_OK);
        for (size_t i = 0; i < 600; i++) {
            struct ebb_event event = {.time_ns = i,
                                      .block = 1 + random_below(20),
                                      .size_bytes = random_below(3) << 20,
                                      .kind = (uint8_t)random_below(EBB_EVENT_KIND_COUNT),
                                      .access = (uint8_t)random_below(3),
                                      .mark = (uint8_t)random_below(EBB_MARK_COUNT),
                                      .flags = (uint8_t)random_below(2)};
            assert_int_equal(ebb__watch_push(watch, &event), EBB_OK);
            struct ebb_model model;
            if (i % 50 == 0 && ebb__watch_model(watch, &model, NULL, NULL) == EBB_OK)
                ebb__model_fini(&model);
        }
        ebb__watch_destroy(watch);
    }
}

/* A block that is used but was not allocated is older than the trace. Its bytes count from the
 * start. So the first iteration, which frees it, has the same load as the others. */
static void test_existing(void **state)
{
    (void)state;
    struct loop loop = {0};
    enum { BLOCKS = 12, ITERATIONS = 3 };
    uint64_t older = 1000; /* never allocated; each iteration frees a block of the previous one */
    for (size_t i = 0; i < ITERATIONS; i++) {
        uint64_t made[BLOCKS];
        for (size_t k = 0; k < BLOCKS; k++) {
            made[k] = make(&loop, (BLOCKS - k) << 20);
            emit(&loop, EBB_EVENT_ACCESS, made[k], (BLOCKS - k) << 20);
            emit(&loop, EBB_EVENT_ACCESS, 999, 64 << 20);
            emit(&loop, EBB_EVENT_FREE, k ? made[k - 1] : older,
                 k ? (BLOCKS - k + 1) << 20 : 1 << 20);
        }
        older = made[BLOCKS - 1];
    }
    struct ebb_analysis analysis;
    assert_int_equal(ebb__analyse(span_of(&loop), &analysis, NULL), EBB_OK);
    assert_int_equal(analysis.iterations, ITERATIONS);
    assert_int_equal(analysis.period_events, BLOCKS * 4);
    assert_int_equal(analysis.first_periodic_event, 0);
    /* The last allocation of the second period. */
    assert_int_equal(analysis.found_at_event, 2 * BLOCKS * 4 - 4);
    assert_int_equal(analysis.existing_blocks, 2);
    assert_int_equal(analysis.existing_bytes, (64 + 1) << 20);
    assert_int_equal(analysis.blocks, ITERATIONS * BLOCKS + 2);
    assert_int_equal(analysis.peak_bytes, (64 + BLOCKS + BLOCKS - 1) << 20);
    assert_int_equal(analysis.model.peak_bytes, analysis.peak_bytes);
    ebb__analysis_fini(&analysis);

    /* If events were lost, it is unknown which blocks are older. */
    emit_mark(&loop, EBB_MARK_LOST);
    assert_int_equal(ebb__analyse(span_of(&loop), &analysis, NULL), EBB_OK);
    assert_int_equal(analysis.existing_blocks, 0);
    assert_int_equal(analysis.blocks, ITERATIONS * BLOCKS);
    ebb__analysis_fini(&analysis);
    ebb_vec_free(&loop.events);
}

/* Marks without anything between them make no iteration. */
static void test_empty_iteration(void **state)
{
    (void)state;
    struct loop loop = {0};
    for (size_t i = 0; i < 4; i++) {
        emit_mark(&loop, EBB_MARK_ITERATION);
        if (i == 2)
            continue;
        uint64_t block = make(&loop, 1 << 20);
        emit(&loop, EBB_EVENT_FREE, block, 1 << 20);
    }
    emit_mark(&loop, EBB_MARK_ITERATION);
    struct ebb_analysis analysis;
    assert_int_equal(ebb__analyse(span_of(&loop), &analysis, NULL), EBB_OK);
    assert_int_equal(analysis.iterations, 3);
    assert_int_equal(analysis.period_events, 2);
    ebb__analysis_fini(&analysis);

    /* An iteration whose blocks all outlive it without repeating has an empty model, and is none
     * either. */
    loop.events.count = 0;
    for (size_t i = 0; i < 4; i++) {
        emit_mark(&loop, EBB_MARK_ITERATION);
        make(&loop, 1 << (20 + i));
    }
    emit_mark(&loop, EBB_MARK_ITERATION);
    assert_int_equal(ebb__analyse(span_of(&loop), &analysis, NULL), EBB_OK);
    assert_false(analysis.has_model);
    assert_int_equal(analysis.iterations, 0);
    assert_null(analysis.starts);
    assert_int_equal(analysis.peak_bytes, 15 << 20);
    ebb__analysis_fini(&analysis);
    ebb_vec_free(&loop.events);
}

/* Numbers that a file or ring may hold, but that no program produces. */
static void what_no_program_has_is_refused(void **state)
{
    (void)state;
    static const struct ebb_event none[] = {
        {1, 0, 4096, EBB_EVENT_ALLOC, 0, 0, 0, 0},
        {1, UINT64_MAX, 4096, EBB_EVENT_FREE, 0, 0, 0, 0},
        {1, 1, EBB_EVENT_SIZE_LIMIT + 1, EBB_EVENT_ALLOC, 0, 0, 0, 0},
        {1, 1, UINT64_MAX, EBB_EVENT_ACCESS, 0, 0, 0, 0},
        {UINT64_MAX, 1, 4096, EBB_EVENT_ALLOC, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        const struct ebb_event events[] = {{1, 7, 64, EBB_EVENT_ALLOC, 0, 0, 0, 0}, none[i]};
        struct ebb_analysis analysis;
        struct ebb_error error;
        assert_int_equal(ebb__analyse((struct ebb_event_span){events, 2}, &analysis, &error),
                         EBB_ERR_FORMAT);
        assert_string_equal(error.why, "event 1: its block, size or time is that of no program");
        struct ebb_watch *watch;
        assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &watch), EBB_OK);
        assert_int_equal(ebb__watch_push(watch, &events[0]), EBB_OK);
        assert_int_equal(ebb__watch_push(watch, &events[1]), EBB_ERR_FORMAT);
        ebb__watch_destroy(watch);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_no_program_has_is_refused),
        cmocka_unit_test(test_training_loop),
        cmocka_unit_test(a_loop_that_covers_more_is_none),
        cmocka_unit_test(test_trace_ends_in_optimizer),
        cmocka_unit_test(test_times_of_untraced),
        cmocka_unit_test(test_end_of_program),
        cmocka_unit_test(test_large_serials),
        cmocka_unit_test(test_marks_win),
        cmocka_unit_test(test_allocate_once),
        cmocka_unit_test(test_nothing_repeats),
        cmocka_unit_test(test_watch),
        cmocka_unit_test(test_watch_inner),
        cmocka_unit_test(test_watch_queue),
        cmocka_unit_test(test_existing),
        cmocka_unit_test(test_empty_iteration),
        cmocka_unit_test(test_watch_forgets),
        cmocka_unit_test(test_watch_counts_on),
        cmocka_unit_test(test_watch_looks_far_again),
        cmocka_unit_test(test_watch_marked),
        cmocka_unit_test(test_watch_marked_within),
        cmocka_unit_test(test_watch_marked_apart),
        cmocka_unit_test(test_watch_marked_anew),
        cmocka_unit_test(test_watch_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
