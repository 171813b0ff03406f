#include "plan/pool/search.h"

#include <stdlib.h>

/* A node has three lists: the remaining buffers, its candidates and its part. The path is as long
 * as there are buffers. */
#define LISTS_OF_NODE 3

uint32_t *ebb__search_begin(struct ebb_search *search, uint64_t nodes)
{
    search->nodes = 0;
    search->nodes_limit = nodes;
    search->stopped = false;
    search->arena_count = 0;
    search->deepest_count = 0;
    uint32_t *list = ebb__search_arena_take(search, search->count);
    for (uint32_t i = 0; i < search->count; i++)
        list[i] = i;
    return list;
}

uint32_t ebb__search_part_take(const struct ebb_search *search, uint32_t *list, uint32_t count,
                               uint32_t *taken, struct ebb_search_part *part)
{
    uint32_t sections = search->sections, taken_count = 0, kept = 0;
    uint32_t first = search->cuts[list[0]].first, last = first, length = 1;
    while (length < sections &&
           !ebb__search_is_boundary(search, (first + sections - 1) % sections)) {
        first = (first + sections - 1) % sections;
        length++;
    }
    while (length < sections && !ebb__search_is_boundary(search, last)) {
        last = (last + 1) % sections;
        length++;
    }
    bool closed =
        length == sections && !ebb__search_is_boundary(search, (first + sections - 1) % sections);
    *part = (struct ebb_search_part){first, length, closed};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = (search->cuts[list[i]].first + sections - first) % sections;
        if (at < length)
            taken[taken_count++] = list[i];
        else
            list[kept++] = list[i];
    }
    return taken_count;
}

static void twins_find(struct ebb_search *search)
{
    for (uint32_t i = 0; i < search->count; i++) {
        search->twin[i] = i;
        for (uint32_t k = i; k-- && search->twin[i] == i;)
            if (search->size[i] == search->size[k] &&
                memcmp(&search->cuts[i], &search->cuts[k], sizeof *search->cuts) == 0)
                search->twin[i] = k;
    }
}

enum ebb_status ebb__search_init(struct ebb_search *search, const struct ebb_pool_problem *problem,
                                 const struct ebb_pool_sections *sections, uint64_t unit,
                                 ebb_height limit)
{
    size_t n = problem->count, m = sections->count;
    *search =
        (struct ebb_search){.count = problem->count, .sections = sections->count, .limit = limit};
    search->size = malloc(n * sizeof *search->size);
    search->cuts = malloc(n * sizeof *search->cuts);
    search->twin = malloc(n * sizeof *search->twin);
    search->deepest = malloc(n * sizeof *search->deepest);
    search->placed = calloc(n, sizeof *search->placed);
    search->floor = calloc(n, sizeof *search->floor);
    search->crossing = calloc(m, sizeof *search->crossing);
    search->stack = malloc(n * sizeof *search->stack);
    search->above = malloc(m * sizeof *search->above);
    search->arena = malloc(LISTS_OF_NODE * n * (n + 1) * sizeof *search->arena);
    search->memory = calloc((size_t)1 << EBB_SEARCH_MEMORY_BITS, sizeof *search->memory);
    if (!search->size || !search->cuts || !search->twin || !search->deepest || !search->placed ||
        !search->floor || !search->crossing || !search->stack || !search->above || !search->arena ||
        !search->memory)
        return EBB_ERR_MEMORY;
    for (uint32_t i = 0; i < problem->count; i++) {
        struct ebb_pool_run run = sections->runs[i];
        uint32_t over = run.last > sections->count ? run.last - sections->count : 0;
        search->size[i] = (ebb_height)((problem->buffers[i].size_bytes + unit - 1) / unit);
        search->cuts[i] = (struct ebb_pool_cut){run.first, run.last - over, over};
        ebb__search_crossing_change(search, i, 1);
    }
    twins_find(search);
    return EBB_OK;
}

void ebb__search_fini(struct ebb_search *search)
{
    free(search->size);
    free(search->cuts);
    free(search->twin);
    free(search->deepest);
    free(search->placed);
    free(search->floor);
    free(search->crossing);
    free(search->stack);
    free(search->above);
    free(search->arena);
    free(search->memory);
}
