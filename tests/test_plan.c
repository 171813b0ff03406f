/* Planners: plans for random models are checked and simulated, and compared with brute force if the
 * model is small. Also a training iteration with fast and with slow lanes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "plan/swap/swap.h"
#include "plan_rig.h"
#include "samples.h"
#include "synthetic.h"

#include <stdint.h>
#include <string.h>

/* Each transfer costs the program 5 ns. */
static void assert_overhead(const struct ebb_plan *plan)
{
    uint64_t transfers = 0;
    for (uint32_t i = 0; i < plan->absence_count; i++)
        transfers += plan->absences[i].drops ? 1 : 2;
    assert_int_equal(plan->overhead_ns, 5 * transfers);
}

static void random_models(void **state)
{
    (void)state;
    size_t count;
    const struct ebb_policy *policies = ebb__plan_policies(&count);
    uint32_t stalled = 0, feasible = 0, absences = 0;
    for (uint64_t seed = 1; seed <= samples(150); seed++) {
        uint64_t rate = seed % 4; /* from fast to hopelessly slow lanes */
        struct ebb_model model = make_random(seed, 20 + (uint32_t)(seed % 7) * 20, 1 << 20, 100000);
        struct ebb_machine machine = machine_of(rate == 0 ? 40 : 3.0 / (double)rate, 10, seed % 2);
        machine.costs.fixed_ns = 5;
        for (uint64_t percent = 100; percent >= 20; percent -= 20) {
            for (size_t p = 0; p < count; p++) {
                struct ebb_plan_request request = {.model = &model,
                                                   .machine = &machine,
                                                   .budget_bytes = model.peak_bytes * percent / 100,
                                                   .page_bytes = seed % 3 ? 1 : 4096,
                                                   .smallest_block_bytes = seed % 5 ? 0 : 100000,
                                                   .effort_steps = 1500000};
                struct ebb_plan plan = make(policies[p].name, &request);
                assert_holds(&request, &plan);
                assert_overhead(&plan);
                /* No plan is within a budget below the bound, and `ebb` is within any other. */
                assert_true(!plan.feasible || plan.smallest_feasible_bytes <= request.budget_bytes);
                if (strcmp(policies[p].name, "none") != 0 &&
                    plan.smallest_feasible_bytes <= request.budget_bytes)
                    assert_true(plan.feasible);
                stalled += plan.stall_ns > 0;
                feasible += plan.feasible;
                absences += plan.absence_count;
                ebb__plan_fini(&plan);
            }
        }
        ebb__model_fini(&model);
    }
    /* The cases must not all be of one kind. */
    assert_true(stalled > samples(50) && feasible > samples(500) && absences > samples(2000));
}

/* The best subset of the gaps. Returns false if none is feasible. */
static bool brute_force(const struct ebb_plan_request *request, struct ebb_swap_outcome *best,
                        uint32_t *gap_count)
{
    struct ebb_swap swap;
    bool any = false;
    assert_int_equal(ebb__swap_init(&swap, request, NULL), EBB_OK);
    *gap_count = swap.gap_count;
    for (uint32_t set = 0; swap.gap_count <= 7 && set < 1u << swap.gap_count; set++) {
        for (int early = 0; early < 2; early++) {
            for (uint32_t i = 0; i < swap.gap_count; i++)
                swap.gaps[i].taken = set >> i & 1;
            struct ebb_swap_outcome outcome;
            if (early) {
                ebb__swap_trigger_early(&swap, request->budget_bytes);
            } else {
                ebb__swap_schedule(&swap, 0);
                ebb__swap_trigger_late(&swap);
            }
            assert_int_equal(ebb__swap_evaluate(&swap, &outcome, NULL), EBB_OK);
            if (!outcome.feasible)
                continue;
            if (!any || ebb__swap_better(&swap, &outcome, best))
                *best = outcome;
            any = true;
        }
    }
    ebb__swap_fini(&swap);
    return any;
}

