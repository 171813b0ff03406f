/* Repeated planning: the test imitates the process of a parent, and sets its lanes and times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "parent_rig.h"

#include <math.h>

#define BLOCKS 24u
#define STEP_NS ((uint64_t)2000000)
#define MIB ((uint64_t)1 << 20)

struct stage {
    struct parent_rig rig;
    uint64_t serial, now_ns;
    unsigned scripts; /* received */
    uint64_t script_bytes;
    enum ebb_observe observe; /* as the program was told last */
};

static void push(struct stage *stage, struct ebb_event event)
{
    event.time_ns = stage->now_ns;
    ebb__parent_note_event(&stage->rig.process, &event);
    assert_int_equal(ebb__watch_push(stage->rig.process.stream.watch, &event), EBB_OK);
}

static void push_mark(struct stage *stage, enum ebb_mark mark)
{
    push(stage, (struct ebb_event){.kind = EBB_EVENT_MARK, .mark = (uint8_t)mark});
}

static void push_access(struct stage *stage, uint64_t serial, enum ebb_access_kind access)
{
    push(stage,
         (struct ebb_event){.kind = EBB_EVENT_ACCESS, .block = serial, .access = (uint8_t)access});
}

static uint64_t bytes_of(unsigned i)
{
    return (1 + i % 5) * MIB + i * 4096;
}

/* One iteration, forward and backward. `stretch` scales its time. */
static void lap(struct stage *stage, bool traced, double stretch)
{
    uint64_t first = stage->serial + 1, step_ns = (uint64_t)((double)STEP_NS * stretch);
    for (unsigned i = 0; i < BLOCKS; i++) {
        stage->now_ns += step_ns;
        push(stage, (struct ebb_event){.kind = EBB_EVENT_ALLOC,
                                       .block = ++stage->serial,
                                       .size_bytes = bytes_of(i)});
        if (traced)
            push_access(stage, stage->serial, EBB_ACCESS_WRITE);
    }
    for (unsigned i = BLOCKS; i-- > 0;) {
        stage->now_ns += step_ns;
        if (traced)
            push_access(stage, first + i, EBB_ACCESS_READ);
        stage->now_ns += step_ns;
        push(stage, (struct ebb_event){
                        .kind = EBB_EVENT_FREE, .block = first + i, .size_bytes = bytes_of(i)});
    }
}

/* Transfers `bytes` in each direction, with the given ns per byte. */
static void move(struct stage *stage, uint64_t bytes, double out_ns, double in_ns)
{
    struct ebb_counters *counters = &stage->rig.process.stream.ring->counters;
    atomic_fetch_add(&counters->out_lane_bytes, bytes);
    atomic_fetch_add(&counters->in_lane_bytes, bytes);
    atomic_fetch_add(&counters->out_busy_ns, (uint64_t)((double)bytes * out_ns));
    atomic_fetch_add(&counters->in_busy_ns, (uint64_t)((double)bytes * in_ns));
}

static void receive(struct stage *stage)
{
    struct ebb_message message;
    int descriptors[EBB_MESSAGE_DESCRIPTORS];
    size_t count;
    while (ebb__message_receive(stage->rig.program, &message, descriptors, &count) == 1) {
        if (message.kind == EBB_MESSAGE_TRACE)
            stage->observe = (enum ebb_observe)(message.value & 255);
        if (message.kind == EBB_MESSAGE_SCRIPT) {
            assert_int_equal(count, 1);
            stage->scripts++;
            stage->script_bytes = message.value;
        }
        ebb__message_close(descriptors, count);
    }
}

static void step(struct stage *stage)
{
    ebb__parent_learn(&stage->rig.parent, &stage->rig.process);
    receive(stage);
}

static uint64_t peak_bytes(void)
{
    uint64_t peak = 0;
    for (unsigned i = 0; i < BLOCKS; i++)
        peak += bytes_of(i);
    return peak;
}

