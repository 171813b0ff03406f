/* Ebb's own planner: all gaps of all blocks on the cyclic timeline, the simulator as judge.
 *
 * Problem: choose gaps and copy times on two serial lanes so that the resident curve of a cyclic
 * iteration stays within the budget, the program waits least, and then fewest bytes move. Choosing
 * alone is NP-hard (it contains knapsack).
 * Method: (1) Without a stall: greedy, then annealing (greedy.c, anneal.c), then drop what proves
 * useless. First with a margin before copies in are due, so that jitter makes none late; with less
 * where that cannot be had. (2) Where that is not found: sweeps over the load, judged by the
 * simulator, give a plan that stalls. (3) **Stretching**: the timeline that includes the stalls of
 * the best plan is one on which nothing stalls. With less of these stalls, the search of (1) looks
 * for a choice that still fits; what it finds stalls less, and so on. (4) What effort is left turns
 * over one gap at a time, then two. (5) **Pruning**: what can stay in memory after all, stays;
 * every copy costs the program something, if only the processor's time. All of this first for
 * absences that begin and end with clock events, and where they do not keep the budget, or stall,
 * for such that need not. For the smallest budget without a stall: (1) without a margin, the target
 * being whatever was reached.
 * Complexity: O(taken * (gaps + cells)) a greedy run, O(cells + taken) a move of the annealing.
 * Fails: nothing is proved; how far from the best a plan may be, src/lab/bound says.
 * Source: greedy and measure after docs/papers.md, AutoSwap; the rest is ours. */
#include "plan/swap/anneal.h"

#include "base/tuning.h"
#include "plan/swap/greedy.h"

#include <stdlib.h>
#include <string.h>

/* Gaps times ticks up to which each gap is tried; half and twice plan the same. */
#define SMALL_WORK 10000000
#define STRETCHES_MAX 64
/* Lanes that share their bandwidth are slower where both are busy; how often is not known beforehand:
 * so much of their speed is counted on, from all of it to what is always there. */
static const double lane_scales[] = {1, 0.85, 0.7, 0.6, 0.5};

struct best {
    bool *taken; /* gap_count */
    uint64_t *trigger_ns;
    struct ebb_swap_outcome outcome;
    bool any;
};

struct use {
    double key;
    uint32_t gap;
};

struct search {
    struct ebb_swap swap;
    struct best best;
    struct ebb_greedy greedy;
    struct use *uses;
    uint64_t *tick_stall_ns; /* tick_count: where the plan judged last waits */
    uint64_t *best_stall_ns; /* likewise, the best */
    uint64_t *stretched_ns;  /* tick_count + 1: a timeline with stalls */
    uint64_t target_bytes;   /* that the best keeps: the budget, or less for jitter */
    bool lean;               /* what proved useless has been dropped from it */
    struct ebb_error *error;
};

static bool is_over(const struct search *search)
{
    return ebb__effort_is_over(&search->swap.effort, search->swap.limit_steps);
}

static void best_restore(struct search *search)
{
    for (uint32_t i = 0; i < search->swap.gap_count; i++) {
        search->swap.gaps[i].taken = search->best.taken[i];
        search->swap.gaps[i].trigger_ns = search->best.trigger_ns[i];
    }
}

static void best_note(struct search *search, const struct ebb_swap_outcome *outcome)
{
    const struct ebb_swap *swap = &search->swap;
    search->best.any = true;
    search->best.outcome = *outcome;
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        search->best.taken[i] = swap->gaps[i].taken;
        search->best.trigger_ns[i] = swap->gaps[i].trigger_ns;
    }
    memcpy(search->best_stall_ns, search->tick_stall_ns,
           swap->cell_count * sizeof *search->best_stall_ns);
}

/* Let the simulator judge what is taken; remember it where it is the best so far. */
static enum ebb_status judge(struct search *search, bool *better)
{
    struct ebb_swap *swap = &search->swap;
    struct ebb_swap_outcome outcome;
    enum ebb_status status = ebb__swap_evaluate(swap, &outcome, search->error);
    if (status)
        return status;
    bool won = !search->best.any || ebb__swap_better(swap, &outcome, &search->best.outcome);
    if (better)
        *better = won;
    if (won)
        best_note(search, &outcome);
    return EBB_OK;
}

/* Too large to try each gap before a choice. */
static bool is_large(const struct ebb_swap *swap)
{
    return (uint64_t)swap->gap_count * swap->cell_count > SMALL_WORK;
}