static void brute_force_agrees(void **state)
{
    (void)state;
    uint32_t cases = 0, slower = 0, stalls = 0;
    /* About 400 cases. In two thirds of them the best plan stalls and takes all of its effort. This
     * takes 12 s. */
    for (uint64_t seed = 1; seed <= samples(200); seed++) {
        struct ebb_model model = make_random(seed, 14, 1 << 20, 100000);
        struct ebb_machine machine = machine_of(seed % 3 ? 8 : 2, seed % 2 ? 8 : 2, true);
        for (uint64_t percent = 90; percent >= 40; percent -= 10) {
            struct ebb_plan_request request = {.model = &model,
                                               .machine = &machine,
                                               .budget_bytes = model.peak_bytes * percent / 100,
                                               .page_bytes = 1,
                                               .effort_steps = 15000000};
            struct ebb_swap_outcome best;
            uint32_t gap_count;
            bool any = brute_force(&request, &best, &gap_count);
            if (gap_count > 7 || gap_count == 0)
                continue;
            struct ebb_plan plan = make("ebb", &request);
            assert_true(plan.feasible == any);
            if (any) {
                uint64_t lap_ns = ebb__model_iteration_ns(&model);
                cases++;
                stalls += best.iteration_ns > lap_ns;
                if (plan.iteration_ns > best.iteration_ns + lap_ns / 50)
                    slower++;
            }
            ebb__plan_fini(&plan);
        }
        ebb__model_fini(&model);
    }
    print_message("%u cases, %u of them stall at best; ebb over 2 %% slower in %u\n", cases, stalls,
                  slower);
    assert_true(cases > samples(300) && stalls > samples(50));
    assert_true(slower * 40 <= cases);
}

/* The smallest budget without a stall, over all subsets of the gaps. */
static uint64_t brute_force_peak(const struct ebb_plan_request *request, uint32_t *gap_count)
{
    struct ebb_swap swap;
    uint64_t best = UINT64_MAX;
    assert_int_equal(ebb__swap_init(&swap, request, NULL), EBB_OK);
    *gap_count = swap.gap_count;
    for (uint32_t set = 0; swap.gap_count <= 7 && set < 1u << swap.gap_count; set++) {
        struct ebb_swap_outcome outcome;
        for (uint32_t i = 0; i < swap.gap_count; i++)
            swap.gaps[i].taken = set >> i & 1;
        ebb__swap_schedule(&swap, 0);
        ebb__swap_trigger_late(&swap);
        assert_int_equal(ebb__swap_evaluate(&swap, &outcome, NULL), EBB_OK);
        if (outcome.iteration_ns == swap.lap_ns && outcome.peak_bytes < best)
            best = outcome.peak_bytes;
    }
    ebb__swap_fini(&swap);
    return best;
}

static void smallest_budget_without_a_stall(void **state)
{
    (void)state;
    uint32_t cases = 0, larger = 0, smaller = 0;
    for (uint64_t seed = 1; seed <= samples(250); seed++) {
        struct ebb_model model = make_random(seed, 14 + (uint32_t)(seed % 2) * 60, 1 << 20, 100000);
        struct ebb_machine machine = machine_of(seed % 3 ? 8 : 2, 8, seed % 5 != 0);
        struct ebb_plan_request request = {.model = &model,
                                           .machine = &machine,
                                           .budget_bytes = UINT64_MAX / 4,
                                           .page_bytes = 1,
                                           .effort_steps = 1000000};
        struct ebb_plan plan;
        uint32_t gap_count;
        assert_int_equal(ebb__plan_zero_stall(ebb__plan_policy("ebb"), &request, &plan, NULL),
                         EBB_OK);
        request.budget_bytes = plan.budget_bytes;
        assert_holds(&request, &plan);
        assert_true(plan.feasible);
        assert_int_equal(plan.stall_ns, 0);
        assert_true(plan.peak_bytes <= model.peak_bytes);
        request.budget_bytes = UINT64_MAX / 4;
        uint64_t best = brute_force_peak(&request, &gap_count);
        if (gap_count > 0 && gap_count <= 7 && machine.duplex) {
            cases++;
            larger += plan.peak_bytes > best;
        }
        smaller += plan.peak_bytes < model.peak_bytes * 9 / 10;
        ebb__plan_fini(&plan);
        ebb__model_fini(&model);
    }
    print_message("%u cases, %u larger than the best of all subsets\n", cases, larger);
    assert_true(cases > 40 && smaller > 40 && larger * 20 <= cases);
}

