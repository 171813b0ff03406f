/* Method: the iteration is cut into slices of equally many events. A block is described by the
 * slices of its ALLOC, its FREE and its accesses; blocks of one description become one. In a slice
 * ALLOCs come first, then accesses, then FREEs, which overestimates the load. What a slice then
 * lacks of the load that it had at most is a block of its own, so that no peak is lost. If there
 * are too many events still, slices become twice as long.
 * Fails to show what happens within a slice: short gaps, and the churn of small blocks. */
#include "coarse.h"

#include "base/map.h"
#include "base/vec.h"
#include "model/rolling.h"

#include <string.h>

#define EVENTS_A_SLICE 4 /* of a first try; arbitrary */

/* A block of the coarse model: its slices are those of the first block that it is made of. */
struct merged {
    uint32_t like; /* that block */
    uint64_t size_bytes;
};

/* A use of a merged block: all accesses of one slice. */
struct touch {
    uint32_t slice;
    uint8_t access;
    bool held, clock;
};

struct coarsener {
    const struct ebb_model *model;
    uint32_t slices;
    EBB_VEC(struct merged) merged;
    EBB_VEC(struct touch) touches; /* scratch: of one block, in order */
    struct ebb_map known;          /* description -> merged */
    uint64_t *missing;             /* of a slice: load that no merged block has */
    size_t events;
};

static uint32_t slice_of(const struct coarsener *c, uint32_t tick)
{
    return (uint32_t)((uint64_t)tick * c->slices / c->model->tick_count);
}

static bool is_periodic(const struct ebb_model_block *block)
{
    return block->alloc_tick != EBB_TICK_NONE;
}

static bool is_short(const struct coarsener *c, const struct ebb_model_block *block)
{
    return is_periodic(block) && block->span_ticks < c->model->tick_count &&
           block->free_tick > block->alloc_tick &&
           slice_of(c, block->alloc_tick) == slice_of(c, block->free_tick);
}

/* How often the iteration ends in the block's life. */
static uint32_t wraps_of(const struct coarsener *c, const struct ebb_model_block *block)
{
    return (uint32_t)(((uint64_t)block->alloc_tick + block->span_ticks) / c->model->tick_count);
}

/* Lists the touches of a block. Several accesses in one slice are one; if they differ in kind, its
 * kind is unknown, which counts as both. */
static bool list_touches(struct coarsener *c, const struct ebb_model_block *block)
{
    c->touches.count = 0;
    for (uint32_t i = 0; i < block->access_count; i++) {
        const struct ebb_model_access *access = &c->model->accesses[block->first_access + i];
        struct touch made = {slice_of(c, access->tick), access->access, access->held,
                             c->model->events[access->tick].clock};
        struct touch *last = c->touches.count ? &c->touches.items[c->touches.count - 1] : NULL;
        if (last && last->slice == made.slice) {
            last->access = last->access == made.access ? made.access : EBB_ACCESS_UNKNOWN;
            last->clock |= made.clock;
        } else if (!ebb_vec_push(&c->touches, made)) {
            return false;
        }
    }
    return true;
}

static uint64_t describe(const struct coarsener *c, const struct ebb_model_block *block)
{
    uint64_t hash = 0;
    if (is_periodic(block)) {
        hash = ebb__hash_mix(slice_of(c, block->alloc_tick) + 1);
        hash = ebb__hash_mix(hash ^ slice_of(c, block->free_tick));
        hash = ebb__hash_mix(hash ^ wraps_of(c, block));
    }
    for (size_t i = 0; i < c->touches.count; i++) {
        const struct touch *touch = &c->touches.items[i];
        uint64_t what = (uint64_t)touch->slice << 8 | (uint64_t)touch->access << 2 |
                        (uint64_t)touch->held << 1 | touch->clock;
        hash = ebb__hash_mix(hash ^ what);
    }
    return hash >> 1; /* avoids the map's reserved key */
}

