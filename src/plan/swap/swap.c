#include "plan/swap/swap.h"

#include <stdlib.h>
#include <string.h>

/* Differences first, then their sums: O(blocks + cells). */
static void load_compute(struct ebb_swap *swap)
{
    const struct ebb_model *model = swap->model;
    uint32_t cells = swap->cell_count;
    uint64_t live = 0;
    for (uint32_t i = 0; i < model->block_count; i++) {
        const struct ebb_model_block *block = &model->blocks[i];
        uint64_t bytes = ebb__plan_block_bytes(swap->request, block);
        if (block->alloc_tick == EBB_TICK_NONE) {
            live += bytes;
            continue;
        }
        uint32_t rest = block->span_ticks % cells;
        live += bytes * (block->span_ticks / cells);
        if (rest == 0)
            continue;
        uint32_t end = (uint32_t)(((uint64_t)block->alloc_tick + rest) % cells);
        swap->load[block->alloc_tick] += bytes;
        swap->load[end] -= bytes;
        if (end <= block->alloc_tick)
            live += bytes;
    }
    for (uint32_t t = 0; t < cells; t++) {
        live += swap->load[t];
        swap->load[t] = live;
    }
}

static void gap_add(struct ebb_swap *swap, const struct ebb_gap *source, const uint32_t *after,
                    const uint32_t *before)
{
    const struct ebb_model *model = swap->model;
    const struct ebb_model_block *block = &model->blocks[source->block];
    uint64_t bytes = ebb__plan_block_bytes(swap->request, block);
    uint32_t ready = after[source->from_tick];
    if (block->size_bytes == 0 || block->size_bytes < swap->request->smallest_block_bytes ||
        block->access_count == 0)
        return;
    /* A gap of an iteration or more would need two absences at once. */
    if (block->span_ticks > swap->cell_count &&
        (swap->request->newest_only || source->length_ns >= swap->lap_ns))
        return;
    /* A gap for the runtime spans at least one whole operation. */
    uint32_t due = source->ends_in_free ? source->to_tick : before[source->to_tick];
    uint32_t to_ready = ebb__swap_ticks_between(swap, source->from_tick, ready);
    uint32_t to_due = ebb__swap_ticks_between(swap, source->from_tick, due);
    uint32_t to_need = ebb__swap_ticks_between(swap, source->from_tick, source->to_tick);
    if (to_ready >= to_need || to_due > to_need)
        return;
    uint32_t margin_ticks = 0;
    if (swap->within) {
        uint32_t whole_due = due;
        ready = ebb__plan_use_over(model, before, source->from_tick, ready);
        due = source->ends_in_free ? due : ebb__plan_use_near(model, due, source->to_tick);
        to_due = ebb__swap_ticks_between(swap, source->from_tick, due);
        uint32_t clock = to_ready;
        to_ready = ebb__swap_ticks_between(swap, source->from_tick, ready);
        margin_ticks = to_ready < clock ? to_ready : 0;
        swap->within_count += margin_ticks > 0 || due != whole_due;
    }
    if (to_ready >= to_due)
        return;
    struct ebb_swap_gap gap = {
        .block = source->block,
        .from_tick = source->from_tick,
        .to_tick = source->to_tick,
        .ready_tick = ready,
        .drops = source->ends_in_free,
        .margin_ticks = margin_ticks,
        .out_within = margin_ticks > 0,
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

/* Sorts the gaps by `key`, ascending, ties by index. `keys` has gap_count entries with key set. */
static void order_make(const struct ebb_swap *swap, struct order_key *keys, uint32_t *order)
{
    for (uint32_t i = 0; i < swap->gap_count; i++)
        keys[i].index = i;
    qsort(keys, swap->gap_count, sizeof *keys, order_compare);
    for (uint32_t i = 0; i < swap->gap_count; i++)
        order[i] = keys[i].index;
}

static enum ebb_status orders_make(struct ebb_swap *swap)
{
    struct order_key *keys = malloc((swap->gap_count + 1u) * sizeof *keys);
    if (!keys)
        return EBB_ERR_MEMORY;
    for (uint32_t i = 0; i < swap->gap_count; i++)
        keys[i].key = swap->gaps[i].ready_tick;
    order_make(swap, keys, swap->by_ready);
    for (uint32_t i = 0; i < swap->gap_count; i++)
        keys[i].key = swap->gaps[i].due_ns % swap->lap_ns;
    order_make(swap, keys, swap->by_due);
    free(keys);
    return EBB_OK;
}

static enum ebb_status gaps_collect(struct ebb_swap *swap)
{
    const struct ebb_model *model = swap->model;
    uint32_t *after = ebb__model_clocks_after(model), *before = ebb__model_clocks_before(model);
    enum ebb_status status = after && before ? EBB_OK : EBB_ERR_MEMORY;
    if (status)
        goto out;
    for (uint32_t i = 0; i < model->gap_count; i++)
        gap_add(swap, &model->gaps[i], after, before);
    status = orders_make(swap);
out:
    free(after);
    free(before);
    return status;
}

/* The peak with every gap taken and instant copies. Nothing is evicted within an operation, so its
 * last cell holds all blocks that it touches. */
static uint64_t floor_compute(struct ebb_swap *swap)
{
    for (uint32_t i = 0; i < swap->gap_count; i++)
        swap->gaps[i].taken = true;
    uint64_t floor_bytes = ebb__swap_curve_ideal(swap);
    for (uint32_t i = 0; i < swap->gap_count; i++)
        swap->gaps[i].taken = false;
    return floor_bytes;
}

static enum ebb_status init(struct ebb_swap *swap, const struct ebb_plan_request *request,
                            bool within, struct ebb_error *error)
{
    const struct ebb_model *model = request->model;
    *swap = (struct ebb_swap){.request = request, .model = model, .lane_scale = 1};
    /* If threads interleave, the time since an event is unknown. */
    swap->within = within && model->clock_count > 0 && !model->unordered;
    if (model->tick_count == 0 || ebb__model_iteration_ns(model) == 0)
        return ebb__fail(error, EBB_ERR_ARGUMENT, "plan", "the model has no events or no time");
    uint32_t cells = swap->cell_count = model->tick_count;
    size_t gaps = model->gap_count + 1u;
    swap->lap_ns = ebb__model_iteration_ns(model);
    swap->started_ns = ebb__now_ns();
    swap->effort = ebb__plan_effort(request);
    swap->limit_steps = swap->effort.limit;
    swap->load = calloc(cells, sizeof *swap->load);
    swap->curve = calloc(cells, sizeof *swap->curve);
    swap->gaps = calloc(gaps, sizeof *swap->gaps);
    swap->by_ready = malloc(gaps * sizeof *swap->by_ready);
    swap->by_due = malloc(gaps * sizeof *swap->by_due);
    swap->open = malloc(2 * gaps * sizeof *swap->open);
    swap->bucket = malloc(((size_t)cells + 1) * sizeof *swap->bucket);
    swap->absences = malloc(gaps * sizeof *swap->absences);
    swap->absence_gap = malloc(gaps * sizeof *swap->absence_gap);
    swap->times = malloc(gaps * sizeof *swap->times);
    if (!swap->load || !swap->curve || !swap->gaps || !swap->by_ready || !swap->by_due ||
        !swap->open || !swap->bucket || !swap->absences || !swap->absence_gap || !swap->times ||
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
    swap->smallest_feasible_bytes = floor_compute(swap);
    return EBB_OK;
}

enum ebb_status ebb__swap_init(struct ebb_swap *swap, const struct ebb_plan_request *request,
                               struct ebb_error *error)
{
    return init(swap, request, false, error);
}

enum ebb_status ebb__swap_init_within(struct ebb_swap *swap, const struct ebb_plan_request *request,
                                      struct ebb_error *error)
{
    return init(swap, request, true, error);
}

/* The event behind the margin at which the eviction may start. Within a stretch it is the first
 * one. *within tells which. */
static uint32_t margin_ready(const struct ebb_swap *swap, const struct ebb_swap_gap *gap,
                             uint32_t margin_ticks, bool *within)
{
    const struct ebb_model *model = swap->model;
    uint32_t cells = swap->cell_count, after_margin = (gap->from_tick + margin_ticks) % cells;
    uint32_t clock = ebb__model_clock_after(model, gap->from_tick);
    *within = gap->out_within && clock != EBB_TICK_NONE &&
              margin_ticks < ebb__swap_ticks_between(swap, gap->from_tick, clock);
    if (*within)
        return after_margin;
    uint32_t ready = ebb__model_clock_after(model, after_margin);
    return ready == EBB_TICK_NONE ? (after_margin + 1) % cells : ready;
}

/* Delays the gap by its margin; returns false if nothing is left of the gap. */
static bool margin_set(const struct ebb_swap *swap, struct ebb_swap_gap *gap, uint32_t margin_ticks)
{
    const struct ebb_model *model = swap->model;
    uint32_t to_need = ebb__swap_ticks_between(swap, gap->from_tick, gap->to_tick);
    if (margin_ticks < gap->margin_ticks)
        margin_ticks = gap->margin_ticks;
    if (margin_ticks >= to_need)
        return false;
    bool within;
    uint32_t after_margin = (gap->from_tick + margin_ticks) % swap->cell_count;
    uint32_t ready = margin_ready(swap, gap, margin_ticks, &within);
    if (!within && margin_ticks + ebb__swap_ticks_between(swap, after_margin, ready) >= to_need)
        return false;
    uint64_t since_ns = gap->ready_ns;
    uint64_t shift_ns = (model->time_ns[ready] + swap->lap_ns - since_ns) % swap->lap_ns;
    if (since_ns + shift_ns >= gap->due_ns)
        return false;
    uint64_t laps_ns = (since_ns + shift_ns) / swap->lap_ns * swap->lap_ns;
    gap->margin_ticks = margin_ticks;
    gap->out_within = within;
    gap->ready_tick = ready;
    gap->ready_ns = model->time_ns[ready];
    gap->due_ns -= laps_ns;
    gap->need_ns -= laps_ns;
    return true;
}

enum ebb_status ebb__swap_narrow(struct ebb_swap *swap, ebb_swap_choice choose, const void *context,
                                 struct ebb_error *error)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        struct ebb_swap_gap gap = swap->gaps[i];
        uint32_t margin_ticks = 0;
        if (choose(swap, &gap, context, &margin_ticks) &&
            (margin_ticks == 0 || margin_set(swap, &gap, margin_ticks)))
            swap->gaps[kept++] = gap;
    }
    swap->gap_count = kept;
    swap->smallest_feasible_bytes = floor_compute(swap);
    return orders_make(swap) ? ebb__fail(error, EBB_ERR_MEMORY, "plan", "out of memory") : EBB_OK;
}

void ebb__swap_fini(struct ebb_swap *swap)
{
    free(swap->load);
    free(swap->curve);
    free(swap->gaps);
    free(swap->by_ready);
    free(swap->by_due);
    free(swap->open);
    free(swap->bucket);
    free(swap->absences);
    free(swap->absence_gap);
    free(swap->times);
    memset(swap, 0, sizeof *swap);
}
