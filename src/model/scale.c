/* Method: pairs of large sizes, one of each list, give ratios. The one is taken by which most
 * bytes of the model's allocations find a size in the new list. With it the allocations are paired
 * (pairing.h). It fails if the batch changes in which order blocks are allocated. */
#include "scale.h"

#include "pairing.h"
#include "reblock.h"

#include <stdlib.h>
#include <string.h>

enum {
    LARGEST = 12,         /* sizes of each list that are tried for a ratio */
    LACKING_DIVISOR = 30, /* of the model's allocations, such a part may find none */
    SCALED_DIVISOR = 10,  /* such a part is scaled at least: else it is the same batch */
    SERIALS_OFF = 32,     /* the start of a program may differ by so many blocks */
    TWINS_DIVISOR = 4,    /* at most such a part of the model's allocations is added */
};

struct scaling {
    const struct ebb_model *model;
    uint32_t *blocks; /* of the model's allocations, in order */
    uint64_t *sizes;  /* of these */
    size_t *lived;
    size_t *at;
    uint64_t least;   /* the smallest of the sizes */
    uint64_t *sorted; /* the sizes of the new run */
    struct ebb_pairing pairing;
};

static int by_size(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? 1 : a > b ? -1 : 0; /* the largest first */
}

/* The first of the sorted sizes that is at most `size`. */
static size_t place_of(const struct scaling *scaling, uint64_t size)
{
    size_t low = 0, high = scaling->pairing.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (scaling->sorted[middle] > size)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Bytes of the model's allocations whose scaled size occurs in the new run, and their own does
 * not. */
static uint64_t explained_bytes(const struct scaling *scaling, double ratio)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < scaling->pairing.allocs; i++) {
        uint64_t size = scaling->sizes[i];
        size_t same = place_of(scaling, size);
        if (same < scaling->pairing.count && scaling->sorted[same] == size)
            continue;
        size_t at = place_of(scaling, ebb__pairing_most_bytes(size, ratio));
        if (at < scaling->pairing.count && ebb__pairing_is_scaled(size, scaling->sorted[at], ratio))
            bytes += size;
    }
    return bytes;
}

/* The largest different sizes of a sorted list. */
static size_t largest(const uint64_t *sorted, size_t count, uint64_t found[LARGEST])
{
    size_t taken = 0;
    for (size_t i = 0; i < count && taken < LARGEST; i++)
        if (taken == 0 || sorted[i] != found[taken - 1])
            found[taken++] = sorted[i];
    return taken;
}

/* False: nothing differs by one ratio. */
static bool find_ratio(struct scaling *scaling, uint64_t *scratch)
{
    uint64_t from[LARGEST], to[LARGEST], best = 0;
    for (size_t i = 0; i < scaling->pairing.allocs; i++)
        scratch[i] = scaling->sizes[i];
    qsort(scratch, scaling->pairing.allocs, sizeof *scratch, by_size);
    size_t from_count = largest(scratch, scaling->pairing.allocs, from);
    size_t to_count = largest(scaling->sorted, scaling->pairing.count, to);
    for (size_t i = 0; i < from_count; i++)
        for (size_t j = 0; j < to_count; j++) {
            double ratio = (double)to[j] / (double)from[i];
            uint64_t bytes = from[i] == to[j] ? 0 : explained_bytes(scaling, ratio);
            if (bytes > best) {
                best = bytes;
                scaling->pairing.ratio = ratio;
            }
        }
    return best > 0;
}

/* True if a block of this size was too small to be managed in the run that the model is of. */
static bool was_small(const struct scaling *scaling, uint64_t size)
{
    return scaling->pairing.ratio > 1 &&
           (double)size < (double)scaling->least * scaling->pairing.ratio;
}

/* Does the iteration make this allocation, which the model lacks? Then it was freed, or it is one
 * of the blocks that were small and lives no longer than its twin. Others are states, made in the
 * first step. */
static bool is_twin(const struct scaling *scaling, size_t newest, size_t of)
{
    const struct ebb_watch_block *block = &scaling->pairing.newest[newest];
    return block->freed || (was_small(scaling, block->size_bytes) &&
                            ebb__pairing_is_young(&scaling->pairing, of, newest));
}

struct twins {
    struct ebb_model_twin *items;
    size_t count, most;
};

/* Adds the allocations [first, end) of the new run, as twins of the model's allocation `of`.
 * Returns false if they are too many. */
