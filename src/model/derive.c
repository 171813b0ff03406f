/* Derives load, peak and gaps from a model's events, blocks, accesses and times, and replaces the
 * times. One function writes the gaps both initially and after a change of times, so that they are
 * consistent. O(ticks + accesses). */
#include "model.h"

#include "base/tuning.h"

#include <stdlib.h>
#include <string.h>

uint32_t ebb__model_clock_after(const struct ebb_model *model, uint32_t tick)
{
    uint32_t count = model->tick_count;
    if (model->clock_count == 0)
        return EBB_TICK_NONE;
    for (uint32_t step = 1; step <= count; step++) {
        uint32_t at = (uint32_t)(((uint64_t)tick + step) % count);
        if (model->events[at].clock)
            return at;
    }
    return EBB_TICK_NONE;
}

uint32_t ebb__model_clock_before(const struct ebb_model *model, uint32_t tick)
{
    uint32_t count = model->tick_count;
    if (model->clock_count == 0)
        return EBB_TICK_NONE;
    for (uint32_t step = 1; step <= count; step++) {
        uint32_t at = (uint32_t)(((uint64_t)tick + count - step) % count);
        if (model->events[at].clock)
            return at;
    }
    return EBB_TICK_NONE;
}

bool ebb__model_announced(const struct ebb_model *model)
{
    for (uint32_t tick = 0; tick < model->tick_count; tick++)
        if (model->events[tick].clock && model->events[tick].kind == EBB_EVENT_ACCESS)
            return true;
    return false;
}

bool ebb__model_has_clock_allocs(const struct ebb_model *model)
{
    for (uint32_t tick = 0; tick < model->tick_count; tick++)
        if (model->events[tick].clock && model->events[tick].kind != EBB_EVENT_ACCESS)
            return true;
    return false;
}

uint32_t *ebb__model_clocks_after(const struct ebb_model *model)
{
    uint32_t count = model->tick_count;
    uint32_t *after = malloc(count * sizeof *after);
    bool none = model->clock_count == 0;
    uint32_t next = none ? 0 : ebb__model_clock_after(model, count - 1);
    for (uint32_t tick = count; after && tick-- > 0;) {
        after[tick] = next;
        if (none || model->events[tick].clock)
            next = tick;
    }
    return after;
}

uint32_t *ebb__model_clocks_before(const struct ebb_model *model)
{
    uint32_t count = model->tick_count;
    uint32_t *before = malloc(count * sizeof *before);
    bool none = model->clock_count == 0;
    uint32_t last = none ? count - 1 : ebb__model_clock_before(model, 0);
    for (uint32_t tick = 0; before && tick < count; tick++) {
        before[tick] = last;
        if (none || model->events[tick].clock)
            last = tick;
    }
    return before;
}

uint64_t ebb__model_ns_between(const struct ebb_model *model, uint32_t from, uint32_t to)
{
    uint64_t turn_ns = ebb__model_iteration_ns(model);
    return turn_ns ? (model->time_ns[to] + turn_ns - model->time_ns[from]) % turn_ns : 0;
}

uint64_t ebb__model_time_error_ns(const struct ebb_model *model, uint32_t start, uint32_t tick)
{
    uint64_t drift_ns =
        ebb__model_ns_between(model, start, tick) / (uint64_t)ebb__tuning()->within_drift_divisor;
    uint64_t least_ns = (uint64_t)ebb__tuning()->within_ns;
    return drift_ns > least_ns ? drift_ns : least_ns;
}

/* `after`: the model's clocks, or NULL for the slow way. */
static uint32_t use_over(const struct ebb_model *model, const uint32_t *after, uint32_t tick)
{
    if (after)
        return after[tick];
    uint32_t clock = ebb__model_clock_after(model, tick);
    return clock == EBB_TICK_NONE ? (tick + 1) % model->tick_count : clock;
}

