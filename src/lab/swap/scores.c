#include "lab/swap/scores.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum ebb_status ebb__ranking_init(struct ebb_swap_ranking *ranking, struct ebb_swap *swap,
                                  struct ebb_error *error)
{
    size_t gaps = swap->gap_count + 1u, cells = (size_t)swap->cell_count + 1;
    *ranking = (struct ebb_swap_ranking){.swap = swap};
    bool good = true;
    for (int i = 0; i < EBB_SCORE_COUNT; i++) {
        ranking->score[i] = calloc(gaps, sizeof *ranking->score[i]);
        good &= ranking->score[i] != NULL;
    }
    ranking->key = calloc(gaps, sizeof *ranking->key);
    ranking->order = calloc(gaps, sizeof *ranking->order);
    ranking->weight = malloc(cells * sizeof *ranking->weight);
    ranking->load = malloc(cells * sizeof *ranking->load);
    ranking->picked = malloc(gaps * sizeof *ranking->picked);
    ranking->ranked = malloc(gaps * sizeof *ranking->ranked);
    if (good && ranking->ranked && ranking->key && ranking->order && ranking->weight &&
        ranking->load && ranking->picked)
        return EBB_OK;
    ebb__ranking_fini(ranking);
    return ebb__fail(error, EBB_ERR_MEMORY, "plan", "out of memory");
}

void ebb__ranking_fini(struct ebb_swap_ranking *ranking)
{
    for (int i = 0; i < EBB_SCORE_COUNT; i++)
        free(ranking->score[i]);
    free(ranking->key);
    free(ranking->order);
    free(ranking->weight);
    free(ranking->load);
    free(ranking->picked);
    free(ranking->ranked);
    memset(ranking, 0, sizeof *ranking);
}

uint32_t ebb__swap_peak_tick(const struct ebb_swap *swap)
{
    uint32_t peak = 0;
    for (uint32_t t = 1; t < swap->cell_count; t++)
        if (swap->load[t] > swap->load[peak])
            peak = t;
    return peak;
}

bool ebb__swap_straddles_peak(const struct ebb_swap *swap, const struct ebb_swap_gap *gap,
                              uint32_t peak_tick, uint64_t smallest_bytes)
{
    return swap->model->blocks[gap->block].size_bytes >= smallest_bytes &&
           gap->from_tick != peak_tick &&
           ebb__swap_ticks_between(swap, gap->from_tick, peak_tick) <
               ebb__swap_ticks_between(swap, gap->from_tick, gap->to_tick);
}

/* ---- scores ---------------------------------------------------------------------------------- */

static double duration_of_absence(const struct ebb_swap_ranking *ranking,
                                  const struct ebb_swap_gap *gap)
{
    const struct ebb_swap *swap = ranking->swap;
    const uint64_t *time_ns = swap->model->time_ns;
    double length_ns = (double)time_ns[gap->to_tick] - (double)time_ns[gap->from_tick];
    if (gap->to_tick <= gap->from_tick)
        length_ns += (double)swap->lap_ns;
    return length_ns - (double)gap->out_ns - (ranking->scripts ? 0 : (double)gap->in_ns);
}

/* Prefix sums, over the ticks, of the load, or of its excess over the limit. */
static void weights_compute(struct ebb_swap_ranking *ranking, const uint64_t *load,
                            uint64_t limit_bytes)
{
    ranking->weight[0] = 0;
    uint64_t less = ranking->scripts ? 0 : limit_bytes;
    for (uint32_t t = 0; t < ranking->swap->cell_count; t++)
        ranking->weight[t + 1] =
            ranking->weight[t] + (load[t] > less ? (double)(load[t] - less) : 0);
}

static double weight_of(const struct ebb_swap_ranking *ranking, const struct ebb_swap_gap *gap)
{
    const double *weight = ranking->weight;
    double sum = weight[gap->to_tick] - weight[gap->from_tick];
    return gap->to_tick > gap->from_tick ? sum : sum + weight[ranking->swap->cell_count];
}

static void score_submodular(struct ebb_swap_ranking *ranking, uint64_t limit_bytes)
{
    const struct ebb_swap *swap = ranking->swap;
    memcpy(ranking->load, swap->load, swap->cell_count * sizeof *ranking->load);
    memset(ranking->picked, 0, swap->gap_count * sizeof *ranking->picked);
    for (uint32_t round = 0; round < swap->gap_count; round++) {
        uint32_t best = UINT32_MAX;
        double best_weight = 0;
        weights_compute(ranking, ranking->load, limit_bytes);
        for (uint32_t i = 0; i < swap->gap_count; i++) {
            if (ranking->picked[i])
                continue;
            double weight = weight_of(ranking, &swap->gaps[i]);
            if (best == UINT32_MAX || weight > best_weight) {
                best = i;
                best_weight = weight;
            }
        }
        const struct ebb_swap_gap *gap = &swap->gaps[best];
        ranking->picked[best] = true;
        ranking->score[EBB_SCORE_SWDOA][best] = best_weight;
        uint32_t first = ranking->scripts ? gap->from_tick : gap->ready_tick;
        ebb__swap_range_add(ranking->load, swap->cell_count, first,
                            ebb__swap_ticks_between(swap, first, gap->to_tick), 0 - gap->bytes);
    }
}

