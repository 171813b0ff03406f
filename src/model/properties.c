/* An event is described by its kind, its block, and the number of allocations of the iteration
 * before it. So frees and accesses may swap places between two allocations without a difference. A
 * block is named by the rank of its allocation relative to the iteration, or by its serial if it is
 * older than the repetition. Two iterations agree on an event if both have its description equally
 * often.
 * Source: AppObMem's iterative, regularity, extremalization; the exact definitions are ours. */
#include "properties.h"

#include <string.h>

struct view {
    const struct ebb_stream *stream;
    const struct ebb_window *window;
    size_t first_rank;
    size_t period; /* ALLOCs of the window */
    bool traced;
};

struct described {
    uint64_t block; /* description of the block */
    uint64_t event; /* description of the event */
    bool access;
};

static struct view view_of(const struct ebb_stream *stream, const struct ebb_window *window)
{
    size_t first = ebb__stream_allocs_before(stream, window->first);
    size_t last = ebb__stream_allocs_before(stream, window->last);
    return (struct view){stream, window, first, last - first,
                         ebb__stream_is_traced(stream, window)};
}

/* The number of ALLOCs between the block's own and its FREE; SIZE_MAX: not freed. */
static size_t life_of(const struct ebb_stream *stream, size_t rank)
{
    const struct ebb_stream_alloc *alloc = &stream->allocs.items[rank];
    return alloc->free_event == EBB_NOT_FREED
               ? SIZE_MAX
               : ebb__stream_allocs_before(stream, alloc->free_event) - rank;
}

/* True if `other` is the same block in another iteration: of the same size, and freed equally late,
 * up to half a period. For a block that lives to the end of the trace, its twin shows when it would
 * have been freed. */
static bool is_twin(const struct view *view, size_t rank, size_t other)
{
    const struct ebb_stream *stream = view->stream;
    const struct ebb_stream_alloc *allocs = stream->allocs.items;
    if (stream->events.items[allocs[rank].event].size_bytes !=
        stream->events.items[allocs[other].event].size_bytes)
        return false;
    size_t end = stream->allocs.count, life = life_of(stream, rank), as = life_of(stream, other);
    if (as == SIZE_MAX || other + as == end)
        return false;
    if (life == SIZE_MAX || rank + life == end)
        return rank + as >= end;
    return (life > as ? life - as : as - life) * 2 <= view->period;
}

/* True if the block outlives the iterations. A block that each iteration allocates has a twin a
 * period earlier or later, or is freed soon. */
static bool is_lasting(const struct view *view, size_t rank)
{
    size_t period = view->period, count = view->stream->allocs.count;
    if (life_of(view->stream, rank) <= period)
        return false;
    return period == 0 || !((rank >= period && is_twin(view, rank, rank - period)) ||
                            (rank + period < count && is_twin(view, rank, rank + period)));
}

/* Returns false if the event says nothing about the iteration. */
static bool describe(const struct view *view, size_t index, size_t behind, struct described *out)
{
    const struct ebb_event *event = &view->stream->events.items[index];
    out->access = event->kind == EBB_EVENT_ACCESS;
    if (out->access ? (event->flags & EBB_EVENT_DEMAND) != 0
                    : event->kind != EBB_EVENT_ALLOC && event->kind != EBB_EVENT_FREE)
        return false;
    size_t rank = 0;
    bool known = ebb__stream_find(view->stream, event->block, &rank);
    if (!known || is_lasting(view, rank)) {
        out->block = ebb__hash_mix(event->block);
    } else {
        const struct ebb_stream_alloc *alloc = &view->stream->allocs.items[rank];
        uint64_t size = view->stream->events.items[alloc->event].size_bytes;
        out->block = ebb__hash_mix(rank - view->first_rank) ^ ebb__hash_mix(~size);
    }
    out->event = ebb__hash_mix(out->block + (uint64_t)event->kind * 8 + event->access) ^
                 ebb__hash_mix(behind + 1);
    out->event >>= 1; /* avoids the map's reserved key */
    out->block >>= 1;
    return true;
}

/* Sums up the window: events -> count, blocks -> sum of the hashes of their events (clock events
 * only, or accesses only). */
static bool tally(const struct view *view, bool accesses, struct ebb_map *events,
                  struct ebb_map *blocks)
{
    size_t behind = 0;
    for (size_t i = view->window->first; i < view->window->last; i++) {
        struct described what;
        bool counts = describe(view, i, behind, &what);
        behind += view->stream->events.items[i].kind == EBB_EVENT_ALLOC;
        if (!counts || what.access != accesses)
            continue;
        uint64_t sum = 0, often = 0;
        ebb__map_get(events, what.event, &often);
        ebb__map_get(blocks, what.block, &sum);
        if (!ebb__map_put(events, what.event, often + 1) ||
            !ebb__map_put(blocks, what.block, sum + ebb__hash_mix(what.event)))
            return false;
    }
    return true;
}

