/* Local search over the choice of gaps.
 *
 * Problem: take gaps so that the largest resident figure is least, while copies out run one by one as
 * blocks become ready, copies in one by one as late as they may, and none is late.
 * Method: (1) Greedy: again and again the gap that leaves least excess over a target, squared and
 * summed over the curve. (2) Simulated annealing on the same measure: turn a gap over, or exchange
 * two; what is worse is kept with a chance that falls with time. Whenever nothing is left over the
 * target, the target falls below what was reached.
 * Evaluation is what counts: three streams that are in order already (the load's steps, ends of
 * copies out, starts of copies in) are merged once; nothing is sorted and no simulator is run.
 * Complexity: O(steps + taken) a move, a few microseconds for thousands of events.
 * Fails: like any local search; it proves nothing (src/plan/bound does).
 * Source: annealing after Kirkpatrick, Gelatt and Vecchi 1983; the measure after docs/papers.md,
 * AutoSwap; the rest is ours. */
#include "plan/swap/anneal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CLOCK_EVERY 64      /* moves between two looks at the clock */
#define TARGET_FALL 0.003   /* measured on VGG: smaller steps take longer, larger ones get stuck */
#define HOT 1e-2            /* excess, as a share of the peak, whose square is accepted at first */
#define COLD 3e-3           /* and at last */
#define ROUND_MOVES 10000.0 /* from hot to cold; then again from the best */

struct ebb_anneal_item {
    int64_t ready_ns, due_ns; /* unrolled: ready in [0, lap) */
    int64_t out_ns, in_ns;
    int64_t bytes;
    bool drops, taken;
    int64_t end_ns;   /* of the copy out, as scheduled */
    int64_t start_ns; /* of the copy in, or when it is freed */
};

struct ebb_anneal_step {
    int64_t at_ns;
    int64_t load_bytes; /* the largest from here to the next step */
};

/* Something that a lane does to the curve. */
struct ebb_anneal_instant {
    int64_t at_ns, bytes;
};

struct measure {
    double excess; /* squares, summed, in bytes */
    int64_t peak_bytes;
};

