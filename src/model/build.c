/* Problem: cut one iteration out of a trace and close it to a circle. A block that crosses the
 * iteration's end must appear once, with its ALLOC and its FREE both inside.
 * Method: instances.c assigns the blocks of the trace to those of the window. An access is assigned
 * to the block of its instance. A FREE that is missing in the window is inserted at its place in
 * the repetition. Events that do not fit the repetition are dropped: the FREE of a block without
 * counterpart in the window, and the accesses to it.
 * Source: cyclic timeline, see docs/papers.md (it replaces SmartPool's doubled region). O(trace +
 * accesses log accesses) time, O(trace) memory. */
#include "access_clock.h"
#include "instances.h"
#include "parts.h"

#include "base/geometry.h"

#include <string.h>

bool ebb__model_is_tick(const struct ebb_event *event)
{
    switch (event->kind) {
    case EBB_EVENT_ALLOC:
    case EBB_EVENT_FREE:
    case EBB_EVENT_LAUNCH:
        return true;
    case EBB_EVENT_ACCESS:
        return !(event->flags & EBB_EVENT_DEMAND);
    case EBB_EVENT_MARK:
        return event->mark == EBB_MARK_LAYER || event->mark == EBB_MARK_PHASE;
    default:
        return false;
    }
}

/* Finds the template block of an event of the window, by its instance. Returns false to drop the
 * event. */
static bool resolve(const struct builder *b, const struct ebb_event *event, struct entry *entry)
{
    size_t index;
    if (!ebb__serials_get(&b->serials, event->block, &index))
        return false;
    const struct instance *instance = &b->instances.items[index];
    if (instance->block == EBB_TICK_NONE)
        return false;
    entry->block = instance->block;
    entry->wraps = instance->wraps;
    if (event->kind == EBB_EVENT_ACCESS || instance->alloc_event == NO_INDEX)
        return true;
    /* Only ALLOC and FREE of a template block, and only the chosen FREE. */
    if (instance->block >= b->periodics.count)
        return false;
    const struct periodic *p = &b->periodics.items[instance->block];
    if (p->free_event == NO_INDEX)
        return false;
    return event->kind == EBB_EVENT_ALLOC || &b->trace.events[p->free_event] == event;
}

static int by_place(const void *a, const void *b)
{
    const struct periodic *left = *(const struct periodic *const *)a;
    const struct periodic *right = *(const struct periodic *const *)b;
    if (left->place != right->place)
        return left->place < right->place ? -1 : 1;
    if (left->free_event != right->free_event)
        return left->free_event < right->free_event ? -1 : 1;
    return 0;
}

/* The window's duration. It ends at the next event; without one, it is as long as the previous
 * iteration, or else one mean interval longer than its events. */
static uint64_t window_ns(const struct builder *b)
{
    const struct ebb_event *events = b->trace.events;
    uint64_t begin = events[b->first].time_ns, end = events[b->last - 1].time_ns;
    if (b->last < b->trace.count)
        return events[b->last].time_ns - begin;
    size_t period = b->last - b->first, n = b->periodics.count;
    uint64_t seen = end - begin;
    if (n && b->first_rank >= n) {
        const struct instance *own = &b->instances.items[b->allocs.items[b->first_rank]];
        const struct instance *before = &b->instances.items[b->allocs.items[b->first_rank - n]];
        uint64_t turn = events[own->alloc_event].time_ns - events[before->alloc_event].time_ns;
        if (before->size_bytes == own->size_bytes && turn >= seen)
            return turn;
    }
    return seen + (period > 1 ? seen / (period - 1) : 1);
}

/* Lists the model's events in order, with synthetic ones merged in. */
static enum ebb_status collect_entries(struct builder *b)
{
    EBB_VEC(const struct periodic *) synthetic = {0};
    enum ebb_status status = EBB_ERR_MEMORY;
    for (size_t k = 0; k < b->periodics.count; k++)
        if (b->periodics.items[k].synthetic && !ebb_vec_push(&synthetic, &b->periodics.items[k]))
            goto done;
    if (synthetic.count)
        qsort(synthetic.items, synthetic.count, sizeof *synthetic.items, by_place);
    size_t next = 0;
    for (size_t i = b->first; i < b->last; i++) {
        const struct ebb_event *event = &b->trace.events[i];
        struct entry entry = {.event = (uint32_t)i, .block = EBB_TICK_NONE};
        bool has_block = event->kind == EBB_EVENT_ALLOC || event->kind == EBB_EVENT_FREE ||
                         event->kind == EBB_EVENT_ACCESS;
        if (ebb__model_is_tick(event) && (!has_block || resolve(b, event, &entry)) &&
            !ebb_vec_push(&b->entries, entry))
            goto done;
        for (; next < synthetic.count && synthetic.items[next]->place == i; next++) {
            const struct periodic *p = synthetic.items[next];
            struct entry made = {.event = (uint32_t)i,
                                 .block = b->instances.items[p->instance].block,
                                 .wraps = p->wraps,
                                 .synthetic = true};
            if (!ebb_vec_push(&b->entries, made))
                goto done;
        }
    }
    status = EBB_OK;
done:
    ebb_vec_free(&synthetic);
    return status;
}

