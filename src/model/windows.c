/* Method: a template is the hash of one period of symbols, so each position of a stream is tested
 * in O(1). Between landmarks nothing is hashed: a window extends from one landmark to the next, if
 * it has about as many symbols as the template. */
#include "windows.h"

#include "landmark.h"

enum { UNOBSERVED_NS = 1000000 }; /* of a window's end: fewer hold no use that matters */

/* Live bytes just before a symbol. */
static uint64_t live_before(const struct ebb_symbols *symbols, enum ebb_symbol_kind kind,
                            size_t index)
{
    uint64_t live, symbol = ebb__detector_symbol(symbols->detector, index, &live);
    return kind == EBB_SYMBOL_ALLOC ? live - symbol : live;
}

/* The first symbol of the repetition, extended backwards as long as the period holds. */
static size_t leftmost(const struct ebb_stream *stream, const struct ebb_repetition *repetition)
{
    const struct ebb_rolling *rolling = stream->symbols[repetition->kind].rolling;
    size_t first = repetition->first_symbol, period = repetition->period_symbols;
    while (first > 0 && ebb__rolling_range(rolling, first - 1, first) ==
                            ebb__rolling_range(rolling, first - 1 + period, first + period))
        first--;
    return first;
}

struct ebb_template ebb__stream_template(const struct ebb_stream *stream,
                                         const struct ebb_repetition *repetition,
                                         size_t whole_iterations)
{
    const struct ebb_symbols *symbols = &stream->symbols[repetition->kind];
    size_t period = repetition->period_symbols;
    struct ebb_template made = {repetition->kind, period, 0, 0};
    if (repetition->kind == EBB_SYMBOL_MARK)
        return made;
    size_t first = leftmost(stream, repetition), length = repetition->last_symbol - first;
    /* A start beyond `free_places` costs one whole iteration. */
    size_t free_places = length % period, choice = 0;
    uint64_t least = UINT64_MAX, least_free = UINT64_MAX;
    size_t choice_free = 0;
    for (size_t place = 0; place < period; place++) {
        /* In the newest period: the first one may not yet have blocks that are never freed. */
        uint64_t live = live_before(symbols, repetition->kind,
                                    first + place + (length - 1 - place) / period * period);
        if (place + whole_iterations * period <= length && live < least) {
            least = live;
            choice = place;
        }
        if (place <= free_places && live < least_free) {
            least_free = live;
            choice_free = place;
        }
    }
    if (least == UINT64_MAX || least_free <= least ||
        least_free - least <= stream->peak_bytes / 100)
        choice = choice_free;
    made.hash = ebb__rolling_range(symbols->rolling, first + choice, first + choice + period);
    return made;
}

/* The first symbol at or after `at` that is a landmark of the template; `count` if there is
 * none. */
static size_t next_landmark(const struct ebb_symbols *symbols, const struct ebb_template *template,
                            size_t at)
{
    uint64_t load;
    while (at < symbols->events.count &&
           ebb__detector_symbol(symbols->detector, at, &load) != template->landmark_bytes)
        at++;
    return at;
}

static bool next_between_landmarks(const struct ebb_stream *stream,
                                   const struct ebb_template *template, size_t *symbol,
                                   struct ebb_window *window)
{
    const struct ebb_symbols *symbols = &stream->symbols[template->kind];
    size_t count = symbols->events.count, period = template->period_symbols;
    size_t tolerance = ebb__landmark_tolerance(period);
    size_t at = next_landmark(symbols, template, *symbol);
    while (at < count) {
        size_t next = next_landmark(symbols, template, at + 1);
        if (next == count && !stream->closed)
            break;
        if (next - at <= period + tolerance && next - at + tolerance >= period) {
            *window = (struct ebb_window){at, symbols->events.items[at],
                                          ebb__stream_event_of(stream, template->kind, next)};
            *symbol = next;
            return true;
        }
        at = next;
    }
    *symbol = at;
    return false;
}

/* What ends with this symbol is no iteration. */
static bool is_anew(const struct ebb_stream *stream, enum ebb_symbol_kind kind, size_t symbol)
{
    const struct ebb_symbols *symbols = &stream->symbols[kind];
    return kind == EBB_SYMBOL_MARK && symbol < symbols->events.count &&
           stream->events.items[symbols->events.items[symbol]].size_bytes == EBB_ITERATION_ANEW;
}

