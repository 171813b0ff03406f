/* Method: allocations are numbered through the trace, and the window has n of them. The k-th of the
 * window and those n, 2n ... earlier are instances of one template block, if their sizes agree. So
 * if an earlier instance is freed in the window, that is the template's FREE, w iterations after
 * its ALLOC. If no earlier instance is known, the iteration before may have had more allocations.
 * Those that it left and the window frees are the counterparts, in the order of each size. If there
 * are none (first iteration), the FREE is taken from later events, moved back by whole iterations.
 * A block that is allocated in the window and never freed as far as known counts as persistent,
 * without its ALLOC. But if neighbouring iterations allocate it too (a queue that fills, a leak),
 * the number of live instances is kept constant. */
#include "instances.h"

static enum ebb_status bad_event(struct builder *b, size_t event, const char *why)
{
    return ebb__fail(b->error, EBB_ERR_FORMAT, "trace", "event %zu: block %llu %s", event,
                     (unsigned long long)b->trace.events[event].block, why);
}

enum ebb_status ebb__instances_collect(struct builder *b)
{
    for (size_t i = 0; i < b->trace.count; i++) {
        const struct ebb_event *event = &b->trace.events[i];
        if (event->kind != EBB_EVENT_ALLOC && event->kind != EBB_EVENT_FREE &&
            event->kind != EBB_EVENT_ACCESS)
            continue;
        size_t index;
        bool known = ebb__serials_get(&b->serials, event->block, &index);
        if (!known) {
            struct instance made = {
                .serial = event->block,
                .size_bytes = event->size_bytes,
                .alloc_event = NO_INDEX,
                .free_event = NO_INDEX,
                .block = EBB_TICK_NONE,
            };
            index = b->instances.count;
            if (!ebb_vec_push(&b->instances, made) ||
                !ebb__serials_put(&b->serials, event->block, index))
                return EBB_ERR_MEMORY;
        }
        struct instance *instance = &b->instances.items[index];
        if (event->kind == EBB_EVENT_ALLOC) {
            if (known)
                return bad_event(b, i, "is allocated after it has been seen");
            instance->alloc_event = (uint32_t)i;
            if (!ebb_vec_push(&b->allocs, (uint32_t)index))
                return EBB_ERR_MEMORY;
        } else if (event->kind == EBB_EVENT_FREE) {
            if (instance->free_event != NO_INDEX)
                return bad_event(b, i, "is freed twice");
            instance->free_event = (uint32_t)i;
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

/* The instance `wraps` iterations before the template block of window rank `k`; NULL if none is
 * known or the sizes differ. */
static struct instance *earlier_instance(const struct builder *b, size_t k, size_t wraps)
{
    size_t n = b->periodics.count, rank = b->first_rank + k;
    if (wraps > rank / n)
        return NULL;
    struct instance *own = &b->instances.items[b->allocs.items[rank]];
    struct instance *before = &b->instances.items[b->allocs.items[rank - wraps * n]];
    return before->size_bytes == own->size_bytes ? before : NULL;
}

/* The number of ALLOCs of the trace before `event`. */
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

/* The window has no FREE of template block `p`, but its instance is freed later, at `event`.
 * Inserts a FREE at the position of that event in its own iteration, given by the ALLOC before
 * it. */
static void place_synthetic(struct builder *b, struct periodic *p, size_t event)
{
    size_t n = b->periodics.count, rank = allocs_before(b, event); /* > first_rank */
    size_t ahead = rank - 1 - b->first_rank;                       /* rank of the ALLOC before it */
    const struct instance *alloc = &b->instances.items[b->allocs.items[rank - 1]];
    const struct instance *twin = &b->instances.items[b->allocs.items[b->first_rank + ahead % n]];
    size_t offset = event - alloc->alloc_event - 1;
    size_t place = twin->alloc_event + offset;
    size_t next =
        ahead % n + 1 < n
            ? b->instances.items[b->allocs.items[b->first_rank + ahead % n + 1]].alloc_event
            : b->last;
    p->place = (uint32_t)(place < next ? place : next - 1);
    p->wraps = (uint32_t)(ahead / n);
    p->synthetic = true;
    p->free_event = (uint32_t)event;
    if (p->wraps == 0) /* just behind the window: it is inserted at the window's end */
        p->place = (uint32_t)b->last - 1;
}

/* True if a neighbouring iteration allocates the block, too. */
static bool is_repeated(const struct builder *b, size_t k)
{
    size_t n = b->periodics.count, later = b->first_rank + k + n;
    return earlier_instance(b, k, 1) ||
           (later < b->allocs.count &&
            b->instances.items[b->allocs.items[later]].size_bytes ==
                b->instances.items[b->periodics.items[k].instance].size_bytes);
}

/* For a block that each iteration allocates, but without a known FREE: a queue that fills, or a
 * leak. The number of live instances is assumed to stay constant: the oldest ends where the next
 * one begins. */
static void place_before_alloc(struct builder *b, size_t k)
{
    struct periodic *p = &b->periodics.items[k];
    uint32_t alloc_event = b->instances.items[p->instance].alloc_event;
    uint32_t live = 0;
    const struct instance *before;
    while ((before = earlier_instance(b, k, live + 1)) && before->free_event == NO_INDEX)
        live++;
    bool first = alloc_event == b->first;
    p->place = first ? (uint32_t)b->last - 1 : alloc_event - 1;
    p->wraps = first ? live : live + 1;
    p->synthetic = true;
    p->free_event = (uint32_t)b->trace.count; /* behind all other events */
}

/* Finds where the template block of window rank `k` is freed. */
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
    size_t most = 64; /* iterations to search, a limit if its own FREE is unknown */
    if (own->free_event != NO_INDEX)
        most = (allocs_before(b, own->free_event) - b->first_rank) / n + 1;
    for (size_t wraps = 1; wraps <= most; wraps++) {
        const struct instance *before = earlier_instance(b, k, wraps);
        if (!before)
            break;
        /* If a counterpart is freed at another place by mere variation, it is ignored. If it
         * outlives the window, an older one is needed. */
        if (in_window(b, before->free_event)) {
            p->free_event = before->free_event;
            p->wraps = (uint32_t)wraps;
            return;
        }
    }
    if (own->free_event != NO_INDEX)
        place_synthetic(b, p, own->free_event);
}

/* ---- counterparts at another distance -------------------------------------------------------- */

struct sized {
    uint64_t size_bytes;
    uint32_t alloc_event;
    uint32_t index; /* of an instance, or of a template block */
};

typedef EBB_VEC(struct sized) sized_list;

/* The newest of a size first: what is left over is the oldest. */
static int by_size(const void *a, const void *b)
{
    const struct sized *left = a, *right = b;
    if (left->size_bytes != right->size_bytes)
        return left->size_bytes < right->size_bytes ? -1 : 1;
    return left->alloc_event > right->alloc_event ? -1 : left->alloc_event < right->alloc_event;
}

/* Blocks that the iteration before the window allocated, which the window frees, and which are of
 * no template block. That iteration is no more than twice as long. */
static bool list_orphans(const struct builder *b, sized_list *orphans)
{
    size_t n = b->periodics.count, first = b->first_rank > 2 * n ? b->first_rank - 2 * n : 0;
    for (size_t rank = first; rank < b->first_rank; rank++) {
        uint32_t index = b->allocs.items[rank];
        const struct instance *instance = &b->instances.items[index];
        const struct periodic *p = &b->periodics.items[(rank + 2 * n - b->first_rank) % n];
        if (in_window(b, instance->free_event) && p->free_event != instance->free_event &&
            !ebb_vec_push(orphans,
                          ((struct sized){instance->size_bytes, instance->alloc_event, index})))
            return false;
    }
    return true;
}

/* Template blocks of which the window has no FREE. */
static bool list_endless(const struct builder *b, sized_list *endless)
{
    for (size_t k = 0; k < b->periodics.count; k++) {
        const struct periodic *p = &b->periodics.items[k];
        const struct instance *own = &b->instances.items[p->instance];
        bool is_endless = p->free_event == NO_INDEX || (p->synthetic && p->wraps == 1);
        if (is_endless && !ebb_vec_push(endless, ((struct sized){own->size_bytes, own->alloc_event,
                                                                 (uint32_t)k})))
            return false;
    }
    return true;
}

/* Gives template blocks the FREE of their counterparts, and so what the window does with these. */
static bool pair_orphans(struct builder *b)
{
    sized_list endless = {0}, orphans = {0};
    bool ok = list_endless(b, &endless) && (!endless.count || list_orphans(b, &orphans));
    if (ok && orphans.count) {
        qsort(endless.items, endless.count, sizeof *endless.items, by_size);
        qsort(orphans.items, orphans.count, sizeof *orphans.items, by_size);
    }
    for (size_t i = 0, j = 0; ok && i < endless.count && j < orphans.count;) {
        const struct sized *block = &endless.items[i], *orphan = &orphans.items[j];
        i += block->size_bytes <= orphan->size_bytes;
        j += block->size_bytes >= orphan->size_bytes;
        if (block->size_bytes != orphan->size_bytes)
            continue;
        struct periodic *p = &b->periodics.items[block->index];
        p->counterpart = orphan->index;
        p->free_event = b->instances.items[orphan->index].free_event;
        p->wraps = 1;
        p->synthetic = false;
    }
    ebb_vec_free(&endless);
    ebb_vec_free(&orphans);
    return ok;
}

/* True if an earlier instance ends at the expected time, for a template block that lives for more
 * than `wraps` iterations. Weights allocated just before the first iteration may have the right
 * sizes, too. */
static bool ends_in_time(const struct builder *b, const struct instance *instance, size_t wraps)
{
    size_t rank = b->allocs.count;
    if (instance->free_event != NO_INDEX)
        rank = allocs_before(b, instance->free_event);
    return rank <= allocs_before(b, instance->alloc_event) + (wraps + 2) * b->periodics.count;
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

/* The allocations of the window are the template's. */
static bool list_periodics(struct builder *b)
{
    size_t first_rank = 0;
    while (first_rank < b->allocs.count &&
           b->instances.items[b->allocs.items[first_rank]].alloc_event < b->first)
        first_rank++;
    b->first_rank = first_rank;
    for (size_t rank = first_rank; rank < b->allocs.count; rank++) {
        uint32_t instance = b->allocs.items[rank];
        if (b->instances.items[instance].alloc_event >= b->last)
            break;
        struct periodic made = {.instance = instance, .counterpart = NO_INDEX};
        if (!ebb_vec_push(&b->periodics, made))
            return false;
    }
    return true;
}

/* Assigns the earlier instances of template block `k` that are live in the window to it. */
static void tie_earlier(struct builder *b, size_t k)
{
    const struct periodic *p = &b->periodics.items[k];
    const struct instance *own = &b->instances.items[p->instance];
    if (p->counterpart != NO_INDEX) {
        b->instances.items[p->counterpart].block = own->block;
        b->instances.items[p->counterpart].wraps = 1;
        return;
    }
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

/* An instance without a template block is either live throughout, and persistent, or excluded. */
static bool keep_persistent(struct builder *b)
{
    for (size_t i = 0; i < b->instances.count; i++) {
        struct instance *instance = &b->instances.items[i];
        if (instance->block != EBB_TICK_NONE)
            continue;
        bool ended = instance->free_event != NO_INDEX && instance->free_event < b->first;
        bool begun = instance->alloc_event == NO_INDEX || instance->alloc_event < b->first;
        if (ended || !begun || in_window(b, instance->free_event))
            continue;
        if (!add_block(b, instance, &instance->block))
            return false;
    }
    return true;
}

enum ebb_status ebb__instances_match(struct builder *b)
{
    if (!list_periodics(b))
        return EBB_ERR_MEMORY;
    for (size_t k = 0; k < b->periodics.count; k++)
        find_free(b, k);
    if (!pair_orphans(b))
        return EBB_ERR_MEMORY;
    for (size_t k = 0; k < b->periodics.count; k++) {
        struct periodic *p = &b->periodics.items[k];
        struct instance *own = &b->instances.items[p->instance];
        if (p->free_event == NO_INDEX && is_repeated(b, k))
            place_before_alloc(b, k);
        if (!add_block(b, own, &own->block))
            return EBB_ERR_MEMORY;
        if (p->free_event == NO_INDEX)
            continue; /* never freed: persistent */
        tie_earlier(b, k);
    }
    return keep_persistent(b) ? EBB_OK : EBB_ERR_MEMORY;
}

void ebb__instances_fini(struct builder *b)
{
    ebb_vec_free(&b->instances);
    ebb__serials_fini(&b->serials);
    ebb_vec_free(&b->allocs);
    ebb_vec_free(&b->periodics);
}
