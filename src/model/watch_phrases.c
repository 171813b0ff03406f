/* A program as phrases: the held iteration, and the phrases between some of its repetitions.
 *
 * A training evaluates after some iterations, averages weights, and ends an epoch with a smaller
 * batch. So the whole repeats exactly, too, but in periods of several iterations. To plan it, two
 * such periods and their accesses must be seen. It is better to plan the iteration at once, and to
 * be reactive in the rest. So a planned iteration is held. A period that contains it does not
 * replace it, unless the caller finds that the rest costs too much. ebb__watch_longer() gives that
 * cost. */
#include "base/tuning.h"
#include "watch_state.h"

#include <string.h>

void ebb__watch_hold(struct ebb_watch *watch)
{
    bool was_held = watch->held;
    watch->held = watch->found && ebb__symbol_is_alloc(watch->template.kind) &&
                  watch->template.landmark_bytes == 0;
    if (watch->held && !was_held)
        memset(&watch->gaps, 0, sizeof watch->gaps);
}

bool ebb__watch_outlasts(const struct ebb_watch *watch, size_t events)
{
    return watch->held && events <= ebb__tuning()->held_iterations * watch->window_events;
}

size_t ebb__watch_next_whole(const struct ebb_watch *watch, size_t at, size_t last)
{
    const struct ebb_template *template = &watch->template;
    const struct ebb_rolling *rolling = watch->stream.symbols[template->kind].rolling;
    return ebb__rolling_find_within(rolling, template->hash, template->period_symbols, at, last);
}

/* The symbols of the template's iterations in [at, last). */
static size_t whole_symbols(const struct ebb_watch *watch, size_t at, size_t last)
{
    size_t period = watch->template.period_symbols, count = 0;
    for (at = ebb__watch_next_whole(watch, at, last); at < last;
         at = ebb__watch_next_whole(watch, at + period, last))
        count += period;
    return count;
}

bool ebb__watch_is_composed(const struct ebb_watch *watch, const struct ebb_repetition *repetition)
{
    size_t period = watch->template.period_symbols;
    size_t covered = repetition->last_symbol - repetition->first_symbol;
    if (!watch->held || repetition->kind != watch->template.kind ||
        repetition->period_symbols <= period || covered < 2 * repetition->period_symbols)
        return false;
    /* Iterations that begin within two periods count. If the oldest begin before what repeats, one
     * may be missing. */
    size_t last = repetition->last_symbol, both = 2 * repetition->period_symbols;
    bool whole = covered >= both + period;
    size_t held = whole_symbols(watch, last - both - (whole ? period : 0), last);
    return held + (whole ? 0 : period) >= repetition->period_symbols;
}

bool ebb__watch_has_changed(struct ebb_watch *watch, const struct ebb_repetition *repetition)
{
    enum { TIMES = 3, APART_DIVISOR = 3 };
    const struct ebb_template *template = &watch->template;
    size_t held = template->period_symbols, period = repetition->period_symbols;
    size_t apart = held > period ? held - period : period - held;
    size_t first = repetition->first_symbol, last = first + TIMES * period;
    if (!watch->held || repetition->kind != template->kind || apart * APART_DIVISOR > held ||
        last > repetition->last_symbol)
        return false;
    if (watch->changed.found_at_symbol != repetition->found_at_symbol) {
        watch->changed.found_at_symbol = repetition->found_at_symbol;
        watch->changed.has_held = ebb__watch_next_whole(watch, first, last) < last;
    }
    return !watch->changed.has_held;
}

bool ebb__watch_makes_up(const struct ebb_watch *watch, const struct ebb_repetition *repetition)
{
    size_t last = repetition->last_symbol;
    /* One may have begun before. */
    size_t searched = repetition->period_symbols + watch->template.period_symbols;
    size_t made = whole_symbols(watch, last > searched ? last - searched : 0, last);
    return 2 * made >= repetition->period_symbols;
}

bool ebb__watch_longer(const struct ebb_watch *watch, struct ebb_watch_longer *longer)
{
    const struct ebb_stream *stream = &watch->stream;
    const struct ebb_repetition *current = &stream->current[EBB_SYMBOL_ALLOC];
    if (!watch->held || !ebb__watch_is_composed(watch, current))
        return false;
    const uint32_t *events = stream->symbols[EBB_SYMBOL_ALLOC].events.items;
    const struct ebb_event *all = stream->events.items;
    size_t period = watch->template.period_symbols, last = current->last_symbol - 1;
    /* A period from one held iteration to the same one in the next period. It has whole phrases. */
    size_t first = ebb__watch_next_whole(watch, last - 2 * current->period_symbols, last);
    size_t end = first + current->period_symbols;
    if (end > last)
        return false; /* it does not come in the first of two periods */
    *longer = (struct ebb_watch_longer){.duration_ns =
                                            all[events[end]].time_ns - all[events[first]].time_ns};
    for (size_t at = first; at < end;) {
        size_t next = ebb__watch_next_whole(watch, at, end);
        longer->beside_ns += all[events[next]].time_ns - all[events[at]].time_ns;
        longer->waited_ns +=
            ebb__stream_waited_ns(stream, events[next]) - ebb__stream_waited_ns(stream, events[at]);
        longer->iterations += next < end;
        at = next < end ? next + period : end;
    }
    double held_symbols = (double)(longer->iterations * period);
    double held_ns = (double)(longer->duration_ns - longer->beside_ns);
    double beside_symbols = (double)current->period_symbols - held_symbols;
    if (beside_symbols > 0 && held_ns > 0)
        longer->pace = (double)longer->beside_ns / beside_symbols / (held_ns / held_symbols);
    return true;
}
