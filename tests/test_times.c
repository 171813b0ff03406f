/* The times of a model are medians over iterations, so that a disturbed iteration does not count.
 * Accesses that the runtime announces are clock events, like allocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/vec.h"
#include "model/analyse.h"

#include <string.h>

enum { LAPS = 7, TICKS = 5 };

typedef EBB_VEC(struct ebb_event) events_vec;

/* The program has an older weight. It makes an output, writes it, reads it with the weight, and
 * frees it. interval_ns[lap][i] is the time before event i. If `marks`, the trace is marked as
 * untraced. */
static struct ebb_model build(uint64_t interval_ns[LAPS][TICKS], uint8_t flags, bool marks,
                              struct ebb_analysis *analysis)
{
    events_vec events = {0};
    uint64_t now = 0;
    if (marks) {
        const struct ebb_event on = {0, 0, 0, EBB_EVENT_MARK, 0, EBB_MARK_TRACE_ON, 0, 0};
        const struct ebb_event off = {0, 0, 0, EBB_EVENT_MARK, 0, EBB_MARK_TRACE_OFF, 0, 0};
        assert_true(ebb_vec_push(&events, on) && ebb_vec_push(&events, off));
    }
    for (uint64_t lap = 0; lap < LAPS; lap++) {
        const uint64_t output = lap + 2;
        struct ebb_event step[TICKS] = {
            {0, output, 4096, EBB_EVENT_ALLOC, 0, 0, 0, 0},
            {0, output, 4096, EBB_EVENT_ACCESS, EBB_ACCESS_WRITE, 0, flags, 0},
            {0, 1, 8192, EBB_EVENT_ACCESS, EBB_ACCESS_READ, 0, flags, 0},
            {0, output, 4096, EBB_EVENT_ACCESS, EBB_ACCESS_READ, 0, flags, 0},
            {0, output, 4096, EBB_EVENT_FREE, 0, 0, 0, 0},
        };
        for (size_t i = 0; i < TICKS; i++) {
            step[i].time_ns = now += interval_ns[lap][i];
            assert_true(ebb_vec_push(&events, step[i]));
        }
    }
    struct ebb_event_span span = {events.items, events.count};
    assert_int_equal(ebb__analyse(span, analysis, NULL), EBB_OK);
    assert_true(analysis->has_model);
    struct ebb_model model = analysis->model;
    memset(&analysis->model, 0, sizeof analysis->model);
    ebb__analysis_fini(analysis);
    ebb_vec_free(&events);
    assert_int_equal(model.tick_count, TICKS);
    return model;
}

static const uint64_t usual_ns[TICKS] = {70, 10, 20, 30, 40};

static void fill_usual(uint64_t interval_ns[LAPS][TICKS])
{
    for (size_t lap = 0; lap < LAPS; lap++)
        memcpy(interval_ns[lap], usual_ns, sizeof usual_ns);
}

/* The times from the ALLOC on, whatever event the model begins with. */
static void expect_usual(const struct ebb_model *model)
{
    uint32_t begin = 0;
    uint64_t turn_ns = ebb__model_iteration_ns(model), want_ns = 0;
    while (model->events[begin].kind != EBB_EVENT_ALLOC)
        begin++;
    assert_int_equal(turn_ns, 170);
    for (uint32_t i = 1; i < TICKS; i++) {
        want_ns += usual_ns[i];
        uint64_t at_ns = model->time_ns[(begin + i) % TICKS];
        assert_int_equal((at_ns + turn_ns - model->time_ns[begin]) % turn_ns, want_ns);
    }
}

/* Each iteration is late at another place, so no interval is disturbed in most iterations. Times
 * since the iteration's start would include the delay in all later events. */
static void lags_do_not_count(void **state)
{
    (void)state;
    for (int marks = 0; marks < 2; marks++) {
        uint64_t interval_ns[LAPS][TICKS];
        fill_usual(interval_ns);
        for (size_t lap = 0; lap < TICKS; lap++)
            interval_ns[lap + 1][lap] += 100000;
        struct ebb_analysis analysis;
        struct ebb_model model = build(interval_ns, EBB_EVENT_ANNOUNCED, marks, &analysis);
        expect_usual(&model);
        ebb__model_fini(&model);
    }
}