static uint64_t chance(struct ebb_anneal *anneal)
{
    uint64_t *state = &anneal->chance;
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void steps_make(struct ebb_anneal *anneal)
{
    const struct ebb_swap *swap = anneal->swap;
    for (uint32_t t = 0; t < swap->cell_count; t++) {
        struct ebb_anneal_step step = {(int64_t)anneal->time_ns[t], (int64_t)swap->load[t]};
        struct ebb_anneal_step *last = &anneal->steps[anneal->step_count - 1];
        if (anneal->step_count > 0 && last->at_ns == step.at_ns) {
            if (step.load_bytes > last->load_bytes)
                last->load_bytes = step.load_bytes;
        } else if (anneal->step_count == 0 || last->load_bytes != step.load_bytes) {
            anneal->steps[anneal->step_count++] = step;
        }
    }
}

struct rank_key {
    int64_t key;
    uint32_t item;
};

static int rank_compare(const void *left, const void *right)
{
    const struct rank_key *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return (a->item > b->item) - (a->item < b->item);
}

static bool ranks_make(struct ebb_anneal *anneal)
{
    struct rank_key *keys = malloc((anneal->item_count + 1u) * sizeof *keys);
    if (!keys)
        return false;
    for (int due = 0; due < 2; due++) {
        uint32_t *rank = due ? anneal->due_rank : anneal->ready_rank;
        for (uint32_t i = 0; i < anneal->item_count; i++) {
            const struct ebb_anneal_item *item = &anneal->items[i];
            int64_t due_ns = ((item->due_ns % anneal->lap_ns) + anneal->lap_ns) % anneal->lap_ns;
            keys[i] = (struct rank_key){due ? due_ns : item->ready_ns, i};
        }
        qsort(keys, anneal->item_count, sizeof *keys, rank_compare);
        for (uint32_t i = 0; i < anneal->item_count; i++)
            rank[keys[i].item] = i;
    }
    free(keys);
    return true;
}

enum ebb_status ebb__anneal_init(struct ebb_anneal *anneal, const struct ebb_swap *swap,
                                 const uint64_t *time_ns, uint64_t margin_ns,
                                 struct ebb_error *error)
{
    size_t items = swap->gap_count + 1u;
    *anneal = (struct ebb_anneal){.swap = swap,
                                  .time_ns = time_ns,
                                  .lap_ns = (int64_t)time_ns[swap->cell_count],
                                  .item_count = swap->gap_count,
                                  .chance = 0x9e3779b97f4a7c15u,
                                  .best_peak_bytes = UINT64_MAX};
    anneal->items = calloc(items, sizeof *anneal->items);
    anneal->steps = malloc((swap->cell_count + 2u) * sizeof *anneal->steps);
    anneal->by_ready = malloc(items * sizeof *anneal->by_ready);
    anneal->by_due = malloc(items * sizeof *anneal->by_due);
    anneal->ready_rank = malloc(items * sizeof *anneal->ready_rank);
    anneal->due_rank = malloc(items * sizeof *anneal->due_rank);
    anneal->outs = malloc(2 * items * sizeof *anneal->outs);
    anneal->ins = malloc(2 * items * sizeof *anneal->ins);
    anneal->useful = malloc(items * sizeof *anneal->useful);
    anneal->best = calloc(items, sizeof *anneal->best);
    anneal->best_start_ns = calloc(items, sizeof *anneal->best_start_ns);
    if (!anneal->items || !anneal->steps || !anneal->by_ready || !anneal->by_due ||
        !anneal->ready_rank || !anneal->due_rank || !anneal->useful || !anneal->outs ||
        !anneal->ins || !anneal->best || !anneal->best_start_ns) {
        ebb__anneal_fini(anneal);
        return ebb__fail(error, EBB_ERR_MEMORY, "plan", "out of memory");
    }
    steps_make(anneal);
    anneal->steps[anneal->step_count].at_ns = INT64_MAX;
    int64_t slower = swap->request->machine->duplex ? 1 : 2;
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        const struct ebb_swap_gap *gap = &swap->gaps[i];
        uint32_t end = gap->drops ? gap->to_tick : gap->due_tick;
        int64_t ready_ns = (int64_t)time_ns[gap->ready_tick], end_ns = (int64_t)time_ns[end];
        end_ns += end <= gap->ready_tick ? anneal->lap_ns : 0;
        anneal->items[i] = (struct ebb_anneal_item){
            .ready_ns = ready_ns,
            .due_ns = end_ns - (gap->drops ? 0 : (int64_t)margin_ns),
            .out_ns = (int64_t)gap->out_ns * slower,
            .in_ns = (int64_t)gap->in_ns * slower,
            .bytes = (int64_t)gap->bytes,
            .drops = gap->drops,
        };
        const struct ebb_anneal_item *item = &anneal->items[i];
        if (item->due_ns - item->ready_ns >= item->out_ns + item->in_ns)
            anneal->useful[anneal->useful_count++] = i;
    }
    if (ranks_make(anneal))
        return EBB_OK;
    ebb__anneal_fini(anneal);
    return ebb__fail(error, EBB_ERR_MEMORY, "plan", "out of memory");
}

void ebb__anneal_fini(struct ebb_anneal *anneal)
{
    free(anneal->items);
    free(anneal->steps);
    free(anneal->by_ready);
    free(anneal->by_due);
    free(anneal->ready_rank);
    free(anneal->due_rank);
    free(anneal->useful);
    free(anneal->outs);
    free(anneal->ins);
    free(anneal->best);
    free(anneal->best_start_ns);
    memset(anneal, 0, sizeof *anneal);
}

/* ---- evaluation ------------------------------------------------------------------------------ */

