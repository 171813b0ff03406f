/* Ebb's own planner: all gaps of all blocks, a smooth maximum, the simulator as judge.
 *
 * Problem: choose gaps and copy times on two serial lanes so that the resident curve of a cyclic
 * iteration stays within the budget, the program waits least, and then fewest bytes move. Choosing
 * alone is NP-hard (it contains knapsack).
 * Method: (1) Greedy: while the curve, with copies scheduled on the lanes, exceeds the target, take
 * the gap that covers most excess (squared) per lane time; a gap behind a full lane covers little.
 * Where that is stuck, turn over one gap at a time and keep what leaves less. Then drop what proves
 * useless. First with a margin before copies in are due, so that jitter makes none late; with less
 * where that cannot be had. (2) Where no choice is free of stalls: sweeps over the load, and greedy
 * choices for lanes thought faster, judged by the simulator, copies in as early as room allows.
 * (3) Refinement: one gap turned over at a time, then two, as long as that gains and time lasts.
 * Complexity: O(taken * (gaps + cells)) a greedy run, O((events + absences) log) a judgement.
 * Fails: where many gaps must be exchanged at once to gain anything, as any greedy does.
 * Source: the smooth-maximum greedy after docs/papers.md, AutoSwap; the rest is ours. */
#include "plan/swap/swap.h"

#include <stdlib.h>
#include <string.h>

#define RESERVE_MAX_BYTES ((uint64_t)8 << 20) /* arbitrary: a few blocks' worth of jitter */
#define SMALL_GAPS 64                         /* so few that trying more costs nothing */
#define MARGIN_MAX_NS 50000000u               /* arbitrary: jitter of an operation, not more */

struct best {
    bool *taken; /* gap_count */
    uint64_t *trigger_ns;
    struct ebb_swap_outcome outcome;
    bool any;
};

struct search {
    struct ebb_swap swap;
    struct best best;
    double *weight;  /* cell_count + 1: prefix sums of the cells' weights */
    double *benefit; /* gap_count */
    struct ebb_error *error;
};

static bool time_is_up(const struct search *search)
{
    return ebb__swap_now_ns() > search->swap.deadline_ns;
}

static void best_restore(struct search *search)
{
    for (uint32_t i = 0; i < search->swap.gap_count; i++) {
        search->swap.gaps[i].taken = search->best.taken[i];
        search->swap.gaps[i].trigger_ns = search->best.trigger_ns[i];
    }
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
    if (!won)
        return EBB_OK;
    search->best.any = true;
    search->best.outcome = outcome;
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        search->best.taken[i] = swap->gaps[i].taken;
        search->best.trigger_ns[i] = swap->gaps[i].trigger_ns;
    }
    return EBB_OK;
}

/* ---- greedy ---------------------------------------------------------------------------------- */

/* Prefix sums of the excess' weights; returns the largest excess. */
static uint64_t weights_compute(struct search *search, uint64_t target_bytes)
{
    const struct ebb_swap *swap = &search->swap;
    const uint64_t *time_ns = swap->model->time_ns;
    /* A cell without duration still has to be covered. */
    double floor_ns = (double)swap->lap_ns / swap->cell_count / 4;
    uint64_t largest = 0;
    search->weight[0] = 0;
    for (uint32_t t = 0; t < swap->cell_count; t++) {
        double weight = 0;
        if (swap->curve[t] > target_bytes) {
            uint64_t excess = swap->curve[t] - target_bytes;
            largest = excess > largest ? excess : largest;
            weight = (double)excess * (double)excess *
                     ((double)(time_ns[t + 1] - time_ns[t]) + floor_ns);
        }
        search->weight[t + 1] = search->weight[t] + weight;
    }
    return largest;
}

/* Weight of the cells [first, last), cyclic, last - first <= cell_count. */
static double weight_between(const struct search *search, uint32_t first, uint32_t last)
{
    uint32_t cells = search->swap.cell_count;
    const double *weight = search->weight;
    if (first >= cells)
        return weight[last - cells] - weight[first - cells];
    if (last <= cells)
        return weight[last] - weight[first];
    return weight[cells] - weight[first] + weight[last - cells];
}

