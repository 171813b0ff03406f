/* What stands between repetitions of the held iteration: phrases of their own, which come again. */
#include "iteration.h"
#include "splice.h"
#include "watch_state.h"

void ebb__watch_know_gap(struct ebb_watch *watch, const struct ebb_watch_gap *gap)
{
    size_t at = watch->gaps.count++ % KNOWN_GAPS;
    watch->gaps.items[at].hash = gap->hash;
    watch->gaps.items[at].allocs = gap->allocs;
}

/* The number of symbols of the known phrase that begins at symbol `first`, within `last`. 0: none
 * does. The longest one counts. */
static size_t known_at(const struct ebb_watch *watch, size_t first, size_t last)
{
    const struct ebb_rolling *rolling = watch->stream.symbols[EBB_SYMBOL_ALLOC].rolling;
    size_t count = watch->gaps.count < KNOWN_GAPS ? watch->gaps.count : KNOWN_GAPS, longest = 0;
    for (size_t i = 0; i < count; i++) {
        size_t allocs = watch->gaps.items[i].allocs;
        if (allocs > longest && allocs <= last - first &&
            ebb__rolling_range(rolling, first, first + allocs) == watch->gaps.items[i].hash)
            longest = allocs;
    }
    return longest;
}

/* Observing begins behind the first allocation that was not expected. */
static bool is_traced(const struct ebb_stream *stream, size_t first, size_t last)
{
    enum { LATE_EVENTS = 3 }; /* that allocation, and marks */
    const struct ebb_window window = {.first = first + LATE_EVENTS, .last = last};
    return last > window.first && ebb__stream_is_traced(stream, &window);
}

/* A stretch of symbols between two held iterations, or within iterations that have changed. */
struct stretch {
    size_t from, to;      /* what no iteration and no known phrase accounts for */
    size_t ahead, behind; /* symbols that the iteration goes on for at both ends */
    uint64_t hash;        /* of an iteration that begins where it left off */
    size_t known;         /* symbols of the last known phrase in it; 0: none */
};

static struct ebb_watch_gap gap_of(const struct ebb_watch *watch, const struct stretch *stretch)
{
    const struct ebb_symbols *symbols = &watch->stream.symbols[EBB_SYMBOL_ALLOC];
    return (struct ebb_watch_gap){
        .hash = ebb__rolling_range(symbols->rolling, stretch->from, stretch->to),
        .allocs = stretch->to - stretch->from,
        .first_alloc = stretch->from,
        .left_at = stretch->ahead,
        .resumed_by = stretch->behind,
        .traced = is_traced(&watch->stream, symbols->events.items[stretch->from],
                            symbols->events.items[stretch->to]),
    };
}

/* Skips the known phrases and the iterations at the start of the stretch, and ends it where the
 * next iteration begins. */
static void narrow(const struct ebb_watch *watch, struct stretch *stretch)
{
    const struct ebb_rolling *rolling = watch->stream.symbols[EBB_SYMBOL_ALLOC].rolling;
    size_t period = watch->template.period_symbols, known;
    for (; stretch->from < stretch->to; stretch->from += known) {
        bool iteration =
            stretch->to - stretch->from >= period &&
            ebb__rolling_range(rolling, stretch->from, stretch->from + period) == stretch->hash;
        known = iteration ? period : known_at(watch, stretch->from, stretch->to);
        if (known == 0)
            break;
        if (!iteration)
            stretch->known = known;
    }
    size_t next =
        ebb__rolling_find_within(rolling, stretch->hash, period, stretch->from, stretch->to);
    if (next == stretch->to)
        return;
    stretch->to = next;
    stretch->behind = stretch->ahead ? period - stretch->ahead : 0;
}

/* The gap between symbols `first` and `last`, where the iteration ends and begins again. It may
 * have gone on behind `first`, and have been back before `last`. False: nothing is in between. */
