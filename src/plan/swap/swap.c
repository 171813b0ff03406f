#include "plan/swap/swap.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SETTLE_ROUNDS 8                  /* then an order that flips to and fro is as good */
#define TIME_LIMIT_DEFAULT_NS 200000000u /* arbitrary: online, a plan is made while training */

uint64_t ebb__swap_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

/* Add `bytes` (two's complement: also negative) to the cells [first, first + count), cyclic. */
static void range_add(uint64_t *curve, uint32_t cell_count, uint32_t first, uint32_t count,
                      uint64_t bytes)
{
    for (uint32_t i = 0, cell = first; i < count; i++) {
        curve[cell] += bytes;
        if (++cell == cell_count)
            cell = 0;
    }
}

static void load_compute(struct ebb_swap *swap)
{
    const struct ebb_model *model = swap->model;
    uint32_t cells = swap->cell_count;
    for (uint32_t i = 0; i < model->block_count; i++) {
        const struct ebb_model_block *block = &model->blocks[i];
        uint64_t bytes = ebb__plan_block_bytes(swap->request, block);
        if (block->alloc_tick == EBB_TICK_NONE) {
            range_add(swap->load, cells, 0, cells, bytes);
            continue;
        }
        if (block->span_ticks >= cells)
            range_add(swap->load, cells, 0, cells, bytes * (block->span_ticks / cells));
        range_add(swap->load, cells, block->alloc_tick, block->span_ticks % cells, bytes);
    }
}

/* Ticks from `from` to `to` on the cyclic timeline, 1 ... tick_count. */
static uint32_t ticks_between(const struct ebb_swap *swap, uint32_t from, uint32_t to)
{
    return to > from ? to - from : to + swap->cell_count - from;
}

static void gap_add(struct ebb_swap *swap, const struct ebb_gap *source, const uint32_t *after,
                    const uint32_t *before)
{
    const struct ebb_model *model = swap->model;
    const struct ebb_model_block *block = &model->blocks[source->block];
    uint64_t bytes = ebb__plan_block_bytes(swap->request, block);
    uint32_t ready = after[source->from_tick];
    if (block->span_ticks > swap->cell_count || block->size_bytes == 0 ||
        block->size_bytes < swap->request->smallest_block_bytes || block->access_count == 0)
        return;
    /* Only what leaves one operation alone at least is a gap to the engine. */
    uint32_t due = source->ends_in_free ? source->to_tick : before[source->to_tick];
    uint32_t to_ready = ticks_between(swap, source->from_tick, ready);
    uint32_t to_due = ticks_between(swap, source->from_tick, due);
    uint32_t to_need = ticks_between(swap, source->from_tick, source->to_tick);
    if (to_ready >= to_need || to_due > to_need || to_ready >= to_due)
        return;
    struct ebb_swap_gap gap = {
        .block = source->block,
        .from_tick = source->from_tick,
        .to_tick = source->to_tick,
        .ready_tick = ready,
        .drops = source->ends_in_free,
        .bytes = bytes,
        .ready_ns = model->time_ns[ready],
        .need_ns = model->time_ns[source->to_tick] + (source->to_tick <= ready ? swap->lap_ns : 0),
        .due_ns = model->time_ns[due] + (due <= ready ? swap->lap_ns : 0),
        .out_ns = ebb__lane_ns(&swap->request->machine->out, bytes),
        .in_ns = source->ends_in_free ? 0 : ebb__lane_ns(&swap->request->machine->in, bytes),
    };
    swap->gaps[swap->gap_count++] = gap;
}

struct order_key {
    uint64_t key;
    uint32_t index;
};

