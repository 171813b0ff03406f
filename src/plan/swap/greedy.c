/* Greedy choice by a smooth maximum.
 *
 * Problem: bring the curve, with copies scheduled on the lanes, down to a target.
 * Method: while the curve exceeds the target, take the gap that covers most excess (squared) per
 * lane time. A gap behind a full lane covers little. Gaps nearly as good are taken in the same
 * step.
 * Complexity: O(gaps + cells) a step, so it is suitable for iterations of 100,000 events.
 * Fails: if a gap helps only together with others; ebb__anneal_run() continues from there.
 * Source: the smooth-maximum greedy after docs/papers.md, AutoSwap; the rest is ours. */
#include "plan/swap/greedy.h"

#include <stdlib.h>

struct ebb_greedy_use {
    double key;
    uint32_t gap;
};

enum ebb_status ebb__greedy_init(struct ebb_greedy *greedy, struct ebb_swap *swap,
                                 struct ebb_error *error)
{
    size_t gaps = swap->gap_count + 1u;
    *greedy = (struct ebb_greedy){.swap = swap};
    greedy->weight = malloc(((size_t)swap->cell_count + 1) * sizeof *greedy->weight);
    greedy->benefit = malloc(gaps * sizeof *greedy->benefit);
    greedy->uses = malloc(gaps * sizeof *greedy->uses);
    if (greedy->weight && greedy->benefit && greedy->uses)
        return EBB_OK;
    ebb__greedy_fini(greedy);
    return ebb__fail(error, EBB_ERR_MEMORY, "plan", "out of memory");
}

void ebb__greedy_fini(struct ebb_greedy *greedy)
{
    free(greedy->weight);
    free(greedy->benefit);
    free(greedy->uses);
}

/* Computes prefix sums of the excess' weights; returns the largest excess. */
static uint64_t weights_compute(struct ebb_greedy *greedy, uint64_t target_bytes)
{
    const struct ebb_swap *swap = greedy->swap;
    const uint64_t *time_ns = swap->model->time_ns;
    /* A cell without duration must still be covered. */
    double floor_ns = (double)swap->lap_ns / swap->cell_count / 4;
    uint64_t largest = 0;
    greedy->weight[0] = 0;
    for (uint32_t t = 0; t < swap->cell_count; t++) {
        double weight = 0;
        if (swap->curve[t] > target_bytes) {
            uint64_t excess = swap->curve[t] - target_bytes;
            largest = excess > largest ? excess : largest;
            weight = (double)excess * (double)excess *
                     ((double)(time_ns[t + 1] - time_ns[t]) + floor_ns);
        }
        greedy->weight[t + 1] = greedy->weight[t] + weight;
    }
    return largest;
}

/* Weight of the cells [first, last), cyclic, last - first <= cell_count. */
static double weight_between(const struct ebb_greedy *greedy, uint32_t first, uint32_t last)
{
    uint32_t cells = greedy->swap->cell_count;
    const double *weight = greedy->weight;
    if (first >= cells)
        return weight[last - cells] - weight[first - cells];
    if (last <= cells)
        return weight[last] - weight[first];
    return weight[cells] - weight[first] + weight[last - cells];
}

/* Fills `benefit` for the gaps not taken; returns the best. */
static double benefits_compute(struct ebb_greedy *greedy, uint64_t largest_bytes)
{
    struct ebb_swap *swap = greedy->swap;
    double best = 0;
    ebb__effort_spend(&swap->effort, swap->cell_count + 4 * (uint64_t)swap->gap_count);
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        const struct ebb_swap_gap *gap = &swap->gaps[i];
        greedy->benefit[i] = 0;
        if (gap->taken)
            continue;
        uint32_t first, last;
        ebb__swap_cells(swap, gap, &first, &last);
        if (first >= last)
            continue;
        uint64_t bytes = gap->bytes < largest_bytes ? gap->bytes : largest_bytes;
        double benefit = (double)bytes * weight_between(greedy, first, last) /
                         (double)(gap->out_ns + gap->in_ns + 1);
        greedy->benefit[i] = benefit;
        best = benefit > best ? benefit : best;
    }
    return best;
}

void ebb__greedy_merits(struct ebb_greedy *greedy, uint64_t target_bytes)
{
    ebb__swap_schedule(greedy->swap, 0);
    benefits_compute(greedy, weights_compute(greedy, target_bytes));
}

/* Takes the gaps whose benefit is near the best. Returns false if none has any. */
static bool greedy_step(struct ebb_greedy *greedy, uint64_t largest_bytes)
{
    struct ebb_swap *swap = greedy->swap;
    double best = benefits_compute(greedy, largest_bytes);
    if (!(best > 0))
        return false;
    /* A few at once while much excess is left: the schedule is outdated after each. */
    uint64_t taken_bytes = 0;
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        if (greedy->benefit[i] < best * 0.95)
            continue;
        if (taken_bytes > 0 && taken_bytes + swap->gaps[i].bytes > largest_bytes / 8)
            continue;
        swap->gaps[i].taken = true;
        taken_bytes += swap->gaps[i].bytes;
    }
    return true;
}

bool ebb__greedy_take(struct ebb_greedy *greedy, uint64_t target_bytes, uint64_t margin_ns)
{
    while (!ebb__effort_is_over(&greedy->swap->effort, greedy->swap->limit_steps)) {
        uint64_t peak = ebb__swap_schedule(greedy->swap, margin_ns);
        if (peak <= target_bytes)
            return true;
        uint64_t largest = weights_compute(greedy, target_bytes);
        if (!greedy_step(greedy, largest))
            return false;
    }
    return false;
}

static int use_compare(const void *left, const void *right)
{
    const struct ebb_greedy_use *a = left, *b = right;
    if (a->key != b->key)
        return a->key > b->key ? -1 : 1;
    return (a->gap > b->gap) - (a->gap < b->gap);
}

/* Lists the taken gaps, most lane time first. */
static uint32_t taken_by_cost(const struct ebb_swap *swap, struct ebb_greedy_use *uses)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < swap->gap_count; i++)
        if (swap->gaps[i].taken)
            uses[count++] =
                (struct ebb_greedy_use){(double)(swap->gaps[i].out_ns + swap->gaps[i].in_ns), i};
    qsort(uses, count, sizeof *uses, use_compare);
    return count;
}

void ebb__greedy_drop(struct ebb_greedy *greedy, uint64_t target_bytes, uint64_t margin_ns)
{
    struct ebb_swap *swap = greedy->swap;
    struct ebb_greedy_use *uses = greedy->uses;
    uint32_t count = taken_by_cost(swap, uses);
    for (uint32_t i = 0; i < count && !ebb__effort_is_over(&swap->effort, swap->limit_steps); i++) {
        swap->gaps[uses[i].gap].taken = false;
        if (ebb__swap_schedule(swap, margin_ns) > target_bytes)
            swap->gaps[uses[i].gap].taken = true;
    }
    ebb__swap_schedule(swap, margin_ns);
}