/* An access with its position since its block's ALLOC, for sorting. */
struct placed {
    uint32_t block;
    uint32_t tick;
    uint64_t position;
    uint8_t access;
    bool held;
};

static int by_position(const void *a, const void *b)
{
    const struct placed *left = a, *right = b;
    if (left->block != right->block)
        return left->block < right->block ? -1 : 1;
    if (left->position != right->position)
        return left->position < right->position ? -1 : 1;
    return 0;
}

/* Writes the lifetimes of the template blocks, from their entries. */
static enum ebb_status set_lifetimes(struct builder *b)
{
    uint32_t ticks = (uint32_t)b->entries.count;
    struct ebb_model_block *blocks = b->blocks.items;
    for (size_t i = 0; i < b->blocks.count; i++)
        blocks[i].span_ticks = ticks;
    for (uint32_t tick = 0; tick < ticks; tick++) {
        const struct entry *entry = &b->entries.items[tick];
        if (entry->block == EBB_TICK_NONE)
            continue;
        if (entry->synthetic || b->trace.events[entry->event].kind == EBB_EVENT_FREE)
            blocks[entry->block].free_tick = tick;
        else if (b->trace.events[entry->event].kind == EBB_EVENT_ALLOC)
            blocks[entry->block].alloc_tick = tick;
    }
    for (size_t k = 0; k < b->periodics.count; k++) {
        const struct periodic *p = &b->periodics.items[k];
        struct ebb_model_block *block = &blocks[b->instances.items[p->instance].block];
        if (p->free_event == NO_INDEX)
            continue;
        uint64_t span = (uint64_t)p->wraps * ticks + block->free_tick - block->alloc_tick;
        if (span >= EBB_TICK_NONE)
            return ebb__fail(b->error, EBB_ERR_LIMIT, "iteration", "a block lives 2^32 ticks");
        block->span_ticks = (uint32_t)span;
    }
    return EBB_OK;
}

/* Records the unit of its block that the access at `tick` uses, if it is to a unit. */
static bool note_unit(struct builder *b, size_t tick, const struct ebb_event *event)
{
    if (!(event->flags & EBB_EVENT_PART) || event->size_bytes == 0 ||
        event->size_bytes > b->blocks.items[b->entries.items[tick].block].size_bytes)
        return true;
    if (!b->units) {
        b->units = malloc(b->entries.count * sizeof *b->units);
        if (!b->units)
            return false;
        for (size_t i = 0; i < b->entries.count; i++)
            b->units[i] = EBB_TICK_NONE;
    }
    b->units[tick] = (uint32_t)((event->size_bytes - 1) / EBB_HUGE_BYTES);
    return true;
}

/* Computes the position of the access at `tick` since its block's ALLOC. Returns false if it is
 * behind the end of the lifetime, because the FREE varies between iterations. */
static bool position_of(const struct builder *b, const struct entry *entry, size_t tick,
                        uint64_t *position)
{
    const struct ebb_model_block *block = &b->blocks.items[entry->block];
    *position = tick;
    if (block->alloc_tick == EBB_TICK_NONE)
        return true;
    *position += (uint64_t)entry->wraps * b->entries.count;
    if (*position <= block->alloc_tick || *position - block->alloc_tick >= block->span_ticks)
        return false;
    *position -= block->alloc_tick;
    return true;
}

/* Writes the events of the model, and lists the accesses among them. */
static bool write_events(struct builder *b, struct ebb_model *model, struct placed *placed,
                         size_t *placed_count)
{
    uint64_t begin = b->trace.events[b->first].time_ns;
    for (size_t tick = 0; tick < b->entries.count; tick++) {
        const struct entry *entry = &b->entries.items[tick];
        struct ebb_model_event *out = &model->events[tick];
        out->block = entry->block;
        model->time_ns[tick] = b->trace.events[entry->event].time_ns - begin;
        if (entry->synthetic) {
            out->kind = EBB_EVENT_FREE;
        } else {
            const struct ebb_event *event = &b->trace.events[entry->event];
            out->kind = event->kind;
            out->access = event->access;
            out->mark = event->mark;
        }
        out->clock = out->kind == EBB_EVENT_ALLOC || out->kind == EBB_EVENT_FREE ||
                     (out->kind == EBB_EVENT_ACCESS &&
                      (b->trace.events[entry->event].flags & EBB_EVENT_ANNOUNCED));
        if (out->kind != EBB_EVENT_ACCESS)
            continue;
        const struct ebb_event *event = &b->trace.events[entry->event];
        model->has_accesses = true;
        if (!note_unit(b, tick, event))
            return false;
        uint64_t position;
        if (position_of(b, entry, tick, &position))
            placed[(*placed_count)++] =
                (struct placed){entry->block, (uint32_t)tick, position, out->access,
                                (event->flags & EBB_EVENT_HELD) != 0};
    }
    model->time_ns[b->entries.count] = b->duration_ns;
    return true;
}