static int order_compare(const void *left, const void *right)
{
    const struct order_key *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* The gaps by `key`, ascending, ties by index. `keys` holds gap_count entries with key set. */
static void order_make(const struct ebb_swap *swap, struct order_key *keys, uint32_t *order)
{
    for (uint32_t i = 0; i < swap->gap_count; i++)
        keys[i].index = i;
    qsort(keys, swap->gap_count, sizeof *keys, order_compare);
    for (uint32_t i = 0; i < swap->gap_count; i++)
        order[i] = keys[i].index;
}

static enum ebb_status gaps_collect(struct ebb_swap *swap)
{
    const struct ebb_model *model = swap->model;
    uint32_t cells = swap->cell_count;
    uint32_t *after = malloc(cells * sizeof *after), *before = malloc(cells * sizeof *before);
    struct order_key *keys = malloc((model->gap_count + 1u) * sizeof *keys);
    enum ebb_status status = after && before && keys ? EBB_OK : EBB_ERR_MEMORY;
    if (status)
        goto out;
    /* A model without a clock (a program that allocates once): every event is one. */
    bool none = model->clock_count == 0;
    uint32_t last = none ? cells - 1 : ebb__model_clock_before(model, 0);
    uint32_t next = none ? 0 : ebb__model_clock_after(model, cells - 1);
    for (uint32_t t = 0; t < cells; t++) {
        before[t] = last;
        if (none || model->events[t].clock)
            last = t;
    }
    for (uint32_t t = cells; t-- > 0;) {
        after[t] = next;
        if (none || model->events[t].clock)
            next = t;
    }
    for (uint32_t i = 0; i < model->gap_count; i++)
        gap_add(swap, &model->gaps[i], after, before);
    for (uint32_t i = 0; i < swap->gap_count; i++)
        keys[i].key = swap->gaps[i].ready_ns;
    order_make(swap, keys, swap->by_ready);
    for (uint32_t i = 0; i < swap->gap_count; i++)
        keys[i].key = swap->gaps[i].due_ns % swap->lap_ns;
    order_make(swap, keys, swap->by_due);
out:
    free(after);
    free(before);
    free(keys);
    return status;
}

enum ebb_status ebb__swap_init(struct ebb_swap *swap, const struct ebb_plan_request *request,
                               struct ebb_error *error)
{
    const struct ebb_model *model = request->model;
    *swap = (struct ebb_swap){.request = request, .model = model, .lane_scale = 1};
    if (model->tick_count == 0 || ebb__model_iteration_ns(model) == 0)
        return ebb__fail(error, EBB_ERR_ARGUMENT, "plan", "the model has no events or no time");
    uint32_t cells = swap->cell_count = model->tick_count;
    size_t gaps = model->gap_count + 1u;
    swap->lap_ns = ebb__model_iteration_ns(model);
    swap->started_ns = ebb__swap_now_ns();
    swap->deadline_ns = swap->started_ns +
                        (request->time_limit_ns ? request->time_limit_ns : TIME_LIMIT_DEFAULT_NS);
    swap->load = calloc(cells, sizeof *swap->load);
    swap->curve = calloc(cells, sizeof *swap->curve);
    swap->gaps = calloc(gaps, sizeof *swap->gaps);
    swap->by_ready = malloc(gaps * sizeof *swap->by_ready);
    swap->by_due = malloc(gaps * sizeof *swap->by_due);
    swap->bucket = malloc(((size_t)cells + 1) * sizeof *swap->bucket);
    swap->absences = malloc(gaps * sizeof *swap->absences);
    swap->absence_gap = malloc(gaps * sizeof *swap->absence_gap);
    swap->times = malloc(gaps * sizeof *swap->times);
    if (!swap->load || !swap->curve || !swap->gaps || !swap->by_ready || !swap->by_due ||
        !swap->bucket || !swap->absences || !swap->absence_gap || !swap->times ||
        gaps_collect(swap) != EBB_OK) {
        ebb__swap_fini(swap);
        return ebb__fail(error, EBB_ERR_MEMORY, "plan", "out of memory");
    }
    load_compute(swap);
    for (uint32_t i = 0, tick = 0; i <= cells; i++) {
        uint64_t step_ns = (uint64_t)((double)swap->lap_ns * i / cells);
        while (tick < cells && model->time_ns[tick] < step_ns)
            tick++;
        swap->bucket[i] = tick;
    }
    /* Within an operation nothing leaves, so its last cell holds all that it touches. */
    memcpy(swap->curve, swap->load, cells * sizeof *swap->curve);
    for (uint32_t i = 0; i < swap->gap_count; i++)
        range_add(swap->curve, cells, swap->gaps[i].ready_tick,
                  ticks_between(swap, swap->gaps[i].ready_tick, swap->gaps[i].to_tick),
                  0 - swap->gaps[i].bytes);
    for (uint32_t t = 0; t < cells; t++)
        if (swap->curve[t] > swap->smallest_feasible_bytes)
            swap->smallest_feasible_bytes = swap->curve[t];
    return EBB_OK;
}

void ebb__swap_fini(struct ebb_swap *swap)
{
    free(swap->load);
    free(swap->curve);
    free(swap->gaps);
    free(swap->by_ready);
    free(swap->by_due);
    free(swap->bucket);
    free(swap->absences);
    free(swap->absence_gap);
    free(swap->times);
    memset(swap, 0, sizeof *swap);
}

/* ---- schedule -------------------------------------------------------------------------------- */

/* The first tick at or after `ns`, 0 <= ns <= lap_ns; cell_count where there is none. */
static uint32_t tick_at(const struct ebb_swap *swap, uint64_t ns)
{
    const uint64_t *time_ns = swap->model->time_ns;
    uint32_t guess = (uint32_t)((double)ns / (double)swap->lap_ns * swap->cell_count);
    uint32_t tick = swap->bucket[guess > swap->cell_count ? swap->cell_count : guess];
    while (tick > 0 && time_ns[tick - 1] >= ns)
        tick--;
    while (tick < swap->cell_count && time_ns[tick] < ns)
        tick++;
    return tick;
}

void ebb__swap_cells(const struct ebb_swap *swap, const struct ebb_swap_gap *gap, uint32_t *first,
                     uint32_t *last)
{
    uint32_t cells = swap->cell_count;
    uint64_t lap = swap->lap_ns;
    uint32_t end = gap->ready_tick + ticks_between(swap, gap->ready_tick, gap->to_tick);
    *first = *last = 0;
    if (gap->out_end_ns >= gap->in_start_ns)
        return;
    uint64_t out_end = (uint64_t)gap->out_end_ns, in_start = (uint64_t)gap->in_start_ns;
    *first = out_end <= lap ? tick_at(swap, out_end) : cells + tick_at(swap, out_end - lap);
    if (*first < gap->ready_tick)
        *first = gap->ready_tick;
    /* The last tick at or before in_start; a copy in begins after the events of its instant. */
    uint64_t within = in_start < lap ? in_start : in_start - lap;
    uint32_t after = tick_at(swap, within + 1 <= lap ? within + 1 : lap);
    *last = (in_start < lap ? 0 : cells) + after;
    *last = *last > 0 ? *last - 1 : 0;
    if (gap->drops || *last > end)
        *last = end;
}

uint64_t ebb__swap_schedule(struct ebb_swap *swap, uint64_t margin_ns)
{
    int64_t lap = (int64_t)swap->lap_ns;
    /* Two turns: the second starts with what the first leaves over across the lap's end. */
    int64_t free_ns = INT64_MIN / 2;
    for (int turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < swap->gap_count; i++) {
            struct ebb_swap_gap *gap = &swap->gaps[swap->by_ready[i]];
            int64_t start = (int64_t)gap->ready_ns > free_ns ? (int64_t)gap->ready_ns : free_ns;
            gap->out_end_ns = start + (int64_t)((double)gap->out_ns / swap->lane_scale);
            if (gap->taken)
                free_ns = gap->out_end_ns;
        }
        free_ns -= lap;
    }
    int64_t next_ns = INT64_MAX / 2;
    for (int turn = 0; turn < 2; turn++) {
        for (uint32_t i = swap->gap_count; i-- > 0;) {
            struct ebb_swap_gap *gap = &swap->gaps[swap->by_due[i]];
            if (gap->drops) {
                gap->in_start_ns = (int64_t)gap->need_ns;
                continue;
            }
            int64_t unrolled = gap->due_ns >= swap->lap_ns ? lap : 0;
            int64_t due = (int64_t)gap->due_ns - unrolled - (int64_t)margin_ns;
            int64_t end = due < next_ns ? due : next_ns;
            int64_t start = end - (int64_t)((double)gap->in_ns / swap->lane_scale);
            gap->in_start_ns = start + unrolled;
            if (gap->taken)
                next_ns = start;
        }
        next_ns += lap;
    }
    /* Differences first, then their sums. */
    uint32_t cells = swap->cell_count;
    uint64_t away = 0, peak = 0;
    memset(swap->curve, 0, cells * sizeof *swap->curve);
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        const struct ebb_swap_gap *gap = &swap->gaps[i];
        uint32_t first, last;
        if (!gap->taken)
            continue;
        ebb__swap_cells(swap, gap, &first, &last);
        if (first >= last)
            continue;
        first %= cells;
        last %= cells;
        swap->curve[first] += gap->bytes;
        swap->curve[last] -= gap->bytes;
        if (last <= first)
            away += gap->bytes;
    }
    for (uint32_t t = 0; t < cells; t++) {
        away += swap->curve[t];
        swap->curve[t] = swap->load[t] - away;
        peak = swap->curve[t] > peak ? swap->curve[t] : peak;
    }
    return peak;
}