static void take_none(struct ebb_swap *swap)
{
    for (uint32_t i = 0; i < swap->gap_count; i++)
        swap->gaps[i].taken = false;
}

static bool is_free_of_stalls(const struct search *search)
{
    return search->best.any && search->best.outcome.feasible &&
           search->best.outcome.iteration_ns == search->swap.lap_ns;
}

/* ---- without a stall ------------------------------------------------------------------------- */

/* Choices to begin with: every gap that its copies leave something of, which is the right one where the
 * lanes have time for all, and sweeps over the load at budgets down to the least that is possible. */
static void anneal_starts(struct search *search, struct ebb_anneal *anneal)
{
    static const enum ebb_swap_order orders[] = {EBB_SWAP_FIRST_IN, EBB_SWAP_LATEST_NEED,
                                                 EBB_SWAP_CHEAPEST};
    struct ebb_swap *swap = &search->swap;
    take_none(swap);
    uint64_t most = ebb__swap_schedule(swap, 0), least = swap->smallest_feasible_bytes;
    for (uint32_t u = 0; u < anneal->measure.useful_count; u++)
        swap->gaps[anneal->measure.useful[u]].taken = true;
    ebb__anneal_start(anneal);
    for (uint32_t step = 0; step < (uint32_t)ebb__tuning()->plan_sweeps && most > least; step++) {
        uint64_t budget = least + (most - least) / (uint32_t)ebb__tuning()->plan_sweeps * step;
        for (uint32_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
            ebb__swap_select(swap, budget, orders[i]);
            ebb__anneal_start(anneal);
        }
    }
}

enum anneal_way {
    ANNEAL_GO_ON,  /* from what is taken */
    ANNEAL_ANEW,   /* from the best of all beginnings */
    ANNEAL_LOWEST, /* likewise, and the choice is taken whatever its peak */
};

/* To a choice that has a peak of `target_bytes` on the timeline, if it can be found until
 * `limit_steps`: then it is taken. *peak_bytes is what was reached. */
static enum ebb_status anneal(struct search *search, const uint64_t *time_ns, uint64_t target_bytes,
                              uint64_t limit_steps, enum anneal_way way, uint64_t *peak_bytes)
{
    struct ebb_swap *swap = &search->swap;
    struct ebb_anneal anneal;
    enum ebb_status status = ebb__anneal_init(&anneal, swap, time_ns, search->error);
    if (status)
        return status;
    ebb__anneal_start(&anneal);
    if (!is_large(swap))
        ebb__anneal_greedy(&anneal, target_bytes, ebb__effort_slice(&swap->effort, limit_steps, 3));
    if (way != ANNEAL_GO_ON)
        anneal_starts(search, &anneal);
    ebb__anneal_run(&anneal, target_bytes, limit_steps);
    if (way == ANNEAL_LOWEST || anneal.best_peak_bytes <= target_bytes)
        ebb__anneal_take(&anneal, swap);
    *peak_bytes = anneal.best_peak_bytes;
    ebb__anneal_fini(&anneal);
    return EBB_OK;
}

static uint32_t scales_of(const struct ebb_swap *swap)
{
    return swap->request->machine->duplex ? 1 : sizeof lane_scales / sizeof lane_scales[0];
}

/* Plans without a stall, the most careful first. */
static enum ebb_status search_without_stall(struct search *search)
{
    struct ebb_swap *swap = &search->swap;
    uint64_t budget = swap->request->budget_bytes;
    uint64_t reserve = budget / ebb__tuning()->reserve_divisor < ebb__tuning()->reserve_most_bytes
                           ? budget / ebb__tuning()->reserve_divisor
                           : ebb__tuning()->reserve_most_bytes;
    uint64_t margin = swap->lap_ns / ebb__tuning()->margin_divisor < ebb__tuning()->margin_most_ns
                          ? swap->lap_ns / ebb__tuning()->margin_divisor
                          : ebb__tuning()->margin_most_ns;
    uint32_t scale_count = scales_of(swap);
    const struct {
        uint64_t target, margin;
    } tries[] = {{budget - budget / 50, 2 * margin},
                 {budget - reserve, margin},
                 {budget - reserve, margin / 4},
                 {budget, 0}};
    const uint32_t last = sizeof tries / sizeof tries[0] - 1;
    enum ebb_status status = EBB_OK;
    for (uint32_t i = 0; i <= last && !status && !is_free_of_stalls(search); i++) {
        for (uint32_t s = 0; s < scale_count && !status && !is_free_of_stalls(search); s++) {
            uint64_t target = tries[i].target, peak;
            swap->lane_scale = lane_scales[s];
            take_none(swap);
            bool met = ebb__greedy_take(&search->greedy, target, tries[i].margin);
            search->lean = met;
            if (met)
                ebb__greedy_drop(&search->greedy, target, tries[i].margin);
            if (met)
                ebb__swap_trigger_late(swap);
            if (!met && i == last) {
                status =
                    anneal(search, swap->model->time_ns, target,
                           ebb__effort_slice(&swap->effort, swap->limit_steps, scale_count - s),
                           ANNEAL_ANEW, &peak);
                met = !status && peak <= target;
            }
            if (!met)
                break;
            status = judge(search, NULL);
            search->target_bytes = target;
            if (is_over(search) && search->best.any)
                break;
        }
    }
    swap->lane_scale = 1;
    return status;
}

