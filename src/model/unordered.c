/* Method: each allocation of the pattern is a *slot*. An instance of a slot is named by the slot
 * and its age in iterations. So ALLOC and FREE have names that mean the same in every window. Each
 * window has its own order of these names. An access between two of them is inserted into the
 * pattern wherever a gap between the surrounding events would have been wrong. The other windows
 * are written in the pattern's order; a missing allocation is invented, and a surplus one is
 * dropped. So lifetimes across iterations can be found by counting, as in strictly periodic traces
 * (build.c). Blocks of one size are matched in the order of their allocation. If that confuses two
 * of them, gaps become shorter than in truth, never longer. */
#include "unordered.h"

#include "slots.h"

#include <string.h>

enum {
    NEAR = 7, /* knots; a longer span gets single accesses instead of being filled: a limit */
};

/* Sorts equal accesses next to each other. */
static int by_access(const void *a, const void *b)
{
    const struct placed *left = a, *right = b;
    if (left->knot != right->knot)
        return left->knot < right->knot ? -1 : 1;
    if (left->event.block != right->event.block)
        return left->event.block < right->event.block ? -1 : 1;
    if (left->event.size_bytes != right->event.size_bytes)
        return left->event.size_bytes < right->event.size_bytes ? -1 : 1;
    return left->order < right->order ? -1 : left->order > right->order;
}

static bool is_repeated(const struct placed *one, const struct placed *next)
{
    return one->knot == next->knot && one->event.block == next->event.block &&
           one->event.size_bytes == next->event.size_bytes;
}

static int by_knot(const void *a, const void *b)
{
    const struct placed *left = a, *right = b;
    if (left->knot != right->knot)
        return left->knot < right->knot ? -1 : 1;
    return left->order < right->order ? -1 : left->order > right->order;
}

/* Inserts an access of `event`'s kind to `serial` before a knot. */
static bool put_access(struct merger *w, const struct ebb_event *event, uint64_t serial,
                       size_t knot)
{
    struct placed made = {knot, w->placed.count, *event};
    made.event.block = serial;
    return ebb_vec_push(&w->placed, made);
}

/* Inserts an access to `serial` of the current window, behind `passed` of its knots. In the pattern
 * it is inserted wherever a gap must not begin or end. This is on the narrowest span around the
 * same count whose ends are on the right side of it in both orders. It is also at nearby knots that
 * are on its other side in the pattern. */
static bool put_accesses(struct merger *w, const struct ebb_event *event, uint64_t serial,
                         size_t passed)
{
    const size_t *positions = w->positions.items;
    size_t first, last, count = w->knots.count, low = passed, high = passed;
    if (!ebb__knots_lifetime(w, serial, &first, &last))
        return true;
    while (high < count && (positions[high] == EBB_SLOT_NONE || positions[high] < passed))
        high++;
    while (low > 0 && (positions[low - 1] == EBB_SLOT_NONE || positions[low - 1] >= passed))
        low--;
    size_t from = low < first ? first : low > last ? last : low;
    size_t to = high < first ? first : high > last ? last : high;
    size_t step = (to - from) / (NEAR + 1) + 1;
    for (size_t knot = from; knot < to; knot += step)
        if (!put_access(w, event, serial, knot))
            return false;
    if (!put_access(w, event, serial, to))
        return false;
    for (size_t knot = high + 1; knot < count && knot <= high + NEAR && knot < last; knot++)
        if (positions[knot] < passed && knot >= first && !put_access(w, event, serial, knot + 1))
            return false;
    for (size_t knot = low; knot-- > first && knot + NEAR >= low;)
        if (positions[knot] != EBB_SLOT_NONE && positions[knot] >= passed && knot <= last &&
            !put_access(w, event, serial, knot))
            return false;
    return true;
}

/* Merges the accesses of `window` into the pattern. */
static bool lay_over(struct merger *w, size_t window)
{
    const struct ebb_window *here = &w->windows[window];
    size_t passed = 0;
    ebb__knots_place(w, window);
    for (size_t i = here->first; i < here->last; i++) {
        const struct ebb_event *event = ebb__weaver_event(w, i);
        uint64_t name, knot;
        if (ebb__slots_name(w, event, window, &name))
            passed += ebb__map_get(&w->knot_of, name, &knot);
        if (event->kind != EBB_EVENT_ACCESS || (event->flags & EBB_EVENT_DEMAND))
            continue;
        uint64_t serial = ebb__slots_counterpart(w, event->block, window);
        if (serial != 0 && !put_accesses(w, event, serial, passed))
            return false;
    }
    return true;
}