void ebb__swap_trigger_late(struct ebb_swap *swap)
{
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        struct ebb_swap_gap *gap = &swap->gaps[i];
        int64_t start = gap->in_start_ns;
        if (start < (int64_t)gap->ready_ns)
            start = (int64_t)gap->ready_ns;
        gap->trigger_ns = (uint64_t)start % swap->lap_ns;
    }
}

/* The curve that results where copies take no time: taken gaps are out from ready to need. */
static void curve_ideal(struct ebb_swap *swap)
{
    memcpy(swap->curve, swap->load, swap->cell_count * sizeof *swap->curve);
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        const struct ebb_swap_gap *gap = &swap->gaps[i];
        if (gap->taken)
            range_add(swap->curve, swap->cell_count, gap->ready_tick,
                      ticks_between(swap, gap->ready_tick, gap->to_tick), 0 - gap->bytes);
    }
}

void ebb__swap_trigger_early(struct ebb_swap *swap, uint64_t budget_bytes)
{
    curve_ideal(swap);
    uint32_t cells = swap->cell_count, peak_tick = 0, begin = 0;
    for (uint32_t t = 1; t < cells; t++)
        if (swap->load[t] > swap->load[peak_tick])
            peak_tick = t;
    uint64_t peak_ns = swap->model->time_ns[peak_tick];
    while (begin < swap->gap_count &&
           swap->gaps[swap->by_due[begin]].due_ns % swap->lap_ns <= peak_ns)
        begin++;
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        struct ebb_swap_gap *gap = &swap->gaps[swap->by_due[(begin + i) % swap->gap_count]];
        if (!gap->taken || gap->drops)
            continue;
        uint32_t count = ticks_between(swap, gap->ready_tick, gap->to_tick);
        uint32_t tick = gap->to_tick, back = 0;
        for (; back < count; back++) {
            uint32_t cell = tick == 0 ? cells - 1 : tick - 1;
            if (swap->curve[cell] + gap->bytes > budget_bytes)
                break;
            tick = cell;
        }
        range_add(swap->curve, cells, tick, back, gap->bytes);
        gap->trigger_ns = swap->model->time_ns[tick] % swap->lap_ns;
    }
}

