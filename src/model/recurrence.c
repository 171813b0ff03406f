/* Problem: find the period of a sequence of uses that repeats only nearly.
 *
 * Method: a unit that is used k times in an iteration recurs, every k-th time, after about as many
 * uses. Between these, each unit occurs about as often as before and at about the same places. The
 * places distinguish a second half (a way back over the units of the first) from a second
 * iteration. For the current unit and small k, the two stretches that end here are compared:
 * lengths first, then counts. The first pair that agrees determines the unit.
 * Fails for programs that use nothing rarely (k too large), or whose iterations differ by more than
 * a fifth. O(1) a use if lengths differ, else O(uses of an iteration); O(uses) memory, since
 * tracing began. */
#include "recurrence.h"

#include "base/geometry.h"
#include "base/tuning.h"

#include "base/map.h"
#include "base/vec.h"

#include <string.h>

enum {
    MOST_TOUCHES = 6,    /* uses of that unit in an iteration, a limit */
    PLACES = 16,         /* number of distinguished places in an iteration, a limit */
    LATE = 4,            /* iterations; the first ones require twice uses_an_allocation */
    FORGET_AT = 1 << 21, /* uses; then it starts anew */
};

struct ebb_recurrence {
    struct ebb_map units;     /* block and unit -> id */
    EBB_VEC(uint32_t) ids;    /* unit id of each use */
    EBB_VEC(size_t) before;   /* of each use: previous use of the same unit, + 1; 0: none */
    EBB_VEC(size_t) newest;   /* id -> its last use + 1 */
    EBB_VEC(size_t) oldest;   /* id -> its first use; SIZE_MAX: its block is freed */
    EBB_VEC(uint32_t) counts; /* id, place -> uses */
    EBB_VEC(size_t) allocs;   /* number of ALLOCs before each use */
    size_t alloc_count, next_test;
    bool found, anew;
    uint32_t id; /* of the unit that marks iterations */
    unsigned touches, touched;
    size_t length, begun; /* uses of an iteration; the use at which the last one began */
};

enum ebb_status ebb__recurrence_create(struct ebb_recurrence **recurrence)
{
    *recurrence = calloc(1, sizeof **recurrence);
    return *recurrence ? EBB_OK : EBB_ERR_MEMORY;
}

static void forget(struct ebb_recurrence *recurrence)
{
    ebb__map_fini(&recurrence->units);
    ebb_vec_free(&recurrence->ids);
    ebb_vec_free(&recurrence->before);
    ebb_vec_free(&recurrence->newest);
    ebb_vec_free(&recurrence->oldest);
    ebb_vec_free(&recurrence->counts);
    ebb_vec_free(&recurrence->allocs);
    memset(recurrence, 0, sizeof *recurrence);
}

void ebb__recurrence_destroy(struct ebb_recurrence *recurrence)
{
    if (recurrence)
        forget(recurrence);
    free(recurrence);
}

static uint64_t key_of(uint64_t block, uint64_t unit)
{
    return block << 24 ^ unit;
}

/* Units of a freed block no longer exist. */
static void note_free(struct ebb_recurrence *recurrence, uint64_t block)
{
    uint64_t id;
    for (uint64_t unit = 0; ebb__map_get(&recurrence->units, key_of(block, unit), &id); unit++)
        recurrence->oldest.items[id] = SIZE_MAX;
}

/* Appends the use; *id is that of its unit. *again is true if it was used just before, which adds
 * no information. */
static bool append(struct ebb_recurrence *recurrence, const struct ebb_event *event, uint32_t *id,
                   bool *again)
{
    uint64_t unit = event->flags & EBB_EVENT_PART && event->size_bytes
                        ? (event->size_bytes - 1) / EBB_HUGE_BYTES
                        : 0;
    uint64_t key = key_of(event->block, unit), known;
    if (!ebb__map_get(&recurrence->units, key, &known)) {
        known = recurrence->newest.count;
        if (!ebb__map_put(&recurrence->units, key, known) ||
            !ebb_vec_push(&recurrence->newest, 0) ||
            !ebb_vec_push(&recurrence->oldest, recurrence->ids.count) ||
            !ebb_vec_reserve(&recurrence->counts, (known + 1) * PLACES))
            return false;
        recurrence->counts.count = (known + 1) * PLACES;
    }
    *id = (uint32_t)known;
    size_t before = recurrence->newest.items[*id];
    *again = before && recurrence->ids.count - before < ebb__tuning()->recurrence_moment;
    if (*again)
        return true;
    recurrence->newest.items[*id] = recurrence->ids.count + 1;
    return ebb_vec_push(&recurrence->ids, *id) && ebb_vec_push(&recurrence->before, before) &&
           ebb_vec_push(&recurrence->allocs, recurrence->alloc_count);
}

static bool about_equal(size_t a, size_t b)
{
    size_t least = a < b ? a : b, most = a < b ? b : a;
    return (most - least) * 10 <= most;
}

