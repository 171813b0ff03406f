/* Lower bounds: cases worked by hand. No bound may exceed a checked plan, for every policy and
 * every choice of instants. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "check/check.h"
#include "lab/bound/bound.h"
#include "lab/bound/internal.h"
#include "plan/swap/swap.h"
#include "synthetic.h"

#include <stdint.h>

#define STEPS ((uint64_t)100000000)

static struct ebb_machine machine_of(double out_gbps, double in_gbps, uint64_t fixed_ns,
                                     bool duplex)
{
    return (struct ebb_machine){
        "test", {1 / out_gbps, fixed_ns}, {1 / in_gbps, fixed_ns}, duplex, EBB_NO_COSTS};
}

static uint64_t peak_bound(const struct ebb_plan_request *request)
{
    uint64_t bytes;
    struct ebb_error error;
    if (ebb__bound_peak(request, EBB_BOUND_ALL, STEPS, &bytes, &error) != EBB_OK)
        fail_msg("%s: %s", error.what, error.why);
    return bytes;
}

static enum ebb_status stall_bound(const struct ebb_plan_request *request, uint64_t *stall_ns)
{
    return ebb__bound_stall(request, EBB_BOUND_ALL, STEPS, stall_ns, NULL);
}

/* One block of 1,000 KB is used. Another of the same size is used while the first is idle for
 * `idle_ns`. */
static struct ebb_model make_pair(uint64_t idle_ns)
{
    struct maker maker = {0};
    uint32_t a = make_block(&maker, 1000000), b = make_block(&maker, 1000000);
    make_event(&maker, 0, EBB_EVENT_ALLOC, a, 0);
    make_event(&maker, 1000, EBB_EVENT_ACCESS, a, EBB_ACCESS_WRITE);
    uint32_t tick = make_block(&maker, 1);
    make_event(&maker, 2000, EBB_EVENT_ALLOC, tick, 0);
    make_event(&maker, 3000, EBB_EVENT_FREE, tick, 0);
    uint64_t at = 2000 + idle_ns / 2;
    make_event(&maker, at, EBB_EVENT_ALLOC, b, 0);
    make_event(&maker, at, EBB_EVENT_ACCESS, b, EBB_ACCESS_WRITE);
    make_event(&maker, at, EBB_EVENT_FREE, b, 0);
    make_event(&maker, 2000 + idle_ns, EBB_EVENT_ACCESS, a, EBB_ACCESS_READ);
    make_event(&maker, 3000 + idle_ns, EBB_EVENT_FREE, a, 0);
    return make_model(&maker, 10000000);
}

static void worked_by_hand(void **state)
{
    (void)state;
    struct ebb_machine machine = machine_of(1, 1, 0, true); /* 1 ms each way */
    uint64_t stall_ns;
    for (int i = 0; i < 3; i++) {
        /* Each copy has half of the idle time. */
        uint64_t idle_ns = i == 0 ? 2000000 : i == 1 ? 1999990 : 1000000;
        struct ebb_model model = make_pair(idle_ns);
        struct ebb_plan_request request = {&model, &machine, 1000001, 1,    0,    0,
                                           false,  0,        0,       NULL, NULL, 0};
        uint64_t bytes;
        assert_int_equal(ebb__bound_floor(&request, &bytes, NULL), EBB_OK);
        assert_int_equal(bytes, 1000000);
        bytes = peak_bound(&request);
        assert_int_equal(stall_bound(&request, &stall_ns), EBB_OK);
        if (i == 0) {
            assert_in_range(bytes, 1000000, 1000001);
            assert_int_equal(stall_ns, 0);
        } else {
            /* The block can never be absent as a whole. */
            assert_in_range(bytes, 1999999, 2000000);
            assert_in_range(stall_ns, 2000000 - idle_ns - 10, 2000000 - idle_ns);
        }
        request.budget_bytes = 999999; /* less than the block */
        assert_int_equal(stall_bound(&request, &stall_ns), EBB_INFEASIBLE);
        assert_true(stall_ns == UINT64_MAX);
        ebb__model_fini(&model);
    }
}

