/* All events pass through one stream. Of the repetitions that its detectors announced, the one
 * whose iterations cover most events is chosen. Marks of the program have priority over detected
 * repetitions, and allocations over accesses. Accesses win only if they repeat in more than twice
 * as much of the trace (programs that allocate once, after a start that repeats something). So
 * accesses are examined only if allocations leave enough of the trace for that. A landmark (threads
 * that interleave) is searched if exact repetitions cover less than half of the trace. */
#include "analyse.h"

#include "base/clock.h"
#include "iteration.h"
#include "landmark.h"
#include "lives.h"
#include "properties.h"

#include <string.h>

typedef EBB_VEC(struct ebb_window) windows_vec;

static bool is_clock(const struct ebb_event *event)
{
    return event->kind == EBB_EVENT_ALLOC || event->kind == EBB_EVENT_FREE;
}

/* The last iteration ends with the trace. Frees at the program's exit are not part of it: it is cut
 * after as many clock events as the previous iteration had. */
static void trim_last(const struct ebb_stream *stream, windows_vec *windows)
{
    if (windows->count < 2)
        return;
    struct ebb_window *last = &windows->items[windows->count - 1];
    const struct ebb_window *before = last - 1;
    if (last->last != stream->events.count)
        return;
    size_t clocks = 0;
    for (size_t i = before->first; i < before->last; i++)
        clocks += is_clock(&stream->events.items[i]);
    for (size_t i = last->first; i < last->last; i++) {
        if (is_clock(&stream->events.items[i]) && clocks-- == 0) {
            last->last = i;
            return;
        }
    }
}

/* Between two marks, or behind the last, there may be only frees: that is no iteration. */
static bool is_empty(const struct ebb_stream *stream, const struct ebb_window *window)
{
    for (size_t i = window->first; i < window->last; i++)
        if (stream->events.items[i].kind != EBB_EVENT_MARK &&
            stream->events.items[i].kind != EBB_EVENT_FREE)
            return false;
    return true;
}

static bool collect_windows(const struct ebb_stream *stream, const struct ebb_template *template,
                            windows_vec *windows)
{
    size_t symbol = 0;
    struct ebb_window window;
    windows->count = 0;
    while (ebb__stream_next_window(stream, template, &symbol, &window))
        if (!is_empty(stream, &window) && !ebb_vec_push(windows, window))
            return false;
    trim_last(stream, windows);
    return true;
}

static size_t covered(const windows_vec *windows)
{
    size_t events = 0;
    for (size_t i = 0; i < windows->count; i++)
        events += windows->items[i].last - windows->items[i].first;
    return events;
}

/* The chosen repetition and its iterations; no iterations: none was found. */
struct choice {
    struct ebb_repetition repetition;
    struct ebb_template template;
    windows_vec windows;
    size_t weight;
};

static bool same_template(const struct ebb_template *a, const struct ebb_template *b)
{
    return a->kind == b->kind && a->period_symbols == b->period_symbols && a->hash == b->hash;
}

/* A loop inside of the iteration may cover more of the trace, as it began before anything else
 * repeated. So an iteration that contains a loop at least twice needs half of its weight only, and
 * less if the loop is of micro-batches. */
static bool is_better(const struct ebb_stream *stream, const struct choice *one,
                      const struct choice *other)
{
    const struct choice *longer = one, *shorter = other;
    if (one->repetition.period_symbols < other->repetition.period_symbols) {
        longer = other;
        shorter = one;
    }
    bool same_kind = one->repetition.kind == other->repetition.kind;
    if (!same_kind || longer->windows.count < 2 || shorter->windows.count < 2)
        return one->weight > other->weight;
    size_t first = longer->windows.items[0].first, inside = 0;
    size_t last = longer->windows.items[longer->windows.count - 1].last;
    for (size_t i = 0; i < shorter->windows.count && inside < 2; i++) {
        const struct ebb_window *window = &shorter->windows.items[i];
        inside += window->first >= first && window->last <= last;
    }
    bool contains =
        inside >= 2 && longer->repetition.period_symbols >= 2 * shorter->repetition.period_symbols;
    if (!contains)
        return one->weight > other->weight;
    bool prevails = 2 * longer->weight >= shorter->weight ||
                    (longer->repetition.kind == EBB_SYMBOL_ALLOC &&
                     ebb__lives_differ(stream, &shorter->template, longer->repetition.first_symbol,
                                       longer->repetition.last_symbol));
    return prevails ? one == longer : one->weight > other->weight;
}