/* The iteration is learnt, planned for 60 %, and replayed. */
static struct stage *open_stage_at(double share_of_budget)
{
    struct stage *stage = must(calloc(1, sizeof *stage));
    uint64_t budget = peak_bytes() * 6 / 10;
    open_rig(&stage->rig, budget);
    atomic_store(&stage->rig.ledger.peak_bytes, (uint64_t)(share_of_budget * (double)budget));
    push_mark(stage, EBB_MARK_TRACE_ON);
    for (unsigned i = 0; i < 3; i++)
        lap(stage, true, 1.1);
    step(stage);
    assert_int_equal(stage->rig.process.phase, PHASE_PLANNED);
    assert_int_equal(stage->scripts, 1);
    assert_int_equal(stage->rig.parent.figures.plan.count, 1);
    push_mark(stage, EBB_MARK_TRACE_OFF);
    push_mark(stage, EBB_MARK_PLAN_ON);
    return stage;
}

static struct stage *open_stage(void)
{
    return open_stage_at(1);
}

static void close_stage(struct stage *stage)
{
    close_rig(&stage->rig);
    free(stage);
}

static void laps(struct stage *stage, unsigned count, double rate, double stretch)
{
    for (unsigned i = 0; i < count; i++) {
        lap(stage, false, stretch);
        move(stage, 40 * MIB, rate, rate);
        step(stage);
    }
}

static void what_was_assumed_stays(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    laps(stage, 60, 0.5, 1);
    laps(stage, 60, 0.55, 1); /* within the tolerance */
    assert_int_equal(stage->scripts, 1);
    assert_int_equal(stage->rig.parent.figures.plan.replans, 0);
    close_stage(stage);
}

static void slower_lanes_are_planned_for(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    uint64_t predicted = stage->rig.parent.figures.plan.iteration_ns;
    laps(stage, 3, 1.5, 1);
    assert_int_equal(stage->scripts, 1); /* not at the first sign */
    laps(stage, 9, 1.5, 1);
    assert_int_equal(stage->scripts, 2);
    assert_int_equal(stage->rig.parent.figures.plan.replans, 1);
    assert_true(fabs(stage->rig.parent.host.lanes.machine.out.ns_per_byte - 1.5) < 0.01);
    assert_true(fabs(stage->rig.parent.host.lanes.machine.in.ns_per_byte - 1.5) < 0.01);
    assert_int_equal(stage->rig.parent.host.lanes.machine.out.fixed_ns, 20000);
    /* The iteration is shorter than when it was observed, and is planned as short. */
    const struct ebb_model *model = &stage->rig.process.learnt.iterations[0].model;
    uint64_t untraced_ns = 3 * BLOCKS * STEP_NS;
    assert_true(ebb__model_iteration_ns(model) <= untraced_ns + STEP_NS);
    assert_true(stage->rig.parent.figures.plan.iteration_ns > untraced_ns - STEP_NS);
    assert_true(predicted > untraced_ns);
    assert_true(stage->rig.process.learnt_anew);
    /* One new plan is enough. */
    laps(stage, 100, 1.5, 1);
    assert_int_equal(stage->scripts, 2);
    close_stage(stage);
}

static void few_bytes_say_nothing(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    for (unsigned i = 0; i < 60; i++) {
        lap(stage, false, 1);
        move(stage, MIB, 5, 5);
        step(stage);
    }
    assert_int_equal(stage->scripts, 1);
    close_stage(stage);
}

static void a_plan_that_is_slower_gives_way(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    struct ebb_script *first = stage->rig.process.sent.script;
    uint64_t first_bytes = stage->script_bytes;
    for (unsigned i = 0; i < 12 && stage->scripts == 1; i++)
        laps(stage, 1, 1.5, 1);
    assert_int_equal(stage->scripts, 2);
    assert_ptr_equal(stage->rig.process.sent.script_before, first);
    laps(stage, 20, 1.5, 1.1);
    assert_int_equal(stage->scripts, 3);
    assert_int_equal(stage->script_bytes, first_bytes);
    assert_true(fabs(stage->rig.parent.host.lanes.machine.out.ns_per_byte - 0.5) < 0.01);
    /* No other plan follows, whatever happens. */
    laps(stage, 200, 9, 1.3);
    assert_int_equal(stage->scripts, 3);
    close_stage(stage);
}