static void never_above_a_checked_plan(void **state)
{
    (void)state;
    static const char *const policies[] = {"ebb", "fifo", "none"};
    uint32_t free_of_stall = 0, stalled = 0, tight_peak = 0, tight_stall = 0;
    for (uint64_t seed = 1; seed <= 90; seed++) {
        uint64_t rate = seed % 4;
        struct ebb_model model =
            make_random(seed + 1000, 16 + (uint32_t)(seed % 5) * 16, 1 << 20, 100000);
        struct ebb_machine machine =
            machine_of(rate == 0 ? 40 : 6.0 / (double)rate, 10, seed % 3 ? 20000 : 0, seed % 2);
        for (uint64_t percent = 100; percent >= 40; percent -= 15) {
            struct ebb_plan_request request = {.model = &model,
                                               .machine = &machine,
                                               .budget_bytes = model.peak_bytes * percent / 100,
                                               .page_bytes = seed % 3 ? 1 : 4096,
                                               .smallest_block_bytes = seed % 5 ? 0 : 100000,
                                               .time_limit_ns = 2000000};
            struct ebb_check_request check = {&model, &machine, request.budget_bytes,
                                              request.page_bytes};
            uint64_t floor_bytes, peak_bytes = peak_bound(&request), stall_ns;
            assert_int_equal(ebb__bound_floor(&request, &floor_bytes, NULL), EBB_OK);
            assert_true(floor_bytes <= peak_bytes);
            enum ebb_status possible = stall_bound(&request, &stall_ns);
            assert_int_equal(possible,
                             request.budget_bytes < floor_bytes ? EBB_INFEASIBLE : EBB_OK);
            for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
                struct ebb_plan plan;
                assert_int_equal(
                    ebb__plan_make(ebb__plan_policy(policies[p]), &request, &plan, NULL), EBB_OK);
                assert_int_equal(ebb__check_plan(&check, &plan, NULL), EBB_OK);
                if (plan.stall_ns == 0 && plan.peak_bytes < peak_bytes)
                    fail_msg("seed %llu, %s at %llu %%: peak %llu, bound %llu",
                             (unsigned long long)seed, policies[p], (unsigned long long)percent,
                             (unsigned long long)plan.peak_bytes, (unsigned long long)peak_bytes);
                assert_true(plan.peak_bytes >= floor_bytes);
                if (plan.feasible && plan.stall_ns < stall_ns)
                    fail_msg("seed %llu, %s at %llu %%: stall %llu, bound %llu",
                             (unsigned long long)seed, policies[p], (unsigned long long)percent,
                             (unsigned long long)plan.stall_ns, (unsigned long long)stall_ns);
                free_of_stall += plan.stall_ns == 0 && plan.absence_count > 0;
                stalled += plan.feasible && plan.stall_ns > 0;
                tight_peak += plan.stall_ns == 0 && plan.absence_count > 0 &&
                              plan.peak_bytes <= peak_bytes + peak_bytes / 20;
                tight_stall += plan.feasible && plan.stall_ns > 0 && stall_ns >= plan.stall_ns / 2;
                ebb__plan_fini(&plan);
            }
        }
        ebb__model_fini(&model);
    }
    print_message("%u plans without a stall, %u within 5 %% of the bound; %u with one, %u within a "
                  "factor of two\n",
                  free_of_stall, tight_peak, stalled, tight_stall);
    /* A bound of 0 would be useless. */
    assert_true(free_of_stall > 100 && stalled > 100 && tight_peak > 20 && tight_stall > 4);
}

/* Bounds hold for any choice of instants, even for few of them. More instants give a higher
 * bound. */
