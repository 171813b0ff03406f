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
static struct stage *open_stage(void)
{
    struct stage *stage = must(calloc(1, sizeof *stage));
    open_rig(&stage->rig, peak_bytes() * 6 / 10);
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

static void lanes_from_counts(void **state)
{
    (void)state;
    struct ebb_machine assumed = {"test", {1, 7}, {2, 9}, true, EBB_NO_COSTS}, measured;
    struct lane_counts from = {.out_bytes = 5, .in_bytes = 6, .out_busy_ns = 7, .in_busy_ns = 8};
    struct lane_counts to = {.out_bytes = 5 + 100 * MIB,
                             .in_bytes = 6 + 200 * MIB,
                             .out_busy_ns = 7 + 50 * MIB,
                             .in_busy_ns = 8 + 300 * MIB,
                             .both_busy_ns = 20 * MIB};
    ebb__measured_lanes(&assumed, &from, &to, &measured);
    assert_true(fabs(measured.out.ns_per_byte - 0.5) < 1e-9);
    assert_true(fabs(measured.in.ns_per_byte - 1.5) < 1e-9);
    assert_int_equal(measured.out.fixed_ns, 7);
    /* With shared bandwidth, the lane had half of it in 20 of its 50. */
    assumed.duplex = false;
    ebb__measured_lanes(&assumed, &from, &to, &measured);
    assert_true(fabs(measured.out.ns_per_byte - 0.4) < 1e-9);
    assert_true(fabs(measured.in.ns_per_byte - 1.45) < 1e-9);
    to.out_bytes = 5 + MIB;
    ebb__measured_lanes(&assumed, &from, &to, &measured);
    assert_true(fabs(measured.out.ns_per_byte - 1) < 1e-9);
}

/* Page moves that the process has counted replace what the machine assumes, if they are enough. */
static void costs_from_page_moves(void **state)
{
    (void)state;
    struct process *process = must(calloc(1, sizeof *process));
    process->stream.ring = must(calloc(1, sizeof *process->stream.ring));
    struct ebb_counters *counters = &process->stream.ring->counters;
    const struct ebb_machine machine = {"test", {1, 0}, {1, 0}, true, {26000, 100, 0.5, 7}};
    atomic_store(&counters->moved_huge_pages, 10);
    atomic_store(&counters->moved_huge_ns, 10 * 50000);
    atomic_store(&counters->moved_small_pages, 10000);
    atomic_store(&counters->moved_small_ns, 10000 * 90);
    struct ebb_transfer_costs costs = ebb__measured_costs(process, &machine);
    assert_true(fabs(costs.huge_page_ns - 26000) < 1e-6);
    assert_true(fabs(costs.small_page_ns - 180) < 1e-6);
    atomic_store(&counters->moved_huge_pages, 1000);
    atomic_store(&counters->moved_huge_ns, 1000 * 50000);
    costs = ebb__measured_costs(process, &machine);
    assert_true(fabs(costs.huge_page_ns - 100000) < 1e-6);
    assert_true(fabs(costs.ns_per_byte - 0.5) < 1e-9);
    assert_int_equal(costs.fixed_ns, 7);
    free(process->stream.ring);
    free(process);
}

static void intervals_are_the_shorter_ones(void **state)
{
    (void)state;
    struct ebb_model model = make_training(5, 8 * MIB, 50000000, 3);
    struct ebb_model other = make_training(5, 8 * MIB, 50000000, 3);
    struct ebb_model longer = make_training(6, 8 * MIB, 50000000, 3);
    uint64_t whole = ebb__model_iteration_ns(&model);
    /* One model is late by 5 ms from one event on, the other by 7 ms from another. */
    uint32_t third = model.tick_count / 3, half = model.tick_count / 2;
    while (!model.events[third].clock)
        third++;
    while (!model.events[half].clock)
        half++;
    for (uint32_t i = third; i <= model.tick_count; i++)
        model.time_ns[i] += 5000000;
    for (uint32_t i = half; i <= other.tick_count; i++)
        other.time_ns[i] += 7000000;
    /* The parts of a large block vary between observed iterations. */
    struct ebb_model_block *part = &model.blocks[model.events[third].block];
    struct ebb_model_block *other_part = &other.blocks[other.events[third].block];
    part->part_count = other_part->part_count = 2;
    part->allocated_bytes = other_part->allocated_bytes = part->size_bytes;
    part->size_bytes /= 2;
    other_part->size_bytes /= 4;
    uint64_t third_ns = model.time_ns[third];
    assert_true(ebb__measured_shorten(&model, &other, 0));
    /* As long as the shorter iteration, but in the proportions of the shorter intervals. */
    assert_int_equal(ebb__model_iteration_ns(&model), whole + 5000000);
    assert_true(model.time_ns[third] < third_ns);
    assert_false(ebb__measured_shorten(&model, &longer, 0));
    /* An access that occurs in one model only changes nothing. */
    uint32_t unseen = 0;
    while (model.events[unseen].clock)
        unseen++;
    for (uint32_t i = 0; i <= model.tick_count; i++)
        model.time_ns[i] *= 2;
    for (uint32_t i = unseen; i < other.tick_count; i++) {
        if (i + 1 < other.tick_count)
            other.events[i] = other.events[i + 1];
        other.time_ns[i] = other.time_ns[i + 1];
    }
    other.tick_count--;
    for (uint32_t i = half - 1; i <= other.tick_count; i++)
        other.time_ns[i] -= 7000000;
    assert_true(ebb__measured_shorten(&model, &other, 0));
    assert_int_equal(ebb__model_iteration_ns(&model), whole);
    /* What was measured without waits counts, within what can be. */
    for (uint32_t i = 0; i <= other.tick_count; i++)
        other.time_ns[i] *= 3;
    assert_true(ebb__measured_shorten(&model, &other, 2 * whole));
    assert_in_range(ebb__model_iteration_ns(&model), 2 * whole - 9, 2 * whole);
    assert_true(ebb__measured_shorten(&model, &other, 9 * whole));
    assert_in_range(ebb__model_iteration_ns(&model), 3 * whole - 9, 3 * whole);
    assert_true(ebb__measured_shorten(&model, &other, 1));
    assert_in_range(ebb__model_iteration_ns(&model), 3 * whole - 9, 3 * whole);
    ebb__model_fini(&model);
    ebb__model_fini(&other);
    ebb__model_fini(&longer);
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
        cmocka_unit_test(room_that_is_gone_is_planned_for),
        cmocka_unit_test(room_that_comes_is_planned_for),
        cmocka_unit_test(off_the_plan_nothing_is_judged),
        cmocka_unit_test(lanes_from_counts),
        cmocka_unit_test(costs_from_page_moves),
        cmocka_unit_test(intervals_are_the_shorter_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