/* ---- with stalls ----------------------------------------------------------------------------- */

static enum ebb_status judge_early(struct search *search)
{
    ebb__swap_trigger_early(&search->swap, search->swap.request->budget_bytes);
    return judge(search, NULL);
}

static enum ebb_status search_sweeps(struct search *search)
{
    static const enum ebb_swap_order orders[] = {EBB_SWAP_FIRST_IN, EBB_SWAP_LATEST_NEED,
                                                 EBB_SWAP_CHEAPEST};
    for (uint32_t i = 0; i < 3 && (i == 0 || !is_over(search)); i++) {
        ebb__swap_select(&search->swap, search->swap.request->budget_bytes, orders[i]);
        enum ebb_status status = judge_early(search);
        if (status)
            return status;
    }
    return EBB_OK;
}

/* The model's timeline with `share` of the best plan's stalls, and as much of `even`, the rest, spread
 * over all of it. Returns how much longer it is. */
static uint64_t stretch(struct search *search, double share, double even)
{
    const struct ebb_swap *swap = &search->swap;
    const uint64_t *time_ns = swap->model->time_ns;
    double stalls = 0, all = (double)(search->best.outcome.iteration_ns - swap->lap_ns);
    for (uint32_t t = 0; t <= swap->cell_count; t++) {
        if (t < swap->cell_count)
            stalls += (double)search->best_stall_ns[t] * share;
        double spread = all * even * ((double)time_ns[t] / (double)swap->lap_ns);
        search->stretched_ns[t] = time_ns[t] + (uint64_t)(stalls + spread);
    }
    return search->stretched_ns[swap->cell_count] - swap->lap_ns;
}

/* Judge the choice under the three ways to time copies in. */
static enum ebb_status judge_all(struct search *search, bool *better)
{
    uint64_t budget = search->swap.request->budget_bytes;
    bool won;
    *better = false;
    for (int way = 0; way < 3; way++) {
        if (way == 1) {
            ebb__swap_schedule(&search->swap, 0);
            ebb__swap_trigger_limit(&search->swap, budget);
        }
        if (way == 2)
            ebb__swap_trigger_early(&search->swap, budget);
        enum ebb_status status = judge(search, &won);
        if (status)
            return status;
        *better |= won;
    }
    return EBB_OK;
}

/* Less and less of the best plan's stalls, as long as a choice fits. */
static enum ebb_status search_stretched(struct search *search, uint64_t limit_steps)
{
    struct ebb_swap *swap = &search->swap;
    struct ebb_effort *effort = &swap->effort;
    uint64_t budget = swap->request->budget_bytes;
    uint64_t slice = limit_steps > effort->spent ? (limit_steps - effort->spent) / 12 : 0;
    double low = 0, high = 1; /* shares of the stalls */
    for (int i = 0; i < STRETCHES_MAX && high - low > 0.002; i++) {
        uint64_t peak;
        if (ebb__effort_is_over(effort, limit_steps) || is_free_of_stalls(search) ||
            !search->best.outcome.feasible)
            break;
        double share = i < 2 ? 0.9 : (low + high) / 2, even = i % 3 == 2 ? share : 0;
        best_restore(search);
        stretch(search, share - even, even);
        uint64_t end = effort->spent + slice < limit_steps ? effort->spent + slice : limit_steps;
        enum ebb_status status =
            anneal(search, search->stretched_ns, budget, end, ANNEAL_GO_ON, &peak);
        bool better = false;
        uint64_t before_ns = search->best.outcome.iteration_ns - swap->lap_ns;
        if (!status && peak <= budget)
            status = judge_all(search, &better);
        if (status)
            return status;
        if (better) {
            /* The same bounds, as shares of what is left. */
            uint64_t after_ns = search->best.outcome.iteration_ns - swap->lap_ns;
            low = after_ns ? low * (double)before_ns / (double)after_ns : 0;
            low = low < 0.98 ? low : 0.98;
            high = 1;
        } else if (peak > budget) {
            low = share;
        } else {
            high = share;
        }
    }
    return EBB_OK;
}