static void any_instants_bound(void **state)
{
    (void)state;
    uint32_t bounded = 0;
    double all_sum = 0, some_sum = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct ebb_model model = make_random(seed + 2000, 60, 1 << 20, 100000);
        struct ebb_machine machine = machine_of(8, 8, 1000, seed % 2);
        struct ebb_plan_request request = {
            .model = &model, .machine = &machine, .page_bytes = 1, .time_limit_ns = 2000000};
        uint32_t ticks = model.tick_count, all = 0, some = 0;
        uint32_t *instants = must(malloc(ticks * sizeof *instants));
        uint32_t *fewer = must(malloc(ticks * sizeof *fewer));
        uint64_t state_of_chance = seed;
        for (uint32_t t = 0; t < ticks; t++) {
            if (chance(&state_of_chance) % 3 == 0)
                continue;
            instants[all++] = t;
            if (chance(&state_of_chance) % 4 == 0)
                fewer[some++] = t;
        }
        for (int stalls = 0; stalls < 2; stalls++) {
            struct ebb_bound bound;
            assert_int_equal(ebb__bound_init(&bound, &request, EBB_BOUND_ALL, stalls, NULL),
                             EBB_OK);
            request.budget_bytes = bound.floor_bytes + bound.floor_bytes / 20;
            struct ebb_plan plan;
            assert_int_equal(ebb__plan_make(ebb__plan_policy("ebb"), &request, &plan, NULL),
                             EBB_OK);
            for (int less = 0; less < 2; less++) {
                struct ebb_bound_program program = {.bound = &bound,
                                                    .instants = less ? fewer : instants,
                                                    .instant_count = less ? some : all,
                                                    .stalls = stalls,
                                                    .steps = STEPS,
                                                    .box_s = 60};
                assert_int_equal(ebb__bound_solve(&program, NULL), EBB_OK);
                assert_true(program.solved);
                *(less ? &some_sum : &all_sum) += program.value;
                if (stalls ? plan.feasible : plan.stall_ns == 0) {
                    double value = (double)(stalls ? plan.stall_ns : plan.peak_bytes);
                    assert_true(program.value <= value + value / 1e6 + 10);
                    bounded++;
                }
            }
            ebb__plan_fini(&plan);
            ebb__bound_fini(&bound);
        }
        free(instants);
        free(fewer);
        ebb__model_fini(&model);
    }
    assert_true(bounded > 100 && some_sum < all_sum * 0.99);
}

/* The least stall of all sets of gaps, with copies in at three times. UINT64_MAX: none is
 * feasible. */
static uint64_t least_stall(const struct ebb_plan_request *request)
{
    struct ebb_swap swap;
    uint64_t least = UINT64_MAX;
    assert_int_equal(ebb__swap_init_within(&swap, request, NULL), EBB_OK);
    for (uint32_t set = 0; swap.gap_count <= 10 && set < 1u << swap.gap_count; set++)
        for (int way = 0; way < 3; way++) {
            struct ebb_swap_outcome outcome;
            for (uint32_t i = 0; i < swap.gap_count; i++)
                swap.gaps[i].taken = set >> i & 1;
            if (way == 0)
                ebb__swap_trigger_early(&swap, request->budget_bytes);
            else if (way == 1)
                ebb__swap_trigger_limit(&swap, request->budget_bytes);
            else
                ebb__swap_schedule(&swap, 0);
            if (way == 2)
                ebb__swap_trigger_late(&swap);
            assert_int_equal(ebb__swap_evaluate(&swap, &outcome, NULL), EBB_OK);
            if (outcome.feasible && outcome.iteration_ns - swap.lap_ns < least)
                least = outcome.iteration_ns - swap.lap_ns;
        }
    ebb__swap_fini(&swap);
    return least;
}

/* On small models no set of gaps stalls less than the bound, and the bound over dirty blocks is
 * never the higher one. */
