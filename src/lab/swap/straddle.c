#include "lab/swap/straddle.h"

#include "lab/swap/engine.h"

#include <stdlib.h>

#define NEARLY 20    /* an attempt is simulated if it exceeds the budget by at most 1/20 of it */
#define OVER_TRIES 8 /* the limit for simulations of attempts over the budget */
#define LIMITS 128   /* a limit: a resolution below 1 % of the possible range */
#define LIMITS_STRONG 32     /* the same for strong variants: an attempt takes gaps peak by peak */
#define LIMITS_LARGE 8       /* the same, where each attempt takes long */
#define LARGE_WORK 200000000 /* gaps times ticks from which it does */

void ebb__straddle_vote(struct ebb_swap_ranking *ranking, uint64_t limit_bytes,
                        const double *weights)
{
    (void)weights;
    ebb__ranking_score(ranking, EBB_SCORE_DOA, limit_bytes);
    ebb__ranking_score(ranking, EBB_SCORE_AOA, limit_bytes);
    ebb__ranking_score(ranking, EBB_SCORE_WDOA, limit_bytes);
    ebb__ranking_by_vote(ranking);
}

static bool take(struct ebb_swap_ranking *ranking, uint64_t limit_bytes)
{
    if (ranking->peaks)
        return ebb__swap_take_peaks(ranking->swap, ranking->order, limit_bytes);
    return ebb__ranking_take(ranking, limit_bytes);
}

bool ebb__straddle_stick(struct ebb_swap_ranking *ranking, ebb_swap_ranker rank,
                         const double *weights)
{
    uint64_t budget = ranking->swap->request->budget_bytes;
    rank(ranking, budget, weights);
    bool met = take(ranking, budget);
    ebb__swap_trigger_limit(ranking->swap, budget);
    return met;
}

/* ---- no stall -------------------------------------------------------------------------------- */

struct attempt {
    uint64_t limit_bytes, peak_bytes;
};

static int by_peak(const void *left, const void *right)
{
    const struct attempt *a = left, *b = right;
    if (a->peak_bytes != b->peak_bytes)
        return a->peak_bytes < b->peak_bytes ? -1 : 1;
    return (a->limit_bytes > b->limit_bytes) - (a->limit_bytes < b->limit_bytes);
}

/* The highest limit is first, since it takes the fewest gaps. */
static int by_limit(const void *left, const void *right)
{
    const struct attempt *a = left, *b = right;
    return (a->limit_bytes < b->limit_bytes) - (a->limit_bytes > b->limit_bytes);
}

/* Takes the gaps that `limit_bytes` needs, except those too short for their copies. Returns the
 * peak of the scheduled curve. */
static uint64_t attempt_make(struct ebb_swap_ranking *ranking, ebb_swap_ranker rank,
                             const double *weights, uint64_t limit_bytes)
{
    struct ebb_swap *swap = ranking->swap;
    rank(ranking, limit_bytes, weights);
    take(ranking, limit_bytes);
    for (;;) {
        uint64_t peak = ebb__swap_schedule(swap, 0);
        bool dropped = false;
        for (uint32_t i = 0; i < swap->gap_count; i++) {
            struct ebb_swap_gap *gap = &swap->gaps[i];
            if (gap->taken && gap->out_end_ns >= gap->in_start_ns) {
                gap->taken = false;
                dropped = true;
            }
        }
        if (!dropped)
            return peak;
    }
}

/* Makes an attempt for each limit from the smallest feasible budget to the load's peak, and sorts
 * them by `compare`. Returns their number. */
static uint32_t attempts_make(struct ebb_swap_ranking *ranking, ebb_swap_ranker rank,
                              const double *weights, struct attempt *attempts,
                              int (*compare)(const void *, const void *))
{
    const struct ebb_swap *swap = ranking->swap;
    uint64_t least = swap->smallest_feasible_bytes, most = swap->load[ebb__swap_peak_tick(swap)];
    uint64_t work = (uint64_t)swap->gap_count * swap->cell_count;
    uint32_t limits = work > LARGE_WORK ? LIMITS_LARGE : ranking->peaks ? LIMITS_STRONG : LIMITS;
    for (uint32_t i = 0; i <= limits; i++) {
        uint64_t limit = least + (uint64_t)((double)(most - least) * i / limits);
        attempts[i] = (struct attempt){limit, attempt_make(ranking, rank, weights, limit)};
    }
    qsort(attempts, limits + 1, sizeof *attempts, compare);
    return limits + 1;
}