/* ---- selection by one sweep ------------------------------------------------------------------ */

/* How much `gap` is to be taken at `tick`; 0 where it is not open there. */
static uint64_t gap_rank(const struct ebb_swap *swap, const struct ebb_swap_gap *gap, uint32_t tick,
                         enum ebb_swap_order order)
{
    uint32_t span = ticks_between(swap, gap->ready_tick, gap->to_tick);
    uint32_t age = tick >= gap->ready_tick ? tick - gap->ready_tick
                                           : tick + swap->cell_count - gap->ready_tick;
    if (gap->taken || age >= span)
        return 0;
    uint64_t rank = 1;
    switch (order) {
    case EBB_SWAP_FIRST_IN:
        rank += age;
        break;
    case EBB_SWAP_LATEST_NEED:
        rank += span - age;
        break;
    case EBB_SWAP_CHEAPEST: /* time covered per lane time */
        rank += (uint64_t)((double)(gap->need_ns - gap->ready_ns) * (double)gap->bytes /
                           (double)(gap->out_ns + gap->in_ns + 1));
        break;
    }
    /* Where the copies take longer than the gap, only if nothing else is left. */
    bool pays = gap->need_ns - gap->ready_ns > gap->out_ns + gap->in_ns;
    return pays ? rank + (UINT64_MAX >> 1) : rank;
}

