/* Problem: know the accesses of an iteration that was not observed, from another repetition of it.
 * Method: both allocate the same sizes in the same order. The events of the new iteration stay. The
 * accesses of the observed one are inserted between the same two allocations, in proportion to the
 * time between them. A block that the observed iteration allocated corresponds to
 * the one of the same rank in the new iteration. One of the iteration before corresponds to one of
 * the iteration before the new one. All others are the same block in both.
 * If uses are announced, the observed iteration tells the times. Events of a device that is not
 * observed have those of calls, which run ahead.
 * Fails for blocks that a phrase replaces: accesses to them are dropped. O(events). */
#include "splice.h"

#include "base/vec.h"

#include <string.h>

#define NO_ALLOC SIZE_MAX

struct splicer {
    const struct ebb_stream *stream;
    const struct ebb_splice *splice;
    EBB_VEC(struct ebb_event) made;
    size_t first, period; /* of the cycle, in `made` */
    size_t next;          /* event that is copied next */
    size_t anchor;        /* event in `made` behind which accesses were inserted last */
    uint64_t anchor_ns;   /* when its counterpart was, in the observed iteration */
    uint64_t copied_ns;   /* of the event copied last */
    size_t observed_alloc;
    bool announced; /* the times are those of the observed iteration */
    bool second;    /* the iteration behind the one that the phrase stands in */
};

/* Time without waits and the cost of observation: a planner adds its own waits. */
static uint64_t work_ns(const struct ebb_stream *stream, size_t event)
{
    uint64_t ns = stream->events.items[event].time_ns;
    uint64_t lost = ebb__stream_lost_ns(stream, event);
    return ns > lost ? ns - lost : 0;
}

/* Other threads run while one waits, so times without waits may go back. Then it is the time of the
 * event copied before. */
static bool copy(struct splicer *s, size_t event)
{
    struct ebb_event made = s->stream->events.items[event];
    made.time_ns = work_ns(s->stream, event);
    if (made.time_ns < s->copied_ns)
        made.time_ns = s->copied_ns;
    s->copied_ns = made.time_ns;
    return ebb_vec_push(&s->made, made);
}

static bool is_lifetime(const struct ebb_event *event)
{
    return event->kind == EBB_EVENT_ALLOC || event->kind == EBB_EVENT_FREE;
}

static bool copy_lifetimes(struct splicer *s, size_t first, size_t last)
{
    bool ok = true;
    for (size_t i = first; ok && i < last; i++)
        if (is_lifetime(&s->stream->events.items[i]))
            ok = copy(s, i);
    return ok;
}

static size_t event_of(const struct splicer *s, size_t alloc)
{
    return alloc < s->stream->allocs.count ? s->stream->allocs.items[alloc].event
                                           : s->stream->events.count;
}

/* Spreads the accesses inserted behind the anchor over the time up to the last event, whose
 * counterpart in the observed iteration was at `ns`. */
static void spread(struct splicer *s, uint64_t ns)
{
    size_t end = s->made.count - 1;
    uint64_t begin_ns = s->made.items[s->anchor].time_ns, whole_ns = 1;
    uint64_t most_ns = s->made.items[end].time_ns - begin_ns;
    if (ns > s->anchor_ns)
        whole_ns = ns - s->anchor_ns;
    if (s->announced) {
        most_ns = whole_ns;
        s->copied_ns = s->made.items[end].time_ns = begin_ns + whole_ns;
    }
    for (size_t i = s->anchor + 1; i < end; i++) {
        uint64_t observed_ns = s->made.items[i].time_ns;
        uint64_t since_ns = observed_ns > s->anchor_ns ? observed_ns - s->anchor_ns : 0;
        double share = since_ns < whole_ns ? (double)since_ns / (double)whole_ns : 1;
        uint64_t time_ns = begin_ns + (uint64_t)(share * (double)most_ns);
        uint64_t before_ns = s->made.items[i - 1].time_ns; /* observed ones may go back, too */
        s->made.items[i].time_ns = time_ns < before_ns ? before_ns : time_ns;
    }
    s->anchor = end;
    s->anchor_ns = ns;
}

/* The allocation of this rank in the iteration that contains the phrase, or ends before it. A
 * negative rank is of the iteration before that. NO_ALLOC: the phrase replaced it. */
static size_t before_phrase(const struct ebb_splice *splice, int64_t rank)
{
    size_t begin = splice->first - splice->left_at, period = splice->period;
    size_t end = splice->middle + splice->resumed_by; /* of the iteration */
    bool within = splice->left_at + splice->resumed_by > 0;
    if (rank >= 0 && within && (size_t)rank + splice->resumed_by >= period)
        return end - period + (size_t)rank;
    if (rank >= 0 && within)
        return (size_t)rank < splice->left_at ? begin + (size_t)rank : NO_ALLOC;
    size_t back = rank >= 0 ? period - (size_t)rank : (size_t)-rank + (within ? 0 : period);
    return back <= begin ? begin - back : NO_ALLOC;
}

/* The allocation that stands for `own`, which the observed iteration or the one before it made. */
static size_t same_rank(const struct splicer *s, size_t own)
{
    const struct ebb_splice *splice = s->splice;
    int64_t rank = (int64_t)own - (int64_t)s->observed_alloc, period = (int64_t)splice->period;
    if (!s->second)
        return before_phrase(splice, rank);
    return rank >= 0 ? splice->middle + splice->resumed_by + (size_t)rank
                     : before_phrase(splice, rank + period);
}