static void observed_everywhere_is_timed_alike(void **state)
{
    (void)state;
    uint64_t interval_ns[LAPS][TICKS];
    fill_usual(interval_ns);
    interval_ns[2][3] = 5000;
    interval_ns[4][1] = 0;
    struct ebb_analysis analysis;
    struct ebb_model model = build(interval_ns, 0, false, &analysis);
    expect_usual(&model);
    assert_int_equal(model.clock_count, 2);
    ebb__model_fini(&model);
}

static void announced_accesses_are_a_clock(void **state)
{
    (void)state;
    uint64_t interval_ns[LAPS][TICKS];
    fill_usual(interval_ns);
    struct ebb_analysis analysis;
    struct ebb_model told = build(interval_ns, EBB_EVENT_ANNOUNCED, false, &analysis);
    struct ebb_model seen = build(interval_ns, 0, false, &analysis);
    assert_int_equal(told.clock_count, TICKS);
    assert_int_equal(seen.clock_count, 2);
    assert_int_equal(told.gap_count, seen.gap_count);
    for (uint32_t i = 0; i < TICKS; i++) {
        assert_true(told.events[i].clock);
        assert_int_equal(ebb__model_clock_after(&told, i), (i + 1) % TICKS);
        assert_int_equal(ebb__model_clock_before(&told, i), (i + TICKS - 1) % TICKS);
    }
    /* The write ends when the next access is announced, or else at the FREE. */
    for (uint32_t i = 0; i < told.gap_count; i++) {
        const struct ebb_gap *gap = &told.gaps[i], *late = &seen.gaps[i];
        assert_int_equal(gap->from_tick, late->from_tick);
        assert_int_equal(gap->from_ns, told.time_ns[(gap->from_tick + 1) % TICKS]);
        assert_true(gap->length_ns >= late->length_ns);
    }
    ebb__model_fini(&told);
    ebb__model_fini(&seen);
}

static void push(events_vec *events, uint64_t *now, uint64_t ns, struct ebb_event event)
{
    event.time_ns = *now += ns;
    assert_true(ebb_vec_push(events, event));
}

static void push_mark(events_vec *events, uint64_t *now, uint64_t ns, uint8_t mark, uint64_t value)
{
    push(events, now, ns, (struct ebb_event){0, 0, value, EBB_EVENT_MARK, 0, mark, 0, 0});
}

/* The iteration takes turn_ns, and its block lives for life_ns of it. Frees the events. */
static void expect_times(events_vec *events, uint64_t turn_ns, uint64_t life_ns)
{
    struct ebb_event_span span = {events->items, events->count};
    struct ebb_analysis analysis;
    assert_int_equal(ebb__analyse(span, &analysis, NULL), EBB_OK);
    assert_true(analysis.has_model);
    const struct ebb_model *model = &analysis.model;
    uint64_t alloc_ns = 0, free_ns = 0;
    for (uint32_t tick = 0; tick < model->tick_count; tick++) {
        if (model->events[tick].kind == EBB_EVENT_ALLOC)
            alloc_ns = model->time_ns[tick];
        else if (model->events[tick].kind == EBB_EVENT_FREE)
            free_ns = model->time_ns[tick];
    }
    assert_int_equal(ebb__model_iteration_ns(model), turn_ns);
    assert_int_equal((free_ns + turn_ns - alloc_ns) % turn_ns, life_ns);
    ebb__analysis_fini(&analysis);
    ebb_vec_free(events);
}

/* Observed iterations are ten times too slow. In planned ones the program waits, two threads of it
 * at once. Only the time that the program works counts. */