/* Lists the values of the program's marks. Most iterations have none. */
static bool write_marks(const struct builder *b, struct ebb_model *model)
{
    EBB_VEC(struct ebb_model_mark) marks = {0};
    for (uint32_t tick = 0; tick < model->tick_count; tick++) {
        if (model->events[tick].kind != EBB_EVENT_MARK)
            continue;
        uint64_t value = b->trace.events[b->entries.items[tick].event].size_bytes;
        struct ebb_model_mark mark = {tick, value < UINT32_MAX ? (uint32_t)value : UINT32_MAX};
        if (!ebb_vec_push(&marks, mark)) {
            ebb_vec_free(&marks);
            return false;
        }
    }
    model->marks = marks.items;
    model->mark_count = (uint32_t)marks.count;
    return true;
}

/* Gives each block its accesses, in order. */
static bool write_accesses(struct builder *b, struct ebb_model *model, struct placed *placed,
                           size_t count)
{
    if (count)
        qsort(placed, count, sizeof *placed, by_position);
    model->accesses = calloc(count + 1, sizeof *model->accesses);
    if (!model->accesses)
        return false;
    model->access_count = (uint32_t)count;
    size_t next = 0;
    for (uint32_t i = 0; i < b->blocks.count; i++) {
        struct ebb_model_block *block = &b->blocks.items[i];
        block->first_access = (uint32_t)next;
        for (; next < count && placed[next].block == i; next++)
            model->accesses[next] = (struct ebb_model_access){
                placed[next].tick, placed[next].access, placed[next].held};
        block->access_count = (uint32_t)next - block->first_access;
    }
    return true;
}

static size_t count_accesses(const struct builder *b)
{
    size_t accesses = 0;
    for (size_t i = 0; i < b->entries.count; i++)
        accesses += !b->entries.items[i].synthetic &&
                    b->trace.events[b->entries.items[i].event].kind == EBB_EVENT_ACCESS;
    return accesses;
}

static enum ebb_status fill_model(struct builder *b, struct ebb_model *model)
{
    size_t ticks = b->entries.count, count = 0;
    model->tick_count = (uint32_t)ticks;
    model->events = calloc(ticks, sizeof *model->events);
    model->time_ns = calloc(ticks + 1, sizeof *model->time_ns);
    struct placed *placed = malloc((count_accesses(b) + 1) * sizeof *placed);
    bool ok = model->events && model->time_ns && placed && write_events(b, model, placed, &count) &&
              write_accesses(b, model, placed, count) && write_marks(b, model);
    free(placed);
    if (!ok)
        return EBB_ERR_MEMORY;
    model->blocks = b->blocks.items;
    model->block_count = (uint32_t)b->blocks.count;
    memset(&b->blocks, 0, sizeof b->blocks);
    return EBB_OK;
}

/* True if only accesses show how far the iteration has progressed. */
static bool is_without_clock(const struct builder *b, const struct ebb_model *model)
{
    const struct ebb_event *begin = &b->trace.events[b->first];
    if (begin->kind == EBB_EVENT_MARK && begin->mark == EBB_MARK_ITERATION)
        return ebb__iteration_is_by_accesses(begin->size_bytes);
    for (uint32_t tick = 0; tick < model->tick_count; tick++)
        if (model->events[tick].clock)
            return false;
    return true;
}

enum ebb_status ebb__model_build(struct ebb_event_span trace, size_t first, size_t period,
                                 struct ebb_model *model, struct ebb_error *error)
{
    if (period == 0 || first > trace.count || period > trace.count - first)
        return ebb__fail(error, EBB_ERR_ARGUMENT, "iteration",
                         "events %zu to %zu are not in a trace of %zu", first, first + period,
                         trace.count);
    if (trace.count >= EBB_TICK_NONE / 4)
        return ebb__fail(error, EBB_ERR_LIMIT, "trace", "more than 2^30 events");
    struct builder b = {.trace = trace, .first = first, .last = first + period, .error = error};
    struct ebb_model made = {0};
    enum ebb_status status = ebb__instances_collect(&b);
    if (!status)
        status = ebb__instances_match(&b);
    b.duration_ns = window_ns(&b);
    if (!status)
        status = collect_entries(&b);
    if (!status && b.entries.count == 0)
        status =
            ebb__fail(error, EBB_ERR_ARGUMENT, "iteration", "it holds no event of the program");
    if (!status)
        status = set_lifetimes(&b);
    ebb__instances_fini(&b); /* as large as the trace, and the model needs room */
    if (!status)
        status = fill_model(&b, &made);
    if (!status && made.has_accesses && is_without_clock(&b, &made))
        status = ebb__access_clock_choose(&made, b.units);
    if (!status && b.units)
        status = ebb__model_derive(&made, error); /* its peak tells which operations are large */
    if (!status && b.units)
        status = ebb__model_divide(&made, b.units);
    if (!status)
        status = ebb__model_derive(&made, error);
    if (status == EBB_ERR_MEMORY)
        status = ebb__fail(error, EBB_ERR_MEMORY, "iteration", "no memory for its model");
    ebb_vec_free(&b.blocks);
    ebb_vec_free(&b.entries);
    free(b.units);
    if (status)
        ebb__model_fini(&made);
    else
        *model = made;
    return status;
}