/* Merges the blocks that are alike, and counts the events that remain. False: out of memory. */
static bool merge(struct coarsener *c)
{
    const struct ebb_model *model = c->model;
    c->merged.count = c->events = 0;
    ebb__map_fini(&c->known);
    for (uint32_t i = 0; i < model->block_count; i++) {
        const struct ebb_model_block *block = &model->blocks[i];
        if (is_short(c, block))
            continue;
        if (!list_touches(c, block))
            return false;
        uint64_t description = describe(c, block), at;
        if (ebb__map_get(&c->known, description, &at)) {
            c->merged.items[at].size_bytes += block->size_bytes;
            continue;
        }
        if (!ebb__map_put(&c->known, description, c->merged.count) ||
            !ebb_vec_push(&c->merged, ((struct merged){i, block->size_bytes})))
            return false;
        c->events += c->touches.count + (is_periodic(block) ? 2 : 0);
    }
    return true;
}

/* The load of each slice that merged blocks do not have. */
static bool find_missing(struct coarsener *c)
{
    const struct ebb_model *model = c->model;
    free(c->missing);
    c->missing = calloc(c->slices, sizeof *c->missing);
    uint64_t *load = calloc((size_t)c->slices + 1, sizeof *load);
    if (!load || !c->missing) {
        free(load);
        return false;
    }
    for (size_t i = 0; i < c->merged.count; i++) {
        const struct ebb_model_block *like = &model->blocks[c->merged.items[i].like];
        uint64_t bytes = c->merged.items[i].size_bytes;
        load[0] += bytes * (is_periodic(like) ? wraps_of(c, like) : 1);
        if (is_periodic(like)) {
            load[slice_of(c, like->alloc_tick)] += bytes;
            load[slice_of(c, like->free_tick) + 1] -= bytes;
        }
    }
    for (uint32_t tick = 0; tick < model->tick_count; tick++) {
        uint64_t *most = &c->missing[slice_of(c, tick)];
        *most = model->load_bytes[tick] > *most ? model->load_bytes[tick] : *most;
    }
    uint64_t live = 0;
    for (uint32_t i = 0; i < c->slices; i++) {
        live += load[i];
        c->missing[i] = c->missing[i] > live ? c->missing[i] - live : 0;
        c->events += c->missing[i] ? 3 : 0;
    }
    free(load);
    return true;
}

enum order { FIRST_ALLOC, THEN_ACCESS, LAST_FREE, ORDER_COUNT };

/* Where the events of the coarse model go: next[slice * ORDER_COUNT + order] is the next tick. */
struct layout {
    uint32_t *next;
    struct ebb_model *made;
    bool is_counting; /* first all are counted, then they are put */
};

static uint32_t put(struct layout *layout, uint32_t slice, enum order order,
                    struct ebb_model_event event)
{
    uint32_t tick = layout->next[slice * ORDER_COUNT + order]++;
    if (!layout->is_counting)
        layout->made->events[tick] = event;
    return tick;
}

static void put_access(struct layout *layout, uint32_t block, const struct touch *touch)
{
    struct ebb_model *made = layout->made;
    uint32_t tick = put(layout, touch->slice, THEN_ACCESS,
                        (struct ebb_model_event){.block = block,
                                                 .kind = EBB_EVENT_ACCESS,
                                                 .access = touch->access,
                                                 .clock = touch->clock});
    if (!layout->is_counting)
        made->accesses[made->access_count] =
            (struct ebb_model_access){tick, touch->access, touch->held};
    made->access_count++;
}

/* Puts a block that lives from slice `first` to slice `last`. */
static void put_life(struct layout *layout, uint32_t index, uint32_t first, uint32_t last,
                     uint32_t wraps)
{
    struct ebb_model_event begin = {.block = index, .kind = EBB_EVENT_ALLOC, .clock = true};
    struct ebb_model_event end = {.block = index, .kind = EBB_EVENT_FREE, .clock = true};
    uint32_t alloc = put(layout, first, FIRST_ALLOC, begin);
    uint32_t freed = put(layout, last, LAST_FREE, end);
    if (layout->is_counting)
        return;
    struct ebb_model_block *block = &layout->made->blocks[index];
    block->alloc_tick = alloc;
    block->free_tick = freed;
    block->span_ticks = wraps * layout->made->tick_count + freed - alloc;
}

