/* A stream, the repetition that is the program's iteration (watch_patterns.c), and the iterations
 * seen of it (watch_iterations.c). */
#include "watch.h"

#include "base/order.h"
#include "base/tuning.h"

#include "iteration.h"
#include "landmark.h"
#include "shapes.h"
#include "watch_state.h"

#include <string.h>

enum {
    EVENT_LIMIT = 1 << 22,  /* the older half is then dropped; 128 MiB of events */
    STEADY_LIMIT = 1 << 15, /* kept at least if the program does nothing but its iteration */
    TRACED_LIMIT = 1 << 18, /* the same while it is observed: that may be a loop in an operation */
    LOOK_EVERY = 1 << 12,   /* events between two checks whether it is steady */
    LEAST_TURNS = 16,       /* of a loop: fewer tell no usual duration */
    MOST_LONGER = 8,        /* than usual: beyond it a turn contains something else */
};

static void announce_early(struct ebb_stream *stream)
{
    const struct ebb_tuning *tuning = ebb__tuning();
    ebb__detector_announce_early(stream->symbols[EBB_SYMBOL_ALLOC].detector,
                                 (size_t)tuning->early_period, (size_t)tuning->early_divisor);
}

static enum ebb_status open_stream(struct ebb_stream *stream, bool by_shapes)
{
    enum ebb_status status = ebb__stream_init(stream);
    if (status)
        return status;
    announce_early(stream);
    status = by_shapes ? ebb__shapes_follow(stream) : EBB_OK;
    if (status)
        ebb__stream_fini(stream);
    return status;
}

enum ebb_status ebb__watch_create(enum ebb_watch_shapes shapes, struct ebb_watch **watch)
{
    struct ebb_watch *made = calloc(1, sizeof *made);
    if (!made)
        return EBB_ERR_MEMORY;
    if (open_stream(&made->stream, shapes == EBB_WATCH_SHAPES) != EBB_OK) {
        free(made);
        return EBB_ERR_MEMORY;
    }
    made->forgotten.first_planned = SIZE_MAX;
    *watch = made;
    return EBB_OK;
}

void ebb__watch_destroy(struct ebb_watch *watch)
{
    if (!watch)
        return;
    ebb__stream_fini(&watch->stream);
    ebb_vec_free(&watch->iterations);
    free(watch);
}

/* Starts a new stream with the newer half of the events, preceded by ALLOCs of the blocks live at
 * its start. Marks restore the state of tracing and planning. */
static enum ebb_status drop_older_half(struct ebb_watch *watch)
{
    struct ebb_stream old = watch->stream, made;
    size_t cut = old.events.count / 2;
    uint64_t cut_serial = watch->event_base + cut;
    enum ebb_status status = open_stream(&made, old.shapes != NULL);
    if (status)
        return status;
    struct ebb_event mark = {.time_ns = old.events.items[cut].time_ns, .kind = EBB_EVENT_MARK};
    for (size_t i = 0; !status && i < old.allocs.count && old.allocs.items[i].event < cut; i++)
        if (old.allocs.items[i].free_event >= cut)
            status = ebb__stream_push(&made, &old.events.items[old.allocs.items[i].event]);
    struct ebb_window here = {.first = cut, .last = cut};
    if (!status && ebb__stream_is_traced(&old, &here)) {
        mark.mark = EBB_MARK_TRACE_ON;
        status = ebb__stream_push(&made, &mark);
    } else if (!status && old.has_trace_marks) {
        mark.mark = EBB_MARK_TRACE_OFF;
        made.has_trace_marks = true;
        status = ebb__stream_push(&made, &mark);
    }
    if (!status && ebb__stream_is_planned(&old, &here)) {
        mark.mark = EBB_MARK_PLAN_ON;
        status = ebb__stream_push(&made, &mark);
    }
    size_t head = made.events.count;
    for (size_t i = cut; !status && i < old.events.count; i++)
        status = ebb__stream_push(&made, &old.events.items[i]);
    if (status) {
        ebb__stream_fini(&made);
        return status;
    }
    made.peak_bytes = old.peak_bytes > made.peak_bytes ? old.peak_bytes : made.peak_bytes;
    ebb__stream_fini(&watch->stream);
    watch->stream = made;
    watch->event_base = cut_serial - head;
    memset(watch->considered, 0, sizeof watch->considered);
    memset(&watch->early_judged, 0, sizeof watch->early_judged);
    memset(&watch->micro_batch, 0, sizeof watch->micro_batch);
    memset(&watch->changed, 0, sizeof watch->changed);
    watch->next_look = 0;
    ebb__watch_forget_turns(watch);
    if (watch->found)
        watch->next_symbol = ebb__watch_first_unrecorded(watch, watch->template.kind, cut_serial);
    return EBB_OK;
}

