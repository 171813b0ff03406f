/* Observation rests while nothing comes of it: the test imitates the process of a parent. Its steps
 * are made by hand, and what it loses is told by marks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "parent_rig.h"

#define MIB ((uint64_t)1 << 20)
#define TICK_NS ((uint64_t)10000000) /* steps of 0.7 s */
enum { BLOCKS = 24 };

struct stage {
    struct parent_rig rig;
    uint64_t serial, now_ns;
    uint64_t observed_ns, waited_ns; /* lost in each step while observed, and otherwise */
    unsigned observed_steps, steps;
    uint32_t chance;
    bool observes; /* what the process was told last */
};

static void push(struct stage *stage, struct ebb_event event)
{
    event.time_ns = stage->now_ns;
    ebb__parent_note_event(&stage->rig.process, &event);
    assert_int_equal(ebb__watch_push(stage->rig.process.stream.watch, &event), EBB_OK);
}

static void receive(struct stage *stage)
{
    struct ebb_message message;
    int descriptors[EBB_MESSAGE_DESCRIPTORS];
    size_t count;
    while (ebb__message_receive(stage->rig.program, &message, descriptors, &count) == 1) {
        if (message.kind == EBB_MESSAGE_TRACE) {
            bool observes = message.value != EBB_OBSERVE_NEVER;
            if (observes != stage->observes)
                push(stage,
                     (struct ebb_event){.kind = EBB_EVENT_MARK,
                                        .mark = observes ? EBB_MARK_TRACE_ON : EBB_MARK_TRACE_OFF});
            stage->observes = observes;
        }
        ebb__message_close(descriptors, count);
    }
}

static uint64_t allocate(struct stage *stage, uint64_t bytes)
{
    stage->now_ns += TICK_NS;
    push(stage, (struct ebb_event){
                    .kind = EBB_EVENT_ALLOC, .block = ++stage->serial, .size_bytes = bytes});
    return stage->serial;
}

static uint64_t bytes_of(unsigned block, unsigned length)
{
    return (1 + block % 5) * MIB + length * (uint64_t)128;
}

/* A step of this length: its blocks have sizes that no other length has. */
static void step(struct stage *stage, unsigned length)
{
    uint64_t first = stage->serial + 1;
    for (unsigned i = 0; i < BLOCKS; i++) {
        allocate(stage, bytes_of(i, length));
        if (stage->observes)
            push(stage, (struct ebb_event){.kind = EBB_EVENT_ACCESS,
                                           .block = stage->serial,
                                           .access = EBB_ACCESS_WRITE});
    }
    push(stage,
         (struct ebb_event){.kind = EBB_EVENT_MARK,
                            .mark = stage->observes ? EBB_MARK_OBSERVED : EBB_MARK_WAIT,
                            .size_bytes = stage->observes ? stage->observed_ns : stage->waited_ns});
    for (unsigned i = BLOCKS; i-- > 0;) {
        stage->now_ns += 2 * TICK_NS;
        push(stage, (struct ebb_event){.kind = EBB_EVENT_FREE,
                                       .block = first + i,
                                       .size_bytes = bytes_of(i, length)});
    }
    stage->steps++;
    stage->observed_steps += stage->observes;
    ebb__parent_learn(&stage->rig.parent, &stage->rig.process);
    receive(stage);
}

/* A program in its first step. */
static struct stage *open_stage(void)
{
    struct stage *stage = must(calloc(1, sizeof *stage));
    open_rig(&stage->rig, 40 * MIB);
    stage->chance = 1;
    stage->observes = true;
    stage->observed_ns = 8 * TICK_NS;
    stage->waited_ns = TICK_NS;
    stage->now_ns = TICK_NS;
    push(stage, (struct ebb_event){.kind = EBB_EVENT_MARK, .mark = EBB_MARK_TRACE_ON});
    return stage;
}

static void close_stage(struct stage *stage)
{
    close_rig(&stage->rig);
    free(stage);
}

/* Steps of which no two are equal. */
static void run(struct stage *stage, unsigned steps)
{
    for (unsigned i = 0; i < steps; i++) {
        stage->chance = stage->chance * 1103515245u + 12345u;
        step(stage, 2 + (stage->chance >> 16) % 4096);
    }
}

static unsigned observed_of(struct stage *stage, unsigned steps)
{
    unsigned before = stage->observed_steps;
    run(stage, steps);
    return stage->observed_steps - before;
}

static void steps_that_differ_are_soon_not_observed(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    assert_in_range(observed_of(stage, 12), 3, 7);
    assert_int_equal(stage->rig.process.phase, PHASE_RESTING);
    /* From time to time it looks again, and less and less often. */
    unsigned early = observed_of(stage, 200), late = observed_of(stage, 600);
    assert_in_range(early, 1, 200 / 6);
    assert_in_range(late, 1, 600 / 20);
    close_stage(stage);
}