static void list_insert(uint32_t *list, uint32_t count, const uint32_t *rank, uint32_t item)
{
    uint32_t place = count;
    for (; place > 0 && rank[list[place - 1]] > rank[item]; place--)
        list[place] = list[place - 1];
    list[place] = item;
}

static void list_remove(uint32_t *list, uint32_t count, uint32_t item)
{
    uint32_t place = 0;
    while (list[place] != item)
        place++;
    memmove(&list[place], &list[place + 1], (count - place - 1) * sizeof *list);
}

static void turn_over(struct ebb_anneal *anneal, uint32_t index)
{
    struct ebb_anneal_item *item = &anneal->items[index];
    if (item->taken) {
        list_remove(anneal->by_ready, anneal->taken_count, index);
        list_remove(anneal->by_due, anneal->taken_count--, index);
    } else {
        list_insert(anneal->by_ready, anneal->taken_count, anneal->ready_rank, index);
        list_insert(anneal->by_due, anneal->taken_count++, anneal->due_rank, index);
    }
    item->taken = !item->taken;
}

/* Both lanes, two turns each: the second begins with what the first leaves across the lap's end. */
static void schedule(struct ebb_anneal *anneal)
{
    int64_t lap = anneal->lap_ns, free_ns = INT64_MIN / 2, next_ns = INT64_MAX / 2;
    uint32_t count = anneal->taken_count;
    for (int turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < count; i++) {
            struct ebb_anneal_item *item = &anneal->items[anneal->by_ready[i]];
            int64_t start = item->ready_ns > free_ns ? item->ready_ns : free_ns;
            item->end_ns = free_ns = start + item->out_ns;
        }
        free_ns -= lap;
    }
    for (int turn = 0; turn < 2; turn++) {
        for (uint32_t i = count; i-- > 0;) {
            struct ebb_anneal_item *item = &anneal->items[anneal->by_due[i]];
            if (item->drops) {
                item->start_ns = item->due_ns;
                continue;
            }
            int64_t unrolled = item->due_ns >= lap ? lap : 0;
            int64_t due = item->due_ns - unrolled;
            next_ns = (due < next_ns ? due : next_ns) - item->in_ns;
            item->start_ns = next_ns + unrolled;
        }
        next_ns += lap;
    }
}

/* An instant on the cyclic timeline, and on which lap from its own. */
static int64_t wrap(int64_t at_ns, int64_t lap_ns, int64_t *laps)
{
    *laps = 0;
    while (at_ns >= lap_ns)
        at_ns -= lap_ns, ++*laps;
    while (at_ns < 0)
        at_ns += lap_ns, --*laps;
    return at_ns;
}

/* What a lane does, on the cyclic timeline: in order but for one place where the lap ends. Ends with
 * an instant that never comes. */
static void instants_make(const struct ebb_anneal *anneal, bool in,
                          struct ebb_anneal_instant *instants)
{
    uint32_t count = anneal->taken_count, begin = 0;
    const uint32_t *list = in ? anneal->by_due : anneal->by_ready;
    struct ebb_anneal_instant *copy = &instants[count];
    for (uint32_t i = 0; i < count; i++) {
        const struct ebb_anneal_item *item = &anneal->items[list[i]];
        int64_t laps;
        copy[i].at_ns = wrap(in ? item->start_ns : item->end_ns, anneal->lap_ns, &laps);
        copy[i].bytes = item->bytes;
        if (i > 0 && copy[i].at_ns < copy[i - 1].at_ns)
            begin = i;
    }
    memmove(instants, &copy[begin], (count - begin) * sizeof *instants);
    memmove(&instants[count - begin], copy, begin * sizeof *instants);
    instants[count] = (struct ebb_anneal_instant){INT64_MAX, 0};
}

/* Schedule what is taken and measure the curve over `target_bytes`; given up where the excess is over
 * `limit`. */
