/* Problem: cut one iteration out of a trace and close it to a circle: a block that crosses the
 * iteration's end must appear once, with its ALLOC and its FREE both inside.
 * Method: allocations are numbered through the trace, and the window holds n of them; the k-th one
 * of the window and the one n, 2n ... before it are instances of one template block (where the
 * sizes agree). A FREE in the window of an earlier instance is thus the template's FREE, w
 * iterations after its ALLOC. Where no earlier instance is known (first iteration) the FREE comes
 * from later events, moved back by whole iterations. Accesses follow their instance.
 * What does not fit the repetition is left out: the FREE of a block that has no counterpart in the
 * window, and the accesses to it. A block allocated in the window and never freed as far as is
 * known counts as persistent, without its ALLOC; but where the iterations beside it allocate it,
 * too (a queue that fills, a leak), as many instances as are live stay live.
 * Source: cyclic timeline, see docs/papers.md (SmartPool's doubled region is what it replaces).
 * O(trace + accesses log accesses) time, O(trace) memory. */
#include "access_clock.h"
#include "parts.h"

#include "base/geometry.h"
#include "base/map.h"
#include "base/vec.h"

#include <string.h>

#define NO_INDEX SIZE_MAX

/* What the whole trace says about one block. */
struct instance {
    uint64_t serial;
    uint64_t size_bytes;
    size_t alloc_event; /* NO_INDEX: existed before the trace */
    size_t free_event;  /* NO_INDEX: not freed in the trace */
    size_t alloc_rank;  /* number of ALLOCs before its own; NO_INDEX as above */
    uint32_t block;     /* template block, EBB_TICK_NONE: none yet */
    uint32_t wraps;     /* iterations that the instance is older than the template block's own */
    bool is_outlier;    /* not part of the repetition */
};

/* A template block that is allocated in the window. */
struct periodic {
    size_t instance;   /* index of the instance allocated in the window */
    size_t free_event; /* of which instance ever; NO_INDEX: none known */
    uint32_t wraps;    /* iterations from the ALLOC's to the FREE's */
    bool synthetic;    /* the window itself lacks the FREE: it goes behind event `place` */
    size_t place;
};

/* An event that goes into the model. */
struct entry {
    size_t event; /* of the trace; the FREE of a synthetic entry: NO_INDEX */
    uint32_t block;
    uint32_t wraps;
    uint64_t time_ns; /* from the window's start */
};

struct builder {
    struct ebb_event_span trace;
    size_t first, last; /* the window */
    uint64_t duration_ns;
    EBB_VEC(struct instance) instances;
    struct ebb_map serials;             /* serial -> index into instances */
    EBB_VEC(size_t) allocs;             /* by rank: index into instances */
    size_t first_rank;                  /* of the window's first ALLOC */
    EBB_VEC(struct periodic) periodics; /* the window's ALLOCs in order; then dropped ones marked */
    EBB_VEC(struct ebb_model_block) blocks;
    EBB_VEC(struct entry) entries;
    uint32_t *units; /* for each tick which unit of a large block is used; NULL: no entry has one */
    struct ebb_error *error;
};

bool ebb__model_is_tick(const struct ebb_event *event)
{
    switch (event->kind) {
    case EBB_EVENT_ALLOC:
    case EBB_EVENT_FREE:
    case EBB_EVENT_LAUNCH:
        return true;
    case EBB_EVENT_ACCESS:
        return !(event->flags & EBB_EVENT_DEMAND);
    case EBB_EVENT_MARK:
        return event->mark == EBB_MARK_LAYER || event->mark == EBB_MARK_PHASE;
    default:
        return false;
    }
}

static enum ebb_status bad_event(struct builder *b, size_t event, const char *why)
{
    return ebb__fail(b->error, EBB_ERR_FORMAT, "trace", "event %zu: block %llu %s", event,
                     (unsigned long long)b->trace.events[event].block, why);
}