static void generous_lanes_never_stall(void **state)
{
    (void)state;
    struct ebb_model model = make_training(140, 1522 * EBB_MIB, 4000000000u, 7);
    struct ebb_machine machine = machine_of(4, 3, true);
    for (uint64_t percent = 60; percent >= 40; percent -= 10) {
        struct ebb_plan_request request = {&model,
                                           &machine,
                                           model.peak_bytes * percent / 100,
                                           4096,
                                           512 * EBB_KIB,
                                           0,
                                           false,
                                           0,
                                           0,
                                           NULL,
                                           NULL,
                                           0};
        struct ebb_plan plan = make("ebb", &request);
        assert_holds(&request, &plan);
        assert_true(plan.feasible);
        assert_int_equal(plan.stall_ns, 0);
        /* Some of the budget is left for jitter. */
        assert_true(plan.peak_bytes <= request.budget_bytes / 100 * 99);
        for (uint32_t i = 0; i < plan.absence_count; i++) {
            const struct ebb_absence *absence = &plan.absences[i];
            uint64_t need_ns = model.time_ns[absence->to_tick];
            if (need_ns < absence->in_end_ns)
                need_ns += ebb__model_iteration_ns(&model);
            assert_true(absence->drops || need_ns - absence->in_end_ns > 5000000);
        }
        ebb__plan_fini(&plan);
    }
    ebb__model_fini(&model);
}

/* If lanes are fast enough, only necessary absences are planned. Without any one of them, the plan
 * would stall, or exceed the budget less the margin for jitter. */
static void nothing_moves_for_nothing(void **state)
{
    (void)state;
    uint32_t all = 0, needless = 0, found = 0;
    for (uint64_t seed = 1; seed <= samples(60); seed++) {
        struct ebb_model model = make_random(seed, 60, 1 << 20, 100000);
        struct ebb_machine machine = machine_of(40, 10, true);
        struct ebb_plan_request request = {.model = &model,
                                           .machine = &machine,
                                           .budget_bytes = model.peak_bytes * 7 / 10,
                                           .page_bytes = 1,
                                           .effort_steps = 60000000};
        struct ebb_plan plan = make("ebb", &request);
        struct ebb_absence *rest = must(calloc(plan.absence_count + 1u, sizeof *rest));
        for (uint32_t i = 0; plan.feasible && plan.stall_ns == 0 && i < plan.absence_count; i++) {
            memcpy(rest, plan.absences, i * sizeof *rest);
            memcpy(rest + i, plan.absences + i + 1, (plan.absence_count - i - 1) * sizeof *rest);
            struct ebb_sim_request without = {&model,
                                              &machine,
                                              rest,
                                              plan.absence_count - 1,
                                              request.budget_bytes - request.budget_bytes / 50,
                                              1,
                                              NULL};
            struct ebb_sim_result result;
            assert_int_equal(ebb__simulate(&without, NULL, &result, NULL), EBB_OK);
            needless += result.feasible && result.iteration_ns <= plan.iteration_ns;
            all++;
        }
        found += plan.feasible && plan.stall_ns == 0;
        free(rest);
        ebb__plan_fini(&plan);
        ebb__model_fini(&model);
    }
    assert_true(found > samples(10) && all > samples(50));
    assert_true(needless * 20 <= all); /* the greedy's schedule differs from the simulator's */
}

static void tight_lanes_as_fast_as_fifo(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct ebb_model model = make_training(140, 1522 * EBB_MIB, 1400000000u, seed);
        struct ebb_machine machine = machine_of(1.45, 0.85, seed != 2);
        for (uint64_t percent = 60; percent >= 20; percent -= 20) {
            struct ebb_plan_request request = {&model,
                                               &machine,
                                               model.peak_bytes * percent / 100,
                                               4096,
                                               512 * EBB_KIB,
                                               0,
                                               false,
                                               0,
                                               0,
                                               NULL,
                                               NULL,
                                               0};
            struct ebb_plan ebb = make("ebb", &request), fifo = make("fifo", &request);
            assert_holds(&request, &ebb);
            assert_holds(&request, &fifo);
            assert_true(ebb.feasible && fifo.feasible);
            assert_true(ebb.iteration_ns <= fifo.iteration_ns + fifo.iteration_ns / 200);
            ebb__plan_fini(&ebb);
            ebb__plan_fini(&fifo);
        }
        ebb__model_fini(&model);
    }
}

