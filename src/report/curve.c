#include "report/curve.h"

#include "base/vec.h"

#include <string.h>

#define COARSE_CELLS 2000 /* about the pixels of a wide screen */
#define FINE_FACTOR 7     /* the fine level: one step of zoom by so much stays sharp */

/* At one instant copies out end first, then events happen, then copies in start: as in the checker
 * of plans. */
enum { OUT_ENDS, EVENT_HAPPENS, IN_STARTS };

typedef EBB_VEC(struct ebb_curve_change) change_list;

/* ---- levels of detail ------------------------------------------------------------------------ */

static int by_time(const void *left, const void *right)
{
    const struct ebb_curve_change *a = left, *b = right;
    if (a->ns != b->ns)
        return a->ns < b->ns ? -1 : 1;
    return (a->order > b->order) - (a->order < b->order);
}

static void apply(struct ebb_curve_cell *state, const struct ebb_curve_change *change)
{
    state->load_bytes += (uint64_t)change->load_bytes;
    state->resident_bytes += (uint64_t)change->resident_bytes;
    state->kinds[change->kind] += (uint64_t)change->resident_bytes;
    state->sizes[change->size_class] += (uint64_t)change->resident_bytes;
}

static void note_peaks(struct ebb_curve *curve, const struct ebb_curve_cell *state, uint64_t ns)
{
    if (state->load_bytes > curve->peak_load_bytes) {
        curve->peak_load_bytes = state->load_bytes;
        curve->peak_load_ns = ns;
    }
    if (state->resident_bytes > curve->peak_resident_bytes) {
        curve->peak_resident_bytes = state->resident_bytes;
        curve->peak_resident_ns = ns;
    }
}

/* Keeps the larger of both in the cell. */
static void cell_raise(struct ebb_curve_cell *cell, const struct ebb_curve_cell *state)
{
    uint64_t load = cell->load_bytes > state->load_bytes ? cell->load_bytes : state->load_bytes;
    uint64_t start_ns = cell->start_ns;
    if (state->resident_bytes > cell->resident_bytes)
        *cell = *state;
    cell->start_ns = start_ns;
    cell->load_bytes = load;
}

/* One cell for each instant at which something changes. */
static bool level_exact(const struct ebb_curve_change *changes, size_t count,
                        const struct ebb_curve_cell *begin, struct ebb_curve *curve)
{
    struct ebb_curve_level *level = &curve->levels[0];
    struct ebb_curve_cell state = *begin;
    level->cells = calloc(count + 1, sizeof *level->cells);
    if (!level->cells)
        return false;
    level->cells[level->count++] = state;
    note_peaks(curve, &state, 0);
    for (size_t i = 0; i < count; i++) {
        apply(&state, &changes[i]);
        state.start_ns = changes[i].ns;
        if (i + 1 < count && changes[i + 1].ns == changes[i].ns)
            continue;
        note_peaks(curve, &state, state.start_ns);
        if (level->cells[level->count - 1].start_ns == state.start_ns)
            level->count--;
        level->cells[level->count++] = state;
    }
    curve->level_count = 1;
    return true;
}

static bool level_cells(const struct ebb_curve_change *changes, size_t count,
                        const struct ebb_curve_cell *begin, uint64_t iteration_ns, uint32_t cells,
                        struct ebb_curve *curve)
{
    struct ebb_curve_level *level = &curve->levels[curve->level_count];
    struct ebb_curve_cell state = *begin;
    level->cells = calloc(cells, sizeof *level->cells);
    if (!level->cells)
        return false;
    level->count = cells;
    note_peaks(curve, &state, 0);
    size_t next = 0;
    for (uint32_t c = 0; c < cells; c++) {
        struct ebb_curve_cell *cell = &level->cells[c];
        uint64_t end_ns = (uint64_t)((double)iteration_ns * (c + 1) / cells);
        *cell = state;
        cell->start_ns = (uint64_t)((double)iteration_ns * c / cells);
        for (; next < count && (changes[next].ns < end_ns || c + 1 == cells); next++) {
            apply(&state, &changes[next]);
            if (next + 1 < count && changes[next + 1].ns == changes[next].ns)
                continue; /* what holds for no time is no state */
            cell_raise(cell, &state);
            note_peaks(curve, &state, changes[next].ns);
        }
    }
    curve->level_count++;
    return true;
}

enum ebb_status ebb__curve_reduce(struct ebb_curve_change *changes, size_t count,
                                  const struct ebb_curve_cell *begin, uint64_t iteration_ns,
                                  uint32_t cells, struct ebb_curve *curve)
{
    memset(curve, 0, sizeof *curve);
    if (count)
        qsort(changes, count, sizeof *changes, by_time);
    bool ok;
    if (count <= EBB_CURVE_EXACT) {
        ok = level_exact(changes, count, begin, curve);
    } else {
        ok = level_cells(changes, count, begin, iteration_ns, cells, curve) &&
             level_cells(changes, count, begin, iteration_ns, cells * FINE_FACTOR, curve);
    }
    if (!ok)
        ebb__curve_fini(curve);
    return ok ? EBB_OK : EBB_ERR_MEMORY;
}

void ebb__curve_fini(struct ebb_curve *curve)
{
    for (uint32_t i = 0; i < EBB_CURVE_LEVELS; i++)
        free(curve->levels[i].cells);
    memset(curve, 0, sizeof *curve);
}

