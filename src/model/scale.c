/* Method: the ratio is the one of pairs of large sizes, one of each list, by which most bytes of the
 * model's allocations find a size in the new list. It fails if the batch changes which blocks are
 * large enough to be managed, or in which order they are allocated. */
#include "scale.h"

#include <stdlib.h>
#include <string.h>

enum {
    LARGEST = 12,         /* sizes of each list that are tried for a ratio */
    MOST_CELLS = 1 << 24, /* 64 MiB; 3000 allocations an iteration */
    LACKING_DIVISOR = 30, /* of the model's allocations, such a part may find none */
    ROUNDED_DIVISOR = 64, /* a scaled size may differ by such a part */
};

struct scaling {
    const struct ebb_model *model;
    uint32_t *blocks; /* of the model's allocations, in order */
    size_t allocs;
    const uint64_t *sizes; /* of the new run */
    uint64_t *sorted;
    size_t count;
    double ratio;
};

static uint64_t size_of(const struct scaling *scaling, size_t alloc)
{
    return scaling->model->blocks[scaling->blocks[alloc]].size_bytes;
}

static bool is_scaled(uint64_t from, uint64_t to, double ratio)
{
    double wanted = (double)from * ratio, off = (double)to - wanted;
    return (off < 0 ? -off : off) <= wanted / ROUNDED_DIVISOR;
}

static bool agrees(const struct scaling *scaling, uint64_t from, uint64_t to)
{
    return from == to || is_scaled(from, to, scaling->ratio);
}

static int by_size(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? 1 : a > b ? -1 : 0; /* the largest first */
}