static size_t shared_events(const struct ebb_map *a, const struct ebb_map *b, size_t *total)
{
    size_t shared = 0;
    for (size_t i = 0; i < b->capacity; i++) {
        uint64_t often = 0;
        if (b->keys[i] == EBB_MAP_NO_KEY)
            continue;
        ebb__map_get(a, b->keys[i], &often);
        shared += often < b->values[i] ? often : b->values[i];
        *total += b->values[i];
    }
    return shared;
}

/* Records the blocks on which the two disagree. */
static bool note_differences(const struct ebb_map *a, const struct ebb_map *b,
                             struct ebb_map *differ)
{
    for (size_t i = 0; i < a->capacity; i++) {
        uint64_t other;
        if (a->keys[i] != EBB_MAP_NO_KEY &&
            (!ebb__map_get(b, a->keys[i], &other) || other != a->values[i]) &&
            !ebb__map_put(differ, a->keys[i], 1))
            return false;
    }
    return true;
}

static int longer_first(const void *a, const void *b)
{
    const struct ebb_gap *left = a, *right = b;
    if (left->length_ns != right->length_ns)
        return left->length_ns > right->length_ns ? -1 : 1;
    return 0;
}

static bool measure_extremes(const struct ebb_model *model, double *share)
{
    *share = 0;
    if (model->gap_count == 0)
        return true;
    struct ebb_gap *gaps = malloc(model->gap_count * sizeof *gaps);
    if (!gaps)
        return false;
    memcpy(gaps, model->gaps, model->gap_count * sizeof *gaps);
    qsort(gaps, model->gap_count, sizeof *gaps, longer_first);
    double all = 0, longest = 0;
    for (uint32_t i = 0; i < model->gap_count; i++) {
        double byte_ns =
            (double)gaps[i].length_ns * (double)model->blocks[gaps[i].block].size_bytes;
        all += byte_ns;
        if (i < (model->gap_count + 9) / 10)
            longest += byte_ns;
    }
    free(gaps);
    *share = all > 0 ? longest / all : 0;
    return true;
}

enum ebb_status ebb__properties_measure(const struct ebb_stream *stream,
                                        const struct ebb_window *windows, size_t window_count,
                                        size_t own, const struct ebb_model *model,
                                        struct ebb_properties *properties)
{
    struct ebb_properties made = {0};
    if (!measure_extremes(model, &made.extremalization))
        return EBB_ERR_MEMORY;
    /* [0] clock events, [1] accesses: of the reference, and of the iteration compared with it. */
    struct ebb_map events[2] = {{0}}, blocks[2] = {{0}}, differ = {0};
    struct view reference = view_of(stream, &windows[own]);
    size_t shared = 0, total = 0;
    bool ok = true;
    for (size_t kind = 0; kind < 2; kind++)
        ok = ok && tally(&reference, kind == 1, &events[kind], &blocks[kind]);
    /* The first iteration allocates what the others use: gradients, momentum. */
    size_t first = window_count > 2 && own > 0 ? 1 : 0;
    for (size_t i = first; ok && i < window_count; i++) {
        struct view view = view_of(stream, &windows[i]);
        for (size_t kind = 0; ok && i != own && kind < 2; kind++) {
            if (kind == 1 && (!view.traced || !reference.traced))
                continue;
            struct ebb_map other_events = {0}, other_blocks = {0};
            ok = tally(&view, kind == 1, &other_events, &other_blocks) &&
                 note_differences(&blocks[kind], &other_blocks, &differ);
            if (ok)
                shared += shared_events(&events[kind], &other_events, &total);
            ebb__map_fini(&other_events);
            ebb__map_fini(&other_blocks);
        }
        /* Events between two iterations repeat nothing. */
        size_t behind = i + 1 < window_count ? windows[i + 1].first : windows[i].last;
        for (size_t k = windows[i].last; k < behind; k++)
            total += stream->events.items[k].kind == EBB_EVENT_ALLOC ||
                     stream->events.items[k].kind == EBB_EVENT_FREE;
    }
    size_t known = blocks[0].count;
    for (size_t i = 0; i < blocks[1].capacity; i++)
        known += blocks[1].keys[i] != EBB_MAP_NO_KEY &&
                 !ebb__map_get(&blocks[0], blocks[1].keys[i], NULL);
    made.iterative = total ? (double)shared / (double)total : 0;
    made.regularity = known && window_count > 1 ? 1 - (double)differ.count / (double)known : 0;
    for (size_t kind = 0; kind < 2; kind++) {
        ebb__map_fini(&events[kind]);
        ebb__map_fini(&blocks[kind]);
    }
    ebb__map_fini(&differ);
    if (!ok)
        return EBB_ERR_MEMORY;
    *properties = made;
    return EBB_OK;
}
