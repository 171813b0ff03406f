/* The measure of a choice.
 *
 * Problem: the resident curve's excess over a target, for choices that differ by a gap or two.
 * Method: three sorted streams (steps of the load, ends of copies out, starts of copies in) are
 * merged once. Nothing is sorted and no simulator is run. Only some steps are examined: initially
 * the highest of each short span of time, later also those that were a peak. Whenever a choice
 * looks better than all before, the full merge decides.
 * Complexity: O(watched steps + taken), a microsecond for thousands of events.
 * Source: ours. */
#include "plan/swap/measure.h"

#include "base/tuning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BUCKET_BITS 11 /* two to this power spans are used to find the step at an instant */

struct rank_key {
    int64_t key;
    uint32_t item;
};

int64_t ebb__measure_wrap(int64_t at_ns, int64_t lap_ns, int64_t *laps)
{
    *laps = 0;
    while (at_ns >= lap_ns)
        at_ns -= lap_ns, ++*laps;
    while (at_ns < 0)
        at_ns += lap_ns, --*laps;
    return at_ns;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void steps_make(struct ebb_measure *measure, const struct ebb_swap *swap,
                       const uint64_t *time_ns)
{
    uint32_t count = 0;
    for (uint32_t t = 0; t < swap->cell_count; t++) {
        struct ebb_measure_step step = {(int64_t)time_ns[t], (int64_t)swap->load[t]};
        struct ebb_measure_step *last = count ? &measure->steps[count - 1] : NULL;
        if (last && last->at_ns == step.at_ns) {
            if (step.load_bytes > last->load_bytes)
                last->load_bytes = step.load_bytes;
        } else if (!last || last->load_bytes != step.load_bytes) {
            measure->steps[count++] = step;
        }
    }
    measure->step_count = count;
    measure->steps[count] = (struct ebb_measure_step){INT64_MAX, 0};
}

static void buckets_make(struct ebb_measure *measure)
{
    int shift = 0;
    while (measure->lap_ns >> shift >= (int64_t)2 << BUCKET_BITS)
        shift++;
    measure->bucket_shift = shift;
    uint32_t step = 0;
    for (int64_t i = 0; i <= measure->lap_ns >> shift; i++) {
        while (step + 1 < measure->step_count && measure->steps[step + 1].at_ns <= i << shift)
            step++;
        measure->bucket[i] = step;
    }
}

static void watched_list(struct ebb_measure *measure)
{
    measure->watched_count = 0;
    for (uint32_t i = 0; i < measure->step_count; i++)
        if (measure->is_watched[i])
            measure->watched[measure->watched_count++] = i;
    measure->watched[measure->watched_count] = measure->step_count; /* a sentinel */
}

static void watched_make(struct ebb_measure *measure)
{
    for (uint32_t i = 0; i < measure->step_count;) {
        int64_t span = (int64_t)((double)measure->steps[i].at_ns / (double)measure->lap_ns *
                                 (double)ebb__tuning()->measure_spans);
        uint32_t highest = i;
        for (; i < measure->step_count &&
               (int64_t)((double)measure->steps[i].at_ns / (double)measure->lap_ns *
                         (double)ebb__tuning()->measure_spans) == span;
             i++)
            if (measure->steps[i].load_bytes > measure->steps[highest].load_bytes)
                highest = i;
        measure->is_watched[highest] = true;
    }
    watched_list(measure);
}

static int rank_compare(const void *left, const void *right)
{
    const struct rank_key *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return (a->item > b->item) - (a->item < b->item);
}

static bool ranks_make(struct ebb_measure *measure)
{
    struct rank_key *keys = malloc((measure->item_count + 1u) * sizeof *keys);
    if (!keys)
        return false;
    for (int due = 0; due < 2; due++) {
        uint32_t *rank = due ? measure->due_rank : measure->ready_rank;
        for (uint32_t i = 0; i < measure->item_count; i++) {
            const struct ebb_measure_item *item = &measure->items[i];
            int64_t laps, due_ns = ebb__measure_wrap(item->due_ns, measure->lap_ns, &laps);
            keys[i] = (struct rank_key){due ? due_ns : item->ready_ns, i};
        }
        qsort(keys, measure->item_count, sizeof *keys, rank_compare);
        for (uint32_t i = 0; i < measure->item_count; i++)
            rank[keys[i].item] = i;
    }
    free(keys);
    return true;
}

static void items_make(struct ebb_measure *measure, const struct ebb_swap *swap,
                       const uint64_t *time_ns)
{
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        const struct ebb_swap_gap *gap = &swap->gaps[i];
        /* Until the use itself, as in the simulator. In long stretches without an event, the last
         * event before the use would be much too early. */
        uint32_t end = gap->to_tick;
        int64_t ready_ns = (int64_t)time_ns[gap->ready_tick], end_ns = (int64_t)time_ns[end];
        end_ns += end <= gap->ready_tick ? measure->lap_ns : 0;
        measure->items[i] = (struct ebb_measure_item){
            .ready_ns = ready_ns,
            .due_ns = end_ns,
            .out_ns = (int64_t)((double)gap->out_ns / swap->lane_scale),
            .in_ns = (int64_t)((double)gap->in_ns / swap->lane_scale),
            .bytes = (int64_t)gap->bytes,
            .drops = gap->drops,
        };
        const struct ebb_measure_item *item = &measure->items[i];
        if (item->due_ns - item->ready_ns >= item->out_ns + item->in_ns)
            measure->useful[measure->useful_count++] = i;
    }
}

