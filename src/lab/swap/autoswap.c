/* AutoSwap: evicts in gaps that contain the load's peak, chosen by one of six scores.
 *
 * Problem and scores: scores.h. Method: a candidate is a pair of successive accesses of one block
 * of at least 1 MiB with the peak between them. Candidates are taken by one score (`doa`, `aoa`,
 * `wdoa`, `swdoa`) or by the sum of their ranks in the first three (`vote`). `bo` takes them by a
 * weighted sum of all four, with weights from Bayesian optimisation. Enough are taken that the load
 * without them meets the limit. A block is evicted only some events after its read or write. Copies
 * out start as early as possible, copies in as late as possible (straddle.h). `strong` is the best
 * of the scores over all gaps of all blocks, peak by peak, and over the pairs at the one peak. It
 * has no guard and no least size, and swaps passively beside the plan.
 * Source: arXiv 1903.06631 and the scripts published with it; docs/papers.md lists the differences.
 * O(gaps log gaps * (gaps + cells)); `swdoa` and `bo` O(gaps * (gaps + cells)), `bo` 24 times.
 * Fails like AppObMem: it handles one peak, and one gap of each block. */
#include "lab/swap/bayes.h"
#include "lab/swap/policies.h"
#include "lab/swap/straddle.h"

#include <string.h>

#define SMALLEST_BYTES ((uint64_t)1 << 20) /* from the paper: smaller blocks do not repay a copy */
#define MARGIN_READ_TICKS 4                /* from the published code */
#define MARGIN_WRITE_TICKS 6               /* from the published code */
#define BO_KAPPA 5.0                       /* from the published code */
#define BO_EVALUATIONS 24                  /* the four scores alone, and 20 suggested points */

static bool is_candidate(const struct ebb_swap *swap, const struct ebb_swap_gap *gap,
                         const void *peak_tick, uint32_t *margin_ticks)
{
    bool read = swap->model->events[gap->from_tick].access == EBB_ACCESS_READ;
    *margin_ticks = read ? MARGIN_READ_TICKS : MARGIN_WRITE_TICKS;
    return ebb__swap_straddles_peak(swap, gap, *(const uint32_t *)peak_tick, SMALLEST_BYTES);
}

/* ---- rankers --------------------------------------------------------------------------------- */

static void rank_by(struct ebb_swap_ranking *ranking, enum ebb_swap_score kind,
                    uint64_t limit_bytes)
{
    ebb__ranking_score(ranking, kind, limit_bytes);
    ebb__ranking_by_score(ranking, kind);
}

static void rank_doa(struct ebb_swap_ranking *ranking, uint64_t limit_bytes, const double *weights)
{
    (void)weights;
    rank_by(ranking, EBB_SCORE_DOA, limit_bytes);
}

static void rank_aoa(struct ebb_swap_ranking *ranking, uint64_t limit_bytes, const double *weights)
{
    (void)weights;
    rank_by(ranking, EBB_SCORE_AOA, limit_bytes);
}

static void rank_wdoa(struct ebb_swap_ranking *ranking, uint64_t limit_bytes, const double *weights)
{
    (void)weights;
    rank_by(ranking, EBB_SCORE_WDOA, limit_bytes);
}

static void rank_swdoa(struct ebb_swap_ranking *ranking, uint64_t limit_bytes,
                       const double *weights)
{
    (void)weights;
    rank_by(ranking, EBB_SCORE_SWDOA, limit_bytes);
}

static void rank_weighted(struct ebb_swap_ranking *ranking, uint64_t limit_bytes,
                          const double *weights)
{
    for (int kind = 0; kind < EBB_SCORE_COUNT; kind++)
        ebb__ranking_score(ranking, (enum ebb_swap_score)kind, limit_bytes);
    ebb__ranking_by_weights(ranking, weights);
}

/* ---- the weights of `bo` --------------------------------------------------------------------- */

/* The value of the plan by these weights; higher is better. If the plan is feasible, it is the
 * iteration's time without stalls divided by that with stalls. Otherwise it is minus the plan's
 * peak, in units of the budget. */
static enum ebb_status value_at_budget(struct ebb_swap_ranking *ranking, const double *weights,
                                       double *value, struct ebb_error *error)
{
    const struct ebb_swap *swap = ranking->swap;
    struct ebb_swap_outcome outcome;
    ebb__straddle_stick(ranking, rank_weighted, weights);
    enum ebb_status status = ebb__swap_evaluate(ranking->swap, &outcome, error);
    if (status)
        return status;
    *value = (double)swap->lap_ns / (double)outcome.iteration_ns;
    if (!outcome.feasible)
        *value = -(double)outcome.peak_bytes / (double)(swap->request->budget_bytes + 1);
    return EBB_OK;
}