/* A gap of `distance` ticks from `from`. */
static struct ebb_gap make_gap(const struct ebb_model *model, const uint32_t *after, uint32_t block,
                               uint32_t from, uint64_t distance, bool ends_in_free)
{
    uint32_t count = model->tick_count;
    uint32_t to = (uint32_t)((from + distance) % count);
    uint32_t over = use_over(model, after, from);
    uint64_t turn = ebb__model_iteration_ns(model);
    uint64_t over_ns = model->time_ns[over] + (over <= from ? turn : 0);
    uint64_t to_ns = model->time_ns[to] + (from + distance) / count * turn;
    return (struct ebb_gap){
        .block = block,
        .from_tick = from,
        .to_tick = to,
        .ends_in_free = ends_in_free,
        .from_ns = model->time_ns[over],
        .length_ns = to_ns > over_ns ? to_ns - over_ns : 0,
    };
}

/* Writes all gaps; returns their number, at most access_count + block_count. A persistent block
 * that is not used in the iteration has one gap, from tick 0 to tick 0, as long as the
 * iteration. */
static uint32_t write_gaps(const struct ebb_model *model, struct ebb_gap *gaps)
{
    if (!model->has_accesses)
        return 0;
    uint32_t written = 0, count = model->tick_count;
    uint32_t *after = ebb__model_clocks_after(model);
    for (uint32_t i = 0; i < model->block_count; i++) {
        const struct ebb_model_block *block = &model->blocks[i];
        const struct ebb_model_access *access = &model->accesses[block->first_access];
        bool persistent = block->alloc_tick == EBB_TICK_NONE;
        uint32_t origin = persistent ? 0 : block->alloc_tick;
        if (block->access_count == 0) {
            if (persistent)
                gaps[written++] = (struct ebb_gap){
                    .block = i,
                    .from_ns = model->time_ns[0],
                    .length_ns = ebb__model_iteration_ns(model),
                };
            continue;
        }
        uint64_t walked = (access[0].tick + count - origin) % count; /* ticks since the origin */
        for (uint32_t k = 0; k < block->access_count; k++) {
            bool last = k + 1 == block->access_count;
            uint64_t distance;
            if (!last) {
                distance = (access[k + 1].tick + count - access[k].tick) % count;
            } else if (persistent) {
                distance = (access[0].tick + count - access[k].tick - 1) % count + 1;
            } else {
                distance = block->span_ticks > walked ? block->span_ticks - walked : 0;
            }
            if (last || !access[k + 1].held)
                gaps[written++] =
                    make_gap(model, after, i, access[k].tick, distance, last && !persistent);
            walked += distance;
        }
    }
    free(after);
    return written;
}

static enum ebb_status check_ticks(const struct ebb_model *model, struct ebb_error *error)
{
    uint32_t count = model->tick_count;
    const char *why = NULL;
    if (count == 0 || count == EBB_TICK_NONE || !model->events || !model->time_ns)
        why = "it has no events";
    for (uint32_t tick = 0; !why && tick < count; tick++) {
        if (model->events[tick].block != EBB_TICK_NONE &&
            model->events[tick].block >= model->block_count)
            why = "an event names a block that is not there";
        if (model->time_ns[tick] > model->time_ns[tick + 1])
            why = "its time falls";
    }
    for (uint32_t i = 0; !why && i < model->block_count; i++) {
        const struct ebb_model_block *block = &model->blocks[i];
        bool persistent = block->alloc_tick == EBB_TICK_NONE && block->free_tick == EBB_TICK_NONE;
        if (!persistent &&
            (block->alloc_tick >= count || block->free_tick >= count || block->span_ticks == 0 ||
             ((uint64_t)block->alloc_tick + block->span_ticks) % count != block->free_tick))
            why = "a block's lifetime is none";
        if (block->access_count > model->access_count ||
            block->first_access > model->access_count - block->access_count)
            why = "a block's accesses are not there";
    }
    for (uint32_t i = 0; !why && i < model->access_count; i++)
        if (model->accesses[i].tick >= count)
            why = "an access lies behind the last tick";
    for (uint32_t i = 0; !why && i < model->mark_count; i++)
        if (model->marks[i].tick >= count)
            why = "a mark lies behind the last tick";
    return why ? ebb__fail(error, EBB_ERR_ARGUMENT, "model", "%s", why) : EBB_OK;
}