/* Takes the best repetition of a kind if it is better than the choice so far. */
static bool choose_among(const struct ebb_stream *stream, enum ebb_symbol_kind kind,
                         struct choice *choice)
{
    struct ebb_repetition all[EBB_STREAM_BEST + 1];
    struct ebb_template seen[EBB_STREAM_BEST + 1];
    size_t count = 0, seen_count = 0;
    for (size_t i = 0; i < stream->best_count; i++)
        if (stream->best[i].kind == kind)
            all[count++] = stream->best[i];
    if (stream->current[kind].period_symbols)
        all[count++] = stream->current[kind];
    windows_vec found = {0};
    for (size_t i = count; i-- > 0;) {
        struct ebb_template made = ebb__stream_template(stream, &all[i], 2);
        bool known = false;
        for (size_t k = 0; k < seen_count; k++)
            known = known || same_template(&seen[k], &made);
        if (known)
            continue;
        seen[seen_count++] = made;
        if (!collect_windows(stream, &made, &found)) {
            ebb_vec_free(&found);
            return false;
        }
        size_t weight = covered(&found) * (kind == EBB_SYMBOL_ACCESS ? 1 : 2);
        struct choice other = {all[i], made, found, weight};
        if (!is_better(stream, &other, choice))
            continue;
        found = choice->windows;
        *choice = other;
    }
    ebb_vec_free(&found);
    return true;
}

/* True if accesses could be better than the choice. Only repetitions after the first access
 * count. */
static bool needs_accesses(const struct ebb_stream *stream, const struct choice *choice)
{
    size_t first = 0, count = stream->events.count;
    while (first < count && (stream->events.items[first].kind != EBB_EVENT_ACCESS ||
                             (stream->events.items[first].flags & EBB_EVENT_DEMAND)))
        first++;
    return count - first > choice->weight;
}

/* Threads may interleave: takes the iterations between landmarks if they cover more. */
static enum ebb_status choose_landmark(const struct ebb_stream *stream, struct choice *choice)
{
    struct ebb_landmark landmark;
    bool found;
    const struct ebb_detector *detector = stream->symbols[EBB_SYMBOL_ALLOC].detector;
    enum ebb_status status = ebb__landmark_find(detector, &landmark, &found);
    if (status || !found)
        return status;
    const struct ebb_template made = {.kind = EBB_SYMBOL_ALLOC,
                                      .period_symbols = landmark.period_symbols,
                                      .landmark_bytes = landmark.size_bytes};
    windows_vec windows = {0};
    if (!collect_windows(stream, &made, &windows)) {
        ebb_vec_free(&windows);
        return EBB_ERR_MEMORY;
    }
    size_t weight = covered(&windows) * 2;
    if (weight <= choice->weight) {
        ebb_vec_free(&windows);
        return EBB_OK;
    }
    ebb_vec_free(&choice->windows);
    *choice = (struct choice){{.kind = EBB_SYMBOL_ALLOC,
                               .first_symbol = windows.items[0].first_symbol,
                               .last_symbol = landmark.last_symbol,
                               .period_symbols = landmark.period_symbols,
                               .found_at_symbol = landmark.last_symbol},
                              made,
                              windows,
                              weight};
    return EBB_OK;
}

/* Finds the iterations of the whole trace. */
static enum ebb_status detect(struct ebb_stream *stream, struct ebb_event_span trace,
                              struct choice *choice, struct ebb_error *error)
{
    enum ebb_status status = ebb__stream_take(stream, trace);
    if (status == EBB_ERR_FORMAT)
        return ebb__fail(error, status, "trace",
                         "event %zu: its block, size or time is that of no program",
                         stream->events.count - 1);
    if (status)
        return status;
    enum ebb_symbol_kind kind =
        stream->current[EBB_SYMBOL_MARK].period_symbols ? EBB_SYMBOL_MARK : EBB_SYMBOL_ALLOC;
    if (!choose_among(stream, kind, choice))
        return EBB_ERR_MEMORY;
    if (kind != EBB_SYMBOL_MARK && choice->weight < trace.count)
        status = choose_landmark(stream, choice);
    if (status || kind == EBB_SYMBOL_MARK || !needs_accesses(stream, choice))
        return status;
    status = ebb__stream_take_accesses(stream);
    return !status && !choose_among(stream, EBB_SYMBOL_ACCESS, choice) ? EBB_ERR_MEMORY : status;
}