static bool add_twins(const struct scaling *scaling, size_t first, size_t end, size_t of,
                      struct twins *twins)
{
    for (size_t j = first; j < end; j++) {
        if (!is_twin(scaling, j, of))
            continue;
        if (twins->count == twins->most)
            return false;
        twins->items[twins->count++] =
            (struct ebb_model_twin){scaling->blocks[of], scaling->pairing.newest[j].size_bytes};
    }
    return true;
}

/* The index behind those allocations behind the last pair, of `of`, that belong to the iteration.
 * None does if others come before the next iteration. */
static size_t end_of_last(const struct scaling *scaling, size_t last, size_t of)
{
    for (size_t j = last; j < scaling->pairing.count; j++) {
        if (ebb__pairing_agrees(&scaling->pairing, scaling->sizes[scaling->pairing.first],
                                scaling->pairing.newest[j].size_bytes))
            return j;
        if (!is_twin(scaling, j, of))
            break;
    }
    return last;
}

/* Lists the allocations of the new run between those that were found, and behind the last one.
 * Returns false if they are too many. */
static bool list_twins(const struct scaling *scaling, struct twins *twins)
{
    const struct ebb_pairing *pairing = &scaling->pairing;
    size_t first = scaling->at[pairing->first] - 1;
    size_t last = 0, of = 0; /* `last` is an index plus one */
    for (size_t i = 0; i < pairing->allocs; i++) {
        size_t alloc = (pairing->first + i) % pairing->allocs;
        if (!scaling->at[alloc])
            continue;
        if (last && !add_twins(scaling, last, scaling->at[alloc] - 1, of, twins))
            return false;
        of = alloc;
        last = scaling->at[alloc];
    }
    return pairing->behind < first
               ? add_twins(scaling, pairing->behind, first, of, twins)
               : add_twins(scaling, last, end_of_last(scaling, last, of), of, twins);
}

static uint64_t distance(uint64_t one, uint64_t other)
{
    return one > other ? one - other : other - one;
}

/* The size in the new run of a block that is there in each iteration. It may be one of the data,
 * which depends on the batch. Then no live block with about its serial has its size, and the one
 * with the nearest serial whose size is scaled is it. */
static uint64_t persistent_size(const struct scaling *scaling, const struct ebb_scale_run *run,
                                const struct ebb_model_block *block)
{
    uint64_t size = block->size_bytes, nearest = SERIALS_OFF + 1;
    for (size_t i = 0; i < run->live_count && !block->part_count; i++) {
        uint64_t off = distance(run->live[i].serial, block->serial);
        uint64_t found = run->live[i].size_bytes;
        if (off > SERIALS_OFF)
            continue;
        if (found == block->size_bytes)
            return found;
        if (off < nearest &&
            ebb__pairing_is_scaled(block->size_bytes, found, scaling->pairing.ratio)) {
            nearest = off;
            size = found;
        }
    }
    return size;
}

static enum ebb_status make(const struct scaling *scaling, const struct ebb_scale_run *run,
                            struct ebb_model *scaled)
{
    const struct ebb_model *model = scaling->model;
    struct twins twins = {.most = scaling->pairing.allocs / TWINS_DIVISOR};
    twins.items = calloc(twins.most + 1, sizeof *twins.items);
    uint64_t *sizes = calloc(model->block_count + 1u, sizeof *sizes);
    struct ebb_model made = {0};
    enum ebb_status status = EBB_ERR_MEMORY;
    if (twins.items && sizes) {
        for (uint32_t i = 0; i < model->block_count; i++)
            sizes[i] = model->blocks[i].alloc_tick == EBB_TICK_NONE
                           ? persistent_size(scaling, run, &model->blocks[i])
                           : model->blocks[i].size_bytes;
        for (size_t i = 0; i < scaling->pairing.allocs; i++)
            sizes[scaling->blocks[i]] =
                scaling->at[i] ? scaling->pairing.newest[scaling->at[i] - 1].size_bytes : 0;
        status = list_twins(scaling, &twins)
                     ? ebb__model_reblock(model, sizes, twins.items, twins.count, &made)
                     : EBB_INFEASIBLE;
    }
    free(twins.items);
    free(sizes);
    if (status)
        return status;
    for (uint32_t i = 0; i <= made.tick_count; i++)
        made.time_ns[i] = (uint64_t)((double)made.time_ns[i] * scaling->pairing.ratio);
    made.slack_bytes = (uint64_t)((double)made.slack_bytes * scaling->pairing.ratio);
    status = ebb__model_derive(&made, NULL);
    if (status)
        ebb__model_fini(&made);
    else
        *scaled = made;
    return status;
}

