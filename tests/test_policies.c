/* Every policy of the table: its plans pass the checker, the simulator confirms their predictions,
 * and the policy follows its published rule. Scores are compared with sums by hand, choices and
 * peaks with brute force if the model is small. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "lab/swap/bayes.h"
#include "lab/swap/straddle.h"
#include "plan_rig.h"
#include "samples.h"
#include "sim/reactive.h"
#include "synthetic.h"

#include <math.h>
#include <stdint.h>

static void random_models(void **state)
{
    (void)state;
    uint32_t stalled[32] = {0}, feasible[32] = {0}, absences[32] = {0};
    for (uint64_t seed = 1; seed <= samples(90); seed++) {
        uint64_t rate = seed % 4; /* from fast to hopelessly slow lanes */
        /* Blocks have up to 4 MiB, since AutoSwap ignores those below 1 MiB. */
        struct ebb_model model =
            make_random(seed, 20 + (uint32_t)(seed % 7) * 30, 4 * EBB_MIB, 300000);
        struct ebb_machine machine = machine_of(rate == 0 ? 40 : 3.0 / (double)rate, 10, seed % 2);
        for (uint64_t percent = 100; percent >= 20; percent -= 10) {
            const struct ebb_policy *row;
            for (size_t p = 0; (row = policy_at(p)); p++) {
                const char *policy = row->name;
                if (strcmp(policy, "ebb") == 0 || needs_layers(row))
                    continue; /* tested by test_plan.c and test_layrub.c */
                struct ebb_plan_request request = {.model = &model,
                                                   .machine = &machine,
                                                   .budget_bytes = model.peak_bytes * percent / 100,
                                                   .page_bytes = seed % 3 ? 1 : 4096,
                                                   .smallest_block_bytes = seed % 5 ? 0 : 1000000,
                                                   .time_limit_ns = 1000000};
                struct ebb_plan plan = make(policy, &request);
                assert_holds(&request, &plan);
                assert_string_equal(plan.policy, policy);
                if (plan.feasible != (plan.smallest_feasible_bytes <= plan.budget_bytes))
                    fail_msg("%s, seed %llu, %llu %%: feasible is %d, smallest feasible %llu of "
                             "%llu",
                             policy, (unsigned long long)seed, (unsigned long long)percent,
                             plan.feasible, (unsigned long long)plan.smallest_feasible_bytes,
                             (unsigned long long)plan.budget_bytes);
                stalled[p] += plan.stall_ns > 0;
                feasible[p] += plan.feasible;
                absences[p] += plan.absence_count;
                ebb__plan_fini(&plan);
            }
        }
        ebb__model_fini(&model);
    }
    /* The cases must not all be of one kind. */
    const struct ebb_policy *row;
    for (size_t p = 0; (row = policy_at(p)); p++) {
        const char *policy = row->name;
        print_message("%-16s %4u feasible, %4u stall, %5u absences\n", policy, feasible[p],
                      stalled[p], absences[p]);
        if (strcmp(policy, "ebb") != 0 && strcmp(policy, "none") != 0 &&
            strcmp(policy, "static") != 0 && !needs_layers(row))
            assert_true(feasible[p] > samples(60) && stalled[p] > samples(20) &&
                        absences[p] > samples(200));
    }
}

/* Each policy finds a budget at which nothing stalls, and its plan is within that budget. `none`
 * needs the whole peak. */
static void zero_stall(void **state)
{
    (void)state;
    uint32_t saved = 0, cases = 0;
    for (uint64_t seed = 1; seed <= samples(12); seed++) {
        struct ebb_model model = make_random(seed, 120, 4 * EBB_MIB, 300000);
        struct ebb_machine machine = machine_of(8, 6, seed % 3 != 0);
        struct ebb_plan_request request = {
            .model = &model, .machine = &machine, .page_bytes = 1, .time_limit_ns = 1000000};
        const struct ebb_policy *row;
        for (size_t p = 0; (row = policy_at(p)); p++) {
            const char *policy = row->name;
            struct ebb_plan plan;
            if (strcmp(policy, "static") == 0 || needs_layers(row))
                continue; /* tested by test_layrub.c */
            assert_int_equal(ebb__plan_zero_stall(row, &request, &plan, NULL), EBB_OK);
            assert_holds(&request, &plan);
            assert_true(plan.feasible);
            assert_true(plan.budget_bytes <= model.peak_bytes);
            if (plan.stall_ns > 0) {
                /* A fixed rule that stalls even without a limit. */
                assert_int_equal(strncmp(policy, "vdnn", 4), 0);
                assert_int_equal(plan.budget_bytes, model.peak_bytes);
                ebb__plan_fini(&plan);
                continue;
            }
            assert_true(plan.budget_bytes >= plan.smallest_feasible_bytes);
            if (strcmp(policy, "none") == 0)
                assert_int_equal(plan.budget_bytes, model.peak_bytes);
            cases++;
            saved += plan.budget_bytes < model.peak_bytes;
            /* A plan for that budget must not wait either. */
            struct ebb_plan_request same = request;
            same.budget_bytes = plan.budget_bytes;
            struct ebb_plan again = make(policy, &same);
            if (strcmp(policy, "ebb") != 0 && strcmp(policy, "autoswap:bo") != 0 &&
                machine.duplex && again.stall_ns > 0)
                fail_msg("%s, seed %llu: stalls at its own zero-stall budget", policy,
                         (unsigned long long)seed);
            ebb__plan_fini(&again);
            ebb__plan_fini(&plan);
        }
        ebb__model_fini(&model);
    }
    assert_true(saved * 3 > cases);
}