bool ebb__swap_select(struct ebb_swap *swap, uint64_t budget_bytes, enum ebb_swap_order order)
{
    uint32_t cells = swap->cell_count, lowest = 0;
    for (uint32_t i = 0; i < swap->gap_count; i++)
        swap->gaps[i].taken = false;
    curve_ideal(swap);
    for (uint32_t t = 1; t < cells; t++)
        if (swap->load[t] < swap->load[lowest])
            lowest = t;
    bool met = true;
    for (uint32_t i = 0; i < cells; i++) {
        uint32_t tick = (lowest + i) % cells;
        while (swap->curve[tick] > budget_bytes) {
            struct ebb_swap_gap *best = NULL;
            uint64_t best_rank = 0;
            for (uint32_t g = 0; g < swap->gap_count; g++) {
                uint64_t rank = gap_rank(swap, &swap->gaps[g], tick, order);
                if (rank > best_rank) {
                    best_rank = rank;
                    best = &swap->gaps[g];
                }
            }
            if (!best) {
                met = false;
                break;
            }
            best->taken = true;
            range_add(swap->curve, cells, best->ready_tick,
                      ticks_between(swap, best->ready_tick, best->to_tick), 0 - best->bytes);
        }
    }
    return met;
}

/* ---- outcome --------------------------------------------------------------------------------- */

static uint32_t absences_build(struct ebb_swap *swap)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        uint32_t index = swap->by_ready[i];
        const struct ebb_swap_gap *gap = &swap->gaps[index];
        if (!gap->taken)
            continue;
        swap->absence_gap[count] = index;
        swap->absences[count++] =
            (struct ebb_absence){.block = gap->block,
                                 .from_tick = gap->from_tick,
                                 .to_tick = gap->to_tick,
                                 .drops = gap->drops,
                                 .in_start_ns = gap->drops ? 0 : gap->trigger_ns};
    }
    return count;
}

enum ebb_status ebb__swap_evaluate(struct ebb_swap *swap, struct ebb_swap_outcome *outcome,
                                   struct ebb_error *error)
{
    for (;;) {
        struct ebb_sim_request request = {.model = swap->model,
                                          .machine = swap->request->machine,
                                          .absences = swap->absences,
                                          .absence_count = absences_build(swap),
                                          .budget_bytes = swap->request->budget_bytes,
                                          .page_bytes = swap->request->page_bytes};
        struct ebb_sim_detail detail = {.times = swap->times};
        struct ebb_sim_result result;
        enum ebb_status status = ebb__simulate(&request, &detail, &result, error);
        if (status)
            return status;
        bool removed = false;
        for (uint32_t i = 0; i < request.absence_count; i++) {
            if (swap->times[i].cancelled) {
                swap->gaps[swap->absence_gap[i]].taken = false;
                removed = true;
            }
        }
        *outcome =
            (struct ebb_swap_outcome){.feasible = result.feasible,
                                      .iteration_ns = result.iteration_ns,
                                      .moved_bytes = result.moved_out_bytes + result.moved_in_bytes,
                                      .peak_bytes = result.peak_bytes};
        if (!removed)
            return EBB_OK;
    }
}

bool ebb__swap_better(const struct ebb_swap *swap, const struct ebb_swap_outcome *left,
                      const struct ebb_swap_outcome *right)
{
    uint64_t none_ns = swap->lap_ns / 1000;
    if (left->feasible != right->feasible)
        return left->feasible;
    if (left->iteration_ns + none_ns < right->iteration_ns)
        return true;
    if (right->iteration_ns + none_ns < left->iteration_ns)
        return false;
    return left->moved_bytes < right->moved_bytes;
}

static int absence_compare(const void *left, const void *right)
{
    const struct ebb_absence *a = left, *b = right;
    if (a->out_start_ns != b->out_start_ns)
        return a->out_start_ns < b->out_start_ns ? -1 : 1;
    if (a->out_end_ns != b->out_end_ns)
        return a->out_end_ns < b->out_end_ns ? -1 : 1;
    return (a->block > b->block) - (a->block < b->block);
}