/* Counts the allocations in the life of each block. `before`: room for one number for each tick. */
static void count_lives(const struct scaling *scaling, uint64_t *before)
{
    const struct ebb_model *model = scaling->model;
    uint64_t count = 0;
    for (uint32_t tick = 0, next = 0; tick < model->tick_count; tick++) {
        before[tick] = count;
        if (next < scaling->pairing.allocs &&
            model->blocks[scaling->blocks[next]].alloc_tick == tick) {
            count++;
            next++;
        }
    }
    for (size_t i = 0; i < scaling->pairing.allocs; i++) {
        const struct ebb_model_block *block = &model->blocks[scaling->blocks[i]];
        uint64_t turns = block->span_ticks / model->tick_count;
        uint64_t free_at = before[block->free_tick] + scaling->pairing.allocs;
        scaling->lived[i] =
            (size_t)(turns * scaling->pairing.allocs +
                     (free_at - before[block->alloc_tick]) % scaling->pairing.allocs);
    }
}

static size_t list_allocs(struct scaling *scaling, uint64_t *scratch)
{
    const struct ebb_model *model = scaling->model;
    size_t allocs = 0;
    scaling->least = UINT64_MAX;
    for (uint32_t tick = 0; tick < model->tick_count; tick++) {
        uint32_t block = model->events[tick].block;
        if (model->events[tick].kind != EBB_EVENT_ALLOC || model->blocks[block].part_count)
            continue;
        uint64_t size = model->blocks[block].size_bytes;
        scaling->blocks[allocs] = block;
        scaling->sizes[allocs++] = size;
        scaling->least = size < scaling->least ? size : scaling->least;
    }
    scaling->pairing.allocs = allocs;
    count_lives(scaling, scratch);
    return allocs;
}

/* True if the window agrees with the model, and the batch is another one. */
static bool is_convincing(const struct scaling *scaling)
{
    size_t found = scaling->pairing.found, same = 0;
    for (size_t i = 0; i < scaling->pairing.allocs; i++)
        same += scaling->at[i] &&
                scaling->pairing.newest[scaling->at[i] - 1].size_bytes == scaling->sizes[i];
    return (scaling->pairing.allocs - found) * LACKING_DIVISOR <= scaling->pairing.allocs &&
           (scaling->pairing.allocs - same) * SCALED_DIVISOR > scaling->pairing.allocs;
}

static bool reserve(struct scaling *scaling, size_t count)
{
    size_t ticks = scaling->model->tick_count + (size_t)1;
    scaling->blocks = calloc(ticks, sizeof *scaling->blocks);
    scaling->sizes = calloc(ticks, sizeof *scaling->sizes);
    scaling->lived = calloc(ticks, sizeof *scaling->lived);
    scaling->at = calloc(ticks, sizeof *scaling->at);
    scaling->sorted = calloc(count + 1, sizeof *scaling->sorted);
    scaling->pairing.sizes = scaling->sizes;
    scaling->pairing.lived = scaling->lived;
    scaling->pairing.at = scaling->at;
    return scaling->blocks && scaling->sizes && scaling->lived && scaling->at && scaling->sorted;
}

enum ebb_status ebb__model_scale(const struct ebb_model *model, const struct ebb_scale_run *run,
                                 struct ebb_model *scaled)
{
    struct scaling scaling = {.model = model,
                              .pairing = {.newest = run->newest, .count = run->count}};
    uint64_t *scratch = calloc(model->tick_count + 1u, sizeof *scratch);
    enum ebb_status status =
        reserve(&scaling, run->count) && scratch ? EBB_INFEASIBLE : EBB_ERR_MEMORY;
    if (status == EBB_INFEASIBLE && list_allocs(&scaling, scratch) &&
        run->count >= scaling.pairing.allocs) {
        for (size_t i = 0; i < run->count; i++)
            scaling.sorted[i] = run->newest[i].size_bytes;
        qsort(scaling.sorted, run->count, sizeof *scaling.sorted, by_size);
        if (find_ratio(&scaling, scratch))
            status = ebb__pairing_find(&scaling.pairing);
        if (status == EBB_OK)
            status = is_convincing(&scaling) ? make(&scaling, run, scaled) : EBB_INFEASIBLE;
    }
    free(scratch);
    free(scaling.at);
    free(scaling.lived);
    free(scaling.sizes);
    free(scaling.sorted);
    free(scaling.blocks);
    return status;
}