/* Removes a use of a unit at or beside `place`. Returns false if there is none. */
static bool strike(uint32_t *counts, size_t place)
{
    size_t from = place ? place - 1 : 0, to = place + 1 < PLACES ? place + 1 : place;
    for (size_t at = from; at <= to; at++)
        if (counts[at]) {
            counts[at]--;
            return true;
        }
    return false;
}

/* True if uses [first, middle) and [middle, last) have the same units, each about as often and at
 * the same places. They must include most existing units. Blocks that exist during only one of the
 * two (a batch of images) are ignored, unless they are the larger part. */
static bool alike(struct ebb_recurrence *recurrence, size_t first, size_t middle, size_t last)
{
    size_t shared = 0, units = 0, live = 0, lasting[2] = {0}, *newest = recurrence->newest.items;
    const size_t *oldest = recurrence->oldest.items;
    uint32_t *counts = recurrence->counts.items;
    memset(counts, 0, recurrence->counts.count * sizeof *counts);
    for (size_t i = first; i < middle; i++) {
        uint32_t id = recurrence->ids.items[i];
        lasting[0] += oldest[id] <= first;
        counts[id * PLACES + (i - first) * PLACES / (middle - first)]++;
    }
    for (size_t id = 0; id < recurrence->newest.count; id++) {
        live += oldest[id] != SIZE_MAX;
        units += oldest[id] != SIZE_MAX && newest[id] > first;
    }
    for (size_t i = middle; i < last; i++) {
        uint32_t id = recurrence->ids.items[i];
        lasting[1] += oldest[id] <= first;
        shared += oldest[id] <= first &&
                  strike(&counts[id * PLACES], (i - middle) * PLACES / (last - middle));
    }
    size_t longer = lasting[0] > lasting[1] ? lasting[0] : lasting[1];
    return shared * 5 >= longer * 4 && longer * 2 >= last - middle && units * 2 >= live;
}

static void look(struct ebb_recurrence *recurrence, uint32_t id)
{
    size_t now = recurrence->ids.count - 1, at = now, back[2 * MOST_TOUCHES + 1];
    unsigned count = 0;
    for (; count <= 2 * MOST_TOUCHES; count++) {
        back[count] = at;
        if (recurrence->before.items[at] == 0)
            break;
        at = recurrence->before.items[at] - 1;
    }
    for (unsigned k = 1; k <= MOST_TOUCHES && 2 * k <= count; k++) {
        size_t middle = back[k], first = back[2 * k];
        size_t allocs = recurrence->allocs.items[now] - recurrence->allocs.items[middle];
        bool late = now > LATE * (now - middle);
        if (now - middle < ebb__tuning()->recurrence_fewest_uses ||
            !about_equal(now - middle, middle - first) ||
            allocs * ebb__tuning()->uses_an_allocation * (late ? 1 : 2) > now - middle)
            continue;
        recurrence->next_test = now + (now - middle) / 16;
        if (!alike(recurrence, first, middle, now))
            continue;
        recurrence->found = true;
        recurrence->id = id;
        recurrence->touches = k;
        recurrence->touched = 0;
        recurrence->length = now - middle;
        recurrence->begun = now;
        return;
    }
}

enum ebb_status ebb__recurrence_push(struct ebb_recurrence *recurrence,
                                     const struct ebb_event *event, bool *begins)
{
    *begins = false;
    recurrence->alloc_count += event->kind == EBB_EVENT_ALLOC;
    if (event->kind == EBB_EVENT_FREE)
        note_free(recurrence, event->block);
    bool turned = event->kind == EBB_EVENT_MARK &&
                  (event->mark == EBB_MARK_TRACE_ON || event->mark == EBB_MARK_TRACE_OFF ||
                   event->mark == EBB_MARK_LOST);
    if (turned || recurrence->ids.count >= FORGET_AT)
        forget(recurrence);
    if (event->kind != EBB_EVENT_ACCESS || (event->flags & EBB_EVENT_DEMAND))
        return EBB_OK;
    uint32_t id;
    bool again;
    if (!append(recurrence, event, &id, &again))
        return EBB_ERR_MEMORY;
    if (again)
        return EBB_OK;
    size_t now = recurrence->ids.count - 1;
    if (!recurrence->found) {
        if (now >= recurrence->next_test)
            look(recurrence, id);
        *begins = recurrence->anew = recurrence->found;
        return EBB_OK;
    }
    size_t length = now - recurrence->begun;
    if (id == recurrence->id && ++recurrence->touched == recurrence->touches) {
        recurrence->touched = 0;
        recurrence->begun = now;
        *begins = about_equal(length, recurrence->length);
        recurrence->anew = false;
        recurrence->found = *begins;
    } else if (length > 2 * recurrence->length) {
        recurrence->found = false;
    }
    return EBB_OK;
}

bool ebb__recurrence_is_anew(const struct ebb_recurrence *recurrence)
{
    return recurrence->anew;
}