enum ebb_status ebb__measure_init(struct ebb_measure *measure, struct ebb_swap *swap,
                                  const uint64_t *time_ns, struct ebb_error *error)
{
    size_t items = swap->gap_count + 1u, steps = swap->cell_count + 2u;
    *measure = (struct ebb_measure){.effort = &swap->effort,
                                    .lap_ns = (int64_t)time_ns[swap->cell_count],
                                    .item_count = swap->gap_count};
    measure->items = calloc(items, sizeof *measure->items);
    measure->steps = malloc(steps * sizeof *measure->steps);
    measure->watched = malloc(steps * sizeof *measure->watched);
    measure->is_watched = calloc(steps, sizeof *measure->is_watched);
    measure->bucket = malloc((((size_t)2 << BUCKET_BITS) + 1) * sizeof *measure->bucket);
    measure->by_ready = malloc(items * sizeof *measure->by_ready);
    measure->by_due = malloc(items * sizeof *measure->by_due);
    measure->ready_rank = malloc(items * sizeof *measure->ready_rank);
    measure->ranked = malloc(items * sizeof *measure->ranked);
    measure->due_rank = malloc(items * sizeof *measure->due_rank);
    measure->outs = malloc(2 * items * sizeof *measure->outs);
    measure->ins = malloc(2 * items * sizeof *measure->ins);
    measure->useful = malloc(items * sizeof *measure->useful);
    bool good = measure->items && measure->steps && measure->watched && measure->is_watched &&
                measure->bucket && measure->by_ready && measure->by_due && measure->ready_rank &&
                measure->ranked && measure->due_rank && measure->outs && measure->ins &&
                measure->useful;
    if (good) {
        items_make(measure, swap, time_ns);
        steps_make(measure, swap, time_ns);
        buckets_make(measure);
        watched_make(measure);
        good = ranks_make(measure);
    }
    if (good)
        return EBB_OK;
    ebb__measure_fini(measure);
    return ebb__fail(error, EBB_ERR_MEMORY, "plan", "out of memory");
}

void ebb__measure_fini(struct ebb_measure *measure)
{
    free(measure->items);
    free(measure->steps);
    free(measure->watched);
    free(measure->is_watched);
    free(measure->bucket);
    free(measure->by_ready);
    free(measure->by_due);
    free(measure->ready_rank);
    free(measure->due_rank);
    free(measure->ranked);
    free(measure->outs);
    free(measure->ins);
    free(measure->useful);
    memset(measure, 0, sizeof *measure);
}

/* ---- the choice ------------------------------------------------------------------------------ */

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