/* Lanes that share their bandwidth: `ebb` needs no more than policies that only rank gaps, but for
 * the step of the bisection. */
static void zero_stall_of_shared_lanes(void **state)
{
    (void)state;
    static const char *const others[] = {"appobmem:strong", "autoswap:strong"};
    for (uint64_t seed = 4; seed <= samples(16); seed += 4) {
        struct ebb_model model = make_random(seed, 400, 4 * EBB_MIB, 300000 << seed % 4);
        struct ebb_machine machine = machine_of(8, 6, false);
        struct ebb_plan_request request = {
            .model = &model, .machine = &machine, .page_bytes = 1, .effort_steps = 50000000};
        struct ebb_plan ours, plan;
        assert_int_equal(ebb__plan_zero_stall(policy_named("ebb"), &request, &ours, NULL), EBB_OK);
        assert_holds(&request, &ours);
        assert_int_equal(ours.stall_ns, 0);
        for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
            assert_int_equal(ebb__plan_zero_stall(policy_named(others[i]), &request, &plan, NULL),
                             EBB_OK);
            if (ours.budget_bytes > plan.budget_bytes + plan.budget_bytes / 1000)
                fail_msg("seed %llu: %llu bytes, %s needs %llu", (unsigned long long)seed,
                         (unsigned long long)ours.budget_bytes, others[i],
                         (unsigned long long)plan.budget_bytes);
            ebb__plan_fini(&plan);
        }
        ebb__plan_fini(&ours);
        ebb__model_fini(&model);
    }
}

/* The lowest peak of all subsets of the candidates without a stall. Fetches start as late as
 * possible. */
static uint64_t brute_force(const struct ebb_plan_request *request)
{
    struct ebb_swap swap;
    assert_int_equal(ebb__swap_init(&swap, request, NULL), EBB_OK);
    uint32_t candidates[12], count = 0, peak = ebb__swap_peak_tick(&swap);
    uint64_t lowest = UINT64_MAX;
    for (uint32_t i = 0; i < swap.gap_count; i++)
        if (count < 12 && ebb__swap_straddles_peak(&swap, &swap.gaps[i], peak, 0))
            candidates[count++] = i;
    for (uint32_t set = 0; set < 1u << count; set++) {
        for (uint32_t i = 0; i < count; i++)
            swap.gaps[candidates[i]].taken = set >> i & 1;
        struct ebb_swap_outcome outcome;
        ebb__swap_schedule(&swap, 0);
        ebb__swap_trigger_late(&swap);
        assert_int_equal(ebb__swap_evaluate(&swap, &outcome, NULL), EBB_OK);
        if (outcome.iteration_ns == swap.lap_ns && outcome.peak_bytes < lowest)
            lowest = outcome.peak_bytes;
    }
    ebb__swap_fini(&swap);
    return lowest;
}

static bool straddles(const struct ebb_swap *swap, const struct ebb_swap_gap *gap,
                      const void *peak_tick, uint32_t *margin_ticks)
{
    (void)margin_ticks;
    return ebb__swap_straddles_peak(swap, gap, *(const uint32_t *)peak_tick, 0);
}

/* The peak of what the no-stall mode evicts, by the simulator. */
static uint64_t no_stall_peak(const struct ebb_plan_request *request)
{
    struct ebb_swap swap;
    struct ebb_swap_ranking ranking;
    struct ebb_swap_outcome outcome;
    uint64_t limit;
    assert_int_equal(ebb__swap_init(&swap, request, NULL), EBB_OK);
    uint32_t peak_tick = ebb__swap_peak_tick(&swap);
    assert_int_equal(ebb__swap_narrow(&swap, straddles, &peak_tick, NULL), EBB_OK);
    assert_int_equal(ebb__ranking_init(&ranking, &swap, NULL), EBB_OK);
    uint64_t peak = ebb__straddle_no_stall(&ranking, ebb__straddle_vote, NULL, &limit);
    assert_int_equal(ebb__swap_evaluate(&swap, &outcome, NULL), EBB_OK);
    /* The schedule counts whole cells only, so it may see an overlap where there is none. */
    assert_true(outcome.peak_bytes <= peak);
    assert_int_equal(outcome.iteration_ns, swap.lap_ns);
    ebb__ranking_fini(&ranking);
    ebb__swap_fini(&swap);
    return outcome.peak_bytes;
}

/* No order of the candidates is better than their best subset. Often some order finds that
 * subset. */
static void no_stall_against_brute_force(void **state)
{
    (void)state;
    uint32_t cases = 0, best = 0;
    for (uint64_t seed = 1; seed <= samples(150); seed++) {
        struct ebb_model model = make_random(seed, 40, 4 * EBB_MIB, 300000);
        struct ebb_machine machine = machine_of(8, 6, true);
        struct ebb_plan_request request = {
            .model = &model, .machine = &machine, .budget_bytes = UINT64_MAX / 4, .page_bytes = 1};
        uint64_t lowest = brute_force(&request);
        if (lowest < model.peak_bytes) {
            uint64_t peak = no_stall_peak(&request);
            assert_true(peak >= lowest);
            cases++;
            best += peak == lowest;
        }
        ebb__model_fini(&model);
    }
    print_message("%u cases, the best of all subsets in %u\n", cases, best);
    assert_true(cases > 20 && best * 2 > cases);
}