/* ---- changes of a model ---------------------------------------------------------------------- */

struct builder {
    const struct ebb_model *model;
    const struct ebb_planned *planned;
    const struct ebb_timeline *timeline;
    struct ebb_curve_cell begin;
    change_list changes;
    bool *dropped; /* by block: it is absent at its FREE */
};

static uint64_t bytes_of(const struct builder *builder, uint32_t block)
{
    const struct ebb_model_block *found = &builder->model->blocks[block];
    return builder->planned ? ebb__plan_block_bytes(&builder->planned->request, found)
                            : found->size_bytes;
}

static struct ebb_curve_change change_of(const struct builder *builder, uint32_t block,
                                         int64_t load, int64_t resident)
{
    const struct ebb_model_block *found = &builder->model->blocks[block];
    int64_t bytes = (int64_t)bytes_of(builder, block);
    return (struct ebb_curve_change){.load_bytes = load * bytes,
                                     .resident_bytes = resident * bytes,
                                     .kind = (uint8_t)ebb__report_kind(builder->model, found),
                                     .size_class =
                                         (uint8_t)ebb__report_size_class(found->size_bytes)};
}

static void add_begin(struct builder *builder)
{
    const struct ebb_model *model = builder->model;
    for (uint32_t b = 0; b < model->block_count; b++) {
        const struct ebb_model_block *block = &model->blocks[b];
        int64_t instances =
            block->alloc_tick == EBB_TICK_NONE
                ? 1
                : ((int64_t)block->alloc_tick + block->span_ticks) / model->tick_count;
        struct ebb_curve_change change = change_of(builder, b, instances, instances);
        apply(&builder->begin, &change);
    }
}

static bool add_events(struct builder *builder)
{
    const struct ebb_model *model = builder->model;
    for (uint32_t tick = 0; tick < model->tick_count; tick++) {
        const struct ebb_model_event *event = &model->events[tick];
        bool is_alloc = event->kind == EBB_EVENT_ALLOC;
        if (!is_alloc && event->kind != EBB_EVENT_FREE)
            continue;
        int sign = is_alloc ? 1 : -1;
        bool is_absent = !is_alloc && builder->dropped && builder->dropped[event->block];
        struct ebb_curve_change change =
            change_of(builder, event->block, sign, is_absent ? 0 : sign);
        change.ns = ebb__timeline_after(builder->timeline, model->time_ns[tick]);
        change.order = EVENT_HAPPENS;
        if (!ebb_vec_push(&builder->changes, change))
            return false;
    }
    return true;
}

/* An absence that spans time 0 is in force at the beginning. */
static bool add_absence(struct builder *builder, const struct ebb_absence *absence,
                        const struct ebb_timeline_copy *copy)
{
    uint64_t end_ns = builder->timeline->iteration_ns;
    uint64_t out_ns = copy->out_end_ns % end_ns;
    uint64_t back_ns =
        absence->drops
            ? ebb__timeline_after(builder->timeline, builder->model->time_ns[absence->to_tick])
            : copy->in_start_ns % end_ns;
    struct ebb_curve_change change = change_of(builder, absence->block, 0, -1);
    if (back_ns < out_ns)
        apply(&builder->begin, &change);
    change.ns = out_ns;
    change.order = OUT_ENDS;
    if (!ebb_vec_push(&builder->changes, change))
        return false;
    if (absence->drops)
        return true;
    change = change_of(builder, absence->block, 0, 1);
    change.ns = back_ns;
    change.order = IN_STARTS;
    return ebb_vec_push(&builder->changes, change);
}

static bool add_absences(struct builder *builder)
{
    const struct ebb_plan *plan = &builder->planned->plan;
    for (uint32_t i = 0; i < plan->absence_count; i++)
        if (!add_absence(builder, &plan->absences[i], &builder->timeline->copies[i]))
            return false;
    return true;
}

static bool mark_dropped(struct builder *builder)
{
    const struct ebb_plan *plan = &builder->planned->plan;
    builder->dropped = calloc(builder->model->block_count + 1, sizeof *builder->dropped);
    for (uint32_t i = 0; builder->dropped && i < plan->absence_count; i++)
        if (plan->absences[i].drops)
            builder->dropped[plan->absences[i].block] = true;
    return builder->dropped;
}

enum ebb_status ebb__curve_init(const struct ebb_model *model, const struct ebb_planned *planned,
                                const struct ebb_timeline *timeline, struct ebb_curve *curve,
                                struct ebb_error *error)
{
    struct builder builder = {.model = planned ? planned->request.model : model,
                              .planned = planned,
                              .timeline = timeline};
    memset(curve, 0, sizeof *curve);
    add_begin(&builder);
    bool ok = !planned || mark_dropped(&builder);
    ok = ok && add_events(&builder) && (!planned || add_absences(&builder));
    ok = ok && ebb__curve_reduce(builder.changes.items, builder.changes.count, &builder.begin,
                                 timeline->iteration_ns, COARSE_CELLS, curve) == EBB_OK;
    ebb_vec_free(&builder.changes);
    free(builder.dropped);
    return ok ? EBB_OK : ebb__fail(error, EBB_ERR_MEMORY, "the curve", "out of memory");
}