void ebb__ranking_score(struct ebb_swap_ranking *ranking, enum ebb_swap_score kind,
                        uint64_t limit_bytes)
{
    const struct ebb_swap *swap = ranking->swap;
    double *score = ranking->score[kind];
    if (kind == EBB_SCORE_SWDOA) {
        score_submodular(ranking, limit_bytes);
        return;
    }
    if (kind == EBB_SCORE_WDOA)
        weights_compute(ranking, swap->load, limit_bytes);
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        const struct ebb_swap_gap *gap = &swap->gaps[i];
        double duration = duration_of_absence(ranking, gap), bytes = (double)gap->bytes;
        if (kind == EBB_SCORE_DOA)
            score[i] = duration;
        else if (kind == EBB_SCORE_AOA)
            score[i] = duration >= 0 ? duration * bytes : duration / bytes;
        else
            score[i] = weight_of(ranking, gap);
    }
}

/* ---- orders ---------------------------------------------------------------------------------- */

static int ranked_compare(const void *left, const void *right)
{
    const struct ebb_swap_ranked *a = left, *b = right;
    if (a->key != b->key)
        return a->key > b->key ? -1 : 1;
    return (a->gap > b->gap) - (a->gap < b->gap);
}

/* Sorts the gaps by descending key into `order`. */
static void order_by(struct ebb_swap_ranking *ranking, const double *key)
{
    uint32_t count = ranking->swap->gap_count;
    for (uint32_t i = 0; i < count; i++)
        ranking->ranked[i] = (struct ebb_swap_ranked){key[i], i};
    qsort(ranking->ranked, count, sizeof *ranking->ranked, ranked_compare);
    for (uint32_t i = 0; i < count; i++)
        ranking->order[i] = ranking->ranked[i].gap;
}

void ebb__ranking_by_score(struct ebb_swap_ranking *ranking, enum ebb_swap_score kind)
{
    order_by(ranking, ranking->score[kind]);
}

void ebb__ranking_by_vote(struct ebb_swap_ranking *ranking)
{
    static const enum ebb_swap_score voters[] = {EBB_SCORE_DOA, EBB_SCORE_AOA, EBB_SCORE_WDOA};
    uint32_t count = ranking->swap->gap_count;
    memset(ranking->key, 0, count * sizeof *ranking->key);
    for (int voter = 0; voter < 3; voter++) {
        order_by(ranking, ranking->score[voters[voter]]);
        for (uint32_t rank = 0; rank < count; rank++)
            ranking->key[ranking->order[rank]] -= rank;
    }
    order_by(ranking, ranking->key);
}

void ebb__ranking_by_weights(struct ebb_swap_ranking *ranking, const double *weights)
{
    uint32_t count = ranking->swap->gap_count;
    memset(ranking->key, 0, count * sizeof *ranking->key);
    for (int kind = 0; kind < EBB_SCORE_COUNT; kind++) {
        const double *score = ranking->score[kind];
        double mean = 0, square = 0;
        for (uint32_t i = 0; i < count; i++)
            mean += score[i] / count;
        for (uint32_t i = 0; i < count; i++)
            square += (score[i] - mean) * (score[i] - mean) / count;
        double unit = square > 0 ? sqrt(square) : 1;
        if (kind == EBB_SCORE_SWDOA) {
            mean = 0;
            unit = 1;
        }
        for (uint32_t i = 0; i < count; i++)
            ranking->key[i] += weights[kind] * (score[i] - mean) / unit;
    }
    order_by(ranking, ranking->key);
}

static uint64_t take_first(struct ebb_swap_ranking *ranking, uint32_t count)
{
    struct ebb_swap *swap = ranking->swap;
    for (uint32_t i = 0; i < swap->gap_count; i++)
        swap->gaps[ranking->order[i]].taken = i < count;
    return ebb__swap_curve_ideal(swap);
}

bool ebb__ranking_take(struct ebb_swap_ranking *ranking, uint64_t limit_bytes)
{
    /* More gaps never raise the ideal curve, so bisection finds the smallest sufficient number. */
    uint32_t low = 0, high = ranking->swap->gap_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (take_first(ranking, middle) <= limit_bytes)
            high = middle;
        else
            low = middle + 1;
    }
    return take_first(ranking, low) <= limit_bytes;
}