/* The block that stands for this one, if it is live at the next event. */
static bool counterpart(const struct splicer *s, uint64_t serial, uint64_t *other)
{
    const struct ebb_stream *stream = s->stream;
    size_t own, at;
    if (!ebb__stream_find(stream, serial, &own)) {
        *other = serial; /* older than the stream */
        return true;
    }
    bool ends = own >= s->observed_alloc || stream->allocs.items[own].free_event < s->next ||
                stream->allocs.items[own].free_event <
                    event_of(s, s->observed_alloc + 2 * s->splice->period);
    at = ends ? same_rank(s, own) : own;
    if (at >= stream->allocs.count)
        return false;
    const struct ebb_stream_alloc *alloc = &stream->allocs.items[at];
    const struct ebb_event *event = &stream->events.items[alloc->event];
    *other = event->block;
    return alloc->event < s->next && alloc->free_event >= s->next &&
           event->size_bytes == stream->events.items[stream->allocs.items[own].event].size_bytes;
}

static bool insert(struct splicer *s, size_t observed)
{
    struct ebb_event made = s->stream->events.items[observed];
    if ((made.flags & EBB_EVENT_DEMAND) || !counterpart(s, made.block, &made.block))
        return true;
    made.time_ns = work_ns(s->stream, observed);
    return ebb_vec_push(&s->made, made);
}

/* Copies the events before `last` up to and including the next ALLOC; or one FREE, if that is what
 * comes next. */
static bool follow(struct splicer *s, size_t observed, size_t last)
{
    const struct ebb_event *events = s->stream->events.items;
    bool alloc = events[observed].kind == EBB_EVENT_ALLOC, done = false, copied = false;
    while (!done && s->next < last) {
        const struct ebb_event *event = &events[s->next];
        if (is_lifetime(event)) {
            if (!alloc && event->kind == EBB_EVENT_ALLOC)
                break;
            copied = true;
            done = !alloc || event->kind == EBB_EVENT_ALLOC;
            if (!copy(s, s->next))
                return false;
        }
        s->next++;
    }
    if (copied)
        spread(s, work_ns(s->stream, observed));
    return true;
}

/* Copies the events up to allocation `end`. The accesses are those of the observed iteration
 * from its allocation `rank` on. */
static bool splice_part(struct splicer *s, size_t rank, size_t end)
{
    const struct ebb_window *observed = &s->splice->observed;
    size_t last = event_of(s, end);
    size_t at = event_of(s, s->observed_alloc + rank);
    size_t behind = event_of(s, s->observed_alloc + rank +
                                    (end - ebb__stream_allocs_before(s->stream, s->next)));
    behind = behind < observed->last ? behind : observed->last;
    bool ok = true;
    s->anchor = s->made.count - 1;
    s->anchor_ns = work_ns(s->stream, at);
    for (size_t i = at; ok && i < behind; i++) {
        const struct ebb_event *event = &s->stream->events.items[i];
        if (event->kind == EBB_EVENT_ACCESS)
            ok = insert(s, i);
        else if (is_lifetime(event))
            ok = follow(s, i, last);
    }
    ok = ok && copy_lifetimes(s, s->next, last);
    s->next = last;
    /* The last accesses end with what comes behind both. */
    size_t end_event = last < s->stream->events.count ? last : last - 1;
    size_t end_observed = behind < s->stream->events.count ? behind : behind - 1;
    if (!ok || !copy(s, end_event))
        return false;
    spread(s, work_ns(s->stream, end_observed));
    s->made.count--; /* it was only there for its time */
    return true;
}

static bool is_announced(const struct ebb_stream *stream, const struct ebb_window *window)
{
    size_t at = window->first;
    while (at < window->last && stream->events.items[at].kind != EBB_EVENT_ACCESS)
        at++;
    return at < window->last && (stream->events.items[at].flags & EBB_EVENT_ANNOUNCED);
}

static bool splice_all(struct splicer *s)
{
    const struct ebb_stream *stream = s->stream;
    const struct ebb_splice *splice = s->splice;
    size_t phrase = event_of(s, splice->first), behind = splice->middle + splice->resumed_by;
    size_t resumed = event_of(s, splice->middle);
    /* What is left of the iteration where the phrase ends, and then as much as was made before
     * it. */
    size_t rest = splice->left_at ? splice->left_at : splice->resumed_by ? 0 : splice->period;
    s->observed_alloc = ebb__stream_allocs_before(stream, splice->observed.first);
    s->announced = is_announced(stream, &splice->observed);
    if (!copy_lifetimes(s, 0, phrase))
        return false;
    s->first = s->made.count;
    for (size_t i = phrase; i < resumed; i++)
        if (!copy(s, i))
            return false;
    s->next = resumed;
    if (splice->resumed_by && !splice_part(s, splice->period - splice->resumed_by, behind))
        return false;
    s->second = true;
    if (rest && !splice_part(s, 0, behind + rest))
        return false;
    s->period = s->made.count - s->first;
    return copy_lifetimes(s, s->next, stream->events.count);
}

enum ebb_status ebb__splice_model(const struct ebb_stream *stream, const struct ebb_splice *splice,
                                  struct ebb_model *model, struct ebb_error *error)
{
    struct splicer s = {.stream = stream, .splice = splice};
    enum ebb_status status = EBB_ERR_MEMORY;
    if (splice_all(&s)) {
        struct ebb_event_span trace = {s.made.items, s.made.count};
        status = ebb__model_build(trace, s.first, s.period, model, error);
    } else {
        status = ebb__fail(error, status, "phrase", "no memory for its model");
    }
    ebb_vec_free(&s.made);
    return status;
}