/* ---- the scores ------------------------------------------------------------------------------ */

/* Two blocks that straddle the peak, one long and small, one short and large. */
static struct ebb_model scored_model(void)
{
    struct maker maker = {0};
    uint32_t small = make_block(&maker, 2000), large = make_block(&maker, 5000);
    uint32_t filler = make_block(&maker, 3000);
    make_event(&maker, 1000, EBB_EVENT_ALLOC, small, 0);                  /* 0: load 2000 */
    make_event(&maker, 2000, EBB_EVENT_ACCESS, small, EBB_ACCESS_WRITE);  /* 1 */
    make_event(&maker, 3000, EBB_EVENT_ALLOC, large, 0);                  /* 2: 7000 */
    make_event(&maker, 4000, EBB_EVENT_ACCESS, large, EBB_ACCESS_READ);   /* 3 */
    make_event(&maker, 20000, EBB_EVENT_ALLOC, filler, 0);                /* 4: 10000, the peak */
    make_event(&maker, 21000, EBB_EVENT_ACCESS, filler, EBB_ACCESS_READ); /* 5 */
    make_event(&maker, 30000, EBB_EVENT_FREE, filler, 0);                 /* 6: 7000 */
    make_event(&maker, 31000, EBB_EVENT_ACCESS, large, EBB_ACCESS_READ);  /* 7 */
    make_event(&maker, 32000, EBB_EVENT_FREE, large, 0);                  /* 8: 2000 */
    make_event(&maker, 61000, EBB_EVENT_ACCESS, small, EBB_ACCESS_READ);  /* 9 */
    make_event(&maker, 62000, EBB_EVENT_FREE, small, 0);                  /* 10 */
    return make_model(&maker, 70000);
}

static void ranking_score_all(struct ebb_swap_ranking *ranking, bool scripts)
{
    ranking->scripts = scripts;
    for (int kind = 0; kind < EBB_SCORE_COUNT; kind++)
        ebb__ranking_score(ranking, (enum ebb_swap_score)kind, 6000);
}

static void scores_by_hand(void **state)
{
    (void)state;
    struct ebb_model model = scored_model();
    struct ebb_machine machine = {"one", {1, 100}, {2, 50}, true, EBB_NO_COSTS};
    struct ebb_plan_request request = {&model, &machine, 6000, 1, 0, 0, false, 0, 0, NULL, NULL, 0};
    struct ebb_swap swap;
    struct ebb_swap_ranking ranking;
    assert_int_equal(ebb__swap_init(&swap, &request, NULL), EBB_OK);
    assert_int_equal(ebb__swap_peak_tick(&swap), 4);
    assert_int_equal(ebb__ranking_init(&ranking, &swap, NULL), EBB_OK);
    ranking_score_all(&ranking, false);
    uint32_t small = UINT32_MAX, large = UINT32_MAX;
    for (uint32_t i = 0; i < swap.gap_count; i++) {
        if (swap.gaps[i].from_tick == 1 && swap.gaps[i].to_tick == 9)
            small = i;
        if (swap.gaps[i].from_tick == 3 && swap.gaps[i].to_tick == 7)
            large = i;
        assert_true(ebb__swap_straddles_peak(&swap, &swap.gaps[i], 4, 0) ==
                    (i == small || i == large));
    }
    assert_true(small != UINT32_MAX && large != UINT32_MAX);
    assert_false(ebb__swap_straddles_peak(&swap, &swap.gaps[small], 4, 2001));
    double doa_small = 59000 - 2100 - 4050, doa_large = 27000 - 5100 - 10050;
    assert_true(ranking.score[EBB_SCORE_DOA][small] == doa_small);
    assert_true(ranking.score[EBB_SCORE_DOA][large] == doa_large);
    assert_true(ranking.score[EBB_SCORE_AOA][small] == doa_small * 2000);
    assert_true(ranking.score[EBB_SCORE_AOA][large] == doa_large * 5000);
    /* The excess over 6000 is 1000 at the ticks 2, 3, 6 and 7, and 4000 at 4 and 5. */
    assert_true(ranking.score[EBB_SCORE_WDOA][small] == 1000 + 1000 + 4000 + 4000 + 1000 + 1000);
    assert_true(ranking.score[EBB_SCORE_WDOA][large] == 1000 + 4000 + 4000 + 1000);
    /* `small` is chosen first and is absent from tick 2 on. So an excess of 2000 is left at 4 and
     * 5. */
    assert_true(ranking.score[EBB_SCORE_SWDOA][small] == 12000);
    assert_true(ranking.score[EBB_SCORE_SWDOA][large] == 4000);

    /* As in the scripts: without the copy in, the whole load, and absences from the access on. */
    ranking_score_all(&ranking, true);
    assert_true(ranking.score[EBB_SCORE_DOA][small] == 59000 - 2100);
    assert_true(ranking.score[EBB_SCORE_AOA][large] == (27000 - 5100) * 5000.0);
    assert_true(ranking.score[EBB_SCORE_WDOA][small] == 4 * 7000 + 2 * 10000 + 2 * 2000);
    assert_true(ranking.score[EBB_SCORE_WDOA][large] == 2 * 7000 + 2 * 10000);
    assert_true(ranking.score[EBB_SCORE_SWDOA][small] == 52000);
    assert_true(ranking.score[EBB_SCORE_SWDOA][large] == 34000 - 4 * 2000);

    double largest_only[EBB_SCORE_COUNT] = {0, 1, 0, 0};
    ebb__ranking_by_weights(&ranking, largest_only);
    uint32_t first = ranking.order[0];
    ebb__ranking_by_score(&ranking, EBB_SCORE_AOA);
    assert_int_equal(first, ranking.order[0]);
    ebb__ranking_by_score(&ranking, EBB_SCORE_DOA);
    assert_int_equal(ranking.order[0], small);
    ebb__ranking_fini(&ranking);
    ebb__swap_fini(&swap);
    ebb__model_fini(&model);
}