static void waits_do_not_count(void **state)
{
    (void)state;
    events_vec events = {0};
    uint64_t now = 0;
    push_mark(&events, &now, 0, EBB_MARK_TRACE_ON, 0);
    for (uint64_t lap = 0; lap < 2 * LAPS; lap++) {
        const uint64_t output = lap + 2, wait_ns = 1000 * (lap % 3);
        bool traced = lap < LAPS;
        uint64_t slow = traced ? 10 : 1;
        if (lap == LAPS) {
            push_mark(&events, &now, 0, EBB_MARK_TRACE_OFF, 0);
            push_mark(&events, &now, 0, EBB_MARK_PLAN_ON, 0);
        }
        struct ebb_event alloc = {0, output, 4096, EBB_EVENT_ALLOC, 0, 0, 0, 0};
        struct ebb_event write = {0, output, 4096, EBB_EVENT_ACCESS, EBB_ACCESS_WRITE, 0, 0, 0};
        struct ebb_event release = {0, output, 4096, EBB_EVENT_FREE, 0, 0, 0, 0};
        push(&events, &now, 70 * slow, alloc);
        if (traced) {
            push(&events, &now, 10, write);
        } else if (wait_ns) {
            push_mark(&events, &now, wait_ns, EBB_MARK_WAIT, wait_ns);
            push_mark(&events, &now, 0, EBB_MARK_WAIT, wait_ns / 2);
        }
        push(&events, &now, 100 * slow, release);
    }
    expect_times(&events, 170, 100);
}

/* All iterations are observed. The program waits before each use and for memory, or observation
 * costs as much, longer in each iteration. `varied`: 1: each third one touches its block twice, so
 * only allocations are alike; 2: each one touches it more often than the one before. */
static void expect_work_of_traced(unsigned varied, uint8_t mark, uint8_t flags)
{
    events_vec events = {0};
    uint64_t now = 0;
    push_mark(&events, &now, 0, EBB_MARK_TRACE_ON, 0);
    for (uint64_t lap = 0; lap < 2 * LAPS; lap++) {
        const uint64_t output = lap + 2, wait_ns = 1000 * (lap + 1);
        struct ebb_event alloc = {0, output, 4096, EBB_EVENT_ALLOC, 0, 0, 0, 0};
        struct ebb_event write = {0, output, 4096, EBB_EVENT_ACCESS, EBB_ACCESS_WRITE, 0, flags, 0};
        struct ebb_event release = {0, output, 4096, EBB_EVENT_FREE, 0, 0, 0, 0};
        push_mark(&events, &now, 70 + wait_ns, mark, wait_ns);
        push(&events, &now, 0, alloc);
        push(&events, &now, 10, write);
        push_mark(&events, &now, wait_ns, mark, wait_ns);
        if (varied == 1 && lap % 3 == 0)
            push(&events, &now, 0, write);
        for (uint64_t i = 0; varied == 2 && i < lap; i++)
            push(&events, &now, 0, write);
        push(&events, &now, 100, release);
    }
    expect_times(&events, 180, 110);
}

static void waits_of_observed_iterations_do_not_count(void **state)
{
    (void)state;
    for (unsigned varied = 0; varied < 3; varied++) {
        expect_work_of_traced(varied, EBB_MARK_WAIT, 0);
        expect_work_of_traced(varied, EBB_MARK_WAIT, EBB_EVENT_ANNOUNCED);
    }
}

/* Another thread frees the first of three blocks: late in all iterations but one. What comes behind
 * it has its usual times all the same. */
