/* The iterations that a watch has seen, oldest first. They are recorded when they end, and dropped
 * when they turn out to be loops within an iteration. Very many are forgotten except for their
 * counts. */
#include "watch_state.h"

#include "base/tuning.h"

#include <string.h>

enum { KEPT_ITERATIONS = 1 << 10 }; /* a limit; enough for medians */

size_t ebb__watch_first_unrecorded(const struct ebb_watch *watch, enum ebb_symbol_kind kind,
                                   uint64_t otherwise)
{
    const struct ebb_symbols *symbols = &watch->stream.symbols[kind];
    size_t count = watch->iterations.count, next = 0;
    uint64_t recorded = count ? watch->iterations.items[count - 1].last_event : otherwise;
    while (next < symbols->events.count &&
           (int64_t)(watch->event_base + symbols->events.items[next] - recorded) < 0)
        next++;
    return next;
}

/* The repetition `pattern`, of `window_events` an iteration, is in force since the event `begin`.
 * Iterations recorded since then were none, and so were other repetitions within one. */
void ebb__watch_drop(struct ebb_watch *watch, uint32_t pattern, size_t window_events,
                     uint64_t begin)
{
    struct ebb_watch_iteration *all = watch->iterations.items;
    size_t count = watch->iterations.count, kept = 0;
    bool is_loop[KNOWN_PATTERNS] = {false};
    for (; count && all[count - 1].last_event > begin; count--) {
        const struct ebb_watch_iteration *dropped = &all[count - 1];
        if (dropped->pattern != pattern && dropped->first_event >= begin &&
            2 * (dropped->last_event - dropped->first_event) <= window_events)
            is_loop[dropped->pattern % KNOWN_PATTERNS] = true;
    }
    for (size_t i = 0; i < count; i++) {
        bool known = all[i].pattern + KNOWN_PATTERNS >= watch->pattern_count;
        if (all[i].pattern == pattern || !known || !is_loop[all[i].pattern % KNOWN_PATTERNS])
            all[kept++] = all[i];
    }
    watch->iterations.count = kept;
}

size_t ebb__watch_allocs_of_newest(const struct ebb_watch *watch)
{
    size_t count = watch->iterations.count;
    return count ? watch->iterations.items[count - 1].alloc_count : 0;
}

static void forget_iterations(struct ebb_watch *watch)
{
    struct ebb_watch_forgotten *forgotten = &watch->forgotten;
    struct ebb_watch_iteration *all = watch->iterations.items;
    for (size_t i = 0; i < KEPT_ITERATIONS; i++) {
        if (all[i].planned && forgotten->planned++ == 0)
            forgotten->first_planned = forgotten->iterations + i;
    }
    forgotten->iterations += KEPT_ITERATIONS;
    watch->iterations.count -= KEPT_ITERATIONS;
    memmove(all, all + KEPT_ITERATIONS, watch->iterations.count * sizeof *all);
}

enum ebb_status ebb__watch_record(struct ebb_watch *watch)
{
    const struct ebb_stream *stream = &watch->stream;
    struct ebb_window window;
    uint64_t newest = stream->events.items[stream->events.count - 1].size_bytes;
    if (watch->template.landmark_bytes && newest != watch->template.landmark_bytes)
        return EBB_OK; /* no iteration ends here */
    while (ebb__stream_next_window(stream, &watch->template, &watch->next_symbol, &window)) {
        struct ebb_watch_iteration made = {
            .start_ns = stream->events.items[window.first].time_ns,
            .duration_ns = ebb__stream_window_ns(stream, &window),
            .first_event = watch->event_base + window.first,
            .last_event = watch->event_base + window.last,
            .planned = ebb__stream_is_planned(stream, &window),
            .traced = ebb__stream_is_traced(stream, &window),
            .pattern = watch->pattern,
        };
        size_t clocks = 0;
        for (size_t i = window.first; i < window.last; i++) {
            const struct ebb_event *event = &stream->events.items[i];
            made.demand_faults +=
                event->kind == EBB_EVENT_ACCESS && (event->flags & EBB_EVENT_DEMAND);
            clocks += event->kind == EBB_EVENT_ALLOC || event->kind == EBB_EVENT_FREE;
            if (event->kind != EBB_EVENT_ALLOC)
                continue;
            if (made.alloc_count++ == 0)
                made.first_serial = event->block;
            made.alloc_bytes += event->size_bytes;
        }
        watch->period_clock_events = clocks;
        if (window.last - window.first > watch->window_events)
            watch->window_events = window.last - window.first;
        if (watch->iterations.count == 2 * KEPT_ITERATIONS)
            forget_iterations(watch);
        if (!ebb_vec_push(&watch->iterations, made))
            return EBB_ERR_MEMORY;
        const struct ebb_watch_iteration *last =
            &watch->iterations.items[watch->iterations.count - 1];
        if (watch->iterations.count > 1 && last[-1].pattern == watch->pattern &&
            last[-1].last_event == last->first_event)
            watch->early = false; /* it is whole, and has been repeated */
    }
    return EBB_OK;
}

bool ebb__watch_is_steady(const struct ebb_watch *watch)
{
    const struct ebb_watch_iteration *all = watch->iterations.items;
    size_t count = watch->iterations.count;
    uint64_t now = watch->event_base + watch->stream.events.count;
    if (!watch->found || count < (size_t)ebb__tuning()->steady_iterations ||
        now - all[count - 1].last_event > 2 * watch->window_events)
        return false;
    for (size_t i = count - (size_t)ebb__tuning()->steady_iterations + 1; i < count; i++)
        if (all[i].pattern != watch->pattern || all[i].first_event != all[i - 1].last_event)
            return false;
    return true;
}
