/* All events go through one stream; of the repetitions that its detectors announced the one whose
 * iterations cover the most events wins. Marks of the program win over what was found, and
 * allocations over accesses, unless accesses repeat in far more of the trace (programs that
 * allocate once, behind a start that repeats something). */
#include "analyse.h"

#include "properties.h"
#include "stream.h"

#include <string.h>
#include <time.h>

typedef EBB_VEC(struct ebb_window) windows_vec;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool collect_windows(const struct ebb_stream *stream, const struct ebb_template *template,
                            windows_vec *windows)
{
    size_t symbol = 0;
    struct ebb_window window;
    windows->count = 0;
    while (ebb__stream_next_window(stream, template, &symbol, &window))
        if (!ebb_vec_push(windows, window))
            return false;
    return true;
}

static size_t covered(const windows_vec *windows)
{
    size_t events = 0;
    for (size_t i = 0; i < windows->count; i++)
        events += windows->items[i].last - windows->items[i].first;
    return events;
}

/* Choose the repetition; its iterations go to *windows. False: no memory. *chosen has period 0
 * where there is none. */
static bool choose(const struct ebb_stream *stream, struct ebb_repetition *chosen,
                   struct ebb_template *template, windows_vec *windows)
{
    struct ebb_repetition all[EBB_STREAM_BEST + EBB_SYMBOL_KIND_COUNT];
    size_t count = 0;
    const struct ebb_repetition *marks = &stream->current[EBB_SYMBOL_MARK];
    memset(chosen, 0, sizeof *chosen);
    if (marks->period_symbols) {
        all[count++] = *marks;
    } else {
        memcpy(all, stream->best, stream->best_count * sizeof *all);
        count = stream->best_count;
        for (size_t kind = 0; kind < EBB_SYMBOL_MARK; kind++)
            if (stream->current[kind].period_symbols)
                all[count++] = stream->current[kind];
    }
    windows_vec found = {0};
    size_t best = 0;
    for (size_t i = 0; i < count; i++) {
        struct ebb_template made = ebb__stream_template(stream, &all[i], 2);
        if (!collect_windows(stream, &made, &found)) {
            ebb_vec_free(&found);
            return false;
        }
        size_t weight = covered(&found) * (all[i].kind == EBB_SYMBOL_ALLOC ? 2 : 1);
        if (weight <= best)
            continue;
        best = weight;
        *chosen = all[i];
        *template = made;
        windows_vec swap = *windows;
        *windows = found;
        found = swap;
    }
    ebb_vec_free(&found);
    return true;
}

/* The iteration to model: traced if possible, with an iteration before it and one behind it if
 * possible, and the newest of these. */
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

static enum ebb_status analyse_stream(struct ebb_stream *stream, struct ebb_analysis *out,
                                      struct ebb_error *error)
{
    struct ebb_repetition chosen;
    struct ebb_template template = {0};
    windows_vec windows = {0};
    if (!choose(stream, &chosen, &template, &windows)) {
        ebb_vec_free(&windows);
        return EBB_ERR_MEMORY;
    }
    out->peak_bytes = stream->peak_bytes;
    if (windows.count == 0) {
        ebb_vec_free(&windows);
        return EBB_OK;
    }
    enum ebb_status status = EBB_ERR_MEMORY;
    const struct ebb_symbols *symbols = &stream->symbols[chosen.kind];
    out->first_periodic_event = symbols->events.items[chosen.first_symbol];
    if (windows.items[0].first < out->first_periodic_event)
        out->first_periodic_event = windows.items[0].first;
    out->found_at_event = symbols->events.items[chosen.found_at_symbol];
    out->iterations = windows.count;
    out->starts = calloc(windows.count, sizeof *out->starts);
    if (!out->starts)
        goto done;
    out->start_count = windows.count;
    for (size_t i = 0; i < windows.count; i++)
        out->starts[i] = windows.items[i].first;
    size_t own = choose_window(stream, &windows);
    out->model_first = windows.items[own].first;
    out->model_period = windows.items[own].last - windows.items[own].first;
    status = ebb__stream_model(stream, &template, &windows.items[own], &out->model, error);
    if (status)
        goto done;
    out->has_model = true;
    out->has_accesses = out->model.has_accesses;
    out->period_events = out->model.tick_count;
    status = ebb__properties_measure(stream, windows.items, windows.count, own, &out->model,
                                     &out->properties);
done:
    ebb_vec_free(&windows);
    return status;
}

enum ebb_status ebb__analyse(struct ebb_event_span trace, struct ebb_analysis *analysis,
                             struct ebb_error *error)
{
    struct ebb_stream stream;
    struct ebb_analysis made = {0};
    memset(analysis, 0, sizeof *analysis);
    if (ebb__stream_init(&stream) != EBB_OK)
        return ebb__fail(error, EBB_ERR_MEMORY, "trace", "no memory to analyse it");
    enum ebb_status status = EBB_OK;
    uint64_t begin = now_ns();
    for (size_t i = 0; !status && i < trace.count; i++)
        status = ebb__stream_push(&stream, &trace.events[i]);
    stream.closed = true;
    made.detect_ns = now_ns() - begin;
    made.blocks = stream.allocs.count;
    if (!status)
        status = analyse_stream(&stream, &made, error);
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