static void it_settles(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    for (unsigned i = 0; i < 300; i++) /* the times never stay the same for long */
        laps(stage, 3, i / 7 % 2 ? 0.4 : 3, 1);
    assert_true(stage->scripts > 2);
    assert_true(stage->scripts <= 1 + 4 + 1);
    assert_int_equal(stage->rig.process.trial.state, TRIAL_SETTLED);
    close_stage(stage);
}

static void waiting_lowers_the_bar(void **state)
{
    (void)state;
    for (unsigned waits = 0; waits < 2; waits++) {
        struct stage *stage = open_stage();
        for (unsigned i = 0; i < 12; i++) {
            lap(stage, false, 1);
            move(stage, 40 * MIB, 0.55, 0.55); /* 10 % slower than assumed */
            atomic_fetch_add(&stage->rig.process.stream.ring->counters.stall_ns,
                             waits * (stage->rig.parent.figures.plan.stall_ns * 2 + 20 * STEP_NS));
            step(stage);
        }
        assert_int_equal(stage->scripts, 1 + waits);
        close_stage(stage);
    }
}

/* Lanes are as assumed, but uses are closer together than when they were observed. */
static void a_faster_pace_is_planned_for(void **state)
{
    (void)state;
    for (unsigned waits = 0; waits < 2; waits++) {
        struct stage *stage = open_stage();
        uint64_t predicted = stage->rig.parent.figures.plan.iteration_ns;
        for (unsigned i = 0; i < 5 + 8 * (1 - waits); i++) { /* a few iterations are enough */
            lap(stage, false, 0.5);
            move(stage, 40 * MIB, 0.5, 0.5);
            atomic_fetch_add(&stage->rig.process.stream.ring->counters.stall_ns,
                             waits * (stage->rig.parent.figures.plan.stall_ns * 2 + 5 * STEP_NS));
            step(stage);
        }
        assert_int_equal(stage->scripts, 1 + waits);
        assert_int_equal(waits, stage->rig.parent.figures.plan.iteration_ns < predicted * 2 / 3);
        assert_int_equal(stage->rig.parent.figures.plan.learnt_iteration_ns, predicted);
        close_stage(stage);
    }
}

/* The stalls of the iteration in which a plan begins are counted late. They tell nothing of the
 * plan, although they are long. */
static void one_long_stall_is_no_pace(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    for (unsigned i = 0; i < 12; i++) {
        lap(stage, false, 1);
        move(stage, 40 * MIB, 0.5, 0.5);
        atomic_fetch_add(&stage->rig.process.stream.ring->counters.stall_ns,
                         i == 3 ? 10 * BLOCKS * STEP_NS : 0);
        step(stage);
    }
    assert_int_equal(stage->scripts, 1);
    close_stage(stage);
}

/* Small blocks hold more than at planning. The next plan gets less memory, and is made once. */
static void room_that_is_gone_is_planned_for(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    const struct process *process = &stage->rig.process;
    uint64_t budget = atomic_load(&stage->rig.ledger.budget_bytes);
    assert_true(process->sent.script->peak_bytes <= budget);
    uint64_t small = budget - process->sent.script->peak_bytes + MIB;
    atomic_store(&process->stream.ring->counters.small_bytes, small);
    laps(stage, 1, 0.5, 1);
    assert_int_equal(stage->scripts, 1); /* it may be temporary */
    laps(stage, 2, 0.5, 1);
    assert_int_equal(stage->scripts, 2);
    assert_true(process->sent.script->peak_bytes <= budget - small - MIB);
    assert_int_equal(process->sent.small_bytes, small);
    laps(stage, 20, 0.5, 1);
    assert_int_equal(stage->scripts, 2);
    /* Steady growth does not cause a plan for each step. */
    for (unsigned i = 0; i < 60; i++) {
        atomic_fetch_add(&process->stream.ring->counters.small_bytes, MIB / 8);
        laps(stage, 1, 0.5, 1);
    }
    assert_in_range(stage->scripts, 3, 6);
    close_stage(stage);
}