void ebb__measure_turn_over(struct ebb_measure *measure, uint32_t index)
{
    struct ebb_measure_item *item = &measure->items[index];
    if (item->taken) {
        list_remove(measure->by_ready, measure->taken_count, index);
        list_remove(measure->by_due, measure->taken_count--, index);
    } else {
        list_insert(measure->by_ready, measure->taken_count, measure->ready_rank, index);
        list_insert(measure->by_due, measure->taken_count++, measure->due_rank, index);
    }
    item->taken = !item->taken;
}

/* Rebuilds the list of taken items by rank, from the items at all ranks. */
static void list_make(struct ebb_measure *measure, uint32_t *list, const uint32_t *rank)
{
    for (uint32_t i = 0; i < measure->item_count; i++)
        measure->ranked[rank[i]] = i;
    measure->taken_count = 0;
    for (uint32_t place = 0; place < measure->item_count; place++)
        if (measure->items[measure->ranked[place]].taken)
            list[measure->taken_count++] = measure->ranked[place];
}

void ebb__measure_retake(struct ebb_measure *measure)
{
    ebb__effort_spend(measure->effort, 4 * (uint64_t)measure->item_count);
    list_make(measure, measure->by_ready, measure->ready_rank);
    list_make(measure, measure->by_due, measure->due_rank);
}

/* Both lanes are scheduled over two iterations. The second starts with the remainder of the first
 * across the iteration's end, and stops when that makes no difference. */
void ebb__measure_schedule(struct ebb_measure *measure)
{
    int64_t lap = measure->lap_ns, free_ns = INT64_MIN / 2, next_ns = INT64_MAX / 2;
    uint32_t count = measure->taken_count;
    for (int turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < count; i++) {
            struct ebb_measure_item *item = &measure->items[measure->by_ready[i]];
            if (turn && item->ready_ns >= free_ns)
                break;
            int64_t start = item->ready_ns > free_ns ? item->ready_ns : free_ns;
            item->end_ns = free_ns = start + item->out_ns;
        }
        free_ns -= lap;
    }
    for (int turn = 0; turn < 2; turn++) {
        for (uint32_t i = count; i-- > 0;) {
            struct ebb_measure_item *item = &measure->items[measure->by_due[i]];
            if (item->drops) {
                item->start_ns = item->due_ns;
                continue;
            }
            int64_t unrolled = item->due_ns >= lap ? lap : 0;
            int64_t due = item->due_ns - unrolled;
            if (turn && due <= next_ns)
                break;
            next_ns = (due < next_ns ? due : next_ns) - item->in_ns;
            item->start_ns = next_ns + unrolled;
        }
        next_ns += lap;
    }
}

/* ---- the curve ------------------------------------------------------------------------------- */

/* Sorts a lane's changes on the cyclic timeline, from `copy` to `instants`. They are sorted
 * already, except at the iteration's end and for frees between copies in. A sentinel ends them. */
static void instants_order(struct ebb_measure_instant *instants,
                           const struct ebb_measure_instant *copy, uint32_t count, uint32_t begin)
{
    memcpy(instants, &copy[begin], (count - begin) * sizeof *instants);
    memcpy(&instants[count - begin], copy, begin * sizeof *instants);
    for (uint32_t i = 1; i < count; i++) {
        struct ebb_measure_instant moved = instants[i];
        uint32_t place = i;
        for (; place > 0 && instants[place - 1].at_ns > moved.at_ns; place--)
            instants[place] = instants[place - 1];
        instants[place] = moved;
    }
    instants[count] = (struct ebb_measure_instant){INT64_MAX, 0};
}

/* Sorts the lanes' changes; returns the bytes absent at the iteration's start. *excess: for blocks
 * needed before their copy out ends. */