/* The iteration to model: traced if possible, between two others if possible, and the newest of
 * these. */
static size_t choose_window(const struct ebb_stream *stream, const windows_vec *windows)
{
    size_t choice = 0, best = 0;
    for (size_t i = 0; i < windows->count; i++) {
        size_t rank = 1 + (ebb__stream_is_traced(stream, &windows->items[i]) ? 8u : 0u) +
                      (ebb__stream_has_lost(stream, &windows->items[i]) ? 0u : 4u) +
                      (i > 0 ? 2u : 0u) + (i + 1 < windows->count ? 1u : 0u);
        if (rank >= best) {
            best = rank;
            choice = i;
        }
    }
    return choice;
}

static enum ebb_status describe(struct ebb_stream *stream, const struct choice *choice,
                                struct ebb_analysis *out, struct ebb_error *error)
{
    const struct ebb_repetition *chosen = &choice->repetition;
    const struct ebb_symbols *symbols = &stream->symbols[chosen->kind];
    const windows_vec *windows = &choice->windows;
    out->existing_blocks = stream->existing_blocks;
    out->existing_bytes = stream->existing_bytes;
    out->blocks = stream->allocs.count + stream->existing_blocks;
    out->peak_bytes = stream->peak_bytes;
    if (windows->count == 0)
        return EBB_OK;
    out->first_periodic_event = symbols->events.items[chosen->first_symbol];
    if (windows->items[0].first < out->first_periodic_event)
        out->first_periodic_event = windows->items[0].first;
    out->found_at_event = symbols->events.items[chosen->found_at_symbol];
    out->iterations = windows->count;
    out->starts = calloc(windows->count, sizeof *out->starts);
    if (!out->starts)
        return EBB_ERR_MEMORY;
    out->start_count = windows->count;
    for (size_t i = 0; i < windows->count; i++)
        out->starts[i] = windows->items[i].first;
    size_t own = choose_window(stream, windows);
    out->model_first = windows->items[own].first;
    out->model_period = windows->items[own].last - windows->items[own].first;
    enum ebb_status status =
        ebb__stream_model(stream, &choice->template, &windows->items[own], &out->model, error);
    if (status == EBB_ERR_ARGUMENT) {
        /* Its contents are excluded from models, such as frees of blocks that no iteration
         * allocates. */
        free(out->starts);
        *out = (struct ebb_analysis){.existing_blocks = out->existing_blocks,
                                     .existing_bytes = out->existing_bytes,
                                     .blocks = out->blocks,
                                     .peak_bytes = out->peak_bytes,
                                     .detect_ns = out->detect_ns};
        return EBB_OK;
    }
    if (status)
        return status;
    out->has_model = true;
    out->has_accesses = out->model.has_accesses;
    out->period_events = out->model.tick_count;
    ebb__stream_forget_symbols(stream);
    return ebb__properties_measure(stream, windows->items, windows->count, own, &out->model,
                                   &out->properties);
}

enum ebb_status ebb__analyse(struct ebb_event_span trace, struct ebb_analysis *analysis,
                             struct ebb_error *error)
{
    struct ebb_stream stream;
    struct ebb_analysis made = {0};
    struct choice choice = {0};
    memset(analysis, 0, sizeof *analysis);
    uint64_t begin = ebb__now_ns();
    enum ebb_status status = ebb__stream_init(&stream);
    if (status)
        return ebb__fail(error, EBB_ERR_MEMORY, "trace", "no memory to analyse it");
    status = detect(&stream, trace, &choice, error);
    made.detect_ns = ebb__now_ns() - begin;
    ebb__stream_settle(&stream);
    if (!status)
        status = describe(&stream, &choice, &made, error);
    ebb_vec_free(&choice.windows);
    ebb__stream_fini(&stream);
    if (status == EBB_ERR_MEMORY)
        status = ebb__fail(error, EBB_ERR_MEMORY, "trace", "no memory to analyse it");
    if (status)
        ebb__analysis_fini(&made);
    else
        *analysis = made;
    return status;
}

void ebb__analysis_fini(struct ebb_analysis *analysis)
{
    ebb__model_fini(&analysis->model);
    free(analysis->starts);
    memset(analysis, 0, sizeof *analysis);
}