static struct measure evaluate(struct ebb_anneal *anneal, int64_t target_bytes, double limit)
{
    struct measure measure = {0, 0};
    int64_t absent = 0, lap = anneal->lap_ns;
    schedule(anneal);
    for (uint32_t i = 0; i < anneal->taken_count; i++) {
        const struct ebb_anneal_item *item = &anneal->items[anneal->by_ready[i]];
        int64_t out_lap, in_lap;
        wrap(item->end_ns, lap, &out_lap);
        wrap(item->start_ns, lap, &in_lap);
        absent += (in_lap - out_lap) * item->bytes; /* across the lap's end */
        if (item->start_ns < item->end_ns) {
            /* Wanted before it is gone: worse than not to take it. */
            measure.excess += 4.0 * (double)item->bytes * (double)item->bytes;
            measure.peak_bytes = INT64_MAX;
        }
    }
    instants_make(anneal, false, anneal->outs);
    instants_make(anneal, true, anneal->ins);
    const struct ebb_anneal_instant *out = anneal->outs, *in = anneal->ins;
    const struct ebb_anneal_step *step = anneal->steps, *last = step + anneal->step_count;
    int64_t load = last[-1].load_bytes, most = target_bytes;
    for (; measure.excess <= limit;) {
        /* At one instant: what has left, what the program does, what begins to come. */
        if (out->at_ns <= step->at_ns && out->at_ns <= in->at_ns) {
            if (out->at_ns == INT64_MAX)
                break;
            absent += (out++)->bytes;
            continue;
        }
        if (step->at_ns <= in->at_ns)
            load = (step++)->load_bytes;
        else
            absent -= (in++)->bytes;
        int64_t excess = load - absent - target_bytes;
        if (excess <= 0)
            continue;
        measure.excess += (double)excess * (double)excess;
        most = load - absent > most ? load - absent : most;
    }
    if (most > measure.peak_bytes)
        measure.peak_bytes = most;
    return measure;
}

/* ---- search ---------------------------------------------------------------------------------- */

static void best_note(struct ebb_anneal *anneal, int64_t peak_bytes)
{
    if ((uint64_t)peak_bytes >= anneal->best_peak_bytes)
        return;
    anneal->best_peak_bytes = (uint64_t)peak_bytes;
    for (uint32_t i = 0; i < anneal->item_count; i++) {
        anneal->best[i] = anneal->items[i].taken;
        anneal->best_start_ns[i] = anneal->items[i].start_ns;
    }
}

/* The true peak of what is taken. */
static int64_t peak_now(struct ebb_anneal *anneal)
{
    return evaluate(anneal, 0, INFINITY).peak_bytes;
}

static void best_restore(struct ebb_anneal *anneal)
{
    for (uint32_t i = 0; i < anneal->item_count; i++)
        if (anneal->items[i].taken != anneal->best[i])
            turn_over(anneal, i);
}

void ebb__anneal_start(struct ebb_anneal *anneal)
{
    for (uint32_t i = 0; i < anneal->item_count; i++)
        if (anneal->items[i].taken != anneal->swap->gaps[i].taken)
            turn_over(anneal, i);
    /* What would be wanted before it is gone is let go, which only gives the others time. */
    for (bool late = true; late;) {
        late = false;
        schedule(anneal);
        for (uint32_t i = 0; i < anneal->item_count; i++) {
            const struct ebb_anneal_item *item = &anneal->items[i];
            if (!item->taken || item->start_ns >= item->end_ns)
                continue;
            turn_over(anneal, i);
            late = true;
        }
    }
    best_note(anneal, peak_now(anneal));
}