/* One block that is read twice and never written. The store may keep its copy from the first
 * absence on. */
static void copies_are_kept_where_only_read(void **state)
{
    (void)state;
    struct maker maker = {0};
    uint32_t a = make_block(&maker, 1000), filler[3];
    make_event(&maker, 0, EBB_EVENT_ALLOC, a, 0);
    make_event(&maker, 10, EBB_EVENT_ACCESS, a, EBB_ACCESS_WRITE);
    uint64_t now = 100000;
    for (int i = 0; i < 3; i++) {
        filler[i] = make_block(&maker, 1000);
        make_event(&maker, now, EBB_EVENT_ALLOC, filler[i], 0);
        make_event(&maker, now += 10, EBB_EVENT_ACCESS, filler[i], EBB_ACCESS_WRITE);
        make_event(&maker, now += 300000, EBB_EVENT_FREE, filler[i], 0);
        make_event(&maker, now += 300000, EBB_EVENT_ACCESS, a,
                   i == 1 ? EBB_ACCESS_WRITE : EBB_ACCESS_READ);
        now += 300000;
    }
    make_event(&maker, now, EBB_EVENT_FREE, a, 0);
    struct ebb_model model = make_model(&maker, now + 10);
    struct ebb_machine machine = machine_of(1, 1, true);
    struct ebb_plan_request request = {&model, &machine, 1500, 1, 0, 0, false, 0, 0, NULL, NULL, 0};
    struct ebb_plan plan = make("ebb", &request);
    assert_holds(&request, &plan);
    assert_int_equal(plan.absence_count, 3);
    assert_true(plan.absences[0].keep_copy);  /* read, then absent again */
    assert_false(plan.absences[1].keep_copy); /* written */
    assert_false(plan.absences[2].keep_copy); /* freed next */
    ebb__plan_fini(&plan);
    ebb__model_fini(&model);
}

static void small_blocks_stay(void **state)
{
    (void)state;
    struct ebb_model model = make_training(20, 200 * EBB_MIB, 1000000000u, 3);
    struct ebb_machine machine = machine_of(4, 4, true);
    struct ebb_plan_request request = {
        &model, &machine, model.peak_bytes / 2, 4096, 3 * EBB_MIB, 0, false, 0, 0, NULL, NULL, 0};
    struct ebb_plan plan = make("ebb", &request);
    assert_true(plan.absence_count > 0);
    for (uint32_t i = 0; i < plan.absence_count; i++)
        assert_true(model.blocks[plan.absences[i].block].size_bytes >= 3 * EBB_MIB);
    ebb__plan_fini(&plan);
    ebb__model_fini(&model);
}

static void impossible_budgets(void **state)
{
    (void)state;
    struct ebb_model model = make_training(20, 200 * EBB_MIB, 1000000000u, 3);
    struct ebb_machine machine = machine_of(4, 4, true);
    struct ebb_plan_request request = {&model, &machine, EBB_MIB, 4096, 0,    0,
                                       false,  0,        0,       NULL, NULL, 0};
    struct ebb_plan plan = make("ebb", &request);
    uint64_t least = plan.smallest_feasible_bytes;
    assert_false(plan.feasible);
    assert_true(least > EBB_MIB && least < model.peak_bytes);
    assert_holds(&request, &plan);
    ebb__plan_fini(&plan);
    request.budget_bytes = least;
    plan = make("ebb", &request);
    assert_true(plan.feasible);
    ebb__plan_fini(&plan);
    request.budget_bytes = least - 4096;
    plan = make("ebb", &request);
    assert_false(plan.feasible);
    ebb__plan_fini(&plan);
    struct ebb_error error;
    assert_int_equal(ebb__plan_make(ebb__plan_policy("oracle"), &request, &plan, &error),
                     EBB_ERR_ARGUMENT);
    ebb__model_fini(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_models),
        cmocka_unit_test(brute_force_agrees),
        cmocka_unit_test(smallest_budget_without_a_stall),
        cmocka_unit_test(generous_lanes_never_stall),
        cmocka_unit_test(nothing_moves_for_nothing),
        cmocka_unit_test(tight_lanes_as_fast_as_fifo),
        cmocka_unit_test(copies_are_kept_where_only_read),
        cmocka_unit_test(small_blocks_stay),
        cmocka_unit_test(impossible_budgets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