/* True where the block is only read from the absence's end until its next absence begins. */
static bool only_read_until_next(const struct ebb_plan *plan, const struct ebb_model *model,
                                 const struct ebb_absence *absence)
{
    const struct ebb_model_block *block = &model->blocks[absence->block];
    const struct ebb_model_access *accesses = &model->accesses[block->first_access];
    bool persistent = block->alloc_tick == EBB_TICK_NONE;
    uint32_t at = 0;
    while (at < block->access_count && accesses[at].tick != absence->to_tick)
        at++;
    for (uint32_t i = 0; i < block->access_count; i++, at++) {
        if (at >= block->access_count && !persistent)
            return false;
        const struct ebb_model_access *access = &accesses[at % block->access_count];
        if (access->access != EBB_ACCESS_READ)
            return false;
        for (uint32_t other = 0; other < plan->absence_count; other++)
            if (plan->absences[other].block == absence->block &&
                plan->absences[other].from_tick == access->tick)
                return true;
    }
    return false;
}

/* Put the plan's absences in order and simulate them so, until neither their order nor which of
 * them take place changes any more: at one event, the order decides who leaves first. */
static enum ebb_status plan_settle(struct ebb_swap *swap, struct ebb_plan *plan,
                                   struct ebb_sim_result *result, struct ebb_error *error)
{
    for (int round = 0;; round++) {
        qsort(plan->absences, plan->absence_count, sizeof *plan->absences, absence_compare);
        struct ebb_sim_request request = {
            swap->model,         swap->request->machine,      plan->absences,
            plan->absence_count, swap->request->budget_bytes, swap->request->page_bytes};
        struct ebb_sim_detail detail = {.times = swap->times};
        enum ebb_status status = ebb__simulate(&request, &detail, result, error);
        if (status)
            return status;
        uint32_t kept = 0;
        bool ordered = true;
        for (uint32_t i = 0; i < plan->absence_count; i++) {
            const struct ebb_sim_times *times = &swap->times[i];
            struct ebb_absence absence = plan->absences[i];
            if (times->cancelled)
                continue;
            absence.out_start_ns = times->out_start_ns % swap->lap_ns;
            absence.out_end_ns = times->out_end_ns % swap->lap_ns;
            absence.in_start_ns = absence.drops ? 0 : times->in_start_ns % swap->lap_ns;
            absence.in_end_ns = absence.drops ? 0 : times->in_end_ns % swap->lap_ns;
            plan->absences[kept++] = absence;
            ordered &= kept < 2 || absence_compare(&plan->absences[kept - 2], &absence) <= 0;
        }
        bool settled = kept == plan->absence_count && (ordered || round >= SETTLE_ROUNDS);
        plan->absence_count = kept;
        if (settled)
            return EBB_OK;
    }
}

enum ebb_status ebb__swap_finish(struct ebb_swap *swap, struct ebb_plan *plan,
                                 struct ebb_error *error)
{
    struct ebb_swap_outcome outcome;
    struct ebb_sim_result result;
    enum ebb_status status = ebb__swap_evaluate(swap, &outcome, error);
    if (status)
        return status;
    plan->absence_count = absences_build(swap);
    plan->absences = malloc((plan->absence_count + 1u) * sizeof *plan->absences);
    if (!plan->absences)
        return ebb__fail(error, EBB_ERR_MEMORY, "plan", "out of memory");
    for (uint32_t i = 0; i < plan->absence_count; i++) {
        plan->absences[i] = swap->absences[i];
        plan->absences[i].out_start_ns = swap->times[i].out_start_ns % swap->lap_ns;
        plan->absences[i].out_end_ns = swap->times[i].out_end_ns % swap->lap_ns;
    }
    status = plan_settle(swap, plan, &result, error);
    if (status)
        return status;
    for (uint32_t i = 0; i < plan->absence_count; i++)
        if (!plan->absences[i].drops)
            plan->absences[i].keep_copy =
                only_read_until_next(plan, swap->model, &plan->absences[i]);
    plan->budget_bytes = swap->request->budget_bytes;
    plan->smallest_feasible_bytes = swap->smallest_feasible_bytes;
    plan->peak_bytes = result.peak_bytes;
    plan->feasible = result.feasible && result.peak_bytes <= plan->budget_bytes;
    plan->stall_ns = result.stall_ns;
    plan->iteration_ns = result.iteration_ns;
    plan->moved_out_bytes = result.moved_out_bytes;
    plan->moved_in_bytes = result.moved_in_bytes;
    plan->plan_ns = ebb__swap_now_ns() - swap->started_ns;
    return EBB_OK;
}