/* Computes by how much the load of the current window exceeds the pattern's after the same number
 * of events. If the pattern's load is below half of its peak, that half is used instead: no budget
 * is short there. */
static bool measure_slack(struct merger *w, uint64_t *slack_bytes)
{
    size_t count = w->knots.count;
    int64_t *theirs = calloc(count + 1, sizeof *theirs), own = 0, other = 0, peak = 0;
    if (!theirs)
        return false;
    for (size_t pass = 0; pass < 2; pass++) {
        own = other = 0;
        for (size_t k = 0; k < count; k++) {
            const struct ebb_event *event = ebb__weaver_event(w, w->knots.items[k].event);
            int64_t bytes = (int64_t)event->size_bytes;
            bytes = event->kind == EBB_EVENT_ALLOC ? bytes : -bytes;
            if (pass == 0 && w->positions.items[k] != EBB_SLOT_NONE)
                theirs[w->positions.items[k]] = bytes;
            own += bytes;
            other += pass ? theirs[k] : 0;
            int64_t least = own > peak / 2 ? own : peak / 2;
            if (pass && other > least && (uint64_t)(other - least) > *slack_bytes)
                *slack_bytes = (uint64_t)(other - least);
            if (pass == 0 && own > peak)
                peak = own;
        }
    }
    free(theirs);
    return true;
}

static bool emit(struct ebb_unordered *unordered, const struct ebb_event *event)
{
    return ebb_vec_push(&unordered->events, *event);
}

static bool is_left_out(const struct merger *w, const struct ebb_event *event)
{
    uint64_t found;
    return event->kind != EBB_EVENT_MARK && ebb__map_get(&w->names, event->block, &found) &&
           found == EBB_SLOT_LEFT_OUT;
}

/* Copies events outside of the windows: lifetimes only. */
static bool emit_outside(const struct merger *w, size_t first, size_t last,
                         struct ebb_unordered *unordered)
{
    for (size_t i = first; i < last; i++) {
        const struct ebb_event *event = ebb__weaver_event(w, i);
        if ((event->kind == EBB_EVENT_ALLOC || event->kind == EBB_EVENT_FREE) &&
            !is_left_out(w, event) && !emit(unordered, event))
            return false;
    }
    return true;
}

/* Writes the pattern, with the accesses of the others. */
static bool emit_pattern(struct merger *w, struct ebb_unordered *unordered)
{
    const struct ebb_window *own = &w->windows[w->own];
    size_t next = 0, knot = 0;
    if (w->placed.count)
        qsort(w->placed.items, w->placed.count, sizeof *w->placed.items, by_access);
    unordered->first = unordered->events.count;
    for (size_t i = own->first; i <= own->last; i++) {
        bool is_knot = knot < w->knots.count && w->knots.items[knot].event == i;
        bool all = i == own->last;
        for (; next < w->placed.count && (all || (is_knot && w->placed.items[next].knot <= knot));
             next++) {
            struct ebb_event made = w->placed.items[next].event;
            if (next > 0 && is_repeated(&w->placed.items[next - 1], &w->placed.items[next]))
                continue;
            made.time_ns = ebb__weaver_event(w, all ? i - 1 : i)->time_ns;
            if (!emit(unordered, &made))
                return false;
        }
        knot += is_knot;
        if (!all && !is_left_out(w, ebb__weaver_event(w, i)) &&
            !emit(unordered, ebb__weaver_event(w, i)))
            return false;
    }
    unordered->period = unordered->events.count - unordered->first;
    return true;
}

/* Writes another window in the pattern's order, with every slot once. Blocks are freed where the
 * pattern frees them, if that is known, but never before their allocation. */