/* Judge what is taken with copies in early, and late where that still stalls. */
static enum ebb_status judge_both(struct search *search, bool *better)
{
    struct ebb_swap *swap = &search->swap;
    bool early = false, late = false;
    ebb__swap_trigger_early(swap, swap->request->budget_bytes);
    enum ebb_status status = judge(search, &early);
    if (!status && swap->gap_count <= ebb__tuning()->plan_small_gaps) {
        ebb__swap_schedule(swap, 0);
        ebb__swap_trigger_late(swap);
        status = judge(search, &late);
    }
    *better = early || late;
    return status;
}

static int use_compare(const void *left, const void *right)
{
    const struct use *a = left, *b = right;
    if (a->key != b->key)
        return a->key > b->key ? -1 : 1;
    return (a->gap > b->gap) - (a->gap < b->gap);
}

/* Every gap by what turning it over promises: dear absences to do without, then long gaps to take. */
static void flips_order(const struct ebb_swap *swap, struct use *uses)
{
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        const struct ebb_swap_gap *gap = &swap->gaps[i];
        double cost_ns = (double)(gap->out_ns + gap->in_ns + 1);
        double length_ns = (double)(gap->need_ns - gap->ready_ns);
        double promise = (double)gap->bytes * (length_ns - cost_ns) / cost_ns;
        uses[i] = (struct use){gap->taken ? 1e30 + cost_ns : promise, i};
    }
    qsort(uses, swap->gap_count, sizeof *uses, use_compare);
}

/* Turn over one gap at a time, then two, as long as that gains and effort is left. */
static enum ebb_status refine(struct search *search)
{
    struct use *uses = search->uses;
    struct ebb_swap *swap = &search->swap;
    enum ebb_status status = EBB_OK;
    bool gained = true;
    while (gained && !is_over(search)) {
        gained = false;
        best_restore(search);
        flips_order(swap, uses);
        for (uint32_t i = 0; i < swap->gap_count && !is_over(search); i++) {
            bool better;
            best_restore(search);
            swap->gaps[uses[i].gap].taken = !swap->gaps[uses[i].gap].taken;
            status = judge_both(search, &better);
            if (status)
                return status;
            gained |= better;
        }
        for (uint32_t i = 0; !gained && i < swap->gap_count; i++) {
            for (uint32_t j = i + 1; !gained && j < swap->gap_count; j++) {
                if (is_over(search))
                    return EBB_OK;
                best_restore(search);
                swap->gaps[uses[i].gap].taken = !swap->gaps[uses[i].gap].taken;
                swap->gaps[uses[j].gap].taken = !swap->gaps[uses[j].gap].taken;
                status = judge_both(search, &gained);
                if (status)
                    return status;
            }
        }
    }
    return status;
}

/* Without the absences uses[0, count) of the best; they stay out where that is better, as long as the
 * peak stays within the target. */
static enum ebb_status try_without(struct search *search, const struct use *uses, uint32_t count)
{
    struct ebb_swap *swap = &search->swap;
    struct ebb_swap_outcome outcome;
    for (uint32_t i = 0; i < count; i++)
        swap->gaps[uses[i].gap].taken = false;
    enum ebb_status status = ebb__swap_evaluate(swap, &outcome, search->error);
    if (!status && outcome.peak_bytes <= search->target_bytes &&
        ebb__swap_better(swap, &outcome, &search->best.outcome)) {
        best_note(search, &outcome);
        return EBB_OK;
    }
    for (uint32_t i = 0; i < count; i++)
        swap->gaps[uses[i].gap].taken = true;
    return status;
}