/* The first of the sorted sizes that is at most `size`. */
static size_t place_of(const struct scaling *scaling, uint64_t size)
{
    size_t low = 0, high = scaling->count;
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
    for (size_t i = 0; i < scaling->allocs; i++) {
        uint64_t size = size_of(scaling, i);
        size_t same = place_of(scaling, size);
        if (same < scaling->count && scaling->sorted[same] == size)
            continue;
        uint64_t most = (uint64_t)((double)size * ratio * (1 + 1.0 / ROUNDED_DIVISOR));
        size_t at = place_of(scaling, most);
        if (at < scaling->count && is_scaled(size, scaling->sorted[at], ratio))
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
    for (size_t i = 0; i < scaling->allocs; i++)
        scratch[i] = size_of(scaling, i);
    qsort(scratch, scaling->allocs, sizeof *scratch, by_size);
    size_t from_count = largest(scratch, scaling->allocs, from);
    size_t to_count = largest(scaling->sorted, scaling->count, to);
    for (size_t i = 0; i < from_count; i++)
        for (size_t j = 0; j < to_count; j++) {
            double ratio = (double)to[j] / (double)from[i];
            uint64_t bytes = from[i] == to[j] ? 0 : explained_bytes(scaling, ratio);
            if (bytes > best) {
                best = bytes;
                scaling->ratio = ratio;
            }
        }
    return best > 0;
}

/* Finds for each allocation of the model one of the new run: to[i], or 0. Returns how many have
 * one. */
static size_t align(const struct scaling *scaling, uint32_t *longest, uint64_t *to)
{
    size_t width = scaling->count + 1, found = 0;
    memset(longest, 0, (scaling->allocs + 1) * width * sizeof *longest);
    for (size_t i = scaling->allocs; i-- > 0;)
        for (size_t j = scaling->count; j-- > 0;) {
            uint32_t down = longest[(i + 1) * width + j], right = longest[i * width + j + 1];
            longest[i * width + j] = agrees(scaling, size_of(scaling, i), scaling->sizes[j])
                                         ? longest[(i + 1) * width + j + 1] + 1
                                     : down > right ? down
                                                    : right;
        }
    memset(to, 0, scaling->allocs * sizeof *to);
    for (size_t i = 0, j = 0; i < scaling->allocs && j < scaling->count;) {
        if (agrees(scaling, size_of(scaling, i), scaling->sizes[j])) {
            to[i++] = scaling->sizes[j++];
            found++;
        } else if (longest[(i + 1) * width + j] >= longest[i * width + j + 1]) {
            i++;
        } else {
            j++;
        }
    }
    return found;
}

static void *copy_of(const void *items, size_t bytes)
{
    void *copy = malloc(bytes + !bytes);
    if (copy && bytes)
        memcpy(copy, items, bytes);
    return copy;
}

static enum ebb_status make(const struct scaling *scaling, const uint64_t *to,
                            struct ebb_model *scaled)
{
    const struct ebb_model *model = scaling->model;
    struct ebb_model made = {
        .tick_count = model->tick_count,
        .block_count = model->block_count,
        .access_count = model->access_count,
        .has_accesses = model->has_accesses,
        .unordered = model->unordered,
        .slack_bytes = (uint64_t)((double)model->slack_bytes * scaling->ratio),
    };
    made.events = copy_of(model->events, model->tick_count * sizeof *model->events);
    made.time_ns = copy_of(model->time_ns, (model->tick_count + 1u) * sizeof *model->time_ns);
    made.blocks = copy_of(model->blocks, model->block_count * sizeof *model->blocks);
    made.accesses = copy_of(model->accesses, model->access_count * sizeof *model->accesses);
    if (!made.events || !made.time_ns || !made.blocks || !made.accesses) {
        ebb__model_fini(&made);
        return EBB_ERR_MEMORY;
    }
    for (uint32_t i = 0; i <= made.tick_count; i++)
        made.time_ns[i] = (uint64_t)((double)model->time_ns[i] * scaling->ratio);
    for (size_t i = 0; i < scaling->allocs; i++)
        if (to[i])
            made.blocks[scaling->blocks[i]].size_bytes = to[i];
    enum ebb_status status = ebb__model_derive(&made, NULL);
    if (status)
        ebb__model_fini(&made);
    else
        *scaled = made;
    return status;
}

static size_t list_allocs(struct scaling *scaling)
{
    const struct ebb_model *model = scaling->model;
    for (uint32_t tick = 0; tick < model->tick_count; tick++)
        if (model->events[tick].kind == EBB_EVENT_ALLOC &&
            !model->blocks[model->events[tick].block].part_count)
            scaling->blocks[scaling->allocs++] = model->events[tick].block;
    return scaling->allocs;
}

enum ebb_status ebb__model_scale(const struct ebb_model *model, const uint64_t *sizes, size_t count,
                                 struct ebb_model *scaled)
{
    struct scaling scaling = {.model = model, .sizes = sizes, .count = count};
    scaling.blocks = calloc(model->tick_count + 1u, sizeof *scaling.blocks);
    scaling.sorted = copy_of(sizes, count * sizeof *sizes);
    uint64_t *to = calloc(model->tick_count + 1u, sizeof *to);
    uint32_t *longest = NULL;
    enum ebb_status status =
        scaling.blocks && scaling.sorted && to ? EBB_INFEASIBLE : EBB_ERR_MEMORY;
    if (status != EBB_INFEASIBLE || !list_allocs(&scaling) || count < scaling.allocs ||
        count + 1 > MOST_CELLS / (scaling.allocs + 1))
        goto out;
    qsort(scaling.sorted, count, sizeof *scaling.sorted, by_size);
    if (!find_ratio(&scaling, to))
        goto out;
    longest = malloc((scaling.allocs + 1) * (count + 1) * sizeof *longest);
    if (!longest) {
        status = EBB_ERR_MEMORY;
        goto out;
    }
    size_t found = align(&scaling, longest, to);
    if ((scaling.allocs - found) * LACKING_DIVISOR <= scaling.allocs)
        status = make(&scaling, to, scaled);
out:
    free(longest);
    free(to);
    free(scaling.sorted);
    free(scaling.blocks);
    return status;
}