/* Take the gaps whose benefit is near the best; false where none has any. */
static bool greedy_step(struct search *search, uint64_t largest_bytes)
{
    struct ebb_swap *swap = &search->swap;
    double best = 0;
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        struct ebb_swap_gap *gap = &swap->gaps[i];
        search->benefit[i] = 0;
        if (gap->taken)
            continue;
        uint32_t first, last;
        ebb__swap_cells(swap, gap, &first, &last);
        if (first >= last)
            continue;
        uint64_t bytes = gap->bytes < largest_bytes ? gap->bytes : largest_bytes;
        double benefit = (double)bytes * weight_between(search, first, last) /
                         (double)(gap->out_ns + gap->in_ns + 1);
        search->benefit[i] = benefit;
        best = benefit > best ? benefit : best;
    }
    if (!(best > 0))
        return false;
    /* A few at once while much is left: the schedule is stale after each. */
    uint64_t taken_bytes = 0;
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        if (search->benefit[i] < best * 0.95)
            continue;
        if (taken_bytes > 0 && taken_bytes + swap->gaps[i].bytes > largest_bytes / 8)
            continue;
        swap->gaps[i].taken = true;
        taken_bytes += swap->gaps[i].bytes;
    }
    return true;
}

/* The excess that is left, squared and summed over time. */
static double excess_left(const struct search *search, uint64_t target_bytes)
{
    const struct ebb_swap *swap = &search->swap;
    const uint64_t *time_ns = swap->model->time_ns;
    double floor_ns = (double)swap->lap_ns / swap->cell_count / 4, sum = 0;
    for (uint32_t t = 0; t < swap->cell_count; t++) {
        if (swap->curve[t] <= target_bytes)
            continue;
        double excess = (double)(swap->curve[t] - target_bytes);
        sum += excess * excess * ((double)(time_ns[t + 1] - time_ns[t]) + floor_ns);
    }
    return sum;
}

/* Where the greedy is stuck: turn over one gap at a time and keep what leaves less excess on the
 * true schedule, in which a copy also delays those behind it. True where none is left. */
static bool climb(struct search *search, uint64_t target_bytes, uint64_t margin_ns)
{
    struct ebb_swap *swap = &search->swap;
    if (swap->gap_count == 0)
        return false;
    ebb__swap_schedule(swap, margin_ns);
    double left = excess_left(search, target_bytes);
    uint32_t since = 0; /* gaps tried since the last gain */
    for (uint32_t i = 0; left > 0 && since < swap->gap_count && !time_is_up(search); since++) {
        struct ebb_swap_gap *gap = &swap->gaps[swap->by_ready[i]];
        i = (i + 1) % swap->gap_count;
        gap->taken = !gap->taken;
        ebb__swap_schedule(swap, margin_ns);
        double now_left = excess_left(search, target_bytes);
        if (now_left < left) {
            left = now_left;
            since = 0;
        } else {
            gap->taken = !gap->taken;
        }
    }
    return left <= 0;
}

/* Take gaps until the scheduled curve meets `target_bytes`; what was taken before stays. */
static bool greedy(struct search *search, uint64_t target_bytes, uint64_t margin_ns)
{
    while (!time_is_up(search)) {
        uint64_t peak = ebb__swap_schedule(&search->swap, margin_ns);
        if (peak <= target_bytes)
            return true;
        uint64_t largest = weights_compute(search, target_bytes);
        if (!greedy_step(search, largest))
            return false;
    }
    return false;
}

struct use {
    double key;
    uint32_t gap;
};

static int use_compare(const void *left, const void *right)
{
    const struct use *a = left, *b = right;
    if (a->key != b->key)
        return a->key > b->key ? -1 : 1;
    return (a->gap > b->gap) - (a->gap < b->gap);
}

