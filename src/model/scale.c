/* Method: pairs of large sizes, one of each list, give ratios. The one is taken by which most
 * bytes of the model's allocations find a size in the new list. It fails if the batch changes
 * which blocks are large enough to be managed, or in which order they are allocated. */
#include "scale.h"

#include "reblock.h"

#include <stdlib.h>
#include <string.h>

enum {
    LARGEST = 12,          /* sizes of each list that are tried for a ratio */
    MOST_CELLS = 1 << 24,  /* 64 MiB; 3000 allocations an iteration */
    LACKING_DIVISOR = 30,  /* of the model's allocations, such a part may find none */
    SCALED_DIVISOR = 10,   /* such a part is scaled at least: else it is the same batch */
    ROUNDED_DIVISOR = 512, /* a scaled size may differ by such a part: it is rounded, */
    ROUNDED_BYTES = 4096,  /* and by a page: a header or a guard does not grow with the batch */
    TWINS_DIVISOR = 4,     /* at most such a part of the model's allocations is added */
};

struct scaling {
    const struct ebb_model *model;
    uint32_t *blocks; /* of the model's allocations, in order */
    size_t allocs;
    uint64_t least;        /* the smallest size of these */
    const uint64_t *sizes; /* of the new run */
    uint64_t *sorted;
    size_t count;
    double ratio;
    size_t *at; /* of each of the model's allocations: the one of the new run, plus one; 0: none */
};

static uint64_t size_of(const struct scaling *scaling, size_t alloc)
{
    return scaling->model->blocks[scaling->blocks[alloc]].size_bytes;
}

static bool is_scaled(uint64_t from, uint64_t to, double ratio)
{
    double wanted = (double)from * ratio, off = (double)to - wanted;
    return (off < 0 ? -off : off) <= wanted / ROUNDED_DIVISOR + ROUNDED_BYTES;
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
        uint64_t most =
            (uint64_t)((double)size * ratio * (1 + 1.0 / ROUNDED_DIVISOR)) + ROUNDED_BYTES;
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

/* Finds for each allocation of the model one of the new run. Returns how many have one. */
static size_t align(const struct scaling *scaling, uint32_t *longest)
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
    memset(scaling->at, 0, scaling->allocs * sizeof *scaling->at);
    for (size_t i = 0, j = 0; i < scaling->allocs && j < scaling->count;) {
        if (agrees(scaling, size_of(scaling, i), scaling->sizes[j])) {
            scaling->at[i++] = ++j;
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

/* True if a block of this size was too small to be managed in the run that the model is of. */
static bool was_small(const struct scaling *scaling, uint64_t size)
{
    return scaling->ratio > 1 && (double)size < (double)scaling->least * scaling->ratio;
}

/* The index behind those small allocations that follow the last one that was found. None counts if
 * others come before the next iteration. */
static size_t end_of_last(const struct scaling *scaling, size_t last)
{
    for (size_t j = last; j < scaling->count; j++) {
        if (agrees(scaling, size_of(scaling, 0), scaling->sizes[j]))
            return j;
        if (!was_small(scaling, scaling->sizes[j]))
            break;
    }
    return last;
}

/* The allocations of the new run between those that were found, and behind the last one. Returns
 * their number, 0 if they are too many. */
static size_t list_twins(const struct scaling *scaling, struct ebb_model_twin *twins, size_t most)
{
    size_t listed = 0, last = 0; /* index in the new run, plus one */
    uint32_t of = EBB_TICK_NONE;
    for (size_t i = 0; i <= scaling->allocs; i++) {
        bool is_end = i == scaling->allocs;
        if (!is_end && !scaling->at[i])
            continue;
        size_t next = is_end ? end_of_last(scaling, last) : scaling->at[i] - 1;
        for (size_t j = last; of != EBB_TICK_NONE && j < next; j++) {
            if (!was_small(scaling, scaling->sizes[j]))
                continue;
            if (listed == most)
                return 0;
            twins[listed++] = (struct ebb_model_twin){of, scaling->sizes[j]};
        }
        if (!is_end) {
            of = scaling->blocks[i];
            last = scaling->at[i];
        }
    }
    return listed;
}

static enum ebb_status make(const struct scaling *scaling, struct ebb_model *scaled)
{
    const struct ebb_model *model = scaling->model;
    size_t most = scaling->allocs / TWINS_DIVISOR;
    struct ebb_model_twin *twins = calloc(most + 1, sizeof *twins);
    uint64_t *sizes = calloc(model->block_count + 1u, sizeof *sizes);
    struct ebb_model made = {0};
    enum ebb_status status = EBB_ERR_MEMORY;
    if (twins && sizes) {
        for (uint32_t i = 0; i < model->block_count; i++)
            sizes[i] = model->blocks[i].size_bytes;
        for (size_t i = 0; i < scaling->allocs; i++)
            sizes[scaling->blocks[i]] = scaling->at[i] ? scaling->sizes[scaling->at[i] - 1] : 0;
        status = ebb__model_reblock(model, sizes, twins, list_twins(scaling, twins, most), &made);
    }
    free(twins);
    free(sizes);
    if (status)
        return status;
    for (uint32_t i = 0; i <= made.tick_count; i++)
        made.time_ns[i] = (uint64_t)((double)made.time_ns[i] * scaling->ratio);
    made.slack_bytes = (uint64_t)((double)made.slack_bytes * scaling->ratio);
    status = ebb__model_derive(&made, NULL);
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
    scaling->least = UINT64_MAX;
    for (size_t i = 0; i < scaling->allocs; i++)
        if (size_of(scaling, i) < scaling->least)
            scaling->least = size_of(scaling, i);
    return scaling->allocs;
}

enum ebb_status ebb__model_scale(const struct ebb_model *model, const uint64_t *sizes, size_t count,
                                 struct ebb_model *scaled)
{
    struct scaling scaling = {.model = model, .sizes = sizes, .count = count};
    scaling.blocks = calloc(model->tick_count + 1u, sizeof *scaling.blocks);
    scaling.sorted = copy_of(sizes, count * sizeof *sizes);
    scaling.at = calloc(model->tick_count + 1u, sizeof *scaling.at);
    uint64_t *scratch = calloc(model->tick_count + 1u, sizeof *scratch);
    uint32_t *longest = NULL;
    enum ebb_status status =
        scaling.blocks && scaling.sorted && scaling.at && scratch ? EBB_INFEASIBLE : EBB_ERR_MEMORY;
    if (status != EBB_INFEASIBLE || !list_allocs(&scaling) || count < scaling.allocs ||
        count + 1 > MOST_CELLS / (scaling.allocs + 1))
        goto out;
    qsort(scaling.sorted, count, sizeof *scaling.sorted, by_size);
    if (!find_ratio(&scaling, scratch))
        goto out;
    longest = malloc((scaling.allocs + 1) * (count + 1) * sizeof *longest);
    if (!longest) {
        status = EBB_ERR_MEMORY;
        goto out;
    }
    size_t found = align(&scaling, longest), same = 0;
    for (size_t i = 0; i < scaling.allocs; i++)
        same += scaling.at[i] && sizes[scaling.at[i] - 1] == size_of(&scaling, i);
    if ((scaling.allocs - found) * LACKING_DIVISOR <= scaling.allocs &&
        (scaling.allocs - same) * SCALED_DIVISOR > scaling.allocs)
        status = make(&scaling, scaled);
out:
    free(longest);
    free(scratch);
    free(scaling.at);
    free(scaling.sorted);
    free(scaling.blocks);
    return status;
}