/* A pair that is too short for its copies has a DOA below 0. Its AOA is the DOA divided by the
 * size, not multiplied by it. */
static void short_gaps_score_below_zero(void **state)
{
    (void)state;
    struct ebb_model model = scored_model();
    struct ebb_machine machine = {"slow", {100, 0}, {100, 0}, true, EBB_NO_COSTS};
    struct ebb_plan_request request = {&model, &machine, 6000, 1, 0, 0, false, 0, 0, NULL, NULL, 0};
    struct ebb_swap swap;
    struct ebb_swap_ranking ranking;
    assert_int_equal(ebb__swap_init(&swap, &request, NULL), EBB_OK);
    assert_int_equal(ebb__ranking_init(&ranking, &swap, NULL), EBB_OK);
    for (int scripts = 0; scripts < 2; scripts++) {
        double copies = scripts ? 5e5 : 1e6;
        ranking_score_all(&ranking, scripts);
        for (uint32_t i = 0; i < swap.gap_count; i++)
            if (swap.gaps[i].from_tick == 3)
                assert_true(fabs(ranking.score[EBB_SCORE_AOA][i] - (27000 - copies) / 5000) < 1e-9);
    }
    ebb__ranking_fini(&ranking);
    ebb__swap_fini(&swap);
    ebb__model_fini(&model);
}

/* The vote sorts by the sum of ranks. It takes the smallest prefix that meets the limit. */
static void votes_and_prefixes(void **state)
{
    (void)state;
    uint32_t met = 0, missed = 0;
    for (uint64_t seed = 1; seed <= samples(60); seed++) {
        struct ebb_model model = make_random(seed, 150, 4 * EBB_MIB, 300000);
        struct ebb_machine machine = machine_of(3, 5, true);
        struct ebb_plan_request request = {
            &model, &machine, model.peak_bytes, 1, 0, 0, false, 0, 0, NULL, NULL, 0};
        struct ebb_swap swap;
        struct ebb_swap_ranking ranking;
        assert_int_equal(ebb__swap_init(&swap, &request, NULL), EBB_OK);
        assert_int_equal(ebb__ranking_init(&ranking, &swap, NULL), EBB_OK);
        uint64_t limit = model.peak_bytes * (30 + seed % 60) / 100;
        ebb__straddle_vote(&ranking, limit, NULL);
        uint32_t count = swap.gap_count;
        double *sum = must(calloc(count + 1u, sizeof *sum));
        for (int kind = EBB_SCORE_DOA; kind <= EBB_SCORE_WDOA; kind++)
            for (uint32_t i = 0; i < count; i++)
                for (uint32_t j = 0; j < count; j++) {
                    double mine = ranking.score[kind][i], other = ranking.score[kind][j];
                    sum[i] += other > mine || (other == mine && j < i);
                }
        for (uint32_t i = 1; i < count; i++)
            assert_true(sum[ranking.order[i - 1]] <= sum[ranking.order[i]]);
        free(sum);
        bool can = ebb__ranking_take(&ranking, limit);
        uint32_t taken = 0;
        for (uint32_t i = 0; i < count; i++) {
            taken += swap.gaps[i].taken;
            assert_true(swap.gaps[ranking.order[i]].taken == (i < taken) ||
                        i >= taken); /* a prefix */
        }
        if (can && taken > 0) {
            swap.gaps[ranking.order[taken - 1]].taken = false;
            assert_true(ebb__swap_curve_ideal(&swap) > limit);
        }
        if (!can)
            assert_int_equal(taken, count);
        met += can;
        missed += !can;
        ebb__ranking_fini(&ranking);
        ebb__swap_fini(&swap);
        ebb__model_fini(&model);
    }
    assert_true(met > samples(10) && missed > samples(10));
}