static void never_above_brute_force(void **state)
{
    (void)state;
    uint32_t compared = 0, stalled = 0, tight = 0, lower = 0;
    for (uint64_t seed = 1; seed <= 150; seed++) {
        struct ebb_model model = make_random(seed + 5000, 16, 1 << 20, 100000);
        struct ebb_machine machine = machine_of(6, 10, 1000, seed % 2);
        struct ebb_plan_request request = {.model = &model, .machine = &machine, .page_bytes = 1};
        for (uint64_t percent = 90; percent >= 50; percent -= 20) {
            request.budget_bytes = model.peak_bytes * percent / 100;
            uint64_t least = least_stall(&request), bound_ns, dirty_ns;
            if (least == UINT64_MAX || stall_bound(&request, &bound_ns) != EBB_OK)
                continue;
            assert_int_equal(ebb__bound_stall(&request, EBB_BOUND_DIRTY, STEPS, &dirty_ns, NULL),
                             EBB_OK);
            if (bound_ns > least || dirty_ns > bound_ns + 10)
                fail_msg("seed %llu at %llu %%: least %llu, bounds %llu and %llu",
                         (unsigned long long)seed, (unsigned long long)percent,
                         (unsigned long long)least, (unsigned long long)bound_ns,
                         (unsigned long long)dirty_ns);
            compared++;
            stalled += least > 0;
            tight += least > 0 && bound_ns >= least / 2;
            lower += dirty_ns + 10 < bound_ns;
        }
        ebb__model_fini(&model);
    }
    print_message("%u compared, %u stall, %u of them within twice the bound; %u lower if clean\n",
                  compared, stalled, tight, lower);
    assert_true(compared > 100 && stalled > 40 && tight > 5 && lower > 5);
}

/* A training iteration is so large that the search for instants takes several rounds. */
static void training_is_bounded(void **state)
{
    (void)state;
    struct ebb_model model = make_training(60, 1522 * EBB_MIB, 1400000000u, 5);
    struct ebb_machine slow = machine_of(0.4, 0.3, 50000, true);
    struct ebb_machine fast = machine_of(8, 8, 50000, true);
    struct ebb_plan_request request = {
        &model, &slow, model.peak_bytes * 4 / 10, 4096, 512 * EBB_KIB, 0, false, 0, 0, NULL,
        NULL,   0};
    uint64_t slow_peak = peak_bound(&request), stall_ns, less_ns;
    assert_int_equal(stall_bound(&request, &stall_ns), EBB_OK);
    struct ebb_plan plan;
    assert_int_equal(ebb__plan_make(ebb__plan_policy("ebb"), &request, &plan, NULL), EBB_OK);
    assert_true(plan.feasible && stall_ns > 0 && stall_ns <= plan.stall_ns);
    ebb__plan_fini(&plan);
    request.budget_bytes += request.budget_bytes / 4;
    assert_int_equal(stall_bound(&request, &less_ns), EBB_OK);
    assert_true(less_ns < stall_ns);
    request.machine = &fast;
    assert_true(peak_bound(&request) < slow_peak);
    ebb__model_fini(&model);
}

static void nothing_to_bound(void **state)
{
    (void)state;
    struct ebb_model empty = {0};
    struct ebb_machine machine = machine_of(1, 1, 0, true);
    struct ebb_plan_request request = {&empty, &machine, 1, 1, 0, 0, false, 0, 0, NULL, NULL, 0};
    uint64_t value;
    struct ebb_error error;
    assert_int_equal(ebb__bound_peak(&request, EBB_BOUND_ALL, STEPS, &value, &error),
                     EBB_ERR_ARGUMENT);
    assert_int_equal(ebb__bound_floor(&request, &value, &error), EBB_ERR_ARGUMENT);
    assert_int_equal(ebb__bound_stall(&request, EBB_BOUND_ALL, STEPS, &value, &error),
                     EBB_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worked_by_hand),     cmocka_unit_test(never_above_a_checked_plan),
        cmocka_unit_test(any_instants_bound), cmocka_unit_test(training_is_bounded),
        cmocka_unit_test(nothing_to_bound),   cmocka_unit_test(never_above_brute_force),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