void ebb__anneal_greedy(struct ebb_anneal *anneal, uint64_t target_bytes, uint64_t deadline_ns)
{
    /* The target follows the peak down: what lies far below it does not count yet. */
    while (anneal->best_peak_bytes > target_bytes && ebb__now_ns() <= deadline_ns) {
        int64_t peak = peak_now(anneal), target = peak - peak / 16;
        target = target > (int64_t)target_bytes ? target : (int64_t)target_bytes;
        double least = evaluate(anneal, target, INFINITY).excess;
        uint32_t best = UINT32_MAX;
        for (uint32_t u = 0; u < anneal->useful_count; u++) {
            uint32_t i = anneal->useful[u];
            if (anneal->items[i].taken)
                continue;
            turn_over(anneal, i);
            double excess = evaluate(anneal, target, least).excess;
            turn_over(anneal, i);
            if (excess < least) {
                least = excess;
                best = i;
            }
        }
        if (best == UINT32_MAX)
            break;
        turn_over(anneal, best);
        best_note(anneal, peak_now(anneal));
    }
}

/* One gap to turn over, or two of which one is taken. */
static uint32_t move_choose(struct ebb_anneal *anneal, uint32_t moved[2])
{
    moved[0] = anneal->useful[chance(anneal) % anneal->useful_count];
    if (anneal->taken_count == 0 || chance(anneal) % 2)
        return 1;
    moved[1] = anneal->by_ready[chance(anneal) % anneal->taken_count];
    return anneal->items[moved[0]].taken || moved[0] == moved[1] ? 1 : 2;
}

static int64_t target_below(int64_t peak_bytes, uint64_t target_bytes)
{
    int64_t below = peak_bytes - (int64_t)((double)peak_bytes * TARGET_FALL) - 1;
    return below > (int64_t)target_bytes ? below : (int64_t)target_bytes;
}

void ebb__anneal_run(struct ebb_anneal *anneal, uint64_t target_bytes, uint64_t deadline_ns)
{
    if (anneal->useful_count == 0)
        return;
    best_restore(anneal);
    int64_t target = target_below((int64_t)anneal->best_peak_bytes, target_bytes);
    struct measure now = evaluate(anneal, target, INFINITY);
    double fall = pow(COLD / HOT, 2 / ROUND_MOVES), heat = HOT * HOT, scale = 0;
    for (uint64_t move = 0; anneal->best_peak_bytes > target_bytes; move++) {
        if (move % CLOCK_EVERY == 0) {
            if (ebb__now_ns() > deadline_ns)
                break;
            scale = (double)target * (double)target;
        }
        heat *= fall;
        if (heat < COLD * COLD) {
            heat = HOT * HOT;
            best_restore(anneal);
            now = evaluate(anneal, target, INFINITY);
        }
        uint32_t moved[2];
        uint32_t count = move_choose(anneal, moved);
        for (uint32_t i = 0; i < count; i++)
            turn_over(anneal, moved[i]);
        /* Worse by dE is accepted with the chance exp(-dE / heat): the lot is drawn first. */
        double luck = (double)((chance(anneal) >> 11) + 1) * 0x1p-53;
        double limit = now.excess - log(luck) * heat * scale;
        struct measure then = evaluate(anneal, target, limit);
        anneal->moves++;
        if (then.excess > limit) {
            for (uint32_t i = 0; i < count; i++)
                turn_over(anneal, moved[i]);
            continue;
        }
        now = then;
        if (then.peak_bytes >= (int64_t)anneal->best_peak_bytes)
            continue;
        best_note(anneal, peak_now(anneal));
        target = target_below((int64_t)anneal->best_peak_bytes, target_bytes);
        now = evaluate(anneal, target, INFINITY);
    }
}

void ebb__anneal_take(const struct ebb_anneal *anneal, struct ebb_swap *swap)
{
    const uint64_t *model_ns = swap->model->time_ns;
    for (uint32_t i = 0; i < anneal->item_count; i++) {
        struct ebb_swap_gap *gap = &swap->gaps[i];
        gap->taken = anneal->best[i];
        if (!gap->taken || gap->drops)
            continue;
        int64_t laps;
        uint64_t start_ns = (uint64_t)wrap(anneal->best_start_ns[i], anneal->lap_ns, &laps);
        /* The last tick at or before it; behind that, as long as the program does not wait. */
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
