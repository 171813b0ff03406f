/* A stream, the repetition taken for the program's iteration, and the iterations seen of it.
 *
 * A repetition becomes the program's when it has covered a few symbols and nothing else was known,
 * or when it covers more than two iterations of the one before: what repeats within an iteration
 * cannot last that long. Iterations recorded before the new one began are kept, but for those of
 * repetitions that turn out to be loops within it: these were none, wherever they were seen.
 *
 * Marks that the program sets are believed whatever comes. Marks by accesses are not: a loop over the
 * weights while they are initialised looks like iterations, too, and training, which allocates, comes
 * after it. Which of the two tells iterations depends on how often the program allocates.
 *
 * Where nothing repeats exactly, a landmark is looked for from time to time: never while an exact
 * repetition is in force, so that a strictly periodic program does not pay for it. */
#include "watch.h"

#include "base/tuning.h"

#include "landmark.h"
#include "recurrence.h"
#include "stream.h"

#include <string.h>

enum {
    EVENT_LIMIT = 1 << 22,     /* then the older half goes; 128 MiB of events */
    STEADY_LIMIT = 1 << 15,    /* kept at least of a program that does nothing but its iteration */
    LOOK_EVERY = 1 << 12,      /* events between two looks at whether it is steady */
    KNOWN_PATTERNS = 8,        /* a limit: training, evaluation, a last batch */
    LEAST_PAUSE = 64,          /* symbols from one look for a landmark to the next: an eighth of */
    MOST_PAUSE = 4096,         /* those seen, within these limits */
    KEPT_ITERATIONS = 1 << 10, /* a limit; enough for medians */
};

struct ebb_watch {
    struct ebb_stream stream;
    uint64_t event_base; /* serial number of the stream's event 0; wraps below 0 */
    struct ebb_template template;
    bool found;
    uint32_t pattern; /* which of the repetitions known so far the template is */
    size_t pattern_count;
    struct ebb_template known[KNOWN_PATTERNS]; /* the last ones, [pattern % KNOWN_PATTERNS] */
    struct landmark_seen {
        uint64_t at;             /* how many ALLOCs came before the newest one */
        uint64_t apart;          /* and between the one before and it */
    } landmarks[KNOWN_PATTERNS]; /* of those; zero where there is none */
    uint64_t alloc_count;        /* ALLOCs pushed */
    size_t window_events;        /* of an iteration of the template, the longest seen */
    size_t period_clock_events;
    size_t next_symbol;                       /* where to look for the next iteration */
    size_t considered[EBB_SYMBOL_KIND_COUNT]; /* found_at_symbol of the repetition judged last */
    size_t next_look; /* number of symbols at which to look for a landmark again */
    EBB_VEC(struct ebb_watch_iteration) iterations; /* behind those forgotten */
    struct ebb_watch_forgotten forgotten;
};