/* Do without what covers least for its lane time: many at once, then fewer, down to one by one. */
static enum ebb_status prune(struct search *search)
{
    struct ebb_swap *swap = &search->swap;
    struct use *uses = search->uses;
    if (!search->best.any || !search->best.outcome.feasible ||
        (search->lean && is_free_of_stalls(search)))
        return EBB_OK;
    if (search->best.outcome.peak_bytes > search->target_bytes)
        search->target_bytes = swap->request->budget_bytes;
    take_none(swap);
    ebb__greedy_merits(&search->greedy, search->target_bytes);
    best_restore(search);
    uint32_t count = 0;
    for (uint32_t i = 0; i < swap->gap_count; i++)
        if (swap->gaps[i].taken)
            uses[count++] = (struct use){-search->greedy.benefit[i], i};
    qsort(uses, count, sizeof *uses, use_compare);
    enum ebb_status status = EBB_OK;
    for (uint32_t chunk = count / 2 + 1; chunk > 0 && !status; chunk /= 2) {
        uint32_t left = 0;
        for (uint32_t i = 0; i < count && !status; i += chunk) {
            uint32_t some = count - i < chunk ? count - i : chunk;
            if (!is_over(search))
                status = try_without(search, &uses[i], some);
            for (uint32_t k = i; k < i + some; k++)
                if (swap->gaps[uses[k].gap].taken)
                    uses[left++] = uses[k];
        }
        count = left;
    }
    return status;
}

static enum ebb_status search_run(struct search *search)
{
    struct ebb_swap *swap = &search->swap;
    bool possible = swap->request->budget_bytes >= swap->smallest_feasible_bytes;
    uint64_t whole = swap->limit_steps;
    enum ebb_status status = EBB_OK;
    search->target_bytes = swap->request->budget_bytes;
    if (possible) {
        /* A part of the effort only: what stalls a little must still be looked for. */
        swap->limit_steps -= whole / 5 * 3;
        status = search_without_stall(search);
        swap->limit_steps = whole;
    }
    if (status || is_free_of_stalls(search))
        return status;
    status = search_sweeps(search);
    if (status || !possible)
        return status;
    bool small = swap->gap_count <= ebb__tuning()->plan_small_gaps;
    for (uint32_t s = 0; s < scales_of(swap) && !status; s++) {
        swap->lane_scale = lane_scales[s];
        status = search_stretched(search,
                                  ebb__effort_slice(&swap->effort, whole - whole / (small ? 4 : 10),
                                                    scales_of(swap) - s));
    }
    swap->lane_scale = 1;
    return status || !small ? status : refine(search);
}

static enum ebb_status search_init(struct search *search, const struct ebb_plan_request *request,
                                   bool within)
{
    struct ebb_swap *swap = &search->swap;
    enum ebb_status status = within ? ebb__swap_init_within(swap, request, search->error)
                                    : ebb__swap_init(swap, request, search->error);
    if (status)
        return status;
    status = ebb__greedy_init(&search->greedy, swap, search->error);
    if (status) {
        ebb__swap_fini(swap);
        return status;
    }
    if (request->time_limit_ns == 0 && request->effort_steps == 0 && is_large(swap))
        swap->effort.limit = swap->limit_steps = ebb__tuning()->plan_steps_large;
    size_t gaps = swap->gap_count + 1u, ticks = swap->cell_count + 1u;
    search->best.taken = calloc(gaps, sizeof *search->best.taken);
    search->best.trigger_ns = calloc(gaps, sizeof *search->best.trigger_ns);
    search->uses = malloc(gaps * sizeof *search->uses);
    search->tick_stall_ns = calloc(ticks, sizeof *search->tick_stall_ns);
    search->best_stall_ns = calloc(ticks, sizeof *search->best_stall_ns);
    search->stretched_ns = calloc(ticks, sizeof *search->stretched_ns);
    swap->tick_stall_ns = search->tick_stall_ns;
    if (search->best.taken && search->best.trigger_ns && search->uses && search->tick_stall_ns &&
        search->best_stall_ns && search->stretched_ns)
        return EBB_OK;
    return ebb__fail(search->error, EBB_ERR_MEMORY, "plan", "out of memory");
}

static void search_fini(struct search *search)
{
    free(search->best.taken);
    free(search->best.trigger_ns);
    free(search->uses);
    free(search->tick_stall_ns);
    free(search->best_stall_ns);
    free(search->stretched_ns);
    ebb__greedy_fini(&search->greedy);
    ebb__swap_fini(&search->swap);
}

static enum ebb_status plan_one(const struct ebb_plan_request *request, bool within,
                                struct ebb_plan *plan, struct ebb_error *error)
{
    struct search search = {.error = error};
    enum ebb_status status = search_init(&search, request, within);
    if (!status)
        status = search_run(&search);
    if (!status)
        status = prune(&search);
    if (!status) {
        best_restore(&search);
        status = ebb__swap_finish(&search.swap, plan, error);
    }
    search_fini(&search);
    return status;
}

