/* Method: a local alignment of the model, twice in a row, with the new list. Its path is the
 * stretch that agrees best. Of the path the window of one iteration is taken that agrees best. */
#include "pairing.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_CELLS = 1 << 25,  /* 32 MiB; 2800 allocations an iteration */
    ROUNDED_DIVISOR = 512, /* a scaled size may differ by such a part: it is rounded, */
    ROUNDED_BYTES = 4096,  /* and by a page: a header or a guard does not grow with the batch */
    NEAR_BYTES = 256,      /* what differs by less was not rounded */
    MOST_WORTH = 4,        /* of a pair, in allocations that lack a partner */
    LIVED_FACTOR = 2, /* a block may live through so many times the allocations of the model, */
    LIVED_ALLOCS = 4, /* and so many more: others come in between */
};

/* An allocation of the model, counted over two iterations, and one of the new run. */
struct pair {
    size_t model, run;
};

uint64_t ebb__pairing_most_bytes(uint64_t from, double ratio)
{
    return (uint64_t)((double)from * ratio * (1 + 1.0 / ROUNDED_DIVISOR)) + ROUNDED_BYTES;
}

bool ebb__pairing_is_scaled(uint64_t from, uint64_t to, double ratio)
{
    double wanted = (double)from * ratio, off = (double)to - wanted;
    return (off < 0 ? -off : off) <= wanted / ROUNDED_DIVISOR + ROUNDED_BYTES;
}

bool ebb__pairing_agrees(const struct ebb_pairing *pairing, uint64_t from, uint64_t to)
{
    return from == to || ebb__pairing_is_scaled(from, to, pairing->ratio);
}

bool ebb__pairing_is_young(const struct ebb_pairing *pairing, size_t alloc, size_t newest)
{
    size_t age = pairing->count - 1 - newest;
    return pairing->newest[newest].freed ||
           age <= LIVED_FACTOR * pairing->lived[alloc] + LIVED_ALLOCS;
}

/* What it is worth that an allocation of the model is this one of the new run. 0: it is not. One
 * that lacks a partner costs 1. A block that lives on may be a state that the first step makes, of
 * the size of a temporary one. Or it is a gradient that later steps add to. It is worth less. */
static int32_t worth_of(const struct ebb_pairing *pairing, size_t alloc, size_t newest)
{
    uint64_t from = pairing->sizes[alloc], to = pairing->newest[newest].size_bytes;
    if (!ebb__pairing_agrees(pairing, from, to))
        return 0;
    if (!ebb__pairing_is_young(pairing, alloc, newest))
        return 1;
    double off = (double)to - (double)from * pairing->ratio;
    return from == to || (off < NEAR_BYTES && off > -NEAR_BYTES) ? MOST_WORTH : MOST_WORTH - 1;
}

/* Steps of a path through the table of align(), backwards. */
enum step { STEP_NONE, STEP_BOTH, STEP_MODEL, STEP_RUN };

/* Fills a row of the table: what the path to each cell is worth, and its last step. A path may
 * begin anywhere. */
static void fill_row(const struct ebb_pairing *pairing, size_t alloc, const int32_t *above,
                     int32_t *worth, uint8_t *steps)
{
    worth[0] = 0;
    for (size_t j = 0; j < pairing->count; j++) {
        int32_t both = worth_of(pairing, alloc, j), diagonal = above[j] + both;
        int32_t best = worth[j] > above[j + 1] ? worth[j] - 1 : above[j + 1] - 1;
        steps[j] = worth[j] > above[j + 1] ? STEP_RUN : STEP_MODEL;
        if (both > 0 && diagonal >= best) {
            best = diagonal;
            steps[j] = STEP_BOTH;
        }
        if (best <= 0) {
            best = 0;
            steps[j] = STEP_NONE;
        }
        worth[j + 1] = best;
    }
}

/* Fills the table: a row for each allocation of two iterations, a column for each of the new run.
 * Finds the end of the path that is worth most. Of several it is the newest. */
static struct pair fill_table(const struct ebb_pairing *pairing, uint8_t *steps, int32_t *worth)
{
    int32_t best = 0, *above = worth, *below = worth + pairing->count + 1;
    struct pair end = {0, 0};
    for (size_t i = 0; i < 2 * pairing->allocs; i++) {
        fill_row(pairing, i % pairing->allocs, above, below, steps + i * pairing->count);
        for (size_t j = 0; j < pairing->count; j++)
            if (below[j + 1] > best || (below[j + 1] == best && j > end.run)) {
                best = below[j + 1];
                end = (struct pair){i, j};
            }
        int32_t *other = above;
        above = below;
        below = other;
    }
    return end;
}

