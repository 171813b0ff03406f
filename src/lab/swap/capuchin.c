/* Capuchin: evicts where accesses leave most free time, and corrects its fetches by feedback.
 *
 * Problem: keep the budget by measured accesses alone. Method: a candidate is a pair of successive
 * accesses of one block with a time of excess load between them. Its **free time** is what is left
 * of it beside both copies. The pairs with most free time are taken until the load without them
 * keeps the budget. A copy in is triggered so early that it ends in time if the lane is idle. An
 * iteration in which the program waits for a block is feedback: its trigger moves earlier by 5 % of
 * the copy's time. Whatever else lacks memory is evicted passively, as in the measured iteration.
 * Source: Peng et al., ASPLOS 2020, doi 10.1145/3373376.3378505, sections 4 and 5; docs/papers.md
 * lists the differences. O(gaps log gaps + taken * cells + rounds * simulation). Fails where few
 * pairs are longer than their copies: recomputation would be chosen there, of which a trace does
 * not show the cost. */
#include "lab/swap/engine.h"
#include "lab/swap/policies.h"

#include <stdlib.h>
#include <string.h>

#define FEEDBACK_ROUNDS 60  /* iterations; each moves a trigger by FEEDBACK_DIVISOR of its copy */
#define FEEDBACK_DIVISOR 20 /* from the paper: 5 % */

struct candidate {
    int64_t free_ns;
    uint32_t gap;
};

static int by_free_time(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    if (a->free_ns != b->free_ns)
        return a->free_ns > b->free_ns ? -1 : 1;
    return (a->gap > b->gap) - (a->gap < b->gap);
}

/* True if the curve exceeds the budget somewhere in the gap. */
static bool covers_excess(const struct ebb_swap *swap, const struct ebb_swap_gap *gap)
{
    uint32_t count = ebb__swap_ticks_between(swap, gap->ready_tick, gap->to_tick);
    for (uint32_t i = 0, cell = gap->ready_tick; i < count; i++) {
        if (swap->curve[cell] > swap->request->budget_bytes)
            return true;
        if (++cell == swap->cell_count)
            cell = 0;
    }
    return false;
}

/* Takes gaps by free time until the curve for instant copies keeps the budget. */
static enum ebb_status choose(struct ebb_swap *swap, struct ebb_error *error)
{
    struct candidate *candidates = malloc((swap->gap_count + 1u) * sizeof *candidates);
    if (!candidates)
        return ebb__fail(error, EBB_ERR_MEMORY, "plan", "out of memory");
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        const struct ebb_swap_gap *gap = &swap->gaps[i];
        int64_t copies_ns = (int64_t)(gap->out_ns + gap->in_ns);
        candidates[i] = (struct candidate){(int64_t)(gap->need_ns - gap->ready_ns) - copies_ns, i};
    }
    qsort(candidates, swap->gap_count, sizeof *candidates, by_free_time);
    uint64_t peak = ebb__swap_curve_ideal(swap);
    for (uint32_t i = 0; i < swap->gap_count && peak > swap->request->budget_bytes; i++) {
        struct ebb_swap_gap *gap = &swap->gaps[candidates[i].gap];
        if (!covers_excess(swap, gap))
            continue;
        gap->taken = true;
        peak = ebb__swap_curve_ideal(swap);
    }
    free(candidates);
    return EBB_OK;
}

/* The copy in ends when the block is due, if nothing is in its way. */
static void trigger(struct ebb_swap *swap)
{
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        struct ebb_swap_gap *gap = &swap->gaps[i];
        uint64_t room = gap->due_ns - gap->ready_ns;
        uint64_t ahead = gap->in_ns < room ? gap->in_ns : room;
        gap->trigger_ns = (gap->due_ns - ahead) % swap->lap_ns;
    }
}

/* Triggers of blocks that the program waited for in the last iteration move earlier. False if none
 * can. */
static bool feedback(struct ebb_swap *swap)
{
    bool moved = false;
    for (uint32_t i = 0, at = 0; i < swap->gap_count; i++) {
        struct ebb_swap_gap *gap = &swap->gaps[swap->by_ready[i]];
        if (!gap->taken)
            continue;
        const struct ebb_sim_times *times = &swap->times[at++];
        if (gap->drops || times->stall_ns == 0)
            continue;
        uint64_t lap = swap->lap_ns, step = gap->in_ns / FEEDBACK_DIVISOR + 1;
        uint64_t since = (gap->trigger_ns + lap - gap->ready_ns % lap) % lap;
        if (since < step)
            continue;
        gap->trigger_ns = (gap->trigger_ns + lap - step) % lap;
        moved = true;
    }
    return moved;
}

static void triggers_copy(const struct ebb_swap *swap, uint64_t *best_ns, bool *taken)
{
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        best_ns[i] = swap->gaps[i].trigger_ns;
        taken[i] = swap->gaps[i].taken;
    }
}

/* Iterations with feedback; the triggers of the best one stay. */
static enum ebb_status learn(struct ebb_swap *swap, struct ebb_error *error)
{
    uint64_t *best_ns = malloc((swap->gap_count + 1u) * sizeof *best_ns);
    bool *taken = malloc((swap->gap_count + 1u) * sizeof *taken);
    struct ebb_swap_outcome outcome, best = {0};
    enum ebb_status status = EBB_OK;
    bool any = false;
    if (!best_ns || !taken)
        status = ebb__fail(error, EBB_ERR_MEMORY, "plan", "out of memory");
    for (int round = 0; !status && round < FEEDBACK_ROUNDS; round++) {
        status = ebb__swap_evaluate(swap, &outcome, error);
        if (!status &&
            (!any || (outcome.feasible && !best.feasible) ||
             (outcome.feasible == best.feasible && outcome.iteration_ns < best.iteration_ns))) {
            best = outcome;
            any = true;
            triggers_copy(swap, best_ns, taken);
        }
        if (status || outcome.iteration_ns == swap->lap_ns || !feedback(swap))
            break;
    }
    for (uint32_t i = 0; !status && i < swap->gap_count; i++) {
        swap->gaps[i].trigger_ns = best_ns[i];
        swap->gaps[i].taken = taken[i];
    }
    free(best_ns);
    free(taken);
    return status;
}

enum ebb_status ebb__swap_capuchin(const struct ebb_plan_request *request, struct ebb_plan *plan,
                                   struct ebb_error *error)
{
    struct ebb_swap swap;
    const struct ebb_plan_rules rules = ebb__engine_rules(request);
    enum ebb_status status = ebb__swap_init_within(&swap, request, error);
    if (status)
        return status;
    swap.rules = &rules;
    status = choose(&swap, error);
    trigger(&swap);
    if (!status)
        status = learn(&swap, error);
    if (!status)
        status = ebb__engine_finish(&swap, plan, error);
    ebb__swap_fini(&swap);
    return status;
}