/* AutoSwap delays an eviction by some events. AppObMem does not. */
static void margins_pass_first(void **state)
{
    (void)state;
    uint32_t with_margin = 0;
    for (uint64_t seed = 1; seed <= samples(30); seed++) {
        struct ebb_model model = make_random(seed, 150, 4 * EBB_MIB, 300000);
        struct ebb_machine machine = machine_of(20, 20, true);
        struct ebb_plan_request request = {
            &model, &machine, model.peak_bytes * 8 / 10, 1, 0, 0, false, 0, 0, NULL, NULL, 0};
        struct ebb_plan autoswap = make("autoswap", &request), other = make("appobmem", &request);
        for (uint32_t i = 0; i < autoswap.absence_count; i++) {
            const struct ebb_absence *absence = &autoswap.absences[i];
            bool read = model.events[absence->from_tick].access == EBB_ACCESS_READ;
            uint32_t least = read ? 4 : 6;
            assert_true(absence->margin_ticks == least ||
                        (absence->out_within && absence->margin_ticks > least));
            assert_true(model.blocks[absence->block].size_bytes >= EBB_MIB);
            with_margin++;
        }
        for (uint32_t i = 0; i < other.absence_count; i++)
            assert_true(other.absences[i].out_within || other.absences[i].margin_ticks == 0);
        ebb__plan_fini(&autoswap);
        ebb__plan_fini(&other);
        ebb__model_fini(&model);
    }
    assert_true(with_margin > 30);
}

/* ---- the optimiser --------------------------------------------------------------------------- */

static double hill(const double *point)
{
    double a = point[0] - 0.3, b = point[1] - 0.8;
    return -(a * a + b * b);
}

static void bayes_climbs_a_hill(void **state)
{
    (void)state;
    struct ebb_bayes bayes;
    double worst_first = 0, point[2], best[2];
    assert_int_equal(ebb__bayes_init(&bayes, 2, 40, 1.0, NULL), EBB_OK);
    assert_null(ebb__bayes_best(&bayes));
    for (int i = 0; i < 40; i++) {
        ebb__bayes_suggest(&bayes, point);
        assert_true(point[0] >= 0 && point[0] <= 1 && point[1] >= 0 && point[1] <= 1);
        ebb__bayes_observe(&bayes, point, hill(point));
        if (i == 4)
            worst_first = hill(ebb__bayes_best(&bayes));
    }
    memcpy(best, ebb__bayes_best(&bayes), sizeof best);
    ebb__bayes_fini(&bayes);
    /* Forty random points come within 0.09 on average, the process within 0.01. */
    assert_true(hill(best) > worst_first);
    assert_true(hill(best) > -0.02 * 0.02);
}

/* Equal points and equal values leave no deviation, and a matrix that is barely positive. */
static void bayes_survives_monotony(void **state)
{
    (void)state;
    struct ebb_bayes bayes;
    double point[3] = {0.5, 0.5, 0.5};
    assert_int_equal(ebb__bayes_init(&bayes, 3, 20, 5.0, NULL), EBB_OK);
    for (int i = 0; i < 25; i++) {
        ebb__bayes_observe(&bayes, point, 1);
        double next[3];
        ebb__bayes_suggest(&bayes, next);
        for (int d = 0; d < 3; d++)
            assert_true(next[d] >= 0 && next[d] <= 1);
    }
    assert_true(*ebb__bayes_best(&bayes) == 0.5);
    ebb__bayes_fini(&bayes);
}

/* ---- references ------------------------------------------------------------------------------ */

/* Memory for two of three blocks. Each evicts the least recently used block. */
static void lru_by_hand(void **state)
{
    (void)state;
    struct maker maker = {0};
    uint32_t a = make_persistent(&maker, 100), b = make_persistent(&maker, 100);
    uint32_t scratch[2] = {make_block(&maker, 10), make_block(&maker, 10)};
    make_event(&maker, 1000, EBB_EVENT_ALLOC, scratch[0], 0);        /* 0 */
    make_event(&maker, 1100, EBB_EVENT_ACCESS, a, EBB_ACCESS_READ);  /* 1: fetched */
    make_event(&maker, 2000, EBB_EVENT_FREE, scratch[0], 0);         /* 2 */
    make_event(&maker, 2100, EBB_EVENT_ACCESS, b, EBB_ACCESS_READ);  /* fetched, a is evicted */
    make_event(&maker, 3000, EBB_EVENT_ALLOC, scratch[1], 0);        /* 4 */
    make_event(&maker, 3100, EBB_EVENT_ACCESS, b, EBB_ACCESS_WRITE); /* resident */
    make_event(&maker, 4000, EBB_EVENT_FREE, scratch[1], 0);         /* 6 */
    struct ebb_model model = make_model(&maker, 10000);
    struct ebb_machine machine = {"one", {1, 5}, {2, 7}, true, EBB_NO_COSTS};
    struct ebb_plan_request request = {&model, &machine, 110, 1, 0, 0, false, 0, 0, NULL, NULL, 0};
    struct ebb_plan plan = make("lru", &request);
    assert_holds(&request, &plan);
    assert_true(plan.reactive && plan.feasible);
    assert_true(policy_named("lru")->reactive && !policy_named("ebb")->reactive);
    assert_int_equal(plan.absence_count, 2);
    assert_int_equal(plan.stall_ns, 2 * (105 + 207));
    assert_int_equal(plan.iteration_ns, 10000 + 2 * (105 + 207));
    assert_int_equal(plan.peak_bytes, 110);
    assert_int_equal(plan.smallest_feasible_bytes, 110);
    assert_int_equal(plan.absences[0].block, b); /* for a, in its operation at 1100 */
    assert_int_equal(plan.absences[0].from_tick, 5);
    assert_int_equal(plan.absences[0].to_tick, 3);
    assert_int_equal(plan.absences[0].out_start_ns, 1100);
    assert_int_equal(plan.absences[1].block, a);
    assert_int_equal(plan.absences[1].out_start_ns, 2100);
    ebb__plan_fini(&plan);
    request.budget_bytes = 109;
    plan = make("lru", &request);
    assert_false(plan.feasible);
    ebb__plan_fini(&plan);
    request.budget_bytes = 210;
    plan = make("lru", &request);
    assert_int_equal(plan.stall_ns, 0);
    assert_int_equal(plan.absence_count, 0);
    ebb__plan_fini(&plan);
    ebb__model_fini(&model);
}

