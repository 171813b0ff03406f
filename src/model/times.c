/* The times of a model: medians over iterations, so that a disturbed one has no influence.
 *
 * Where uses are announced, an iteration that is not observed is no better. On a device it is
 * worse, as its events have the times of calls, which run ahead. So the times are those of
 * iterations that agree event by event. A device tells the ends of uses only while it is observed,
 * so iterations that do agree only with each other. */
#include "times.h"

#include "base/order.h"
#include "model/landmark.h"

#include <stdlib.h>
#include <string.h>

/* The time from one event to another, without the waits of the program and what its observation
 * has cost: a planner adds its own waits. */
static uint64_t work_ns(const struct ebb_stream *stream, size_t from, size_t to)
{
    const struct ebb_event *events = stream->events.items;
    uint64_t ns = events[to].time_ns - events[from].time_ns;
    uint64_t lost = ebb__stream_lost_ns(stream, to) - ebb__stream_lost_ns(stream, from);
    return ns > lost ? ns - lost : 0;
}

enum {
    TIMING_LIMIT = 15
}; /* number of iterations that times are taken from: more give the same
                               median */

/* The median; the lower of the middle two if the count is even. It is one of the values. */
static uint64_t median(uint64_t *values, size_t count)
{
    ebb__sort_u64(values, count);
    return values[(count - 1) / 2];
}

/* True if the iteration has the same allocations as `own`; if threads interleave, about as many. */
static bool allocates_alike(const struct ebb_stream *stream, const struct ebb_template *template,
                            const struct ebb_window *own, const struct ebb_window *window)
{
    enum ebb_symbol_kind kind =
        ebb__symbol_is_alloc(template->kind) ? template->kind : EBB_SYMBOL_ALLOC;
    const struct ebb_rolling *symbols = stream->symbols[kind].rolling;
    size_t own_first = ebb__stream_allocs_before(stream, own->first);
    size_t own_count = ebb__stream_allocs_before(stream, own->last) - own_first;
    size_t first = ebb__stream_allocs_before(stream, window->first);
    size_t count = ebb__stream_allocs_before(stream, window->last) - first;
    if (template->landmark_bytes) {
        size_t apart = count > own_count ? count - own_count : own_count - count;
        return apart <= ebb__landmark_tolerance(own_count);
    }
    return count == own_count &&
           (count == 0 || ebb__rolling_range(symbols, first, first + count) ==
                              ebb__rolling_range(symbols, own_first, own_first + count));
}

/* Kinds of iterations that times are taken from, the best first. */
enum evidence { UNTRACED, PLANNED, TRACED };

static bool is_evidence(const struct ebb_stream *stream, const struct ebb_window *window,
                        enum evidence evidence)
{
    return ebb__stream_touches_trace(stream, window) == (evidence == TRACED) &&
           ebb__stream_touches_plan(stream, window) == (evidence == PLANNED);
}

/* Finds the newest iterations with reliable times and the same allocations as `own`. */
static size_t timing_windows(const struct ebb_stream *stream, const struct ebb_template *template,
                             const struct ebb_window *own, enum evidence evidence,
                             struct ebb_window *out)
{
    size_t symbol = 0, found = 0;
    struct ebb_window window;
    while (ebb__stream_next_window(stream, template, &symbol, &window)) {
        if (!is_evidence(stream, &window, evidence) || ebb__stream_has_lost(stream, &window) ||
            window.last >= stream->events.count || /* its end is unknown */
            !allocates_alike(stream, template, own, &window))
            continue;
        if (found == TIMING_LIMIT)
            memmove(out, out + 1, (--found) * sizeof *out);
        out[found++] = window;
    }
    return found;
}

/* The time of the model's clock event `event` in the iteration `window`, from its start. */
static bool clock_time(const struct ebb_stream *stream, const struct ebb_model *model,
                       const struct ebb_model_event *event, size_t own_first, size_t period,
                       const struct ebb_window *window, uint64_t *time_ns)
{
    const struct ebb_model_block *block = &model->blocks[event->block];
    size_t rank;
    if (!ebb__stream_find(stream, block->serial, &rank) || rank < own_first)
        return false;
    size_t instance = rank - own_first + ebb__stream_allocs_before(stream, window->first);
    size_t at;
    if (event->kind == EBB_EVENT_FREE) {
        size_t back = (block->alloc_tick + block->span_ticks) / model->tick_count * period;
        if (back > instance)
            return false;
        at = stream->allocs.items[instance - back].free_event;
    } else {
        at = stream->allocs.items[instance].event;
    }
    if (at < window->first || at >= window->last)
        return false;
    *time_ns = work_ns(stream, window->first, at);
    return true;
}

