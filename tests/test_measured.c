/* What a run measures itself: rates of lanes, costs of page moves, times of iterations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "parent_rig.h"

#include <math.h>

#define MIB ((uint64_t)1 << 20)

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

static uint64_t interval_ns(const struct ebb_model *model, uint32_t tick)
{
    return model->time_ns[tick] - (tick ? model->time_ns[tick - 1] : 0);
}

/* A device does its works as fast as ever. It has less of nothing to do between them. */
static void a_device_is_idle_for_less(void **state)
{
    (void)state;
    struct ebb_model model = make_training(5, 8 * MIB, 50000000, 3);
    struct ebb_model before = make_training(5, 8 * MIB, 50000000, 3);
    uint64_t whole = ebb__model_iteration_ns(&model), busy = 0;
    for (uint32_t i = 0; i < model.tick_count; i++)
        if (model.events[i].kind == EBB_EVENT_ACCESS && !model.events[i].clock)
            busy += interval_ns(&model, i);
    assert_in_range(busy, 1, whole - 1000);
    assert_int_equal(ebb__measured_fit(&model, 0), EBB_OK);
    assert_int_equal(ebb__measured_fit(&model, whole + 1), EBB_OK);
    assert_memory_equal(model.time_ns, before.time_ns,
                        (model.tick_count + 1) * sizeof *model.time_ns);
    assert_int_equal(ebb__measured_fit(&model, busy + (whole - busy) / 2), EBB_OK);
    assert_in_range(ebb__model_iteration_ns(&model), busy + (whole - busy) / 2 - 1,
                    busy + (whole - busy) / 2);
    for (uint32_t i = 0; i < model.tick_count; i++) {
        bool is_busy = model.events[i].kind == EBB_EVENT_ACCESS && !model.events[i].clock;
        uint64_t wanted = interval_ns(&before, i) / (is_busy ? 1 : 2);
        assert_in_range(interval_ns(&model, i) + 1, wanted, wanted + 2);
    }
    /* Gaps are those of the new times. */
    for (uint32_t i = 0; i < model.gap_count; i++)
        assert_true(model.gaps[i].length_ns <= before.gaps[i].length_ns);
    assert_int_equal(ebb__measured_fit(&model, busy / 3), EBB_OK);
    assert_in_range(ebb__model_iteration_ns(&model), busy / 3 - 1, busy / 3);
    ebb__model_fini(&model);
    ebb__model_fini(&before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_from_counts),
        cmocka_unit_test(costs_from_page_moves),
        cmocka_unit_test(intervals_are_the_shorter_ones),
        cmocka_unit_test(a_device_is_idle_for_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