uint64_t ebb__straddle_no_stall(struct ebb_swap_ranking *ranking, ebb_swap_ranker rank,
                                const double *weights, uint64_t *limit_bytes)
{
    struct attempt attempts[LIMITS + 1];
    attempts_make(ranking, rank, weights, attempts, by_peak);
    attempt_make(ranking, rank, weights, attempts[0].limit_bytes);
    ebb__swap_trigger_late(ranking->swap);
    *limit_bytes = attempts[0].limit_bytes;
    return attempts[0].peak_bytes;
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* Takes and triggers the gaps of the first attempt, in the order of `compare`, that does not stall
 * within the request's budget. If there is none, *found is false and the taken gaps are
 * meaningless. */
static enum ebb_status no_stall_find(struct ebb_swap_ranking *ranking, ebb_swap_ranker rank,
                                     const double *weights,
                                     int (*compare)(const void *, const void *),
                                     struct ebb_swap_outcome *outcome, bool *found,
                                     struct ebb_error *error)
{
    struct ebb_swap *swap = ranking->swap;
    struct attempt attempts[LIMITS + 1];
    enum ebb_status status = EBB_OK;
    *found = false;
    uint32_t count = attempts_make(ranking, rank, weights, attempts, compare);
    /* The schedule counts whole cells, so an attempt slightly over the budget may still fit. */
    uint64_t budget = swap->request->budget_bytes;
    uint32_t over_tried = 0;
    for (uint32_t i = 0; i < count && !*found && !status; i++) {
        bool over = attempts[i].peak_bytes > budget;
        if (over && (attempts[i].peak_bytes - budget > budget / NEARLY || over_tried == OVER_TRIES))
            continue;
        over_tried += over;
        attempt_make(ranking, rank, weights, attempts[i].limit_bytes);
        ebb__swap_trigger_late(swap);
        status = ebb__swap_evaluate(swap, outcome, error);
        *found = !status && outcome->feasible && outcome->iteration_ns == swap->lap_ns;
    }
    return status;
}

static enum ebb_status finish(struct ebb_swap *swap, struct ebb_plan *plan, struct ebb_error *error)
{
    return (swap->rules ? ebb__engine_finish : ebb__swap_finish)(swap, plan, error);
}

static enum ebb_status plan_within_budget(struct ebb_swap_ranking *ranking, ebb_swap_ranker rank,
                                          const double *weights, struct ebb_plan *plan,
                                          struct ebb_error *error)
{
    struct ebb_swap_outcome outcome;
    bool met = ebb__straddle_stick(ranking, rank, weights), found = true;
    enum ebb_status status = ebb__swap_evaluate(ranking->swap, &outcome, error);
    if (!status && met && outcome.iteration_ns > ranking->swap->lap_ns) {
        status = no_stall_find(ranking, rank, weights, by_limit, &outcome, &found, error);
        if (!status && !found)
            ebb__straddle_stick(ranking, rank, weights);
    }
    return status ? status : finish(ranking->swap, plan, error);
}

/* Ignores the request's budget. Sets plan->budget_bytes to the budget that the plan needs. */
static enum ebb_status plan_no_stall(struct ebb_swap_ranking *ranking, ebb_swap_ranker rank,
                                     const double *weights, struct ebb_plan *plan,
                                     struct ebb_error *error)
{
    struct ebb_swap *swap = ranking->swap;
    const struct ebb_plan_request *asked = swap->request;
    struct ebb_plan_request roomy = *asked;
    struct ebb_swap_outcome outcome = {0};
    bool found;
    roomy.budget_bytes = UINT64_MAX / 4;
    swap->request = &roomy;
    enum ebb_status status =
        no_stall_find(ranking, rank, weights, by_peak, &outcome, &found, error);
    if (!status && !found) {
        for (uint32_t i = 0; i < swap->gap_count; i++)
            swap->gaps[i].taken = false;
        status = ebb__swap_evaluate(swap, &outcome, error);
    }
    if (!status) {
        roomy.budget_bytes = outcome.peak_bytes;
        status = finish(swap, plan, error);
    }
    swap->request = asked;
    return status;
}

static enum ebb_status make(const struct ebb_straddle *policy,
                            const struct ebb_plan_request *request, bool no_stall,
                            struct ebb_plan *plan, struct ebb_error *error)
{
    struct ebb_swap swap;
    struct ebb_swap_ranking ranking = {0};
    double weights[EBB_SCORE_COUNT] = {0};
    enum ebb_status status = ebb__swap_init_within(&swap, request, error);
    if (status)
        return status;
    uint32_t peak_tick = ebb__swap_peak_tick(&swap);
    const struct ebb_plan_rules rules = ebb__engine_rules(request);
    swap.rules = policy->passive ? &rules : NULL;
    if (policy->is_candidate)
        status = ebb__swap_narrow(&swap, policy->is_candidate, &peak_tick, error);
    if (!status)
        status = ebb__ranking_init(&ranking, &swap, error);
    ranking.peaks = !policy->is_candidate;
    ranking.scripts = policy->scripts;
    if (!status && policy->weigh)
        status = policy->weigh(&ranking, no_stall, weights, error);
    if (!status)
        status = (no_stall ? plan_no_stall : plan_within_budget)(&ranking, policy->rank, weights,
                                                                 plan, error);
    ebb__ranking_fini(&ranking);
    ebb__swap_fini(&swap);
    return status;
}

bool ebb__straddle_candidate(const struct ebb_swap *swap, const struct ebb_swap_gap *gap,
                             const void *peak_tick, uint32_t *margin_ticks)
{
    (void)margin_ticks;
    return ebb__swap_straddles_peak(swap, gap, *(const uint32_t *)peak_tick, 0);
}

/* True if the left plan is better: feasible, faster, with fewer bytes moved. */
static bool is_better(const struct ebb_plan *left, const struct ebb_plan *right, bool zero_stall)
{
    if (left->feasible != right->feasible)
        return left->feasible;
    if (zero_stall && (left->stall_ns == 0) != (right->stall_ns == 0))
        return left->stall_ns == 0;
    if (zero_stall)
        return left->budget_bytes < right->budget_bytes;
    if (left->iteration_ns != right->iteration_ns)
        return left->iteration_ns < right->iteration_ns;
    return left->moved_out_bytes + left->moved_in_bytes <
           right->moved_out_bytes + right->moved_in_bytes;
}

static enum ebb_status make_best(const struct ebb_straddle *policies, size_t count, bool zero_stall,
                                 const struct ebb_plan_request *request, struct ebb_plan *plan,
                                 struct ebb_error *error)
{
    const struct ebb_plan blank = *plan;
    uint64_t spent_ns = 0;
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; i < count && !status; i++) {
        struct ebb_plan made = blank;
        status = make(&policies[i], request, zero_stall, &made, error);
        spent_ns += made.plan_ns;
        bool kept = !status && (i == 0 || is_better(&made, plan, zero_stall));
        ebb__plan_fini(kept ? plan : &made);
        if (kept)
            *plan = made;
    }
    plan->plan_ns = spent_ns;
    return status;
}

enum ebb_status ebb__straddle_make(const struct ebb_straddle *policies, size_t count,
                                   const struct ebb_plan_request *request, struct ebb_plan *plan,
                                   struct ebb_error *error)
{
    return make_best(policies, count, false, request, plan, error);
}

enum ebb_status ebb__straddle_zero_stall(const struct ebb_straddle *policies, size_t count,
                                         ebb_planner make_within,
                                         const struct ebb_plan_request *request,
                                         struct ebb_plan *plan, struct ebb_error *error)
{
    enum ebb_status status = make_best(policies, count, true, request, plan, error);
    return status ? status : ebb__plan_search_zero_stall(make_within, request, plan, error);
}