/* Taken gaps, most lane time first. */
static uint32_t taken_by_cost(const struct ebb_swap *swap, struct use *uses)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < swap->gap_count; i++)
        if (swap->gaps[i].taken)
            uses[count++] = (struct use){(double)(swap->gaps[i].out_ns + swap->gaps[i].in_ns), i};
    qsort(uses, count, sizeof *uses, use_compare);
    return count;
}

/* Drop what the target does not need. */
static void prune(struct search *search, struct use *uses, uint64_t target_bytes,
                  uint64_t margin_ns)
{
    struct ebb_swap *swap = &search->swap;
    uint32_t count = taken_by_cost(swap, uses);
    for (uint32_t i = 0; i < count && !time_is_up(search); i++) {
        swap->gaps[uses[i].gap].taken = false;
        if (ebb__swap_schedule(swap, margin_ns) > target_bytes)
            swap->gaps[uses[i].gap].taken = true;
    }
    ebb__swap_schedule(swap, margin_ns);
}

static void take_none(struct ebb_swap *swap)
{
    for (uint32_t i = 0; i < swap->gap_count; i++)
        swap->gaps[i].taken = false;
}

/* ---- the search ------------------------------------------------------------------------------ */

/* Plans without a stall, the most careful first. True where the simulator confirms one. */
static enum ebb_status search_without_stall(struct search *search, struct use *uses, bool *found)
{
    struct ebb_swap *swap = &search->swap;
    uint64_t budget = swap->request->budget_bytes;
    uint64_t reserve = budget / 100 < RESERVE_MAX_BYTES ? budget / 100 : RESERVE_MAX_BYTES;
    uint64_t margin = swap->lap_ns / 50 < MARGIN_MAX_NS ? swap->lap_ns / 50 : MARGIN_MAX_NS;
    /* Lanes that share their bandwidth are slower where both are busy; how often is not known
     * beforehand. */
    static const double scales[] = {1, 0.7, 0.5};
    uint32_t scale_count = swap->request->machine->duplex ? 1 : 3;
    const struct {
        uint64_t target, margin;
    } tries[] = {{budget - budget / 50, 2 * margin},
                 {budget - reserve, margin},
                 {budget - reserve, margin / 4},
                 {budget, 0}};
    const uint32_t last = sizeof tries / sizeof tries[0] - 1;
    *found = false;
    for (uint32_t i = 0; i <= last && !*found; i++) {
        for (uint32_t s = 0; s < scale_count && !*found; s++) {
            swap->lane_scale = scales[s];
            take_none(swap);
            bool met = greedy(search, tries[i].target, tries[i].margin);
            if (!met && i == last)
                met = climb(search, tries[i].target, tries[i].margin);
            if (!met)
                break;
            prune(search, uses, tries[i].target, tries[i].margin);
            ebb__swap_trigger_late(swap);
            enum ebb_status status = judge(search, NULL);
            if (status)
                return status;
            *found =
                search->best.outcome.feasible && search->best.outcome.iteration_ns == swap->lap_ns;
            if (time_is_up(search) && search->best.any)
                break;
        }
    }
    swap->lane_scale = 1;
    return EBB_OK;
}

static enum ebb_status judge_early(struct search *search)
{
    ebb__swap_trigger_early(&search->swap, search->swap.request->budget_bytes);
    return judge(search, NULL);
}

static enum ebb_status search_sweeps(struct search *search)
{
    static const enum ebb_swap_order orders[] = {EBB_SWAP_FIRST_IN, EBB_SWAP_LATEST_NEED,
                                                 EBB_SWAP_CHEAPEST};
    for (uint32_t i = 0; i < 3; i++) {
        ebb__swap_select(&search->swap, search->swap.request->budget_bytes, orders[i]);
        enum ebb_status status = judge_early(search);
        if (status)
            return status;
    }
    return EBB_OK;
}