static bool is_full(const struct ebb_watch *watch)
{
    size_t count = watch->stream.events.count;
    size_t enough = (size_t)ebb__tuning()->steady_iterations * watch->window_events;
    struct ebb_window here = {.first = count - 1, .last = count - 1};
    if (count >= EVENT_LIMIT || count < STEADY_LIMIT || count % LOOK_EVERY)
        return count >= EVENT_LIMIT;
    bool is_traced = ebb__stream_is_traced(&watch->stream, &here);
    return count >= (is_traced ? TRACED_LIMIT : STEADY_LIMIT) && count >= enough &&
           ebb__watch_is_steady(watch);
}

enum ebb_status ebb__watch_push(struct ebb_watch *watch, const struct ebb_event *event)
{
    struct ebb_stream *stream = &watch->stream;
    if (is_full(watch)) {
        enum ebb_status dropped = drop_older_half(watch);
        if (dropped)
            return dropped;
    }
    enum ebb_status status = ebb__stream_push(stream, event);
    if (status)
        return status;
    enum ebb_symbol_kind kind;
    switch (event->kind) {
    case EBB_EVENT_ALLOC:
        kind = EBB_SYMBOL_ALLOC;
        break;
    case EBB_EVENT_ACCESS:
        kind = EBB_SYMBOL_ACCESS;
        break;
    case EBB_EVENT_MARK:
        if (event->mark != EBB_MARK_ITERATION)
            return EBB_OK; /* not a symbol */
        kind = EBB_SYMBOL_MARK;
        break;
    default:
        return EBB_OK;
    }
    if (kind == EBB_SYMBOL_ALLOC)
        ebb__watch_note_alloc(watch, event->size_bytes);
    ebb__watch_consider(watch, kind);
    if (kind == EBB_SYMBOL_ALLOC) {
        ebb__watch_consider_recurring(watch);
        status = ebb__watch_look_for_landmark(watch);
    }
    if (status)
        return status;
    bool is_next =
        watch->template.kind == kind || (kind == EBB_SYMBOL_ALLOC && ebb__watch_varies(watch));
    return watch->found && is_next ? ebb__watch_record(watch) : EBB_OK;
}

bool ebb__watch_found(const struct ebb_watch *watch)
{
    return watch->found;
}

bool ebb__watch_in_period(const struct ebb_watch *watch)
{
    const struct ebb_repetition *current = &watch->stream.current[watch->template.kind];
    const struct ebb_template *template = &watch->template;
    if (watch->found && (template->landmark_bytes || ebb__watch_varies(watch))) {
        size_t since = watch->stream.symbols[template->kind].events.count - watch->next_symbol;
        return since <=
               template->period_symbols + ebb__landmark_tolerance(template->period_symbols);
    }
    return watch->found && current->period_symbols == watch->template.period_symbols;
}

size_t ebb__watch_period_clock_events(const struct ebb_watch *watch)
{
    return watch->period_clock_events;
}

size_t ebb__watch_period_allocs(const struct ebb_watch *watch)
{
    bool by_allocs = watch->found && ebb__symbol_is_alloc(watch->template.kind);
    return by_allocs ? watch->template.period_symbols : 0;
}

bool ebb__watch_is_by_allocs(const struct ebb_watch *watch)
{
    return !watch->found || ebb__watch_period_allocs(watch);
}

bool ebb__watch_is_marked(const struct ebb_watch *watch)
{
    return watch->found && watch->template.kind == EBB_SYMBOL_MARK &&
           watch->stream.symbols[EBB_SYMBOL_MARK].events.count &&
           !ebb__watch_marks_by_accesses(watch);
}

bool ebb__watch_is_held(const struct ebb_watch *watch)
{
    return watch->held;
}

bool ebb__watch_accumulates(const struct ebb_watch *watch)
{
    return watch->found && watch->accumulates[watch->pattern % KNOWN_PATTERNS];
}

bool ebb__watch_is_early(const struct ebb_watch *watch)
{
    return watch->early;
}

size_t ebb__watch_pattern(const struct ebb_watch *watch)
{
    return watch->found ? (size_t)watch->pattern + 1 : 0;
}

size_t ebb__watch_patterns(const struct ebb_watch *watch)
{
    return watch->pattern_count;
}

size_t ebb__watch_iterations(const struct ebb_watch *watch)
{
    return watch->forgotten.iterations + watch->iterations.count;
}

size_t ebb__watch_kept(const struct ebb_watch *watch, const struct ebb_watch_iteration **iterations)
{
    *iterations = watch->iterations.items;
    return watch->iterations.count;
}

struct ebb_watch_forgotten ebb__watch_forgotten(const struct ebb_watch *watch)
{
    return watch->forgotten;
}