/* Writes the pairs of the path that ends there, in order. Returns their number. */
static size_t trace_path(const struct ebb_pairing *pairing, const uint8_t *steps, struct pair end,
                         struct pair *pairs)
{
    size_t most = 2 * pairing->allocs, count = 0, i = end.model, j = end.run;
    while (count < most && steps[i * pairing->count + j] != STEP_NONE) {
        uint8_t step = steps[i * pairing->count + j];
        if (step == STEP_BOTH)
            pairs[most - ++count] = (struct pair){i, j};
        if ((step != STEP_RUN && i-- == 0) || (step != STEP_MODEL && j-- == 0))
            break;
    }
    memmove(pairs, pairs + most - count, count * sizeof *pairs);
    return count;
}

struct window {
    size_t first, count; /* pairs */
};

/* In a window all freed blocks of the new run cost 1: those of a pair gain it back. */
static int64_t worth_in_window(const struct ebb_pairing *pairing, struct pair pair)
{
    return worth_of(pairing, pair.model % pairing->allocs, pair.run) +
           pairing->newest[pair.run].freed;
}

/* Of the path's windows of one iteration, the one that is worth most. Of several it is the newest.
 * The new run's allocations between the pair before it and the window belong to it. So a window
 * that begins behind them is not better. Blocks that live on do not count: they are states.
 *   freed  how many of the new run's blocks before each one have been freed */
static struct window choose_window(const struct ebb_pairing *pairing, const struct pair *pairs,
                                   size_t count, const size_t *freed)
{
    struct window window = {0, 0};
    size_t begin = 0;
    int64_t best = INT64_MIN, worth = 0;
    for (size_t end = 0; end < count; end++) {
        worth += worth_in_window(pairing, pairs[end]);
        for (; pairs[begin].model + pairing->allocs <= pairs[end].model; begin++)
            worth -= worth_in_window(pairing, pairs[begin]);
        size_t found = end - begin + 1;
        size_t first = begin ? pairs[begin - 1].run + 1 : pairs[0].run;
        size_t last = begin ? pairs[end].run + 1 : pairing->count;
        int64_t lacking = (int64_t)(freed[last] - freed[first] + pairing->allocs - found);
        if (worth - lacking < best)
            continue;
        best = worth - lacking;
        window = (struct window){begin, found};
    }
    return window;
}

static void note_window(struct ebb_pairing *pairing, const struct pair *pairs, struct window window)
{
    memset(pairing->at, 0, pairing->allocs * sizeof *pairing->at);
    for (size_t i = window.first; i < window.first + window.count; i++)
        pairing->at[pairs[i].model % pairing->allocs] = pairs[i].run + 1;
    pairing->first = pairs[window.first].model % pairing->allocs;
    pairing->found = window.count;
    pairing->behind = window.first ? pairs[window.first - 1].run + 1 : pairing->count;
}

enum ebb_status ebb__pairing_find(struct ebb_pairing *pairing)
{
    size_t rows = 2 * pairing->allocs;
    if (!pairing->count || pairing->count > MOST_CELLS / rows)
        return EBB_INFEASIBLE;
    uint8_t *steps = malloc(rows * pairing->count);
    int32_t *worth = calloc(2 * (pairing->count + 1), sizeof *worth);
    struct pair *pairs = calloc(rows, sizeof *pairs);
    size_t *freed = calloc(pairing->count + 1, sizeof *freed);
    enum ebb_status status = steps && worth && pairs && freed ? EBB_INFEASIBLE : EBB_ERR_MEMORY;
    if (status == EBB_INFEASIBLE) {
        for (size_t j = 0; j < pairing->count; j++)
            freed[j + 1] = freed[j] + pairing->newest[j].freed;
        struct pair end = fill_table(pairing, steps, worth);
        size_t count = trace_path(pairing, steps, end, pairs);
        struct window window = choose_window(pairing, pairs, count, freed);
        if (window.count) {
            note_window(pairing, pairs, window);
            status = EBB_OK;
        }
    }
    free(steps);
    free(worth);
    free(pairs);
    free(freed);
    return status;
}
