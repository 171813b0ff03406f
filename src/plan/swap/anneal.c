/* Local search over the choice of gaps.
 *
 * Problem: take gaps so that the highest resident size is least. Copies out run one by one as
 * blocks become ready. Copies in run one by one as late as possible, and none is late.
 * Method: (1) Greedy: repeatedly takes the gap that leaves least excess over a target (squared and
 * summed over the curve). (2) Simulated annealing on the same measure (measure.c). A move adds or
 * removes a gap, alone or with one or two others that become ready or are due near it. Gaps that
 * compete for a lane can replace each other. A worse result is kept with a probability that falls
 * over time. Whenever nothing exceeds the target, the target is lowered below the reached peak.
 * Complexity: a microsecond or two a move, for thousands of events.
 * Fails: like any local search; it proves nothing (src/lab/bound does).
 * Measured on VGG (bench/zero_stall.c): of 40 seeds all get below 255 MiB within 0.9 s of CPU time,
 * half within 0.25 s. Without the neighbours most seeds end at 258 MiB.
 * Source: annealing after Kirkpatrick, Gelatt and Vecchi 1983; the measure after docs/papers.md,
 * AutoSwap; the rest is ours. */
#include "plan/swap/anneal.h"

#include "base/tuning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t chance(struct ebb_anneal *anneal)
{
    uint64_t *state = &anneal->chance;
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

/* Sorts the useful items in the order of each lane. */
static void orders_make(struct ebb_anneal *anneal)
{
    const struct ebb_measure *measure = &anneal->measure;
    for (int lane = 0; lane < 2; lane++) {
        const uint32_t *rank = lane ? measure->due_rank : measure->ready_rank;
        uint32_t *at = anneal->place[lane], count = 0;
        for (uint32_t i = 0; i < measure->item_count; i++)
            at[i] = UINT32_MAX;
        for (uint32_t u = 0; u < measure->useful_count; u++)
            at[rank[measure->useful[u]]] = measure->useful[u];
        for (uint32_t r = 0; r < measure->item_count; r++)
            if (at[r] != UINT32_MAX)
                anneal->order[lane][count++] = at[r];
        for (uint32_t i = 0; i < count; i++)
            at[anneal->order[lane][i]] = i;
    }
}

enum ebb_status ebb__anneal_init(struct ebb_anneal *anneal, struct ebb_swap *swap,
                                 const uint64_t *time_ns, struct ebb_error *error)
{
    *anneal = (struct ebb_anneal){.swap = swap,
                                  .time_ns = time_ns,
                                  .chance = ebb__plan_chance(swap->request, EBB_ANNEAL_SEED),
                                  .best_peak_bytes = UINT64_MAX};
    enum ebb_status status = ebb__measure_init(&anneal->measure, swap, time_ns, error);
    if (status)
        return status;
    size_t items = swap->gap_count + 1u;
    for (int lane = 0; lane < 2; lane++) {
        anneal->order[lane] = malloc(items * sizeof *anneal->order[lane]);
        anneal->place[lane] = malloc(items * sizeof *anneal->place[lane]);
    }
    anneal->best = calloc(items, sizeof *anneal->best);
    anneal->best_start_ns = calloc(items, sizeof *anneal->best_start_ns);
    if (anneal->best && anneal->best_start_ns && anneal->order[0] && anneal->order[1] &&
        anneal->place[0] && anneal->place[1]) {
        orders_make(anneal);
        return EBB_OK;
    }
    ebb__anneal_fini(anneal);
    return ebb__fail(error, EBB_ERR_MEMORY, "plan", "out of memory");
}

void ebb__anneal_fini(struct ebb_anneal *anneal)
{
    ebb__measure_fini(&anneal->measure);
    for (int lane = 0; lane < 2; lane++) {
        free(anneal->order[lane]);
        free(anneal->place[lane]);
    }
    free(anneal->best);
    free(anneal->best_start_ns);
    memset(anneal, 0, sizeof *anneal);
}

/* ---- search ---------------------------------------------------------------------------------- */

static void best_note(struct ebb_anneal *anneal, int64_t peak_bytes)
{
    if ((uint64_t)peak_bytes >= anneal->best_peak_bytes)
        return;
    anneal->best_peak_bytes = (uint64_t)peak_bytes;
    for (uint32_t i = 0; i < anneal->measure.item_count; i++) {
        anneal->best[i] = anneal->measure.items[i].taken;
        anneal->best_start_ns[i] = anneal->measure.items[i].start_ns;
    }
}

/* The true peak of the taken gaps. */
static int64_t peak_now(struct ebb_anneal *anneal)
{
    return ebb__measure_peak(&anneal->measure);
}

static void best_restore(struct ebb_anneal *anneal)
{
    for (uint32_t i = 0; i < anneal->measure.item_count; i++)
        if (anneal->measure.items[i].taken != anneal->best[i])
            ebb__measure_turn_over(&anneal->measure, i);
}

void ebb__anneal_start(struct ebb_anneal *anneal)
{
    for (uint32_t i = 0; i < anneal->measure.item_count; i++)
        anneal->measure.items[i].taken = anneal->swap->gaps[i].taken;
    /* Gaps needed before their copy out ends are dropped, which gives the others more lane time. */
    for (bool late = true; late;) {
        late = false;
        ebb__measure_retake(&anneal->measure);
        ebb__measure_schedule(&anneal->measure);
        for (uint32_t i = 0; i < anneal->measure.item_count; i++) {
            struct ebb_measure_item *item = &anneal->measure.items[i];
            if (!item->taken || item->start_ns >= item->end_ns)
                continue;
            item->taken = false;
            late = true;
        }
    }
    best_note(anneal, peak_now(anneal));
}

void ebb__anneal_greedy(struct ebb_anneal *anneal, uint64_t target_bytes, uint64_t limit_steps)
{
    /* The target follows the peak down: loads far below the peak are not considered yet. */
    while (anneal->best_peak_bytes > target_bytes &&
           !ebb__effort_is_over(&anneal->swap->effort, limit_steps)) {
        int64_t peak = peak_now(anneal), target = peak - peak / 16;
        target = target > (int64_t)target_bytes ? target : (int64_t)target_bytes;
        double least = ebb__measure(&anneal->measure, target, INFINITY).excess;
        uint32_t best = UINT32_MAX;
        for (uint32_t u = 0; u < anneal->measure.useful_count; u++) {
            uint32_t i = anneal->measure.useful[u];
            if (anneal->measure.items[i].taken)
                continue;
            ebb__measure_turn_over(&anneal->measure, i);
            double excess = ebb__measure(&anneal->measure, target, least).excess;
            ebb__measure_turn_over(&anneal->measure, i);
            if (excess < least) {
                least = excess;
                best = i;
            }
        }
        if (best == UINT32_MAX)
            break;
        ebb__measure_turn_over(&anneal->measure, best);
        best_note(anneal, peak_now(anneal));
    }
}

/* A gap that competes with another for a lane: it becomes ready, or is due, near it. */
static uint32_t neighbour(struct ebb_anneal *anneal, uint32_t item)
{
    uint64_t drawn = chance(anneal);
    int lane = (int)(drawn >> 63);
    uint32_t count = anneal->measure.useful_count, near = (uint32_t)ebb__tuning()->anneal_near;
    uint32_t reach = near < count ? near : count;
    uint32_t shift = 1 + (uint32_t)((drawn & 0xffffffff) % reach);
    uint32_t place = anneal->place[lane][item];
    place = (drawn >> 62) & 1 ? place + shift : place + count - shift % count;
    return anneal->order[lane][place % count];
}

/* Chooses one gap to add or remove, or one with one or two of its neighbours. */
static uint32_t move_choose(struct ebb_anneal *anneal, uint32_t moved[3])
{
    const struct ebb_measure_item *items = anneal->measure.items;
    uint64_t drawn = chance(anneal), kind = drawn % 8;
    moved[0] = anneal->measure.useful[(drawn >> 8) % anneal->measure.useful_count];
    if (kind < 4)
        return 1;
    moved[1] = neighbour(anneal, moved[0]);
    bool exchanged = items[moved[0]].taken != items[moved[1]].taken;
    if (moved[0] == moved[1] || (!exchanged && kind != 7))
        return 1;
    if (kind < 6)
        return 2;
    moved[2] = neighbour(anneal, moved[drawn >> 63]);
    return moved[2] == moved[0] || moved[2] == moved[1] ? 2 : 3;
}

static int64_t target_below(int64_t peak_bytes, uint64_t target_bytes)
{
    int64_t below = peak_bytes - (int64_t)((double)peak_bytes * ebb__tuning()->anneal_fall) - 1;
    return below > (int64_t)target_bytes ? below : (int64_t)target_bytes;
}

void ebb__anneal_run(struct ebb_anneal *anneal, uint64_t target_bytes, uint64_t limit_steps)
{
    if (anneal->measure.useful_count == 0)
        return;
    best_restore(anneal);
    int64_t target = target_below((int64_t)anneal->best_peak_bytes, target_bytes);
    struct ebb_measured now = ebb__measure(&anneal->measure, target, INFINITY);
    double hot = ebb__tuning()->anneal_hot, cold = ebb__tuning()->anneal_cold;
    double fall = pow(cold / hot, 2 / (double)ebb__tuning()->anneal_round_moves);
    double heat = hot * hot, scale;
    while (anneal->best_peak_bytes > target_bytes &&
           !ebb__effort_is_over(&anneal->swap->effort, limit_steps)) {
        scale = (double)target * (double)target;
        heat *= fall;
        if (heat < cold * cold) {
            heat = hot * hot;
            best_restore(anneal);
            now = ebb__measure(&anneal->measure, target, INFINITY);
        }
        uint32_t moved[3];
        uint32_t count = move_choose(anneal, moved);
        for (uint32_t i = 0; i < count; i++)
            ebb__measure_turn_over(&anneal->measure, moved[i]);
        /* A result worse by dE is accepted with probability exp(-dE / heat); the random number is
         * drawn first. */
        double luck = (double)((chance(anneal) >> 11) + 1) * 0x1p-53;
        double limit = now.excess - log(luck) * heat * scale;
        struct ebb_measured then = ebb__measure(&anneal->measure, target, limit);
        anneal->moves++;
        if (then.excess > limit) {
            for (uint32_t i = 0; i < count; i++)
                ebb__measure_turn_over(&anneal->measure, moved[i]);
            continue;
        }
        now = then;
        if (then.peak_bytes >= (int64_t)anneal->best_peak_bytes)
            continue;
        best_note(anneal, peak_now(anneal));
        target = target_below((int64_t)anneal->best_peak_bytes, target_bytes);
        now = ebb__measure(&anneal->measure, target, INFINITY);
    }
    if (anneal->moves)
        ebb__plan_used_chance(anneal->swap->request);
}

void ebb__anneal_take(const struct ebb_anneal *anneal, struct ebb_swap *swap)
{
    const uint64_t *model_ns = swap->model->time_ns;
    for (uint32_t i = 0; i < anneal->measure.item_count; i++) {
        struct ebb_swap_gap *gap = &swap->gaps[i];
        gap->taken = anneal->best[i];
        if (!gap->taken || gap->drops)
            continue;
        int64_t laps;
        uint64_t start_ns =
            (uint64_t)ebb__measure_wrap(anneal->best_start_ns[i], anneal->measure.lap_ns, &laps);
        /* The last tick at or before it; later than that, as long as the program does not wait. */
        uint32_t low = 0, high = swap->cell_count;
        while (high - low > 1) {
            uint32_t middle = low + (high - low) / 2;
            if (anneal->time_ns[middle] <= start_ns)
                low = middle;
            else
                high = middle;
        }
        uint64_t since = start_ns > anneal->time_ns[low] ? start_ns - anneal->time_ns[low] : 0;
        uint64_t cell_ns = model_ns[low + 1] - model_ns[low];
        uint64_t begin_ns = start_ns < anneal->time_ns[low] ? start_ns : model_ns[low];
        gap->trigger_ns = (begin_ns + (since < cell_ns ? since : cell_ns)) % swap->lap_ns;
    }
}