/* The same rule without a list. It stores the time of each block's last use, and searches all
 * blocks for the one to evict. */
struct naive {
    const struct ebb_model *model;
    uint64_t budget, resident, stall_ns;
    const struct ebb_machine *machine;
    uint64_t *used;      /* by block: number of the last use; 0: none */
    uint64_t *operation; /* by block: the operation of the last use */
    uint32_t *used_tick, *after, *before;
    bool *over; /* by block: its use ended within a stretch */
    bool *there;
};

/* Uses that end at tick `t` although it is no clock event. */
static void naive_ends(struct naive *naive, uint32_t t)
{
    for (uint32_t b = 0; b < naive->model->block_count; b++) {
        uint32_t from = naive->used_tick[b];
        if (naive->used[b] &&
            ebb__plan_use_over(naive->model, naive->before, from, naive->after[from]) == t)
            naive->over[b] = true;
    }
}

static void naive_room(struct naive *naive, uint64_t bytes, uint64_t operation)
{
    const struct ebb_model *model = naive->model;
    while (naive->resident + bytes > naive->budget) {
        uint32_t oldest = UINT32_MAX;
        for (uint32_t b = 0; b < model->block_count; b++)
            if (naive->there[b] && naive->used[b] &&
                (naive->operation[b] != operation || naive->over[b]) &&
                model->blocks[b].span_ticks <= model->tick_count &&
                (oldest == UINT32_MAX || naive->used[b] < naive->used[oldest]))
                oldest = b;
        if (oldest == UINT32_MAX)
            return;
        naive->there[oldest] = false;
        naive->resident -= model->blocks[oldest].size_bytes;
        naive->stall_ns += ebb__lane_ns(&naive->machine->out, model->blocks[oldest].size_bytes);
    }
}

/* The stall of the last of several iterations. */
static uint64_t naive_lru(const struct ebb_model *model, const struct ebb_machine *machine,
                          uint64_t budget)
{
    struct naive naive = {.model = model, .budget = budget, .machine = machine};
    naive.used = must(calloc(model->block_count + 1u, sizeof *naive.used));
    naive.operation = must(calloc(model->block_count + 1u, sizeof *naive.operation));
    naive.there = must(calloc(model->block_count + 1u, sizeof *naive.there));
    naive.over = must(calloc(model->block_count + 1u, sizeof *naive.over));
    naive.used_tick = must(calloc(model->block_count + 1u, sizeof *naive.used_tick));
    naive.after = must(ebb__model_clocks_after(model));
    naive.before = must(ebb__model_clocks_before(model));
    for (uint32_t b = 0; b < model->block_count; b++) {
        const struct ebb_model_block *block = &model->blocks[b];
        naive.there[b] = block->alloc_tick == EBB_TICK_NONE ||
                         block->alloc_tick + block->span_ticks >= model->tick_count;
        naive.resident += naive.there[b] ? block->size_bytes : 0;
    }
    uint64_t now = 0, operation = 1;
    for (int lap = 0; lap < 8; lap++) {
        naive.stall_ns = 0;
        for (uint32_t t = 0; t < model->tick_count; t++) {
            const struct ebb_model_event *event = &model->events[t];
            operation += event->clock;
            naive_ends(&naive, t);
            if (event->block < model->block_count) {
                uint32_t b = event->block;
                uint64_t bytes = model->blocks[b].size_bytes;
                if (event->kind == EBB_EVENT_FREE) {
                    naive.resident -= naive.there[b] ? bytes : 0;
                    naive.there[b] = false;
                    naive.used[b] = 0;
                } else {
                    if (!naive.there[b]) {
                        naive_room(&naive, bytes, operation);
                        naive.resident += bytes;
                        naive.there[b] = true;
                        if (event->kind == EBB_EVENT_ACCESS)
                            naive.stall_ns += ebb__lane_ns(&machine->in, bytes);
                    }
                    if (event->kind == EBB_EVENT_ACCESS) {
                        naive.used[b] = ++now;
                        naive.operation[b] = operation;
                        naive.used_tick[b] = t;
                        naive.over[b] = false;
                    }
                }
            }
            naive_room(&naive, 0, operation);
        }
    }
    free(naive.used);
    free(naive.operation);
    free(naive.there);
    free(naive.over);
    free(naive.used_tick);
    free(naive.after);
    free(naive.before);
    return naive.stall_ns;
}