/* Number the blocks of the whole trace. */
static enum ebb_status collect_instances(struct builder *b)
{
    for (size_t i = 0; i < b->trace.count; i++) {
        const struct ebb_event *event = &b->trace.events[i];
        if (event->kind != EBB_EVENT_ALLOC && event->kind != EBB_EVENT_FREE &&
            event->kind != EBB_EVENT_ACCESS)
            continue;
        uint64_t index;
        bool known = ebb__map_get(&b->serials, event->block, &index);
        if (!known) {
            struct instance made = {
                .serial = event->block,
                .size_bytes = event->size_bytes,
                .alloc_event = NO_INDEX,
                .free_event = NO_INDEX,
                .alloc_rank = NO_INDEX,
                .block = EBB_TICK_NONE,
            };
            index = b->instances.count;
            if (!ebb_vec_push(&b->instances, made) ||
                !ebb__map_put(&b->serials, event->block, index))
                return EBB_ERR_MEMORY;
        }
        struct instance *instance = &b->instances.items[index];
        if (event->kind == EBB_EVENT_ALLOC) {
            if (known)
                return bad_event(b, i, "is allocated after it has been seen");
            instance->alloc_event = i;
            instance->alloc_rank = b->allocs.count;
            if (!ebb_vec_push(&b->allocs, (size_t)index))
                return EBB_ERR_MEMORY;
        } else if (event->kind == EBB_EVENT_FREE) {
            if (instance->free_event != NO_INDEX)
                return bad_event(b, i, "is freed twice");
            instance->free_event = i;
            if (instance->alloc_event == NO_INDEX && event->size_bytes > instance->size_bytes)
                instance->size_bytes = event->size_bytes;
        } else {
            if (instance->free_event != NO_INDEX)
                return bad_event(b, i, "is accessed after its end");
            if (instance->alloc_event == NO_INDEX && event->size_bytes > instance->size_bytes)
                instance->size_bytes = event->size_bytes;
        }
    }
    return EBB_OK;
}

static bool in_window(const struct builder *b, size_t event)
{
    return event != NO_INDEX && event >= b->first && event < b->last;
}

/* The instance `wraps` iterations before the template block of window rank `k`; NULL where none
 * is known or the sizes differ. */
static struct instance *earlier_instance(const struct builder *b, size_t k, size_t wraps)
{
    size_t n = b->periodics.count, rank = b->first_rank + k;
    if (wraps > rank / n)
        return NULL;
    struct instance *own = &b->instances.items[b->allocs.items[rank]];
    struct instance *before = &b->instances.items[b->allocs.items[rank - wraps * n]];
    return before->size_bytes == own->size_bytes ? before : NULL;
}