static void what_repeats_is_observed_and_planned(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    run(stage, 12);
    assert_int_equal(stage->rig.process.phase, PHASE_RESTING);
    unsigned steps = 0;
    for (; steps < 10 && stage->rig.process.phase != PHASE_PLANNED; steps++) {
        step(stage, 5000);
        stage->rig.process.learning.next_attempt_ns = 0; /* by the clock, less than a millisecond */
    }
    assert_in_range(steps, 2, 6);
    assert_int_equal(stage->rig.process.phase, PHASE_PLANNED);
    assert_int_equal(stage->rig.process.learning.rest.fruitless, 0);
    close_stage(stage);
}

/* Recency is worth more than observing costs: then observing goes on. */
static void who_loses_more_at_rest_is_observed(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    stage->waited_ns = 20 * TICK_NS;
    run(stage, 12);
    unsigned rests = 400 - observed_of(stage, 400);
    assert_in_range(rests, 0, 400 / 5);
    assert_true(stage->rig.process.learning.rest.is_dearer);
    stage->waited_ns = TICK_NS; /* not any more */
    run(stage, 600);
    assert_false(stage->rig.process.learning.rest.is_dearer);
    assert_in_range(observed_of(stage, 400), 0, 400 / 8);
    close_stage(stage);
}

static void a_program_that_grows_is_observed(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    for (unsigned i = 0; i < 6; i++) {
        allocate(stage, 60 * MIB); /* stays */
        run(stage, 1);
    }
    assert_int_equal(stage->observed_steps, 6);
    assert_in_range(observed_of(stage, 12), 3, 9);
    close_stage(stage);
}

static void a_recording_does_not_rest(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    stage->rig.parent.options.record = true;
    assert_int_equal(observed_of(stage, 40), 40);
    close_stage(stage);
}

/* What little is allocated does not tell what the program does. */
static void small_swings_are_no_steps(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    for (unsigned i = 0; i < 20; i++)
        allocate(stage, 100 * MIB);
    assert_int_equal(observed_of(stage, 40), 40);
    close_stage(stage);
}

/* Until then there is nothing to evict. */
static void a_run_is_observed_once_it_is_near_its_budget(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    struct ebb_ledger *ledger = &stage->rig.ledger;
    atomic_store(&ledger->peak_bytes, 0);
    ebb__rest_begin(&stage->rig.parent, &stage->rig.process);
    assert_int_equal(stage->rig.process.phase, PHASE_RESTING);
    stage->observes = false; /* as the welcome says */
    for (unsigned i = 0; i < 20; i++)
        step(stage, 3);
    assert_int_equal(stage->observed_steps, 0);
    assert_int_equal(stage->rig.process.phase, PHASE_RESTING);
    atomic_store(&ledger->peak_bytes, 25 * MIB); /* of 40 */
    for (unsigned i = 0; i < 6 && stage->rig.process.phase != PHASE_PLANNED; i++) {
        step(stage, 3);
        stage->rig.process.learning.next_attempt_ns = 0;
    }
    assert_in_range(stage->observed_steps, 1, 4);
    assert_int_equal(stage->rig.process.phase, PHASE_PLANNED);
    close_stage(stage);
}

/* A share of the peak, and no budget at all, are no reason to wait. */
static void without_bytes_as_a_budget_it_is_observed_at_once(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    atomic_store(&stage->rig.ledger.peak_bytes, 0);
    atomic_store(&stage->rig.ledger.budget_bytes, UINT64_MAX);
    ebb__rest_begin(&stage->rig.parent, &stage->rig.process);
    assert_int_equal(stage->rig.process.phase, PHASE_OBSERVING);
    atomic_store(&stage->rig.ledger.budget_bytes, 40 * MIB);
    stage->rig.parent.host.budget.state = BUDGET_OPEN;
    ebb__rest_begin(&stage->rig.parent, &stage->rig.process);
    assert_int_equal(stage->rig.process.phase, PHASE_OBSERVING);
    close_stage(stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_that_differ_are_soon_not_observed),
        cmocka_unit_test(what_repeats_is_observed_and_planned),
        cmocka_unit_test(who_loses_more_at_rest_is_observed),
        cmocka_unit_test(a_program_that_grows_is_observed),
        cmocka_unit_test(a_recording_does_not_rest),
        cmocka_unit_test(small_swings_are_no_steps),
        cmocka_unit_test(a_run_is_observed_once_it_is_near_its_budget),
        cmocka_unit_test(without_bytes_as_a_budget_it_is_observed_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