/* The weights of a point of the unit cube: from -1 to 1. As published, that of DOA is not used. */
static void weights_of(const double *point, double *weights)
{
    for (int kind = 0; kind < EBB_SCORE_COUNT; kind++)
        weights[kind] = kind == EBB_SCORE_DOA ? 0 : 2 * point[kind] - 1;
}

static enum ebb_status weights_optimise(struct ebb_swap_ranking *ranking, bool no_stall,
                                        double *weights, struct ebb_error *error)
{
    struct ebb_bayes bayes;
    const struct ebb_swap *swap = ranking->swap;
    double load_peak = (double)swap->load[ebb__swap_peak_tick(swap)];
    enum ebb_status status =
        ebb__bayes_init(&bayes, EBB_SCORE_COUNT, BO_EVALUATIONS, BO_KAPPA, error);
    if (status)
        return status;
    bayes.random = ebb__plan_chance(swap->request, EBB_BAYES_SEED);
    ebb__plan_used_chance(swap->request);
    bayes.first_random = 0;
    for (int i = 0; i < BO_EVALUATIONS && !status; i++) {
        double point[EBB_SCORE_COUNT], value = 0;
        uint64_t limit_bytes;
        for (int kind = 0; kind < EBB_SCORE_COUNT; kind++)
            point[kind] = i == kind ? 1 : 0.5;
        if (i >= EBB_SCORE_COUNT)
            ebb__bayes_suggest(&bayes, point);
        weights_of(point, weights);
        if (no_stall)
            value = -(double)ebb__straddle_no_stall(ranking, rank_weighted, weights, &limit_bytes) /
                    load_peak;
        else
            status = value_at_budget(ranking, weights, &value, error);
        ebb__bayes_observe(&bayes, point, value);
    }
    weights_of(ebb__bayes_best(&bayes), weights);
    ebb__bayes_fini(&bayes);
    return status;
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* The policy for a name; `autoswap` alone means `vote`. */
static struct ebb_straddle policy_of(const char *name)
{
    static const struct {
        const char *variant;
        ebb_swap_ranker rank;
    } known[] = {{"doa", rank_doa},
                 {"aoa", rank_aoa},
                 {"wdoa", rank_wdoa},
                 {"swdoa", rank_swdoa},
                 {"bo", rank_weighted}};
    struct ebb_straddle policy = {is_candidate, true, false, ebb__straddle_vote, NULL};
    const char *colon = strchr(name, ':');
    for (size_t i = 0; colon && i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].variant, colon + 1) == 0)
            policy.rank = known[i].rank;
    if (policy.rank == rank_weighted)
        policy.weigh = weights_optimise;
    return policy;
}

/* Every score, over all gaps and over the pairs at the one peak. */
static const struct ebb_straddle strong[] = {
    {NULL, false, true, ebb__straddle_vote, NULL},
    {NULL, false, true, rank_doa, NULL},
    {NULL, false, true, rank_aoa, NULL},
    {NULL, false, true, rank_wdoa, NULL},
    {ebb__straddle_candidate, false, true, ebb__straddle_vote, NULL},
    {ebb__straddle_candidate, false, true, rank_doa, NULL},
    {ebb__straddle_candidate, false, true, rank_aoa, NULL},
    {ebb__straddle_candidate, false, true, rank_wdoa, NULL},
    {ebb__straddle_candidate, false, true, rank_swdoa, NULL},
};

/* The policies of a name: `own` alone, but for `strong`. Returns their number. */
static size_t policies_of(const char *name, struct ebb_straddle *own,
                          const struct ebb_straddle **policies)
{
    *own = policy_of(name);
    bool is_strong = strcmp(name, "autoswap:strong") == 0;
    *policies = is_strong ? strong : own;
    return is_strong ? sizeof strong / sizeof strong[0] : 1;
}

enum ebb_status ebb__swap_autoswap(const struct ebb_plan_request *request, struct ebb_plan *plan,
                                   struct ebb_error *error)
{
    struct ebb_straddle own;
    const struct ebb_straddle *policies;
    size_t count = policies_of(plan->policy, &own, &policies);
    return ebb__straddle_make(policies, count, request, plan, error);
}

enum ebb_status ebb__swap_autoswap_zero_stall(const struct ebb_plan_request *request,
                                              struct ebb_plan *plan, struct ebb_error *error)
{
    struct ebb_straddle own;
    const struct ebb_straddle *policies;
    size_t count = policies_of(plan->policy, &own, &policies);
    return ebb__straddle_zero_stall(policies, count, ebb__swap_autoswap, request, plan, error);
}