size_t ebb__watch_live(const struct ebb_watch *watch, struct ebb_watch_block *blocks, size_t most)
{
    const struct ebb_stream *stream = &watch->stream;
    size_t count = 0;
    for (size_t i = 0; i < stream->allocs.count; i++) {
        const struct ebb_event *event = &stream->events.items[stream->allocs.items[i].event];
        if (stream->allocs.items[i].free_event != EBB_NOT_FREED)
            continue;
        if (count < most)
            blocks[count] = (struct ebb_watch_block){event->block, event->size_bytes, false};
        count++;
    }
    return count;
}

size_t ebb__watch_newest(const struct ebb_watch *watch, struct ebb_watch_block *blocks, size_t most)
{
    const struct ebb_stream *stream = &watch->stream;
    size_t all = stream->allocs.count, count = all < most ? all : most;
    for (size_t i = 0; i < count; i++) {
        const struct ebb_stream_alloc *alloc = &stream->allocs.items[all - count + i];
        const struct ebb_event *event = &stream->events.items[alloc->event];
        blocks[i] = (struct ebb_watch_block){event->block, event->size_bytes,
                                             alloc->free_event != EBB_NOT_FREED};
    }
    return count;
}

bool ebb__watch_is_live(const struct ebb_watch *watch, uint64_t serial, uint64_t *size_bytes)
{
    const struct ebb_stream *stream = &watch->stream;
    size_t found;
    if (!ebb__stream_find(stream, serial, &found) ||
        stream->allocs.items[found].free_event != EBB_NOT_FREED)
        return false;
    *size_bytes = stream->events.items[stream->allocs.items[found].event].size_bytes;
    return true;
}

/* The longest that an iteration of the template may last. The last turn of a loop in an operation
 * lasts until the loop begins anew, so it contains all that comes between. UINT64_MAX: too few are
 * known. */
static uint64_t longest_ns(const struct ebb_watch *watch)
{
    size_t count = 0;
    uint64_t *durations = malloc((watch->iterations.count + 1) * sizeof *durations);
    for (size_t i = 0; durations && i < watch->iterations.count; i++)
        if (watch->iterations.items[i].pattern == watch->pattern)
            durations[count++] = watch->iterations.items[i].duration_ns;
    uint64_t longest = UINT64_MAX;
    if (count >= LEAST_TURNS)
        longest = MOST_LONGER * ebb__median_u64(durations, count);
    free(durations);
    return longest;
}

/* Finds the newest traced iteration of the template. With a landmark, a second traced one is
 * required: a single one does not show what varies between them. */
static bool newest_traced(const struct ebb_watch *watch, struct ebb_window *window)
{
    uint64_t base = watch->event_base, longest = longest_ns(watch);
    size_t traced = 0, wanted = watch->template.landmark_bytes ? 2 : 1;
    for (size_t i = watch->iterations.count; i-- > 0 && traced < wanted;) {
        const struct ebb_watch_iteration *iteration = &watch->iterations.items[i];
        if (iteration->pattern != watch->pattern ||
            iteration->first_event - base >= watch->stream.events.count)
            break;
        if (iteration->traced && iteration->duration_ns <= longest && traced++ == 0)
            *window = (struct ebb_window){.first = (size_t)(iteration->first_event - base),
                                          .last = (size_t)(iteration->last_event - base)};
    }
    return traced == wanted;
}

/* Finds one traced period of the repetition in force, with any start. */
static bool any_traced(const struct ebb_watch *watch, struct ebb_window *window,
                       struct ebb_template *template)
{
    const struct ebb_stream *stream = &watch->stream;
    if (!ebb__watch_in_period(watch) || watch->template.kind == EBB_SYMBOL_MARK ||
        ebb__watch_varies(watch) || watch->template.landmark_bytes)
        return false;
    const struct ebb_repetition *current = &stream->current[watch->template.kind];
    const struct ebb_symbols *symbols = &stream->symbols[watch->template.kind];
    size_t period = current->period_symbols, count = symbols->events.count;
    if (count < period + 1 || count - period - 1 < current->first_symbol)
        return false;
    size_t first = count - period - 1;
    *window =
        (struct ebb_window){first, symbols->events.items[first], symbols->events.items[count - 1]};
    *template = watch->template;
    template->hash = ebb__rolling_range(symbols->rolling, first, first + period);
    return ebb__stream_is_traced(stream, window);
}

enum ebb_status ebb__watch_model(const struct ebb_watch *watch, struct ebb_model *model,
                                 uint64_t *first_event, struct ebb_error *error)
{
    struct ebb_window window;
    struct ebb_template template = watch->template;
    if (!watch->found)
        return ebb__fail(error, EBB_INFEASIBLE, "iteration", "no repetition has been seen yet");
    if (!newest_traced(watch, &window) && !any_traced(watch, &window, &template))
        return ebb__fail(error, EBB_INFEASIBLE, "iteration", "none has been traced whole yet");
    enum ebb_status status = ebb__stream_model(&watch->stream, &template, &window, model, error);
    if (!status && first_event)
        *first_event = watch->event_base + window.first;
    return status;
}
