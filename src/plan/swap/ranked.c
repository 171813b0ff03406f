/* Choices by a rank: at the highest point of the load, the first gaps that contain it are taken,
 * then at the next highest point. A rank is what published policies have (docs/papers.md, AutoSwap
 * and AppObMem). Here their choices are starting points of a search. */
#include "plan/swap/swap.h"

#include <stdlib.h>

static bool contains(const struct ebb_swap *swap, const struct ebb_swap_gap *gap, uint32_t tick)
{
    uint32_t length = ebb__swap_ticks_between(swap, gap->ready_tick, gap->to_tick);
    return tick == gap->ready_tick || ebb__swap_ticks_between(swap, gap->ready_tick, tick) < length;
}

/* Takes gaps that contain the tick, in order, until the curve there is within the limit. */
static void take_at(struct ebb_swap *swap, const uint32_t *order, uint32_t tick, bool long_enough,
                    uint64_t limit_bytes)
{
    for (uint32_t i = 0; i < swap->gap_count && swap->curve[tick] > limit_bytes; i++) {
        struct ebb_swap_gap *gap = &swap->gaps[order[i]];
        bool is_long = gap->need_ns - gap->ready_ns >= gap->out_ns + gap->in_ns;
        if (gap->taken || is_long != long_enough || !contains(swap, gap, tick))
            continue;
        gap->taken = true;
        ebb__swap_range_add(swap->curve, swap->cell_count, gap->ready_tick,
                            ebb__swap_ticks_between(swap, gap->ready_tick, gap->to_tick),
                            0 - gap->bytes);
    }
}

bool ebb__swap_take_peaks(struct ebb_swap *swap, const uint32_t *order, uint64_t limit_bytes)
{
    for (uint32_t i = 0; i < swap->gap_count; i++)
        swap->gaps[i].taken = false;
    uint64_t peak_bytes = ebb__swap_curve_ideal(swap);
    while (peak_bytes > limit_bytes) {
        uint32_t peak = 0;
        while (swap->curve[peak] < peak_bytes)
            peak++;
        ebb__effort_spend(&swap->effort, 2 * (uint64_t)(swap->gap_count + swap->cell_count));
        take_at(swap, order, peak, true, limit_bytes);
        take_at(swap, order, peak, false, limit_bytes);
        if (swap->curve[peak] > limit_bytes)
            return false;
        peak_bytes = 0;
        for (uint32_t t = 0; t < swap->cell_count; t++)
            peak_bytes = swap->curve[t] > peak_bytes ? swap->curve[t] : peak_bytes;
    }
    return true;
}

struct ranked {
    double key;
    uint32_t gap;
};

static int ranked_compare(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    if (a->key != b->key)
        return a->key > b->key ? -1 : 1;
    return (a->gap > b->gap) - (a->gap < b->gap);
}

/* Prefix sums, over the cells, of the load in excess of the budget; NULL if out of memory. */
static double *excess_sum(const struct ebb_swap *swap, uint64_t budget_bytes)
{
    double *sum = malloc(((size_t)swap->cell_count + 1) * sizeof *sum);
    if (!sum)
        return NULL;
    sum[0] = 0;
    for (uint32_t t = 0; t < swap->cell_count; t++) {
        uint64_t load = swap->load[t];
        sum[t + 1] = sum[t] + (load > budget_bytes ? (double)(load - budget_bytes) : 0);
    }
    return sum;
}

static double key_of(const struct ebb_swap *swap, const struct ebb_swap_gap *gap,
                     enum ebb_swap_rank rank, const double *excess)
{
    double copies_ns = (double)(gap->out_ns + gap->in_ns);
    double free_ns = (double)(gap->need_ns - gap->ready_ns) - copies_ns;
    double bytes = (double)gap->bytes;
    if (rank == EBB_SWAP_BY_DURATION)
        return free_ns;
    if (rank == EBB_SWAP_BY_AREA)
        return free_ns >= 0 ? free_ns * bytes : free_ns / bytes;
    double sum = excess[gap->to_tick] - excess[gap->ready_tick];
    return gap->to_tick > gap->ready_tick ? sum : sum + excess[swap->cell_count];
}

bool ebb__swap_select_ranked(struct ebb_swap *swap, uint64_t budget_bytes, enum ebb_swap_rank rank)
{
    struct ranked *ranked = malloc((swap->gap_count + 1u) * sizeof *ranked);
    uint32_t *order = malloc((swap->gap_count + 1u) * sizeof *order);
    double *excess = excess_sum(swap, budget_bytes);
    bool met = ranked && order && excess;
    for (uint32_t i = 0; met && i < swap->gap_count; i++)
        ranked[i] = (struct ranked){key_of(swap, &swap->gaps[i], rank, excess), i};
    if (met) {
        qsort(ranked, swap->gap_count, sizeof *ranked, ranked_compare);
        for (uint32_t i = 0; i < swap->gap_count; i++)
            order[i] = ranked[i].gap;
        met = ebb__swap_take_peaks(swap, order, budget_bytes);
    }
    free(ranked);
    free(order);
    free(excess);
    return met;
}