/* Lists the events of a window that are ticks, by index. Returns false if their number is not
 * `ticks`. */
static bool ticks_of_window(const struct ebb_stream *stream, const struct ebb_window *window,
                            size_t ticks, uint32_t *indices)
{
    size_t count = 0;
    for (size_t i = window->first; i < window->last; i++) {
        if (!ebb__model_is_tick(&stream->events.items[i]))
            continue;
        if (count == ticks)
            return false;
        indices[count++] = (uint32_t)i;
    }
    indices[ticks] = (uint32_t)window->last;
    return count == ticks;
}

/* True if the ticks are exactly the events `own`. */
static bool is_made_of(const struct ebb_stream *stream, const uint32_t *own,
                       const struct ebb_model *model)
{
    const struct ebb_event *events = stream->events.items;
    for (size_t i = 0; i < model->tick_count; i++)
        if (model->time_ns[i] != events[own[i]].time_ns - events[own[0]].time_ns)
            return false;
    return true;
}

static bool agree(const struct ebb_stream *stream, const uint32_t *left, const uint32_t *right,
                  size_t ticks)
{
    for (size_t i = 0; i < ticks; i++) {
        const struct ebb_event *a = &stream->events.items[left[i]],
                               *b = &stream->events.items[right[i]];
        if (a->kind != b->kind || a->access != b->access || a->size_bytes != b->size_bytes)
            return false;
    }
    return true;
}

/* Finds the newest windows that agree with the model's own event by event. For each, `indices` gets
 * its ticks, by event, with the window's end behind them. Returns their number, at most
 * TIMING_LIMIT; `indices` has space for one more. */
static size_t alike_windows(const struct ebb_stream *stream, const struct ebb_template *template,
                            const uint32_t *own, size_t ticks, uint32_t *indices)
{
    size_t count = 0, symbol = 0, each = ticks + 1;
    uint32_t *candidate = &indices[TIMING_LIMIT * each];
    struct ebb_window window;
    while (ebb__stream_next_window(stream, template, &symbol, &window))
        if (!ebb__stream_has_lost(stream, &window) && !ebb__stream_touches_plan(stream, &window) &&
            ticks_of_window(stream, &window, ticks, candidate) &&
            agree(stream, own, candidate, ticks))
            memcpy(&indices[count++ % TIMING_LIMIT * each], candidate, each * sizeof *indices);
    return count < TIMING_LIMIT ? count : TIMING_LIMIT;
}

/* For iterations that were all traced in the same way. Each interval between successive events is
 * the median of those iterations that agree with `own` event by event. Intervals are used because a
 * delay in one iteration would otherwise affect all later events. *done: there were enough
 * iterations. */
static enum ebb_status retime_alike(const struct ebb_stream *stream,
                                    const struct ebb_template *template,
                                    const struct ebb_window *own, struct ebb_model *model,
                                    bool *done)
{
    size_t ticks = model->tick_count, each = ticks + 1;
    uint32_t *indices = malloc((TIMING_LIMIT + 2) * each * sizeof *indices);
    uint32_t *own_indices = &indices[(TIMING_LIMIT + 1) * each];
    if (!indices)
        return EBB_ERR_MEMORY;
    size_t count = 0;
    if (ticks_of_window(stream, own, ticks, own_indices) && is_made_of(stream, own_indices, model))
        count = alike_windows(stream, template, own_indices, ticks, indices);
    *done = count >= 2;
    uint64_t now_ns = 0, samples[TIMING_LIMIT];
    for (size_t i = 1; *done && i <= ticks; i++) {
        size_t known = 0;
        for (size_t k = 0; k < count; k++) {
            const uint32_t *at = &indices[k * each + i];
            if (*at < stream->events.count)
                samples[known++] = work_ns(stream, at[-1], at[0]);
        }
        now_ns += median(samples, known);
        model->time_ns[i] = now_ns;
    }
    free(indices);
    return *done ? ebb__model_derive(model, NULL) : EBB_OK;
}

