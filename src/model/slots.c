/* Blocks of one size are matched in the order of their allocation. If that confuses two of them,
 * gaps become shorter than in truth, never longer. */
#include "slots.h"

#include <string.h>

/* A size and its position, for matching. */
struct sized {
    uint64_t size_bytes;
    size_t at;
};

static int by_size(const void *a, const void *b)
{
    const struct sized *left = a, *right = b;
    if (left->size_bytes != right->size_bytes)
        return left->size_bytes < right->size_bytes ? -1 : 1;
    return left->at < right->at ? -1 : left->at > right->at;
}

bool ebb__slots_collect(struct merger *w)
{
    const struct ebb_window *own = &w->windows[w->own];
    for (size_t i = own->first; i < own->last; i++) {
        const struct ebb_event *event = ebb__weaver_event(w, i);
        if (event->kind == EBB_EVENT_ALLOC &&
            !ebb_vec_push(&w->slots, ((struct slot){event->size_bytes, event->block, i})))
            return false;
    }
    size_t cells = w->slots.count * w->window_count;
    if (!ebb_vec_reserve(&w->serials, cells + 1))
        return false;
    memset(w->serials.items, 0, (cells + 1) * sizeof *w->serials.items);
    w->serials.count = cells;
    return true;
}

bool ebb__slots_match(struct merger *w, size_t window)
{
    const struct ebb_window *here = &w->windows[window];
    EBB_VEC(struct sized) theirs = {0};
    struct sized *ours = calloc(w->slots.count + 1, sizeof *ours);
    bool ok = ours != NULL;
    for (size_t k = 0; ok && k < w->slots.count; k++)
        ours[k] = (struct sized){w->slots.items[k].size_bytes, k};
    for (size_t i = here->first; ok && i < here->last; i++)
        if (ebb__weaver_event(w, i)->kind == EBB_EVENT_ALLOC)
            ok = ebb_vec_push(&theirs, ((struct sized){ebb__weaver_event(w, i)->size_bytes, i}));
    if (ok) {
        qsort(ours, w->slots.count, sizeof *ours, by_size);
        if (theirs.count)
            qsort(theirs.items, theirs.count, sizeof *theirs.items, by_size);
    }
    for (size_t i = 0, k = 0; ok && i < theirs.count; i++) {
        while (k < w->slots.count && ours[k].size_bytes < theirs.items[i].size_bytes)
            k++;
        uint64_t serial = ebb__weaver_event(w, theirs.items[i].at)->block, name = EBB_SLOT_LEFT_OUT;
        if (k < w->slots.count && ours[k].size_bytes == theirs.items[i].size_bytes) {
            name = (uint64_t)window << 32 | ours[k].at;
            w->serials.items[window * w->slots.count + ours[k].at] = serial;
            k++;
        }
        ok = ebb__map_put(&w->names, serial, name);
    }
    free(ours);
    ebb_vec_free(&theirs);
    return ok;
}

bool ebb__slots_name(const struct merger *w, const struct ebb_event *event, size_t window,
                     uint64_t *name)
{
    uint64_t found;
    if ((event->kind != EBB_EVENT_ALLOC && event->kind != EBB_EVENT_FREE) ||
        !ebb__map_get(&w->names, event->block, &found) || found == EBB_SLOT_LEFT_OUT)
        return false;
    uint64_t age = window - (found >> 32);
    *name = age << 33 | (found & UINT32_MAX) << 1 | (event->kind == EBB_EVENT_FREE);
    return true;
}

bool ebb__knots_collect(struct merger *w)
{
    const struct ebb_window *own = &w->windows[w->own];
    for (size_t i = own->first; i < own->last; i++) {
        uint64_t name;
        if (!ebb__slots_name(w, ebb__weaver_event(w, i), w->own, &name))
            continue;
        if (!ebb__map_put(&w->knot_of, name, w->knots.count) ||
            !ebb_vec_push(&w->knots, ((struct knot){name, i})))
            return false;
    }
    return ebb_vec_reserve(&w->positions, w->knots.count + 1);
}

void ebb__knots_place(struct merger *w, size_t window)
{
    const struct ebb_window *here = &w->windows[window];
    size_t position = 0;
    for (size_t k = 0; k < w->knots.count; k++)
        w->positions.items[k] = EBB_SLOT_NONE;
    for (size_t i = here->first; i < here->last; i++) {
        uint64_t name, knot;
        if (ebb__slots_name(w, ebb__weaver_event(w, i), window, &name) &&
            ebb__map_get(&w->knot_of, name, &knot))
            w->positions.items[knot] = position++;
    }
}

uint64_t ebb__slots_counterpart(const struct merger *w, uint64_t serial, size_t window)
{
    uint64_t found;
    if (!ebb__map_get(&w->names, serial, &found))
        return serial; /* older than all windows, or in none */
    size_t age = window - (size_t)(found >> 32);
    if (found == EBB_SLOT_LEFT_OUT || age > w->own)
        return 0;
    return w->serials.items[(w->own - age) * w->slots.count + (found & UINT32_MAX)];
}

bool ebb__knots_lifetime(const struct merger *w, uint64_t serial, size_t *first, size_t *last)
{
    const struct ebb_window *own = &w->windows[w->own];
    size_t alloc, begin = 0, end = SIZE_MAX;
    if (ebb__stream_find(w->stream, serial, &alloc)) {
        begin = w->stream->allocs.items[alloc].event;
        end = w->stream->allocs.items[alloc].free_event;
    }
    if (begin >= own->last || end < own->first)
        return false;
    *first = 0;
    *last = w->knots.count;
    while (*first < w->knots.count && w->knots.items[*first].event <= begin)
        ++*first;
    while (*last > *first && w->knots.items[*last - 1].event >= end)
        --*last;
    return end >= own->last || (*last < w->knots.count && w->knots.items[*last].event == end);
}