/* Part of what small blocks held at planning becomes free. */
static void room_that_comes_is_planned_for(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    const struct process *process = &stage->rig.process;
    uint64_t budget = atomic_load(&stage->rig.ledger.budget_bytes);
    uint64_t small = budget - process->sent.script->peak_bytes + MIB;
    atomic_store(&process->stream.ring->counters.small_bytes, small);
    laps(stage, 3, 0.5, 1);
    assert_int_equal(stage->scripts, 2);
    atomic_store(&process->stream.ring->counters.small_bytes, small - budget / 30);
    laps(stage, 20, 0.5, 1);
    assert_int_equal(stage->scripts, 2); /* a small gain is not worth a plan */
    atomic_store(&process->stream.ring->counters.small_bytes, small - budget / 15);
    laps(stage, 1, 0.5, 1);
    assert_int_equal(stage->scripts, 2);
    laps(stage, 2, 0.5, 1);
    assert_int_equal(stage->scripts, 3);
    laps(stage, 20, 0.5, 1);
    assert_int_equal(stage->scripts, 3);
    close_stage(stage);
}

static void off_the_plan_nothing_is_judged(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    lap(stage, false, 1);
    push_mark(stage, EBB_MARK_PLAN_OFF);
    laps(stage, 1, 3, 1);
    assert_int_equal(stage->rig.parent.figures.plan.replans, 0);
    close_stage(stage);
}

/* The process does not find the plan's place for long, so it is observed again, and is planned.
 * Observation then ends as it did at first. */
static void what_is_learnt_again_is_not_observed_on(void **state)
{
    (void)state;
    struct stage *stage = open_stage();
    laps(stage, 6, 0.5, 1);
    assert_int_equal(stage->observe, EBB_OBSERVE_DEPARTURES);
    push_mark(stage, EBB_MARK_PLAN_OFF);
    push_mark(stage, EBB_MARK_TRACE_ON);
    for (unsigned i = 0; i < 9 && stage->rig.process.phase == PHASE_PLANNED; i++) {
        lap(stage, true, 1);
        step(stage);
    }
    assert_int_equal(stage->rig.process.phase, PHASE_RELEARNING);
    assert_int_equal(stage->observe, EBB_OBSERVE_ALWAYS);
    for (unsigned i = 0; i < 3 && stage->rig.process.phase != PHASE_PLANNED; i++) {
        lap(stage, true, 1);
        stage->rig.process.learning.next_attempt_ns = 0;
        step(stage);
    }
    assert_int_equal(stage->rig.process.phase, PHASE_PLANNED);
    assert_int_equal(stage->scripts, 2);
    push_mark(stage, EBB_MARK_PLAN_ON);
    lap(stage, true, 1);
    step(stage);
    assert_int_equal(stage->observe, EBB_OBSERVE_DEPARTURES);
    close_stage(stage);
}

/* What comes between iterations needs no plan while the run is far below its budget. */
static void far_below_the_budget_departures_are_not_observed(void **state)
{
    (void)state;
    struct stage *stage = open_stage_at(0.5);
    struct ebb_ledger *ledger = &stage->rig.ledger;
    laps(stage, 6, 0.5, 1);
    assert_int_equal(stage->rig.process.phase, PHASE_PLANNED);
    assert_int_equal(stage->observe, EBB_OBSERVE_NEVER);
    atomic_store(&ledger->peak_bytes, atomic_load(&ledger->budget_bytes));
    laps(stage, 1, 0.5, 1);
    assert_int_equal(stage->observe, EBB_OBSERVE_DEPARTURES);
    close_stage(stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_assumed_stays),
        cmocka_unit_test(slower_lanes_are_planned_for),
        cmocka_unit_test(few_bytes_say_nothing),
        cmocka_unit_test(a_plan_that_is_slower_gives_way),
        cmocka_unit_test(it_settles),
        cmocka_unit_test(waiting_lowers_the_bar),
        cmocka_unit_test(a_faster_pace_is_planned_for),
        cmocka_unit_test(one_long_stall_is_no_pace),
        cmocka_unit_test(room_that_is_gone_is_planned_for),
        cmocka_unit_test(room_that_comes_is_planned_for),
        cmocka_unit_test(off_the_plan_nothing_is_judged),
        cmocka_unit_test(what_is_learnt_again_is_not_observed_on),
        cmocka_unit_test(far_below_the_budget_departures_are_not_observed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