/* Greedy choices for lanes thought so fast that no stall is left: the least such speed. */
static enum ebb_status search_dilated(struct search *search, struct use *uses)
{
    struct ebb_swap *swap = &search->swap;
    uint64_t budget = swap->request->budget_bytes;
    double low = 1, high = (double)search->best.outcome.iteration_ns / (double)swap->lap_ns * 1.1;
    for (int i = 0; i < 5 && !time_is_up(search); i++) {
        double middle = (low + high) / 2;
        swap->lane_scale = middle;
        take_none(swap);
        bool met = greedy(search, budget, 0);
        if (met) {
            prune(search, uses, budget, 0);
            enum ebb_status status = judge_early(search);
            if (status)
                return status;
            high = middle;
        } else {
            low = middle;
        }
    }
    swap->lane_scale = 1;
    return EBB_OK;
}

/* Judge what is taken with copies in early, and late where that still stalls. */
static enum ebb_status judge_both(struct search *search, bool *better)
{
    struct ebb_swap *swap = &search->swap;
    bool early = false, late = false;
    ebb__swap_trigger_early(swap, swap->request->budget_bytes);
    enum ebb_status status = judge(search, &early);
    if (!status && swap->gap_count <= SMALL_GAPS) {
        ebb__swap_schedule(swap, 0);
        ebb__swap_trigger_late(swap);
        status = judge(search, &late);
    }
    *better = early || late;
    return status;
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

/* Turn over one gap at a time, then two, as long as that gains and time lasts. */
static enum ebb_status refine(struct search *search, struct use *uses)
{
    struct ebb_swap *swap = &search->swap;
    enum ebb_status status = EBB_OK;
    bool gained = true;
    while (gained && !time_is_up(search)) {
        gained = false;
        best_restore(search);
        flips_order(swap, uses);
        for (uint32_t i = 0; i < swap->gap_count && !time_is_up(search); i++) {
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
                if (time_is_up(search))
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

static enum ebb_status search_run(struct search *search, struct use *uses)
{
    struct ebb_swap *swap = &search->swap;
    bool found = false, possible = swap->request->budget_bytes >= swap->smallest_feasible_bytes;
    enum ebb_status status = EBB_OK;
    if (possible) {
        /* Half the time at most: what stalls a little must still be looked for. */
        uint64_t deadline_ns = swap->deadline_ns;
        swap->deadline_ns -= (deadline_ns - swap->started_ns) / 2;
        status = search_without_stall(search, uses, &found);
        swap->deadline_ns = deadline_ns;
    }
    if (status || found)
        return status;
    status = search_sweeps(search);
    if (status || !possible)
        return status;
    status = search_dilated(search, uses);
    return status ? status : refine(search, uses);
}

enum ebb_status ebb__swap_ebb(const struct ebb_plan_request *request, struct ebb_plan *plan,
                              struct ebb_error *error)
{
    struct search search = {.error = error};
    enum ebb_status status = ebb__swap_init(&search.swap, request, error);
    if (status)
        return status;
    size_t gaps = search.swap.gap_count + 1u;
    search.best.taken = calloc(gaps, sizeof *search.best.taken);
    search.best.trigger_ns = calloc(gaps, sizeof *search.best.trigger_ns);
    search.weight = malloc(((size_t)search.swap.cell_count + 1) * sizeof *search.weight);
    search.benefit = malloc(gaps * sizeof *search.benefit);
    struct use *uses = malloc(gaps * sizeof *uses);
    if (search.best.taken && search.best.trigger_ns && search.weight && search.benefit && uses)
        status = search_run(&search, uses);
    else
        status = ebb__fail(error, EBB_ERR_MEMORY, "plan", "out of memory");
    if (!status) {
        best_restore(&search);
        status = ebb__swap_finish(&search.swap, plan, error);
    }
    free(search.best.taken);
    free(search.best.trigger_ns);
    free(search.weight);
    free(search.benefit);
    free(uses);
    ebb__swap_fini(&search.swap);
    return status;
}