/* Sums up live bytes after each event, from differences at the ends of lifetimes. */
static void sum_load(struct ebb_model *model)
{
    uint32_t count = model->tick_count;
    uint64_t *load = model->load_bytes; /* first differences; unsigned wrap-around is harmless */
    uint64_t always = 0;
    memset(load, 0, count * sizeof *load);
    for (uint32_t i = 0; i < model->block_count; i++) {
        const struct ebb_model_block *block = &model->blocks[i];
        if (block->alloc_tick == EBB_TICK_NONE) {
            always += block->size_bytes;
            continue;
        }
        always += block->span_ticks / count * block->size_bytes;
        uint32_t rest = block->span_ticks % count;
        if (rest == 0)
            continue;
        load[block->alloc_tick] += block->size_bytes;
        load[block->free_tick] -= block->size_bytes;
        if (block->free_tick < block->alloc_tick)
            always += block->size_bytes;
    }
    model->peak_bytes = 0;
    model->peak_tick = 0;
    for (uint32_t tick = 0; tick < count; tick++) {
        always += load[tick];
        load[tick] = always;
        if (always > model->peak_bytes) {
            model->peak_bytes = always;
            model->peak_tick = tick;
        }
    }
}

enum ebb_status ebb__model_derive(struct ebb_model *model, struct ebb_error *error)
{
    enum ebb_status status = check_ticks(model, error);
    if (status)
        return status;
    uint64_t *load = calloc(model->tick_count, sizeof *load);
    struct ebb_gap *gaps =
        calloc((size_t)model->access_count + model->block_count + 1, sizeof *gaps);
    if (!load || !gaps) {
        free(load);
        free(gaps);
        return ebb__fail(error, EBB_ERR_MEMORY, "model", "no memory for its gaps");
    }
    free(model->load_bytes);
    free(model->gaps);
    model->load_bytes = load;
    model->gaps = gaps;
    model->clock_count = 0;
    for (uint32_t tick = 0; tick < model->tick_count; tick++)
        model->clock_count += model->events[tick].clock;
    sum_load(model);
    model->gap_count = write_gaps(model, gaps);
    return EBB_OK;
}

/* Maps `old` linearly from [old_from, old_to] to [new_from, new_to]. */
static uint64_t stretch(uint64_t old, uint64_t old_from, uint64_t old_to, uint64_t new_from,
                        uint64_t new_to)
{
    if (old <= old_from || old_to <= old_from || new_to <= new_from)
        return new_from;
    if (old >= old_to)
        return new_to;
    double share = (double)(old - old_from) / (double)(old_to - old_from);
    uint64_t made = new_from + (uint64_t)(share * (double)(new_to - new_from));
    return made < new_to ? made : new_to;
}

void ebb__model_retime(struct ebb_model *model, const uint64_t *clock_ns)
{
    uint32_t count = model->tick_count, done = 0, clock = 0;
    uint64_t old_from = 0, new_from = 0;
    for (uint32_t tick = 0; tick <= count; tick++) {
        if (tick < count && !model->events[tick].clock)
            continue;
        uint64_t old_to = model->time_ns[tick];
        uint64_t new_to = clock_ns[clock++];
        if (new_to < new_from) /* medians of several iterations may be out of order */
            new_to = new_from;
        for (; done < tick; done++)
            model->time_ns[done] =
                stretch(model->time_ns[done], old_from, old_to, new_from, new_to);
        model->time_ns[tick] = new_to;
        done = tick + 1;
        old_from = old_to;
        new_from = new_to;
    }
    model->gap_count = write_gaps(model, model->gaps);
}

void ebb__model_scale_time(struct ebb_model *model, double factor)
{
    for (uint32_t tick = 0; tick <= model->tick_count; tick++) {
        double ns = (double)model->time_ns[tick] * factor;
        model->time_ns[tick] = ns < 0x1p59 ? (uint64_t)ns : (uint64_t)1 << 59;
    }
    model->gap_count = write_gaps(model, model->gaps);
}

void ebb__model_fini(struct ebb_model *model)
{
    free(model->events);
    free(model->time_ns);
    free(model->load_bytes);
    free(model->blocks);
    free(model->accesses);
    free(model->gaps);
    free(model->marks);
    memset(model, 0, sizeof *model);
}

uint32_t ebb__model_count_allocs(const struct ebb_model *model)
{
    uint32_t count = 0;
    for (uint32_t tick = 0; tick < model->tick_count; tick++)
        count += model->events[tick].kind == EBB_EVENT_ALLOC && model->events[tick].clock;
    return count;
}