static bool put_blocks(struct coarsener *c, struct layout *layout)
{
    struct ebb_model *made = layout->made;
    made->access_count = 0;
    uint32_t index = 0;
    for (; index < c->merged.count; index++) {
        const struct merged *merged = &c->merged.items[index];
        const struct ebb_model_block *like = &c->model->blocks[merged->like];
        struct ebb_model_block *block = &made->blocks[index];
        *block = (struct ebb_model_block){.serial = index + 1,
                                          .size_bytes = merged->size_bytes,
                                          .alloc_tick = EBB_TICK_NONE,
                                          .free_tick = EBB_TICK_NONE,
                                          .span_ticks = made->tick_count,
                                          .first_access = made->access_count};
        if (is_periodic(like))
            put_life(layout, index, slice_of(c, like->alloc_tick), slice_of(c, like->free_tick),
                     wraps_of(c, like));
        if (!list_touches(c, like))
            return false;
        for (size_t i = 0; i < c->touches.count; i++)
            put_access(layout, index, &c->touches.items[i]);
        block->access_count = (uint32_t)c->touches.count;
    }
    for (uint32_t slice = 0; slice < c->slices; slice++) {
        struct touch touch = {slice, EBB_ACCESS_WRITE, false, false};
        if (!c->missing[slice])
            continue;
        made->blocks[index] = (struct ebb_model_block){.serial = index + 1,
                                                       .size_bytes = c->missing[slice],
                                                       .first_access = made->access_count,
                                                       .access_count = 1};
        put_life(layout, index, slice, slice, 0);
        put_access(layout, index++, &touch);
    }
    made->block_count = index;
    return true;
}

/* The events of a slice are spread evenly over its time. `next` has the end of each order. */
static void set_times(const struct coarsener *c, struct ebb_model *made, const uint32_t *next)
{
    const struct ebb_model *model = c->model;
    for (uint32_t slice = 0, tick = 0, first = 0; slice < c->slices; slice++, first = tick) {
        uint64_t from = (uint64_t)slice * model->tick_count, to = from + model->tick_count;
        uint64_t begin = model->time_ns[(from + c->slices - 1) / c->slices];
        uint64_t end = model->time_ns[(to + c->slices - 1) / c->slices];
        uint32_t last = next[slice * ORDER_COUNT + LAST_FREE];
        for (; tick < last; tick++)
            made->time_ns[tick] = begin + (end - begin) * (tick - first) / (last - first);
    }
    made->time_ns[made->tick_count] = ebb__model_iteration_ns(model);
}

static bool fill(struct coarsener *c, struct ebb_model *made)
{
    size_t keys = (size_t)c->slices * ORDER_COUNT, blocks = c->merged.count + c->slices;
    struct layout layout = {calloc(keys, sizeof *layout.next), made, true};
    made->tick_count = (uint32_t)c->events;
    made->events = calloc(c->events + 1, sizeof *made->events);
    made->time_ns = calloc(c->events + 1, sizeof *made->time_ns);
    made->accesses = calloc(c->events + 1, sizeof *made->accesses);
    made->blocks = calloc(blocks, sizeof *made->blocks);
    bool ok = layout.next && made->events && made->time_ns && made->accesses && made->blocks &&
              put_blocks(c, &layout);
    if (ok) {
        uint32_t sum = 0;
        for (size_t i = 0; i < keys; i++) {
            uint32_t count = layout.next[i];
            layout.next[i] = sum;
            sum += count;
        }
        layout.is_counting = false;
        ok = put_blocks(c, &layout);
        set_times(c, made, layout.next);
    }
    free(layout.next);
    made->has_accesses = c->model->has_accesses;
    made->varies = c->model->varies;
    made->unordered = c->model->unordered;
    made->slack_bytes = c->model->slack_bytes;
    return ok;
}

enum ebb_status ebb__model_coarsen(const struct ebb_model *model, uint32_t most_ticks,
                                   struct ebb_model *coarse, struct ebb_error *error)
{
    struct coarsener c = {.model = model, .slices = most_ticks / EVENTS_A_SLICE};
    struct ebb_model made = {0};
    if (c.slices > model->tick_count)
        c.slices = model->tick_count;
    bool ok = merge(&c) && find_missing(&c);
    while (ok && c.events > most_ticks && c.slices > 1) {
        c.slices /= 2;
        ok = merge(&c) && find_missing(&c);
    }
    ok = ok && fill(&c, &made);
    enum ebb_status status =
        ok ? ebb__model_derive(&made, error)
           : ebb__fail(error, EBB_ERR_MEMORY, "iteration", "no memory for its forecast");
    ebb_vec_free(&c.merged);
    ebb_vec_free(&c.touches);
    ebb__map_fini(&c.known);
    free(c.missing);
    if (status)
        ebb__model_fini(&made);
    else
        *coarse = made;
    return status;
}