static bool gap_between(const struct ebb_watch *watch, size_t first, size_t last,
                        struct ebb_watch_gap *gap)
{
    const struct ebb_symbols *symbols = &watch->stream.symbols[EBB_SYMBOL_ALLOC];
    size_t period = watch->template.period_symbols;
    size_t most = last - first < period ? last - first : period - 1;
    struct stretch stretch = {
        .ahead = ebb__rolling_common_ahead(symbols->rolling, first, first - period, most)};
    most = last - first - stretch.ahead < period ? last - first - stretch.ahead : period - 1;
    stretch.behind = ebb__rolling_common_before(symbols->rolling, last, last + period, most);
    stretch.from = first + stretch.ahead;
    stretch.to = last - stretch.behind;
    stretch.hash = ebb__rolling_range(symbols->rolling, stretch.from - period, stretch.from);
    narrow(watch, &stretch);
    bool known = stretch.from == stretch.to;
    if (known && stretch.known == 0)
        return false;
    if (known)
        stretch.from -= stretch.known;
    *gap = gap_of(watch, &stretch);
    gap->known = known;
    return true;
}

/* The gap before the kept iteration `number`. False: there is none. */
static bool gap_before(const struct ebb_watch *watch, size_t number, struct ebb_watch_gap *gap)
{
    const struct ebb_watch_iteration *here = &watch->iterations.items[number], *before = here - 1;
    const struct ebb_stream *stream = &watch->stream;
    uint64_t base = watch->event_base;
    if (before->pattern != watch->pattern || before->last_event == here->first_event ||
        before->first_event - base >= stream->events.count)
        return false;
    size_t first = ebb__stream_allocs_before(stream, (size_t)(before->last_event - base));
    size_t last = ebb__stream_allocs_before(stream, (size_t)(here->first_event - base));
    return gap_between(watch, first, last, gap);
}

/* The newest held iteration that is kept; `traced`: whose accesses were observed. False: none. */
static bool newest_held(const struct ebb_watch *watch, bool traced, struct ebb_window *window)
{
    const struct ebb_watch_iteration *all = watch->iterations.items;
    for (size_t i = watch->iterations.count; i-- > 0;) {
        if (all[i].first_event - watch->event_base >= watch->stream.events.count)
            return false;
        if (all[i].pattern != watch->pattern || (traced && !all[i].traced))
            continue;
        *window = (struct ebb_window){.first = (size_t)(all[i].first_event - watch->event_base),
                                      .last = (size_t)(all[i].last_event - watch->event_base)};
        return true;
    }
    return false;
}

/* ---- the program has changed ----------------------------------------------------------------- */

enum {
    LEAST_SHARE = 4, /* such a part of a changed iteration is of the held one at least, */
    LEAST_KEPT = 2,  /* and such a part of the held one is in it: a batch of an evaluation begins as
                        the iteration does, too */
};

/* What is new in a period that begins as the held iteration does, for as long as possible. As much
 * of the next period has been seen. False: there is none, or it has too little of the held
 * iteration. O(symbols of the period). */
static bool find_changed(const struct ebb_watch *watch, const struct ebb_repetition *current,
                         struct stretch *stretch)
{
    const struct ebb_rolling *rolling = watch->stream.symbols[EBB_SYMBOL_ALLOC].rolling;
    size_t period = watch->template.period_symbols, cycle = current->period_symbols;
    size_t most = (period < cycle ? period : cycle) - 1, last = current->last_symbol, begin = 0;
    struct ebb_window window;
    if (!newest_held(watch, false, &window))
        return false;
    size_t held = ebb__stream_allocs_before(&watch->stream, window.first);
    *stretch = (struct stretch){0};
    for (size_t at = last - 2 * cycle; at < last - cycle; at++) {
        size_t ahead = ebb__rolling_common_ahead(rolling, at, held, most);
        if (ahead > stretch->ahead) {
            stretch->ahead = ahead;
            begin = at;
        }
    }
    if (stretch->ahead == 0)
        return false;
    if (begin + cycle + stretch->ahead > last) {
        if (begin < current->first_symbol + cycle)
            return false;
        begin -= cycle;
    }
    stretch->behind =
        ebb__rolling_common_before(rolling, begin + cycle, held + period, most - stretch->ahead);
    stretch->from = begin + stretch->ahead;
    stretch->to = begin + cycle - stretch->behind;
    size_t common = stretch->ahead + stretch->behind;
    return common * LEAST_SHARE >= cycle && common * LEAST_KEPT >= period;
}