static void lru_the_naive_way(void **state)
{
    (void)state;
    uint32_t compared = 0, stalled = 0;
    for (uint64_t seed = 1; seed <= samples(120); seed++) {
        struct ebb_model model = make_random(seed, 30 + (uint32_t)(seed % 5) * 30, EBB_MIB, 100000);
        struct ebb_machine machine = machine_of(2, 3, true);
        bool single = model.clock_count > 0;
        for (uint32_t b = 0; b < model.block_count; b++)
            single &= model.blocks[b].span_ticks <= model.tick_count;
        for (uint64_t percent = 30; single && percent <= 100; percent += 10) {
            struct ebb_plan_request request = {.model = &model,
                                               .machine = &machine,
                                               .budget_bytes = model.peak_bytes * percent / 100,
                                               .page_bytes = 1};
            struct ebb_plan plan = make("lru", &request);
            assert_int_equal(plan.stall_ns, naive_lru(&model, &machine, request.budget_bytes));
            compared++;
            stalled += plan.stall_ns > 0;
            ebb__plan_fini(&plan);
        }
        ebb__model_fini(&model);
    }
    assert_true(compared > 300 && stalled > 100);
}

/* With all of the future known, and blocks of one size, no more is fetched than by recency. */
static void belady_fetches_less(void **state)
{
    (void)state;
    uint64_t lru_bytes = 0, belady_bytes = 0;
    uint32_t compared = 0;
    for (uint64_t seed = 1; seed <= samples(60); seed++) {
        struct ebb_model model = make_random(seed, 90, EBB_MIB, 100000);
        for (uint32_t b = 0; b < model.block_count; b++)
            model.blocks[b].size_bytes = 4096;
        assert_int_equal(ebb__model_derive(&model, NULL), EBB_OK);
        struct ebb_machine machine = machine_of(2, 2, true);
        struct ebb_plan_request request = {.model = &model, .machine = &machine, .page_bytes = 1};
        for (uint64_t percent = 40; percent < 100; percent += 20) {
            request.budget_bytes = model.peak_bytes * percent / 100;
            struct ebb_plan lru = make("lru", &request), belady = make("belady", &request);
            assert_holds(&request, &belady);
            assert_int_equal(belady.smallest_feasible_bytes, lru.smallest_feasible_bytes);
            if (belady.feasible && belady.moved_in_bytes > lru.moved_in_bytes)
                fail_msg("seed %llu, %llu %%: %llu > %llu", (unsigned long long)seed,
                         (unsigned long long)percent, (unsigned long long)belady.moved_in_bytes,
                         (unsigned long long)lru.moved_in_bytes);
            lru_bytes += lru.moved_in_bytes;
            belady_bytes += belady.moved_in_bytes;
            compared += belady.feasible;
            ebb__plan_fini(&lru);
            ebb__plan_fini(&belady);
        }
        ebb__model_fini(&model);
    }
    assert_true(compared > samples(60) && belady_bytes * 10 < lru_bytes * 9);
}

/* One stretch without clock events, and blocks that are used repeatedly in it: a reaction may evict
 * them in between, a plan may not. */
static void reactions_within_a_stretch(void **state)
{
    (void)state;
    static const char *const reactive[] = {"lru", "belady", "appobmem:strong", "capuchin"};
    struct maker maker = {0};
    uint32_t blocks[20], brief = make_block(&maker, 4 * EBB_MIB);
    uint64_t now_ns = 0;
    uint32_t moved = 0;
    for (int i = 0; i < 20; i++)
        blocks[i] = make_persistent(&maker, 4 * EBB_MIB);
    make_event(&maker, now_ns, EBB_EVENT_ALLOC, brief, 0);
    for (int use = 0; use < 100; use++)
        make_event(&maker, now_ns += 10000000, EBB_EVENT_ACCESS, blocks[use % 20],
                   EBB_ACCESS_WRITE);
    make_event(&maker, now_ns += 10000000, EBB_EVENT_FREE, brief, 0);
    struct ebb_model model = make_model(&maker, now_ns + 10000000);
    struct ebb_machine machine = machine_of(2, 2, true);
    struct ebb_plan_request request = {.model = &model, .machine = &machine, .page_bytes = 1};
    for (uint64_t percent = 60; percent < 100; percent += 10)
        for (size_t i = 0; i < sizeof reactive / sizeof reactive[0]; i++) {
            request.budget_bytes = model.peak_bytes * percent / 100;
            struct ebb_plan plan = make(reactive[i], &request);
            assert_holds(&request, &plan);
            for (uint32_t a = 0; a < plan.absence_count; a++)
                moved += plan.absences[a].to_tick > plan.absences[a].from_tick;
            ebb__plan_fini(&plan);
        }
    assert_true(moved > 0);
    ebb__model_fini(&model);
}

/* Each strong variant, and each engine with passive swap, is feasible wherever `lru` is. */
static void passive_never_fails(void **state)
{
    (void)state;
    static const char *const engines[] = {"appobmem", "appobmem:strong", "autoswap:strong",
                                          "capuchin"};
    uint32_t cases = 0, passive = 0;
    for (uint64_t seed = 1; seed <= samples(40); seed++) {
        struct ebb_model model = make_random(seed + 300, 120, 4 * EBB_MIB, 300000);
        struct ebb_machine machine = machine_of(3, 5, true);
        struct ebb_plan_request request = {.model = &model, .machine = &machine, .page_bytes = 1};
        for (uint64_t percent = 30; percent < 100; percent += 15) {
            request.budget_bytes = model.peak_bytes * percent / 100;
            struct ebb_plan lru = make("lru", &request);
            for (size_t i = 0; i < sizeof engines / sizeof engines[0]; i++) {
                struct ebb_plan plan = make(engines[i], &request);
                assert_holds(&request, &plan);
                assert_true(plan.feasible == lru.feasible && plan.rules.passive);
                for (uint32_t a = 0; a < plan.absence_count; a++)
                    passive += plan.absences[a].passive;
                cases += plan.feasible;
                ebb__plan_fini(&plan);
            }
            ebb__plan_fini(&lru);
        }
        ebb__model_fini(&model);
    }
    assert_true(cases > 100 && passive > 100);
}

