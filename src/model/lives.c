/* Method: the template's start is where least memory is live, which may be in the middle of a
 * micro-batch. So the iterations begin where two of them first follow each other. A block's
 * lifetime is the number of iterations until it is freed, and the place in that iteration. What
 * happens between two iterations counts as the end of the first. So an evaluation in between
 * changes no lifetime. If more is made there than differs, and lasts, it is a new model. */
#include "lives.h"

#include "base/tuning.h"

enum { MOST_ITERATIONS = 16 };

struct iterations {
    size_t starts[MOST_ITERATIONS]; /* symbols */
    size_t count, period;
};

/* When a block is freed, or how far it has lived. */
struct life {
    size_t iterations, place;
    bool over;
};

/* The first symbol from which on the template's cycle comes twice, at whatever phase. `last`: it
 * does not. */
static size_t find_pair(const struct ebb_stream *stream, const struct ebb_template *template,
                        size_t first, size_t last)
{
    const struct ebb_rolling *rolling = stream->symbols[template->kind].rolling;
    size_t period = template->period_symbols;
    while (first + 2 * period <= last) {
        size_t most = last - first - period; /* all pairs in what they have in common are alike */
        size_t common = ebb__rolling_common_ahead(rolling, first, first + period, most);
        size_t next = first + period;
        if (common >= period &&
            ebb__rolling_find(rolling, template->hash, period, first, next) < next)
            return first;
        first += common + 1;
    }
    return last;
}

static struct iterations collect(const struct ebb_stream *stream,
                                 const struct ebb_template *template, size_t first, size_t last)
{
    struct iterations found = {.period = template->period_symbols};
    struct ebb_window window;
    while (found.count < MOST_ITERATIONS &&
           ebb__stream_next_window(stream, template, &first, &window) &&
           window.first_symbol + found.period <= last) {
        found.starts[found.count++] = window.first_symbol;
        first = window.first_symbol + found.period;
    }
    return found;
}

static struct life life_of(const struct ebb_stream *stream, const struct iterations *all,
                           size_t iteration, size_t place)
{
    const struct ebb_stream_alloc *alloc = &stream->allocs.items[all->starts[iteration] + place];
    bool over = alloc->free_event != EBB_NOT_FREED;
    size_t end = over ? ebb__stream_allocs_before(stream, alloc->free_event) : stream->allocs.count;
    size_t last = iteration;
    while (last + 1 < all->count && all->starts[last + 1] < end)
        last++;
    size_t in = end - all->starts[last];
    return (struct life){last - iteration, in < all->period ? in : all->period, over};
}

static bool is_shorter(struct life one, struct life other)
{
    return one.iterations != other.iterations ? one.iterations < other.iterations
                                              : one.place < other.place;
}

/* Freed between two iterations: at the end of the one, or where the next one frees it. */
static bool may_be(struct life between, struct life other, size_t period)
{
    return between.over && between.place == period &&
           (other.iterations == between.iterations || other.iterations == between.iterations + 1);
}

/* What is still live may be freed where the other was, if it has not lived longer already. */
static bool are_apart(struct life one, struct life other, size_t period)
{
    if (may_be(one, other, period) || may_be(other, one, period))
        return false;
    return (one.over && is_shorter(one, other)) || (other.over && is_shorter(other, one));
}

/* The bytes between two iterations, the given one and the next, that live beyond that one. */
static uint64_t lasting_between(const struct ebb_stream *stream, const struct iterations *all,
                                size_t iteration)
{
    uint64_t bytes = 0;
    size_t next = all->starts[iteration + 1];
    for (size_t at = all->starts[iteration] + all->period; at < next; at++) {
        const struct ebb_stream_alloc *alloc = &stream->allocs.items[at];
        if (alloc->free_event == EBB_NOT_FREED ||
            ebb__stream_allocs_before(stream, alloc->free_event) >= next + all->period)
            bytes += stream->events.items[alloc->event].size_bytes;
    }
    return bytes;
}

bool ebb__lives_differ(const struct ebb_stream *stream, const struct ebb_template *template,
                       size_t first_symbol, size_t last_symbol)
{
    struct ebb_template cycle = *template;
    uint64_t bytes = 0, most_bytes = 0;
    size_t first = find_pair(stream, template, first_symbol, last_symbol);
    if (first == last_symbol)
        return false;
    cycle.hash = ebb__rolling_range(stream->symbols[cycle.kind].rolling, first,
                                    first + cycle.period_symbols);
    struct iterations all = collect(stream, &cycle, first, last_symbol);
    if (all.count < 2 ||
        (all.count < MOST_ITERATIONS && 2 * all.count * all.period < last_symbol - first))
        return false;
    /* What the last one allocates may still live. */
    size_t pairs = all.count > 2 ? all.count - 2 : all.count - 1;
    for (size_t i = 0; i < pairs; i++) {
        uint64_t apart_bytes = 0;
        for (size_t place = 0; place < all.period; place++) {
            const struct ebb_stream_alloc *alloc = &stream->allocs.items[all.starts[i] + place];
            if (are_apart(life_of(stream, &all, i, place), life_of(stream, &all, i + 1, place),
                          all.period))
                apart_bytes += stream->events.items[alloc->event].size_bytes;
        }
        bytes += apart_bytes;
        most_bytes = apart_bytes > most_bytes ? apart_bytes : most_bytes;
    }
    for (size_t i = 0; i < pairs; i++)
        if (lasting_between(stream, &all, i) > most_bytes)
            return false;
    return bytes / pairs > stream->peak_bytes / (uint64_t)ebb__tuning()->accumulated_divisor;
}