/* Number of ALLOCs of the trace before `event`. */
static size_t allocs_before(const struct builder *b, size_t event)
{
    size_t low = 0, high = b->allocs.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (b->instances.items[b->allocs.items[middle]].alloc_event < event)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The window holds no FREE of template block `p`, but its instance is freed later, at `event`:
 * put one where that event lies in its own iteration, by the ALLOC before it. */
static void place_synthetic(struct builder *b, struct periodic *p, size_t event)
{
    size_t n = b->periodics.count, rank = allocs_before(b, event); /* > first_rank */
    size_t ahead = rank - 1 - b->first_rank;                       /* the ALLOC before it */
    const struct instance *alloc = &b->instances.items[b->allocs.items[rank - 1]];
    const struct instance *twin = &b->instances.items[b->allocs.items[b->first_rank + ahead % n]];
    size_t offset = event - alloc->alloc_event - 1;
    size_t place = twin->alloc_event + offset;
    size_t next =
        ahead % n + 1 < n
            ? b->instances.items[b->allocs.items[b->first_rank + ahead % n + 1]].alloc_event
            : b->last;
    p->place = place < next ? place : next - 1;
    p->wraps = (uint32_t)(ahead / n);
    p->synthetic = true;
    p->free_event = event;
    if (p->wraps == 0) /* just behind the window: it belongs to its very end */
        p->place = b->last - 1;
}

/* Is the block allocated in a neighbouring iteration, too? */
static bool is_repeated(const struct builder *b, size_t k)
{
    size_t n = b->periodics.count, later = b->first_rank + k + n;
    return earlier_instance(b, k, 1) ||
           (later < b->allocs.count &&
            b->instances.items[b->allocs.items[later]].size_bytes ==
                b->instances.items[b->periodics.items[k].instance].size_bytes);
}

/* No FREE is known of a block that each iteration allocates: a queue that fills, or a leak. So many
 * instances as are live now are taken to be live in the iterations to come: the oldest one ends
 * where the next one begins. */
static void place_before_alloc(struct builder *b, size_t k)
{
    struct periodic *p = &b->periodics.items[k];
    size_t alloc_event = b->instances.items[p->instance].alloc_event;
    uint32_t live = 0;
    const struct instance *before;
    while ((before = earlier_instance(b, k, live + 1)) && before->free_event == NO_INDEX)
        live++;
    bool first = alloc_event == b->first;
    p->place = first ? b->last - 1 : alloc_event - 1;
    p->wraps = first ? live : live + 1;
    p->synthetic = true;
    p->free_event = b->trace.count; /* after all others */
}

/* Find where template block of window rank `k` is freed. */
static void find_free(struct builder *b, size_t k)
{
    struct periodic *p = &b->periodics.items[k];
    const struct instance *own = &b->instances.items[p->instance];
    size_t n = b->periodics.count;
    p->free_event = NO_INDEX;
    if (in_window(b, own->free_event)) {
        p->free_event = own->free_event;
        return;
    }
    size_t most = 64; /* iterations, a limit where the own FREE is unknown */
    if (own->free_event != NO_INDEX)
        most = (allocs_before(b, own->free_event) - b->first_rank) / n + 1;
    for (size_t wraps = 1; wraps <= most; wraps++) {
        const struct instance *before = earlier_instance(b, k, wraps);
        if (!before)
            break;
        /* A counterpart that is freed elsewhere tells nothing if it is just jitter; one that
         * outlives the window is older still. */
        if (in_window(b, before->free_event)) {
            p->free_event = before->free_event;
            p->wraps = (uint32_t)wraps;
            return;
        }
    }
    if (own->free_event != NO_INDEX)
        place_synthetic(b, p, own->free_event);
    else if (is_repeated(b, k))
        place_before_alloc(b, k);
}

/* Does an earlier instance end when it should, where the template block lives for `wraps` iterations
 * and a bit? Weights allocated just before the first iteration may have the right sizes, too. */
static bool ends_in_time(const struct builder *b, const struct instance *instance, size_t wraps)
{
    size_t rank = b->allocs.count;
    if (instance->free_event != NO_INDEX)
        rank = allocs_before(b, instance->free_event);
    return rank <= instance->alloc_rank + (wraps + 2) * b->periodics.count;
}

static bool add_block(struct builder *b, const struct instance *instance, uint32_t *index)
{
    struct ebb_model_block block = {
        .serial = instance->serial,
        .size_bytes = instance->size_bytes,
        .alloc_tick = EBB_TICK_NONE,
        .free_tick = EBB_TICK_NONE,
    };
    *index = (uint32_t)b->blocks.count;
    return ebb_vec_push(&b->blocks, block);
}

/* Tie every instance that is live in the window to a template block, or leave it out. */
static enum ebb_status match_instances(struct builder *b)
{
    size_t first_rank = 0;
    while (first_rank < b->allocs.count &&
           b->instances.items[b->allocs.items[first_rank]].alloc_event < b->first)
        first_rank++;
    b->first_rank = first_rank;
    for (size_t rank = first_rank; rank < b->allocs.count; rank++) {
        size_t instance = b->allocs.items[rank];
        if (b->instances.items[instance].alloc_event >= b->last)
            break;
        struct periodic made = {.instance = instance};
        if (!ebb_vec_push(&b->periodics, made))
            return EBB_ERR_MEMORY;
    }
    for (size_t k = 0; k < b->periodics.count; k++) {
        struct periodic *p = &b->periodics.items[k];
        struct instance *own = &b->instances.items[p->instance];
        find_free(b, k);
        if (!add_block(b, own, &own->block))
            return EBB_ERR_MEMORY;
        if (p->free_event == NO_INDEX)
            continue; /* never freed: persistent */
        for (uint32_t wraps = 1; wraps <= p->wraps; wraps++) {
            struct instance *before = earlier_instance(b, k, wraps);
            if (!before || before->block != EBB_TICK_NONE)
                break;
            bool ends = wraps == p->wraps && !p->synthetic;
            if (ends != in_window(b, before->free_event) || !ends_in_time(b, before, p->wraps) ||
                (before->free_event != NO_INDEX && before->free_event < b->first))
                continue;
            before->block = own->block;
            before->wraps = wraps;
        }
    }
    for (size_t i = 0; i < b->instances.count; i++) {
        struct instance *instance = &b->instances.items[i];
        if (instance->block != EBB_TICK_NONE)
            continue;
        bool ended = instance->free_event != NO_INDEX && instance->free_event < b->first;
        bool begun = instance->alloc_event == NO_INDEX || instance->alloc_event < b->first;
        if (ended || !begun || in_window(b, instance->free_event)) {
            instance->is_outlier = true;
            continue;
        }
        if (!add_block(b, instance, &instance->block))
            return EBB_ERR_MEMORY;
    }
    return EBB_OK;
}

/* The template block of an event of the window, by its instance; false: leave the event out. */
static bool resolve(const struct builder *b, const struct ebb_event *event, struct entry *entry)
{
    uint64_t index;
    if (!ebb__map_get(&b->serials, event->block, &index))
        return false;
    const struct instance *instance = &b->instances.items[index];
    if (instance->is_outlier || instance->block == EBB_TICK_NONE)
        return false;
    entry->block = instance->block;
    entry->wraps = instance->wraps;
    if (event->kind == EBB_EVENT_ACCESS || instance->alloc_rank == NO_INDEX)
        return true;
    /* ALLOC and FREE of a template block only, and the one FREE that was chosen. */
    if (instance->block >= b->periodics.count)
        return false;
    const struct periodic *p = &b->periodics.items[instance->block];
    if (p->free_event == NO_INDEX)
        return false;
    return event->kind == EBB_EVENT_ALLOC || &b->trace.events[p->free_event] == event;
}

static int by_place(const void *a, const void *b)
{
    const struct periodic *left = *(const struct periodic *const *)a;
    const struct periodic *right = *(const struct periodic *const *)b;
    if (left->place != right->place)
        return left->place < right->place ? -1 : 1;
    if (left->free_event != right->free_event)
        return left->free_event < right->free_event ? -1 : 1;
    return 0;
}

/* The window's duration: to the event behind it, else as long as the iteration before it, else
 * one mean interval longer than what is there. */
static uint64_t window_ns(const struct builder *b)
{
    const struct ebb_event *events = b->trace.events;
    uint64_t begin = events[b->first].time_ns, end = events[b->last - 1].time_ns;
    if (b->last < b->trace.count)
        return events[b->last].time_ns - begin;
    size_t period = b->last - b->first, n = b->periodics.count;
    uint64_t seen = end - begin;
    if (n && b->first_rank >= n) {
        const struct instance *own = &b->instances.items[b->allocs.items[b->first_rank]];
        const struct instance *before = &b->instances.items[b->allocs.items[b->first_rank - n]];
        uint64_t turn = events[own->alloc_event].time_ns - events[before->alloc_event].time_ns;
        if (before->size_bytes == own->size_bytes && turn >= seen)
            return turn;
    }
    return seen + (period > 1 ? seen / (period - 1) : 1);
}

/* List the model's events in order, synthetic ones merged in. */
static enum ebb_status collect_entries(struct builder *b)
{
    EBB_VEC(const struct periodic *) synthetic = {0};
    enum ebb_status status = EBB_ERR_MEMORY;
    for (size_t k = 0; k < b->periodics.count; k++)
        if (b->periodics.items[k].synthetic && !ebb_vec_push(&synthetic, &b->periodics.items[k]))
            goto done;
    if (synthetic.count)
        qsort(synthetic.items, synthetic.count, sizeof *synthetic.items, by_place);
    size_t next = 0;
    uint64_t begin = b->trace.events[b->first].time_ns;
    for (size_t i = b->first; i < b->last; i++) {
        const struct ebb_event *event = &b->trace.events[i];
        struct entry entry = {
            .event = i, .block = EBB_TICK_NONE, .time_ns = event->time_ns - begin};
        bool has_block = event->kind == EBB_EVENT_ALLOC || event->kind == EBB_EVENT_FREE ||
                         event->kind == EBB_EVENT_ACCESS;
        if (ebb__model_is_tick(event) && (!has_block || resolve(b, event, &entry)) &&
            !ebb_vec_push(&b->entries, entry))
            goto done;
        for (; next < synthetic.count && synthetic.items[next]->place == i; next++) {
            const struct periodic *p = synthetic.items[next];
            struct entry made = {.event = NO_INDEX,
                                 .block = b->instances.items[p->instance].block,
                                 .wraps = p->wraps,
                                 .time_ns = event->time_ns - begin};
            if (!ebb_vec_push(&b->entries, made))
                goto done;
        }
    }
    status = EBB_OK;
done:
    ebb_vec_free(&synthetic);
    return status;
}

/* An access with its place since its block's ALLOC, for sorting. */
struct placed {
    uint32_t block;
    uint32_t tick;
    uint64_t position;
    uint8_t access;
};

static int by_position(const void *a, const void *b)
{
    const struct placed *left = a, *right = b;
    if (left->block != right->block)
        return left->block < right->block ? -1 : 1;
    if (left->position != right->position)
        return left->position < right->position ? -1 : 1;
    return 0;
}

/* Write the lifetimes of the template blocks, from their entries. */
static enum ebb_status set_lifetimes(struct builder *b)
{
    uint32_t ticks = (uint32_t)b->entries.count;
    struct ebb_model_block *blocks = b->blocks.items;
    for (size_t i = 0; i < b->blocks.count; i++)
        blocks[i].span_ticks = ticks;
    for (uint32_t tick = 0; tick < ticks; tick++) {
        const struct entry *entry = &b->entries.items[tick];
        if (entry->block == EBB_TICK_NONE)
            continue;
        if (entry->event == NO_INDEX || b->trace.events[entry->event].kind == EBB_EVENT_FREE)
            blocks[entry->block].free_tick = tick;
        else if (b->trace.events[entry->event].kind == EBB_EVENT_ALLOC)
            blocks[entry->block].alloc_tick = tick;
    }
    for (size_t k = 0; k < b->periodics.count; k++) {
        const struct periodic *p = &b->periodics.items[k];
        struct ebb_model_block *block = &blocks[b->instances.items[p->instance].block];
        if (p->free_event == NO_INDEX)
            continue;
        uint64_t span = (uint64_t)p->wraps * ticks + block->free_tick - block->alloc_tick;
        if (span >= EBB_TICK_NONE)
            return ebb__fail(b->error, EBB_ERR_LIMIT, "iteration", "a block lives 2^32 ticks");
        block->span_ticks = (uint32_t)span;
    }
    return EBB_OK;
}

/* Note which unit of its block the access at `tick` is to, if it is to a unit of it. */
static bool note_unit(struct builder *b, size_t tick, const struct ebb_event *event)
{
    if (!(event->flags & EBB_EVENT_PART) || event->size_bytes == 0 ||
        event->size_bytes > b->blocks.items[b->entries.items[tick].block].size_bytes)
        return true;
    if (!b->units) {
        b->units = malloc(b->entries.count * sizeof *b->units);
        if (!b->units)
            return false;
        for (size_t i = 0; i < b->entries.count; i++)
            b->units[i] = EBB_TICK_NONE;
    }
    b->units[tick] = (uint32_t)((event->size_bytes - 1) / EBB_HUGE_BYTES);
    return true;
}

static enum ebb_status fill_model(struct builder *b, struct ebb_model *model)
{
    size_t ticks = b->entries.count;
    model->tick_count = (uint32_t)ticks;
    model->events = calloc(ticks, sizeof *model->events);
    model->time_ns = calloc(ticks + 1, sizeof *model->time_ns);
    struct placed *placed = malloc((ticks + 1) * sizeof *placed);
    if (!model->events || !model->time_ns || !placed) {
        free(placed);
        return EBB_ERR_MEMORY;
    }
    size_t placed_count = 0;
    for (size_t tick = 0; tick < ticks; tick++) {
        const struct entry *entry = &b->entries.items[tick];
        struct ebb_model_event *out = &model->events[tick];
        out->block = entry->block;
        model->time_ns[tick] = entry->time_ns;
        if (entry->event == NO_INDEX) {
            out->kind = EBB_EVENT_FREE;
        } else {
            const struct ebb_event *event = &b->trace.events[entry->event];
            out->kind = event->kind;
            out->access = event->access;
            out->mark = event->mark;
        }
        out->clock = out->kind == EBB_EVENT_ALLOC || out->kind == EBB_EVENT_FREE ||
                     (out->kind == EBB_EVENT_ACCESS &&
                      (b->trace.events[entry->event].flags & EBB_EVENT_ANNOUNCED));
        if (out->kind != EBB_EVENT_ACCESS)
            continue;
        model->has_accesses = true;
        if (!note_unit(b, tick, &b->trace.events[entry->event])) {
            free(placed);
            return EBB_ERR_MEMORY;
        }
        const struct ebb_model_block *block = &b->blocks.items[entry->block];
        uint64_t position = tick;
        if (block->alloc_tick != EBB_TICK_NONE) {
            position += (uint64_t)entry->wraps * ticks;
            if (position <= block->alloc_tick || position - block->alloc_tick >= block->span_ticks)
                continue; /* behind a FREE that jitters: its lifetime ends here */
            position -= block->alloc_tick;
        }
        placed[placed_count++] =
            (struct placed){entry->block, (uint32_t)tick, position, out->access};
    }
    model->time_ns[ticks] = b->duration_ns;
    if (placed_count)
        qsort(placed, placed_count, sizeof *placed, by_position);
    model->accesses = calloc(placed_count + 1, sizeof *model->accesses);
    if (!model->accesses) {
        free(placed);
        return EBB_ERR_MEMORY;
    }
    model->access_count = (uint32_t)placed_count;
    size_t next = 0;
    for (uint32_t i = 0; i < b->blocks.count; i++) {
        struct ebb_model_block *block = &b->blocks.items[i];
        block->first_access = (uint32_t)next;
        for (; next < placed_count && placed[next].block == i; next++)
            model->accesses[next] =
                (struct ebb_model_access){placed[next].tick, placed[next].access};
        block->access_count = (uint32_t)next - block->first_access;
    }
    free(placed);
    model->blocks = b->blocks.items;
    model->block_count = (uint32_t)b->blocks.count;
    memset(&b->blocks, 0, sizeof b->blocks);
    return EBB_OK;
}

/* Do accesses alone tell where in the iteration the program is? */
static bool is_without_clock(const struct builder *b, const struct ebb_model *model)
{
    const struct ebb_event *begin = &b->trace.events[b->first];
    if (begin->kind == EBB_EVENT_MARK && begin->mark == EBB_MARK_ITERATION)
        return begin->size_bytes == EBB_ITERATION_BY_ACCESSES;
    for (uint32_t tick = 0; tick < model->tick_count; tick++)
        if (model->events[tick].clock)
            return false;
    return true;
}

enum ebb_status ebb__model_build(struct ebb_event_span trace, size_t first, size_t period,
                                 struct ebb_model *model, struct ebb_error *error)
{
    if (period == 0 || first > trace.count || period > trace.count - first)
        return ebb__fail(error, EBB_ERR_ARGUMENT, "iteration",
                         "events %zu to %zu are not in a trace of %zu", first, first + period,
                         trace.count);
    if (trace.count >= EBB_TICK_NONE / 4)
        return ebb__fail(error, EBB_ERR_LIMIT, "trace", "more than 2^30 events");
    struct builder b = {.trace = trace, .first = first, .last = first + period, .error = error};
    struct ebb_model made = {0};
    enum ebb_status status = collect_instances(&b);
    if (!status)
        status = match_instances(&b);
    b.duration_ns = window_ns(&b);
    if (!status)
        status = collect_entries(&b);
    if (!status && b.entries.count == 0)
        status =
            ebb__fail(error, EBB_ERR_ARGUMENT, "iteration", "it holds no event of the program");
    if (!status)
        status = set_lifetimes(&b);
    if (!status)
        status = fill_model(&b, &made);
    if (!status && made.has_accesses && is_without_clock(&b, &made))
        status = ebb__access_clock_choose(&made, b.units);
    if (!status && b.units)
        status = ebb__model_divide(&made, b.units);
    if (!status)
        status = ebb__model_derive(&made, error);
    if (status == EBB_ERR_MEMORY)
        status = ebb__fail(error, EBB_ERR_MEMORY, "iteration", "no memory for its model");
    ebb_vec_free(&b.instances);
    ebb__map_fini(&b.serials);
    ebb_vec_free(&b.allocs);
    ebb_vec_free(&b.periodics);
    ebb_vec_free(&b.blocks);
    ebb_vec_free(&b.entries);
    free(b.units);
    if (status)
        ebb__model_fini(&made);
    else
        *model = made;
    return status;
}
