#include "plan/pool/fit.h"

#include <stdlib.h>

struct ranked {
    double first, second;
    uint64_t begin;
    uint32_t buffer;
};

static int ranked_compare(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    if (a->first != b->first)
        return a->first > b->first ? -1 : 1;
    if (a->second != b->second)
        return a->second > b->second ? -1 : 1;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return (a->buffer > b->buffer) - (a->buffer < b->buffer);
}

static double key_of(const struct ebb_pool_problem *problem,
                     const struct ebb_pool_sections *sections, uint32_t buffer,
                     enum ebb_pool_key key)
{
    const struct ebb_pool_buffer *item = &problem->buffers[buffer];
    uint64_t load;
    switch (key) {
    case EBB_POOL_BY_SIZE:
        return (double)item->size_bytes;
    case EBB_POOL_BY_WIDTH:
        return (double)(item->upper - item->lower);
    case EBB_POOL_BY_AREA:
        return (double)item->size_bytes * (double)(item->upper - item->lower);
    case EBB_POOL_BY_LOAD:
    case EBB_POOL_BY_PEAK:
        load = ebb__pool_sections_peak(sections, buffer);
        if (key == EBB_POOL_BY_LOAD)
            return (double)load;
        return load == sections->load_bound_bytes ? (double)item->size_bytes : 0;
    default:
        return -(double)item->lower;
    }
}

enum ebb_status ebb__pool_order(const struct ebb_pool_problem *problem,
                                const struct ebb_pool_sections *sections, enum ebb_pool_key first,
                                enum ebb_pool_key second, uint32_t *order)
{
    struct ranked *ranked = malloc((problem->count + 1u) * sizeof *ranked);
    if (!ranked)
        return EBB_ERR_MEMORY;
    for (uint32_t i = 0; i < problem->count; i++)
        ranked[i] =
            (struct ranked){key_of(problem, sections, i, first),
                            key_of(problem, sections, i, second), problem->buffers[i].lower, i};
    qsort(ranked, problem->count, sizeof *ranked, ranked_compare);
    for (uint32_t i = 0; i < problem->count; i++)
        order[i] = ranked[i].buffer;
    free(ranked);
    return EBB_OK;
}