/* The model's own times, without what was lost: no other iteration is like it. */
static enum ebb_status retime_own(const struct ebb_stream *stream, const struct ebb_window *own,
                                  struct ebb_model *model)
{
    const struct ebb_event *events = stream->events.items;
    size_t at = own->first;
    uint64_t made_ns = 0;
    for (uint32_t tick = 0; tick <= model->tick_count; tick++) {
        uint64_t ns = events[own->first].time_ns + model->time_ns[tick];
        while (at + 1 < stream->events.count && events[at + 1].time_ns <= ns)
            at++;
        uint64_t lost = ebb__stream_lost_ns(stream, at) - ebb__stream_lost_ns(stream, own->first);
        uint64_t own_ns = model->time_ns[tick] > lost ? model->time_ns[tick] - lost : 0;
        made_ns = own_ns > made_ns ? own_ns : made_ns;
        model->time_ns[tick] = made_ns;
    }
    return ebb__model_derive(model, NULL);
}

/* The time of the clock event at `tick` in an iteration of `duration`: the median of the samples.
 * If there are none, it is in proportion to the model's own time. */
static uint64_t clock_ns_of(const struct ebb_model *model, uint32_t tick, uint64_t *samples,
                            size_t count, uint64_t duration)
{
    uint64_t own_duration = ebb__model_iteration_ns(model);
    double share = own_duration ? (double)model->time_ns[tick] / (double)own_duration : 0;
    uint64_t time_ns = count ? median(samples, count) : (uint64_t)(share * (double)duration);
    return time_ns < duration ? time_ns : duration;
}

/* A clock event of an iteration whose threads interleave. It is identified by its kind and size,
 * and by the number of equal events before it. */
struct unordered {
    enum ebb_event_kind kind;
    uint64_t size_bytes;
    size_t number; /* index among all of the iteration */
    uint64_t time_ns;
};

static int by_what_it_is(const void *a, const void *b)
{
    const struct unordered *left = a, *right = b;
    if (left->kind != right->kind)
        return left->kind < right->kind ? -1 : 1;
    if (left->size_bytes != right->size_bytes)
        return left->size_bytes < right->size_bytes ? -1 : 1;
    return left->number < right->number ? -1 : left->number > right->number;
}

/* `events` must have space for the events of a window. Returns their number. */
static size_t unordered_of_window(const struct ebb_stream *stream, const struct ebb_window *window,
                                  struct unordered *events)
{
    size_t count = 0;
    for (size_t i = window->first; i < window->last; i++) {
        const struct ebb_event *event = &stream->events.items[i];
        if (event->kind != EBB_EVENT_ALLOC && event->kind != EBB_EVENT_FREE)
            continue;
        events[count] = (struct unordered){event->kind, event->size_bytes, count,
                                           work_ns(stream, window->first, i)};
        count++;
    }
    qsort(events, count, sizeof *events, by_what_it_is);
    return count;
}

static void unordered_of_model(const struct ebb_model *model, struct unordered *events)
{
    size_t count = 0;
    for (uint32_t tick = 0; tick < model->tick_count; tick++) {
        const struct ebb_model_event *event = &model->events[tick];
        if (!event->clock)
            continue;
        const struct ebb_model_block *block = &model->blocks[event->block];
        uint64_t bytes = ebb__model_whole_bytes(block);
        events[count] = (struct unordered){event->kind, bytes, count, 0};
        count++;
    }
    qsort(events, count, sizeof *events, by_what_it_is);
}

static bool same_kind_and_size(const struct unordered *a, const struct unordered *b)
{
    return a->kind == b->kind && a->size_bytes == b->size_bytes;
}

/* The n-th event of its size in one iteration corresponds to the n-th in the others. Coincidence
 * with an event of another thread is chance. So times are found separately, and then assigned in
 * order. */