static void expect_no_delay(uint64_t early_lap)
{
    events_vec events = {0};
    uint64_t now = 0;
    push_mark(&events, &now, 0, EBB_MARK_TRACE_ON, 0);
    for (uint64_t lap = 0; lap <= LAPS; lap++) {
        const uint64_t first = 3 * lap + 1;
        struct ebb_event release = {0, first, 4096, EBB_EVENT_FREE, 0, 0, 0, 0};
        push_mark(&events, &now, 100, EBB_MARK_WAIT, 100);
        for (uint64_t i = 0; i < 3; i++) {
            struct ebb_event alloc = {0, first + i, 4096 << i, EBB_EVENT_ALLOC, 0, 0, 0, 0};
            push(&events, &now, 10, alloc);
            if (lap == early_lap && i == 0)
                push(&events, &now, 0, release);
        }
        now += 70;
        if (lap != early_lap)
            push(&events, &now, 0, release);
        for (uint64_t i = 1; i < 3; i++) {
            struct ebb_event end = {0, first + i, 4096 << i, EBB_EVENT_FREE, 0, 0, 0, 0};
            push(&events, &now, 10, end);
        }
    }
    struct ebb_event_span span = {events.items, events.count};
    struct ebb_analysis analysis;
    assert_int_equal(ebb__analyse(span, &analysis, NULL), EBB_OK);
    assert_true(analysis.has_model);
    const struct ebb_model *model = &analysis.model;
    uint64_t alloc_ns[3] = {0};
    unsigned allocs = 0;
    for (uint32_t tick = 0; tick < model->tick_count; tick++)
        if (model->events[tick].kind == EBB_EVENT_ALLOC && allocs++ < 3)
            alloc_ns[allocs - 1] = model->time_ns[tick];
    assert_int_equal(allocs, 3);
    assert_int_equal(ebb__model_iteration_ns(model), 120);
    assert_int_equal(alloc_ns[1] - alloc_ns[0], 10);
    assert_int_equal(alloc_ns[2] - alloc_ns[1], 10);
    ebb__analysis_fini(&analysis);
    ebb_vec_free(&events);
}

static void frees_by_another_thread_delay_nothing(void **state)
{
    (void)state;
    for (uint64_t early_lap = LAPS - 2; early_lap <= LAPS; early_lap++)
        expect_no_delay(early_lap);
}

/* A device is observed in some iterations, which tell when uses end. In the others, planned or not,
 * the events have the times of calls: the host runs ahead, and then waits for the end of all. */
static void calls_do_not_count(void **state)
{
    (void)state;
    for (unsigned planned = 0; planned < 2; planned++) {
        events_vec events = {0};
        uint64_t now = 0;
        push_mark(&events, &now, 0, EBB_MARK_TRACE_ON, 0);
        for (uint64_t lap = 0; lap < 4 * LAPS; lap++) {
            const uint64_t output = lap + 2, wait_ns = 1000 * (lap + 1);
            bool traced = lap < LAPS;
            if (lap == LAPS) {
                push_mark(&events, &now, 0, EBB_MARK_TRACE_OFF, 0);
                if (planned)
                    push_mark(&events, &now, 0, EBB_MARK_PLAN_ON, 0);
            }
            struct ebb_event alloc = {0, output, 4096, EBB_EVENT_ALLOC, 0, 0, 0, 0};
            struct ebb_event use = {
                0, output, 4096, EBB_EVENT_ACCESS, EBB_ACCESS_WRITE, 0, EBB_EVENT_ANNOUNCED, 0};
            struct ebb_event held = use, release = alloc;
            held.flags = EBB_EVENT_HELD;
            release.kind = EBB_EVENT_FREE;
            push(&events, &now, traced ? 70 : 5000, alloc);
            if (traced)
                push_mark(&events, &now, wait_ns, EBB_MARK_WAIT, wait_ns);
            push(&events, &now, traced ? 10 : 1, use);
            if (traced)
                push(&events, &now, 100, held);
            push(&events, &now, 1, release);
        }
        expect_times(&events, 181, 111);
    }
}

static void the_cost_of_observation_does_not_count(void **state)
{
    (void)state;
    expect_work_of_traced(0, EBB_MARK_OBSERVED, 0);
    expect_work_of_traced(1, EBB_MARK_OBSERVED, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lags_do_not_count),
        cmocka_unit_test(observed_everywhere_is_timed_alike),
        cmocka_unit_test(announced_accesses_are_a_clock),
        cmocka_unit_test(waits_do_not_count),
        cmocka_unit_test(waits_of_observed_iterations_do_not_count),
        cmocka_unit_test(frees_by_another_thread_delay_nothing),
        cmocka_unit_test(calls_do_not_count),
        cmocka_unit_test(the_cost_of_observation_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