/* On any model, a reactive run becomes steady. It needs no more memory than a plan with all
 * gaps. */
static void reactive_becomes_steady(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= samples(200); seed++) {
        struct ebb_model model = make_random(seed, 40 + (uint32_t)(seed % 5) * 60, EBB_MIB, 100000);
        struct ebb_machine machine = machine_of(2, 2, true);
        struct ebb_reactive_request request = {.model = &model, .machine = &machine};
        for (uint64_t percent = 10; percent <= 100; percent += 15) {
            struct ebb_reactive_result result;
            request.budget_bytes = model.peak_bytes * percent / 100;
            assert_int_equal(ebb__simulate_reactive(&request, &result, NULL), EBB_OK);
            assert_true(result.steady);
            assert_true(result.smallest_feasible_bytes <= model.peak_bytes);
            assert_true(result.peak_bytes <= request.budget_bytes ||
                        result.smallest_feasible_bytes > request.budget_bytes);
            free(result.absences);
        }
        ebb__model_fini(&model);
    }
}

/* Blocks made by the forward pass and read by the backward pass are evicted for any budget. Weights
 * stay. */
static void vdnn_takes_feature_maps(void **state)
{
    (void)state;
    struct ebb_model model = make_training(30, 300 * EBB_MIB, 2000000000u, 5);
    struct ebb_machine machine = machine_of(6, 6, true);
    struct ebb_plan_request request = {
        &model, &machine, model.peak_bytes, 4096, 0, 0, false, 0, 0, NULL, NULL, 0};
    struct ebb_plan all = make("vdnn:all", &request), conv = make("vdnn:conv", &request);
    assert_true(conv.absence_count >= 10 && conv.absence_count < all.absence_count);
    uint64_t least = UINT64_MAX, sum = 0;
    for (uint32_t i = 0; i < all.absence_count; i++) {
        assert_true(model.blocks[all.absences[i].block].alloc_tick != EBB_TICK_NONE);
        sum += model.blocks[all.absences[i].block].size_bytes;
    }
    for (uint32_t i = 0; i < conv.absence_count; i++) {
        uint64_t bytes = model.blocks[conv.absences[i].block].size_bytes;
        least = bytes < least ? bytes : least;
    }
    assert_true(least + 4096 >= sum / all.absence_count);
    request.budget_bytes = model.peak_bytes * 6 / 10;
    struct ebb_plan tight = make("vdnn:all", &request);
    assert_int_equal(tight.absence_count, all.absence_count);
    ebb__plan_fini(&all);
    ebb__plan_fini(&conv);
    ebb__plan_fini(&tight);
    ebb__model_fini(&model);
}

static void names_of_policies(void **state)
{
    (void)state;
    static const char *const wanted[] = {"capuchin",        "belady",         "vdnn:dyn",
                                         "appobmem:strong", "none",           "lru",
                                         "vdnn:all",        "vdnn:conv",      "appobmem",
                                         "autoswap",        "autoswap:doa",   "autoswap:aoa",
                                         "autoswap:wdoa",   "autoswap:swdoa", "autoswap:vote",
                                         "autoswap:bo",     "fifo",           "ebb"};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        assert_non_null(policy_named(wanted[i]));
    assert_null(policy_named("autoswap:"));
    assert_null(policy_named(""));
    assert_string_equal(policy_at(0)->name, "ebb");
    assert_null(ebb__plan_policy("lru")); /* lru is not in src/plan */
    struct ebb_model model = scored_model();
    struct ebb_machine machine = machine_of(1, 1, true);
    struct ebb_plan_request request = {&model, &machine, 6000, 1, 0, 0, false, 0, 0, NULL, NULL, 0};
    struct ebb_plan plan;
    struct ebb_error error;
    assert_int_equal(ebb__plan_zero_stall(NULL, &request, &plan, &error), EBB_ERR_ARGUMENT);
    assert_int_equal(ebb__plan_make(NULL, &request, &plan, &error), EBB_ERR_ARGUMENT);
    ebb__model_fini(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_models),
        cmocka_unit_test(zero_stall),
        cmocka_unit_test(zero_stall_of_shared_lanes),
        cmocka_unit_test(no_stall_against_brute_force),
        cmocka_unit_test(scores_by_hand),
        cmocka_unit_test(short_gaps_score_below_zero),
        cmocka_unit_test(votes_and_prefixes),
        cmocka_unit_test(margins_pass_first),
        cmocka_unit_test(bayes_climbs_a_hill),
        cmocka_unit_test(bayes_survives_monotony),
        cmocka_unit_test(lru_by_hand),
        cmocka_unit_test(lru_the_naive_way),
        cmocka_unit_test(belady_fetches_less),
        cmocka_unit_test(reactions_within_a_stretch),
        cmocka_unit_test(passive_never_fails),
        cmocka_unit_test(reactive_becomes_steady),
        cmocka_unit_test(vdnn_takes_feature_maps),
        cmocka_unit_test(names_of_policies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