bool ebb__stream_next_window(const struct ebb_stream *stream, const struct ebb_template *template,
                             size_t *symbol, struct ebb_window *window)
{
    if (template->landmark_bytes)
        return next_between_landmarks(stream, template, symbol, window);
    const struct ebb_symbols *symbols = &stream->symbols[template->kind];
    size_t count = symbols->events.count, period = template->period_symbols;
    for (size_t at = *symbol; at + period <= count; at++) {
        if (at + period == count && !stream->closed)
            break; /* its end is known only with the next symbol */
        if (template->kind == EBB_SYMBOL_MARK
                ? is_anew(stream, template->kind, at + period)
                : ebb__rolling_range(symbols->rolling, at, at + period) != template->hash) {
            *symbol = at + 1;
            continue;
        }
        *window = (struct ebb_window){at, symbols->events.items[at],
                                      ebb__stream_event_of(stream, template->kind, at + period)};
        if (template->kind == EBB_SYMBOL_MARK && at + period == count) {
            /* Behind the last mark: an iteration is whole if it allocates as often as the previous
             * one. */
            size_t own = stream->allocs.count - ebb__stream_allocs_before(stream, window->first);
            size_t before =
                at ? ebb__stream_allocs_before(stream, window->first) -
                         ebb__stream_allocs_before(stream, symbols->events.items[at - 1])
                   : 0;
            if (at == 0 || own != before || window->last == window->first + 1)
                break;
        }
        *symbol = at + period;
        return true;
    }
    return false;
}

bool ebb__stream_has_lost(const struct ebb_stream *stream, const struct ebb_window *window)
{
    for (size_t i = stream->lost.count; i-- > 0 && stream->lost.items[i] >= window->first;)
        if (stream->lost.items[i] < window->last)
            return true;
    return false;
}

/* The end of the window's own events: marks behind its last event belong to the next window. */
static size_t window_end(const struct ebb_stream *stream, const struct ebb_window *window)
{
    size_t last = window->last;
    while (last > window->first && stream->events.items[last - 1].kind == EBB_EVENT_MARK)
        last--;
    return last;
}

/* A stretch that ends behind the window's last event. Observation may have been stopped in an
 * allocation, which the next window then begins with. If it was stopped earlier, the accesses after
 * it are missing: often those of the optimizer, which allocates nothing. */
static bool lasts_to_end(const struct ebb_stream *stream, const struct ebb_stretch *stretch,
                         const struct ebb_window *window)
{
    if (stretch->last < window_end(stream, window))
        return false;
    return stretch->last >= window->last || window->last >= stream->events.count ||
           stream->events.items[window->last].time_ns <=
               stream->events.items[stretch->last].time_ns + UNOBSERVED_NS;
}

bool ebb__stream_is_traced(const struct ebb_stream *stream, const struct ebb_window *window)
{
    for (size_t i = stream->traced.count; i-- > 0;) {
        const struct ebb_stretch *stretch = &stream->traced.items[i];
        if (stretch->first <= window->first)
            return lasts_to_end(stream, stretch, window) && !ebb__stream_has_lost(stream, window);
    }
    return false;
}

bool ebb__stream_is_planned(const struct ebb_stream *stream, const struct ebb_window *window)
{
    for (size_t i = stream->planned.count; i-- > 0;) {
        const struct ebb_stretch *stretch = &stream->planned.items[i];
        if (stretch->first <= window->first)
            return stretch->last >= window_end(stream, window);
    }
    return false;
}

static bool touches(const struct ebb_stream *stream, const struct ebb_stretch *stretches,
                    size_t count, const struct ebb_window *window)
{
    size_t end = window_end(stream, window);
    for (size_t i = count; i-- > 0 && stretches[i].last > window->first;)
        if (stretches[i].first < end)
            return true;
    return false;
}

bool ebb__stream_touches_trace(const struct ebb_stream *stream, const struct ebb_window *window)
{
    return touches(stream, stream->traced.items, stream->traced.count, window);
}

bool ebb__stream_touches_plan(const struct ebb_stream *stream, const struct ebb_window *window)
{
    return touches(stream, stream->planned.items, stream->planned.count, window);
}

uint64_t ebb__stream_window_ns(const struct ebb_stream *stream, const struct ebb_window *window)
{
    const struct ebb_event *events = stream->events.items;
    size_t end = window->last < stream->events.count ? window->last : stream->events.count - 1;
    return events[end].time_ns - events[window->first].time_ns;
}