enum ebb_status ebb__watch_create(struct ebb_watch **watch)
{
    struct ebb_watch *made = calloc(1, sizeof *made);
    if (!made)
        return EBB_ERR_MEMORY;
    if (ebb__stream_init(&made->stream) != EBB_OK) {
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

static bool is_about(size_t symbols, size_t period)
{
    size_t tolerance = ebb__landmark_tolerance(period);
    return symbols <= period + tolerance && symbols + tolerance >= period;
}

/* Is the repetition that of `template`, possibly at another phase? Then the template occurs in its
 * first two periods. */
static bool is_known(const struct ebb_watch *watch, const struct ebb_template *template,
                     const struct ebb_repetition *repetition)
{
    if (template->kind != repetition->kind)
        return false;
    if (template->landmark_bytes) /* by chance the order was the same for a while */
        return is_about(repetition->period_symbols, template->period_symbols);
    if (template->period_symbols != repetition->period_symbols)
        return false;
    if (template->kind == EBB_SYMBOL_MARK)
        return true;
    const struct ebb_rolling *rolling = watch->stream.symbols[template->kind].rolling;
    size_t period = template->period_symbols;
    for (size_t at = repetition->first_symbol; at < repetition->first_symbol + period; at++)
        if (ebb__rolling_range(rolling, at, at + period) == template->hash)
            return true;
    return false;
}

static size_t known_count(const struct ebb_watch *watch)
{
    return watch->pattern_count < KNOWN_PATTERNS ? watch->pattern_count : KNOWN_PATTERNS;
}

/* The known template than which `age` others are newer; *pattern: its number. */
static const struct ebb_template *known_of_age(const struct ebb_watch *watch, size_t age,
                                               uint32_t *pattern)
{
    *pattern = (uint32_t)(watch->pattern_count - 1 - age);
    return &watch->known[*pattern % KNOWN_PATTERNS];
}

static void note_landmark(struct ebb_watch *watch, uint64_t size_bytes)
{
    for (size_t i = 0; i < known_count(watch); i++)
        if (watch->known[i].landmark_bytes == size_bytes) {
            watch->landmarks[i].apart = watch->alloc_count - watch->landmarks[i].at;
            watch->landmarks[i].at = watch->alloc_count;
        }
    watch->alloc_count++;
}

/* Is a repetition of so short a period, seen over `covered` allocations, a part of iterations that the
 * program still does? */
static bool is_part_of_known(const struct ebb_watch *watch, size_t period, size_t covered)
{
    for (size_t i = 0; i < known_count(watch); i++) {
        size_t whole = watch->known[i].period_symbols, tolerance = ebb__landmark_tolerance(whole);
        const struct landmark_seen *seen = &watch->landmarks[i];
        bool goes_on =
            seen->apart + tolerance >= whole && watch->alloc_count - seen->at <= whole + tolerance;
        if (watch->known[i].landmark_bytes && goes_on && period + tolerance < whole &&
            covered <= 2 * whole + whole / 2)
            return true;
    }
    return false;
}

/* The first symbol of the kind behind what has been recorded, behind event `otherwise` where nothing has. */
static size_t first_unrecorded(const struct ebb_watch *watch, enum ebb_symbol_kind kind,
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

/* The repetition `pattern`, of `window_events` an iteration, goes on since the event `begin`: what was
 * taken for iterations since then is none, nor is anything else that repeated within one. */
static void drop_iterations(struct ebb_watch *watch, uint32_t pattern, size_t window_events,
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

/* From now on `template` is the program's iteration: its symbols from `first_symbol` on. It may be
 * one that the program comes back to: then the template is what it was. */
static void adopt(struct ebb_watch *watch, const struct ebb_template *template, uint32_t pattern,
                  size_t first_symbol, size_t window_events)
{
    const struct ebb_symbols *symbols = &watch->stream.symbols[template->kind];
    uint64_t begin = watch->event_base + symbols->events.items[first_symbol];
    drop_iterations(watch, pattern, window_events, begin);
    watch->template = *template;
    watch->next_symbol = first_unrecorded(watch, template->kind, watch->event_base);
    watch->window_events = window_events;
    watch->period_clock_events = 0;
    watch->pattern = pattern;
    watch->known[pattern % KNOWN_PATTERNS] = *template;
    if (pattern == watch->pattern_count)
        watch->pattern_count++;
    watch->found = true;
}

static bool marks_by_accesses(const struct ebb_watch *watch)
{
    const struct ebb_stream *stream = &watch->stream;
    const struct ebb_symbols *marks = &stream->symbols[EBB_SYMBOL_MARK];
    return marks->events.count &&
           stream->events.items[marks->events.items[marks->events.count - 1]].size_bytes ==
               EBB_ITERATION_BY_ACCESSES;
}

/* Do marks tell iterations, rather than allocations of which there are so many in one? */
static bool marks_prevail(const struct ebb_watch *watch, size_t allocs, size_t window_events)
{
    return !marks_by_accesses(watch) || allocs * ebb__tuning()->uses_an_allocation <= window_events;
}

/* Does a repetition of so many allocations go over all of an iteration as accesses tell it, in which
 * `allocs` are made? Then it is that iteration, known exactly. */
static bool covers_marks(const struct ebb_watch *watch, size_t period_allocs, size_t allocs)
{
    return marks_by_accesses(watch) && period_allocs >= ebb__tuning()->clock_allocations &&
           period_allocs * 4 >= allocs * 3;
}

static size_t allocs_of_newest(const struct ebb_watch *watch)
{
    size_t count = watch->iterations.count;
    return count ? watch->iterations.items[count - 1].alloc_count : 0;
}

/* How many allocations are made from one mark of the repetition to the next? */
static size_t allocs_of_marks(const struct ebb_watch *watch, const struct ebb_repetition *marks)
{
    const struct ebb_symbols *symbols = &watch->stream.symbols[EBB_SYMBOL_MARK];
    size_t count = (marks->last_symbol - marks->first_symbol) / marks->period_symbols;
    size_t first = symbols->events.items[marks->first_symbol];
    size_t last = marks->last_symbol < symbols->events.count
                      ? symbols->events.items[marks->last_symbol]
                      : watch->stream.events.count;
    return (ebb__stream_allocs_before(&watch->stream, last) -
            ebb__stream_allocs_before(&watch->stream, first)) /
           count;
}

static size_t window_of(const struct ebb_watch *watch, const struct ebb_repetition *repetition)
{
    size_t symbols = repetition->last_symbol - repetition->first_symbol;
    return ebb__stream_coverage(&watch->stream, repetition) /
           (symbols / repetition->period_symbols);
}

/* Judge the repetition that is in force, if it is new. */
static void consider(struct ebb_watch *watch, enum ebb_symbol_kind kind)
{
    const struct ebb_repetition *repetition = &watch->stream.current[kind];
    if (repetition->period_symbols == 0 || watch->considered[kind] == repetition->found_at_symbol)
        return;
    bool marked = watch->found && watch->template.kind == EBB_SYMBOL_MARK;
    bool whole = marked && kind == EBB_SYMBOL_ALLOC &&
                 covers_marks(watch, repetition->period_symbols, allocs_of_newest(watch));
    if (marked && kind != EBB_SYMBOL_MARK && !whole &&
        (kind != EBB_SYMBOL_ALLOC ||
         marks_prevail(watch, repetition->period_symbols, watch->window_events)))
        return;
    if (kind == EBB_SYMBOL_MARK && watch->found && watch->template.kind == EBB_SYMBOL_ALLOC) {
        size_t period = watch->template.period_symbols;
        bool exact = watch->template.landmark_bytes == 0;
        if (!marks_prevail(watch, period, window_of(watch, repetition)) ||
            (exact && covers_marks(watch, period, allocs_of_marks(watch, repetition))))
            return;
    }
    size_t symbols = repetition->last_symbol - repetition->first_symbol;
    if (kind != EBB_SYMBOL_MARK) {
        if (symbols < ebb__tuning()->smallest_repetition)
            return;
        size_t coverage = ebb__stream_coverage(&watch->stream, repetition);
        if (watch->found && !whole && coverage <= 2 * watch->window_events)
            return;
        if (kind == EBB_SYMBOL_ALLOC &&
            is_part_of_known(watch, repetition->period_symbols, symbols))
            return;
        /* Accesses are the clock only where no allocation is: see the first two periods. */
        if (kind == EBB_SYMBOL_ACCESS) {
            size_t first = watch->stream.symbols[kind].events.items[repetition->first_symbol];
            if (ebb__stream_allocs_before(&watch->stream, first) < watch->stream.allocs.count)
                return;
        }
    }
    watch->considered[kind] = repetition->found_at_symbol;
    if (watch->found && is_known(watch, &watch->template, repetition))
        return;
    struct ebb_template template = ebb__stream_template(&watch->stream, repetition, 1);
    uint32_t pattern = (uint32_t)watch->pattern_count;
    for (size_t age = 0; age < known_count(watch); age++) {
        uint32_t number;
        const struct ebb_template *known = known_of_age(watch, age, &number);
        if (is_known(watch, known, repetition)) {
            pattern = number;
            template = *known;
            break;
        }
    }
    adopt(watch, &template, pattern, repetition->first_symbol, window_of(watch, repetition));
}

/* Nothing repeats exactly: does it otherwise? Not where exact iterations have been seen within what
 * a landmark would cover, unless they are only a part of it. */
static enum ebb_status look_for_landmark(struct ebb_watch *watch)
{
    const struct ebb_stream *stream = &watch->stream;
    const struct ebb_symbols *symbols = &stream->symbols[EBB_SYMBOL_ALLOC];
    size_t count = symbols->events.count, pause = count / 8;
    bool marked = watch->found && watch->template.kind == EBB_SYMBOL_MARK;
    if (count < watch->next_look || stream->current[EBB_SYMBOL_ALLOC].period_symbols ||
        (marked && !marks_by_accesses(watch)))
        return EBB_OK;
    pause = pause < LEAST_PAUSE ? LEAST_PAUSE : pause > MOST_PAUSE ? MOST_PAUSE : pause;
    watch->next_look = count + pause;
    struct ebb_landmark landmark;
    bool found;
    enum ebb_status status = ebb__landmark_find(symbols->detector, &landmark, &found);
    if (status || !found ||
        (marked && marks_prevail(watch, landmark.period_symbols, watch->window_events)))
        return status;
    const struct ebb_template made = {.kind = EBB_SYMBOL_ALLOC,
                                      .period_symbols = landmark.period_symbols,
                                      .landmark_bytes = landmark.size_bytes};
    if (watch->found && watch->template.landmark_bytes &&
        is_about(made.period_symbols, watch->template.period_symbols))
        return EBB_OK;
    if (is_part_of_known(watch, made.period_symbols, landmark.last_symbol - landmark.first_symbol))
        return EBB_OK;
    size_t first = symbols->events.items[landmark.first_symbol];
    size_t covered = symbols->events.items[landmark.last_symbol] - first;
    if (watch->found && watch->iterations.count &&
        watch->iterations.items[watch->iterations.count - 1].last_event >
            watch->event_base + first &&
        covered <= 5 * watch->window_events)
        return EBB_OK;
    uint32_t pattern = (uint32_t)watch->pattern_count;
    for (size_t age = 0; age < known_count(watch); age++) {
        uint32_t number;
        const struct ebb_template *known = known_of_age(watch, age, &number);
        if (known->landmark_bytes == made.landmark_bytes &&
            is_about(made.period_symbols, known->period_symbols)) {
            pattern = number;
            break;
        }
    }
    adopt(watch, &made, pattern, landmark.first_symbol, covered / 2);
    watch->landmarks[pattern % KNOWN_PATTERNS] = (struct landmark_seen){
        .at = watch->alloc_count - (count - landmark.last_symbol),
        .apart = landmark.period_symbols,
    };
    return EBB_OK;
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

static enum ebb_status record_iterations(struct ebb_watch *watch)
{
    const struct ebb_stream *stream = &watch->stream;
    struct ebb_window window;
    uint64_t newest = stream->events.items[stream->events.count - 1].size_bytes;
    if (watch->template.landmark_bytes && newest != watch->template.landmark_bytes)
        return EBB_OK; /* nothing ends here */
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
            if (event->kind == EBB_EVENT_ALLOC && made.alloc_count++ == 0)
                made.first_serial = event->block;
        }
        watch->period_clock_events = clocks;
        if (window.last - window.first > watch->window_events)
            watch->window_events = window.last - window.first;
        if (watch->iterations.count == 2 * KEPT_ITERATIONS)
            forget_iterations(watch);
        if (!ebb_vec_push(&watch->iterations, made))
            return EBB_ERR_MEMORY;
    }
    return EBB_OK;
}

/* Start a new stream with the newer half of the events, behind the ALLOCs of what is live where
 * it begins; the state of tracing and planning comes along as marks. */
static enum ebb_status drop_older_half(struct ebb_watch *watch)
{
    struct ebb_stream old = watch->stream, made;
    size_t cut = old.events.count / 2;
    uint64_t cut_serial = watch->event_base + cut;
    enum ebb_status status = ebb__stream_init(&made);
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
    watch->next_look = 0;
    if (watch->found)
        watch->next_symbol = first_unrecorded(watch, watch->template.kind, cut_serial);
    return EBB_OK;
}

/* The newest iterations follow each other without a gap, up to the newest event. */
static bool is_steady(const struct ebb_watch *watch)
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

static bool is_full(const struct ebb_watch *watch)
{
    size_t count = watch->stream.events.count;
    size_t enough = (size_t)ebb__tuning()->steady_iterations * watch->window_events;
    if (count < STEADY_LIMIT || count % LOOK_EVERY)
        return count >= EVENT_LIMIT;
    return count >= EVENT_LIMIT || (count >= enough && is_steady(watch));
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
            return EBB_OK; /* no symbol */
        kind = EBB_SYMBOL_MARK;
        break;
    default:
        return EBB_OK;
    }
    if (kind == EBB_SYMBOL_ALLOC)
        note_landmark(watch, event->size_bytes);
    consider(watch, kind);
    if (kind == EBB_SYMBOL_ALLOC)
        status = look_for_landmark(watch);
    if (status)
        return status;
    return watch->found && watch->template.kind == kind ? record_iterations(watch) : EBB_OK;
}

bool ebb__watch_found(const struct ebb_watch *watch)
{
    return watch->found;
}

bool ebb__watch_in_period(const struct ebb_watch *watch)
{
    const struct ebb_repetition *current = &watch->stream.current[watch->template.kind];
    const struct ebb_template *template = &watch->template;
    if (watch->found && template->landmark_bytes) {
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
    bool by_allocs = watch->found && watch->template.kind == EBB_SYMBOL_ALLOC;
    return by_allocs ? watch->template.period_symbols : 0;
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

bool ebb__watch_is_live(const struct ebb_watch *watch, uint64_t serial, uint64_t *size_bytes)
{
    const struct ebb_stream *stream = &watch->stream;
    size_t found;
    if (!ebb__stream_find(stream, serial, &found) ||
        stream->allocs.items[found].free_event != SIZE_MAX)
        return false;
    *size_bytes = stream->events.items[stream->allocs.items[found].event].size_bytes;
    return true;
}

/* The newest iteration of the template that was traced; with a landmark, only where another one
 * was, for what varies between them shows in no single one. */
static bool newest_traced(const struct ebb_watch *watch, struct ebb_window *window)
{
    uint64_t base = watch->event_base;
    size_t traced = 0, wanted = watch->template.landmark_bytes ? 2 : 1;
    for (size_t i = watch->iterations.count; i-- > 0 && traced < wanted;) {
        const struct ebb_watch_iteration *iteration = &watch->iterations.items[i];
        if (iteration->pattern != watch->pattern ||
            iteration->first_event - base >= watch->stream.events.count)
            break;
        if (iteration->traced && traced++ == 0)
            *window = (struct ebb_window){.first = (size_t)(iteration->first_event - base),
                                          .last = (size_t)(iteration->last_event - base)};
    }
    return traced == wanted;
}

/* One period that was traced, wherever it begins, in the repetition in force. */
static bool any_traced(const struct ebb_watch *watch, struct ebb_window *window,
                       struct ebb_template *template)
{
    const struct ebb_stream *stream = &watch->stream;
    if (!ebb__watch_in_period(watch) || watch->template.kind == EBB_SYMBOL_MARK ||
        watch->template.landmark_bytes)
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