static int64_t instants_make(struct ebb_measure *measure, double *excess)
{
    int64_t absent = 0, lap = measure->lap_ns;
    uint32_t count = measure->taken_count, out_begin = 0, in_begin = 0;
    struct ebb_measure_instant *out = &measure->outs[measure->item_count];
    struct ebb_measure_instant *in = &measure->ins[measure->item_count];
    for (uint32_t i = 0; i < count; i++) {
        const struct ebb_measure_item *item = &measure->items[measure->by_ready[i]];
        int64_t laps;
        out[i].at_ns = ebb__measure_wrap(item->end_ns, lap, &laps);
        out[i].bytes = item->bytes;
        absent -= laps * item->bytes;
        if (i > 0 && out[i].at_ns < out[i - 1].at_ns)
            out_begin = i;
        /* Needed before its copy out ends: worse than not to take it. */
        if (item->start_ns < item->end_ns)
            *excess += 4.0 * (double)item->bytes * (double)item->bytes;
    }
    int64_t before_ns = INT64_MIN;
    for (uint32_t i = 0; i < count; i++) {
        const struct ebb_measure_item *item = &measure->items[measure->by_due[i]];
        int64_t laps;
        in[i].at_ns = ebb__measure_wrap(item->start_ns, lap, &laps);
        in[i].bytes = item->bytes;
        absent += laps * item->bytes;
        if (item->drops)
            continue;
        if (in[i].at_ns < before_ns)
            in_begin = i;
        before_ns = in[i].at_ns;
    }
    instants_order(measure->outs, out, count, out_begin);
    instants_order(measure->ins, in, count, in_begin);
    return absent;
}

static int64_t load_at(const struct ebb_measure *measure, int64_t at_ns)
{
    uint32_t step = measure->bucket[at_ns >> measure->bucket_shift];
    if (measure->steps[step].at_ns > at_ns)
        return measure->steps[measure->step_count - 1].load_bytes;
    while (measure->steps[step + 1].at_ns <= at_ns)
        step++;
    return measure->steps[step].load_bytes;
}

struct ebb_measured ebb__measure(struct ebb_measure *measure, int64_t target_bytes, double limit)
{
    struct ebb_measured measured = {0, 0};
    ebb__measure_schedule(measure);
    int64_t absent = instants_make(measure, &measured.excess), most = target_bytes;
    if (measured.excess > 0)
        measured.peak_bytes = INT64_MAX;
    const struct ebb_measure_instant *out = measure->outs, *in = measure->ins;
    const uint32_t *watched = measure->watched;
    while (measured.excess <= limit) {
        /* At one instant: ends of copies out, events of the program, starts of copies in. */
        const struct ebb_measure_step *step = &measure->steps[*watched];
        int64_t now = step->at_ns < in->at_ns ? step->at_ns : in->at_ns;
        if (now == INT64_MAX)
            break;
        while (out->at_ns <= now)
            absent += (out++)->bytes;
        int64_t load;
        if (step->at_ns <= in->at_ns) {
            load = step->load_bytes;
            watched++;
        } else {
            load = load_at(measure, now);
            absent -= (in++)->bytes;
        }
        int64_t excess = load - absent - target_bytes;
        if (excess <= 0)
            continue;
        measured.excess += (double)excess * (double)excess;
        most = load - absent > most ? load - absent : most;
    }
    if (most > measured.peak_bytes)
        measured.peak_bytes = most;
    ebb__effort_spend(measure->effort, 6 * (uint64_t)measure->taken_count + 8 +
                                           (uint64_t)(watched - measure->watched));
    return measured;
}

int64_t ebb__measure_peak(struct ebb_measure *measure)
{
    double impossible = 0;
    ebb__effort_spend(measure->effort, 6 * (uint64_t)measure->taken_count + measure->step_count);
    ebb__measure_schedule(measure);
    int64_t absent = instants_make(measure, &impossible), most = 0;
    if (impossible > 0)
        return INT64_MAX;
    const struct ebb_measure_instant *out = measure->outs, *in = measure->ins;
    uint32_t step = 0, highest = 0;
    int64_t load = measure->steps[measure->step_count - 1].load_bytes;
    for (;;) {
        const struct ebb_measure_step *next = &measure->steps[step];
        int64_t now = next->at_ns < in->at_ns ? next->at_ns : in->at_ns;
        if (now == INT64_MAX)
            break;
        while (out->at_ns <= now)
            absent += (out++)->bytes;
        bool steps = next->at_ns <= in->at_ns;
        if (steps)
            load = next->load_bytes, step++;
        else
            absent -= (in++)->bytes;
        if (load - absent > most) {
            most = load - absent;
            highest = steps ? step - 1 : highest;
        }
    }
    if (!measure->is_watched[highest]) {
        measure->is_watched[highest] = true;
        watched_list(measure);
    }
    return most;
}