/* The phrase that is in each iteration since the program has changed. */
static bool gap_that_repeats(struct ebb_watch *watch, struct ebb_watch_gap *gap)
{
    const struct ebb_repetition *current = &watch->stream.current[EBB_SYMBOL_ALLOC];
    const uint32_t *events = watch->stream.symbols[EBB_SYMBOL_ALLOC].events.items;
    size_t cycle = current->period_symbols, last = current->last_symbol;
    struct stretch stretch;
    if (cycle < 2 || last - current->first_symbol < 2 * cycle ||
        watch->alloc_count < watch->gaps.next_look)
        return false;
    watch->gaps.next_look = watch->alloc_count + cycle / 8 + 1;
    if (ebb__watch_next_whole(watch, last - 2 * cycle, last) < last ||
        !find_changed(watch, current, &stretch))
        return false;
    uint64_t event = watch->event_base + events[stretch.from];
    if (event <= watch->gaps.told ||
        known_at(watch, stretch.from, stretch.to) == stretch.to - stretch.from)
        return false;
    watch->gaps.told = event;
    *gap = gap_of(watch, &stretch);
    gap->repeats = true;
    return true;
}

/* The next step beside the held one, if steps recur in any order. */
static bool next_step(struct ebb_watch *watch, struct ebb_watch_gap *gap)
{
    struct ebb_watch_phrase step;
    if (!ebb__watch_next_step(watch, &step))
        return false;
    *gap = (struct ebb_watch_gap){
        .hash = step.hash,
        .allocs = step.last - step.first,
        .first_alloc = step.first,
        .traced = step.traced,
        .known = known_at(watch, step.first, step.last) == step.last - step.first,
        .repeats = step.again,
        .whole = true,
    };
    return true;
}

bool ebb__watch_next_gap(struct ebb_watch *watch, struct ebb_watch_gap *gap)
{
    const struct ebb_watch_iteration *all = watch->iterations.items;
    size_t count = watch->iterations.count, next = count;
    if (!watch->held)
        return false;
    if (watch->recurring.in_force)
        return next_step(watch, gap);
    while (next > 0 && all[next - 1].last_event > watch->gaps.looked_at)
        next--;
    for (; next < count; next++) {
        watch->gaps.looked_at = all[next].last_event;
        if (next > 0 && all[next].pattern == watch->pattern && gap_before(watch, next, gap))
            return true;
    }
    return gap_that_repeats(watch, gap);
}

enum ebb_status ebb__watch_gap_model(const struct ebb_watch *watch, const struct ebb_watch_gap *gap,
                                     struct ebb_model *model, struct ebb_error *error)
{
    const uint32_t *events = watch->stream.symbols[EBB_SYMBOL_ALLOC].events.items;
    if (gap->whole && gap->traced) {
        const struct ebb_template template = {
            .kind = EBB_SYMBOL_ALLOC, .period_symbols = gap->allocs, .hash = gap->hash};
        const struct ebb_window window = {.first_symbol = gap->first_alloc,
                                          .first = events[gap->first_alloc],
                                          .last = events[gap->first_alloc + gap->allocs]};
        return ebb__stream_model(&watch->stream, &template, &window, model, error);
    }
    struct ebb_splice splice = {
        .period = watch->template.period_symbols,
        .first = gap->first_alloc,
        .middle = gap->first_alloc + gap->allocs,
        .left_at = gap->left_at,
        .resumed_by = gap->resumed_by,
    };
    if (!gap->traced || !newest_held(watch, true, &splice.observed))
        return ebb__fail(error, EBB_INFEASIBLE, "phrase", "it has not been traced yet");
    return ebb__splice_model(&watch->stream, &splice, model, error);
}