static bool emit_reordered(struct merger *w, size_t window, struct ebb_unordered *unordered)
{
    const struct ebb_window *here = &w->windows[window];
    const uint64_t *serials = w->serials.items + window * w->slots.count;
    uint64_t time_ns = ebb__weaver_event(w, here->first)->time_ns;
    w->placed.count = 0;
    for (size_t k = 0; k < w->slots.count; k++) {
        const struct slot *slot = &w->slots.items[k];
        uint64_t knot, serial = serials[k] ? serials[k] : w->made_up--;
        if (!ebb__map_get(&w->knot_of, (uint64_t)k << 1, &knot))
            knot = w->knots.count;
        struct placed made = {knot,
                              0,
                              {.time_ns = time_ns,
                               .block = serial,
                               .size_bytes = slot->size_bytes,
                               .kind = EBB_EVENT_ALLOC}};
        if (!ebb_vec_push(&w->placed, made))
            return false;
        made.event.kind = EBB_EVENT_FREE;
        made.order = 1;
        if (!serials[k] && !ebb_vec_push(&w->placed, made))
            return false;
    }
    for (size_t i = here->first; i < here->last; i++) {
        const struct ebb_event *event = ebb__weaver_event(w, i);
        uint64_t name, knot;
        if (event->kind != EBB_EVENT_FREE || is_left_out(w, event))
            continue;
        struct placed made = {w->knots.count, 2, *event};
        if (ebb__slots_name(w, event, window, &name)) {
            if (ebb__map_get(&w->knot_of, name, &knot))
                made.knot = (size_t)knot;
        }
        made.event.time_ns = time_ns;
        if (!ebb_vec_push(&w->placed, made))
            return false;
    }
    qsort(w->placed.items, w->placed.count, sizeof *w->placed.items, by_knot);
    for (size_t i = 0; i < w->placed.count; i++)
        if (!emit(unordered, &w->placed.items[i].event))
            return false;
    return true;
}

static bool merge_all(struct merger *w, size_t observed, struct ebb_unordered *unordered)
{
    if (!ebb__slots_collect(w))
        return false;
    for (size_t i = 0; i < w->window_count; i++)
        if (!ebb__slots_match(w, i))
            return false;
    if (!ebb__knots_collect(w))
        return false;
    for (size_t i = w->window_count; i-- > 0 && observed > 0;) {
        if (i != w->own && ebb__stream_is_traced(w->stream, &w->windows[i])) {
            observed--;
            if (!lay_over(w, i) || !measure_slack(w, &unordered->slack_bytes))
                return false;
        }
    }
    if (!emit_outside(w, 0, w->windows[0].first, unordered))
        return false;
    /* The pattern consumes the merged accesses; `placed` is then free for the others. */
    struct ebb_unordered pattern = {0};
    bool ok = emit_pattern(w, &pattern);
    for (size_t i = 0; ok && i < w->window_count; i++) {
        if (i != w->own) {
            ok = emit_reordered(w, i, unordered);
            continue;
        }
        unordered->first = unordered->events.count;
        unordered->period = pattern.period;
        for (size_t k = 0; ok && k < pattern.events.count; k++)
            ok = emit(unordered, &pattern.events.items[k]);
    }
    ebb_vec_free(&pattern.events);
    return ok && emit_outside(w, w->windows[w->window_count - 1].last, w->stream->events.count,
                              unordered);
}

enum ebb_status ebb__unordered_make(const struct ebb_stream *stream,
                                    const struct ebb_window *windows, size_t count, size_t own,
                                    size_t observed, struct ebb_unordered *unordered)
{
    struct merger w = {.stream = stream,
                       .windows = windows,
                       .window_count = count,
                       .own = own,
                       .made_up = EBB_MAP_NO_KEY - 1};
    memset(unordered, 0, sizeof *unordered);
    bool ok = merge_all(&w, observed, unordered);
    if (!ok)
        ebb__unordered_fini(unordered);
    ebb_vec_free(&w.slots);
    ebb__map_fini(&w.names);
    ebb_vec_free(&w.serials);
    ebb_vec_free(&w.knots);
    ebb__map_fini(&w.knot_of);
    ebb_vec_free(&w.placed);
    ebb_vec_free(&w.positions);
    return ok ? EBB_OK : EBB_ERR_MEMORY;
}

void ebb__unordered_fini(struct ebb_unordered *unordered)
{
    ebb_vec_free(&unordered->events);
    memset(unordered, 0, sizeof *unordered);
}