/* The lowest peak without a stall; the simulator has the last word on both. It becomes the request's
 * budget. */
static enum ebb_status search_lowest(struct search *search, struct ebb_plan_request *request)
{
    struct ebb_swap *swap = &search->swap;
    uint32_t scale_count = scales_of(swap);
    for (uint32_t s = 0; s < scale_count; s++) {
        uint64_t peak;
        swap->lane_scale = lane_scales[s];
        enum ebb_status status =
            anneal(search, swap->model->time_ns, swap->smallest_feasible_bytes,
                   ebb__effort_slice(&swap->effort, swap->limit_steps, scale_count - s),
                   ANNEAL_LOWEST, &peak);
        struct ebb_swap_outcome outcome;
        if (!status)
            status = ebb__swap_evaluate(swap, &outcome, search->error);
        if (status)
            return status;
        bool stalls = outcome.iteration_ns > swap->lap_ns;
        const struct ebb_swap_outcome *best = &search->best.outcome;
        if (!search->best.any ||
            (stalls ? outcome.iteration_ns < best->iteration_ns
                    : best->iteration_ns > swap->lap_ns || outcome.peak_bytes < best->peak_bytes))
            best_note(search, &outcome);
    }
    request->budget_bytes = search->best.outcome.peak_bytes;
    swap->lane_scale = 1;
    best_restore(search);
    return EBB_OK;
}

/* Is there a gap that gains from beginning or ending within a stretch? */
static enum ebb_status within_matters(const struct ebb_plan_request *request, bool *matters,
                                      struct ebb_error *error)
{
    struct ebb_swap swap;
    enum ebb_status status = ebb__swap_init_within(&swap, request, error);
    if (status)
        return status;
    *matters = swap.within_count > 0;
    ebb__swap_fini(&swap);
    return EBB_OK;
}

/* Absences that begin and end with clock events hold whatever the program's pace is. */
static bool is_worth_within(const struct ebb_plan *whole, const struct ebb_plan *within)
{
    if (whole->feasible != within->feasible)
        return within->feasible;
    if (!whole->feasible)
        return within->peak_bytes < whole->peak_bytes;
    return within->iteration_ns + whole->iteration_ns / ebb__tuning()->within_gain_divisor <
           whole->iteration_ns;
}

enum ebb_status ebb__swap_ebb(const struct ebb_plan_request *request, struct ebb_plan *plan,
                              struct ebb_error *error)
{
    struct ebb_plan_request part = *request;
    struct ebb_plan second = *plan;
    bool matters = false;
    enum ebb_status status = within_matters(request, &matters, error);
    if (matters)
        ebb__plan_request_share(&part, 2);
    if (!status)
        status = plan_one(&part, false, plan, error);
    if (status || !matters || (plan->feasible && plan->stall_ns == 0))
        return status;
    status = plan_one(&part, true, &second, error);
    if (!status && is_worth_within(plan, &second)) {
        struct ebb_plan first = *plan;
        *plan = second;
        second = first;
    }
    plan->plan_ns += second.plan_ns;
    plan->timed_out |= second.timed_out;
    if (second.smallest_feasible_bytes < plan->smallest_feasible_bytes)
        plan->smallest_feasible_bytes = second.smallest_feasible_bytes;
    ebb__plan_fini(&second);
    return status;
}

enum ebb_status ebb__swap_ebb_zero_stall(const struct ebb_plan_request *request,
                                         struct ebb_plan *plan, struct ebb_error *error)
{
    struct search search = {.error = error};
    struct ebb_plan_request own = *request;
    own.budget_bytes = UINT64_MAX / 4; /* until it is known */
    if (own.time_limit_ns == 0 && own.effort_steps == 0)
        own.effort_steps = ebb__tuning()->zero_stall_steps;
    enum ebb_status status = search_init(&search, &own, true);
    struct ebb_swap *swap = &search.swap;
    if (!status) {
        /* Where trying each gap would take too long: towards lower and lower targets. */
        bool large = is_large(swap);
        for (uint64_t peak = ebb__swap_schedule(swap, 0); large && peak > 0;) {
            if (!ebb__greedy_take(&search.greedy, peak - peak / 20, 0))
                break;
            peak -= peak / 20;
        }
        status = search_lowest(&search, &own);
    }
    if (!status)
        status = ebb__swap_finish(swap, plan, error);
    search_fini(&search);
    return status;
}