static enum ebb_status retime_unordered(const struct ebb_stream *stream,
                                        const struct ebb_window *windows, size_t count,
                                        uint64_t duration, struct ebb_model *model)
{
    size_t clocks = model->clock_count, most = 0;
    for (size_t i = 0; i < count; i++) {
        size_t events = windows[i].last - windows[i].first;
        most = events > most ? events : most;
    }
    struct unordered *own = malloc((clocks + 1) * sizeof *own);
    struct unordered *others = malloc((most + 1) * sizeof *others);
    uint64_t *samples = malloc((clocks + 1) * TIMING_LIMIT * sizeof *samples);
    uint64_t *clock_ns = malloc((clocks + 1) * sizeof *clock_ns);
    size_t *known = calloc(clocks + 1, sizeof *known);
    enum ebb_status status = EBB_ERR_MEMORY;
    if (!own || !others || !samples || !clock_ns || !known)
        goto out;
    unordered_of_model(model, own);
    for (size_t i = 0; i < count; i++) {
        size_t events = unordered_of_window(stream, &windows[i], others), at = 0;
        for (size_t k = 0; k < clocks; k++) {
            while (at < events && !same_kind_and_size(&others[at], &own[k]) &&
                   by_what_it_is(&others[at], &own[k]) < 0)
                at++;
            if (at == events || !same_kind_and_size(&others[at], &own[k]))
                continue;
            size_t number = own[k].number;
            samples[number * TIMING_LIMIT + known[number]++] = others[at++].time_ns;
        }
    }
    size_t clock = 0;
    for (uint32_t tick = 0; tick < model->tick_count; tick++) {
        if (!model->events[tick].clock)
            continue;
        clock_ns[clock] =
            clock_ns_of(model, tick, &samples[clock * TIMING_LIMIT], known[clock], duration);
        clock++;
    }
    ebb__sort_u64(clock_ns, clocks);
    clock_ns[clocks] = duration;
    ebb__model_retime(model, clock_ns);
    status = EBB_OK;
out:
    free(own);
    free(others);
    free(samples);
    free(clock_ns);
    free(known);
    return status;
}

/* Frees by another thread have no fixed place between the allocations, which are alike in all
 * iterations. A median that is later than the next allocation would delay all that comes behind. */
static void keep_frees_between(const struct ebb_model *model, uint64_t *clock_ns)
{
    size_t clock = model->clock_count;
    for (uint32_t tick = model->tick_count; tick-- > 0;) {
        if (!model->events[tick].clock)
            continue;
        clock--;
        if (model->events[tick].kind == EBB_EVENT_FREE && clock_ns[clock] > clock_ns[clock + 1])
            clock_ns[clock] = clock_ns[clock + 1];
    }
}

enum ebb_status ebb__times_retime(const struct ebb_stream *stream,
                                  const struct ebb_template *template, const struct ebb_window *own,
                                  struct ebb_model *model)
{
    struct ebb_window windows[TIMING_LIMIT];
    uint64_t samples[TIMING_LIMIT];
    size_t count = 0;
    bool announced = ebb__model_announced(model), done = false;
    for (int kind = UNTRACED; kind < TRACED && count == 0 && !announced; kind++)
        count = timing_windows(stream, template, own, (enum evidence)kind, windows);
    if (count == 0 && !template->landmark_bytes) {
        enum ebb_status status = retime_alike(stream, template, own, model, &done);
        if (status || done)
            return status;
    }
    bool lost = ebb__stream_lost_ns(stream, own->last) > ebb__stream_lost_ns(stream, own->first);
    if (count == 0 && lost && announced && !template->landmark_bytes)
        return retime_own(stream, own, model);
    if (count == 0 && lost)
        count = timing_windows(stream, template, own, TRACED, windows);
    if (count == 0)
        return EBB_OK;
    for (size_t i = 0; i < count; i++)
        samples[i] = work_ns(stream, windows[i].first, windows[i].last);
    uint64_t duration = median(samples, count);
    if (template->landmark_bytes)
        return retime_unordered(stream, windows, count, duration, model);
    uint64_t *clock_ns = malloc(((size_t)model->clock_count + 1) * sizeof *clock_ns);
    if (!clock_ns)
        return EBB_ERR_MEMORY;
    size_t own_first = ebb__stream_allocs_before(stream, own->first);
    size_t period = ebb__stream_allocs_before(stream, own->last) - own_first;
    size_t clock = 0;
    for (uint32_t tick = 0; tick < model->tick_count; tick++) {
        const struct ebb_model_event *event = &model->events[tick];
        if (!event->clock)
            continue;
        size_t known = 0;
        for (size_t i = 0; i < count; i++)
            known +=
                clock_time(stream, model, event, own_first, period, &windows[i], &samples[known]);
        clock_ns[clock++] = clock_ns_of(model, tick, samples, known, duration);
    }
    clock_ns[clock] = duration;
    keep_frees_between(model, clock_ns);
    ebb__model_retime(model, clock_ns);
    free(clock_ns);
    return EBB_OK;
}
