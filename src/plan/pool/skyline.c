/* The skyline of a search over valleys: what is placed, floors of what is not, and taking both back.
 *
 * Every change is entered in a trail, newest last, so that going back costs what going on did. Floors
 * are raised as the skyline is, for what lives there: O(unplaced + run) a placement. */
#include "plan/pool/valley.h"

#include "base/vec.h"

#include <stdlib.h>
#include <string.h>

static bool trail_reserve(struct ebb_valley_search *search, size_t more)
{
    if (ebb__vec_reserve((void **)&search->trail, &search->trail_room, search->trail_count + more,
                         sizeof *search->trail))
        return true;
    search->no_memory = true;
    return false;
}

static bool meet(const struct ebb_pool_cut *a, const struct ebb_pool_cut *b)
{
    return (a->first < b->last && b->first < a->last) || a->first < b->more || b->first < a->more;
}

static void sky_set(struct ebb_valley_search *search, uint32_t section, ebb_height height)
{
    search->trail[search->trail_count++] = (struct ebb_valley_trail){section, search->sky[section]};
    search->sky[section] = height;
}

static void floor_raise(struct ebb_valley_search *search, uint32_t buffer, ebb_height height)
{
    if (search->placed[buffer] || search->floor[buffer] >= height)
        return;
    search->trail[search->trail_count++] =
        (struct ebb_valley_trail){search->sections + buffer, search->floor[buffer]};
    search->floor[buffer] = height;
}

static void crossing_change(struct ebb_valley_search *search, uint32_t buffer, uint32_t by)
{
    const struct ebb_pool_cut *cut = &search->cuts[buffer];
    uint32_t end = cut->more ? search->sections : cut->last - 1;
    for (uint32_t s = cut->first; s < end; s++)
        search->crossing[s] += by;
    for (uint32_t s = 0; s + 1 < cut->more; s++)
        search->crossing[s] += by;
}

static void rest_change(struct ebb_valley_search *search, uint32_t buffer, ebb_height by)
{
    const struct ebb_pool_cut *cut = &search->cuts[buffer];
    for (uint32_t s = cut->first; s < cut->last; s++)
        search->rest[s] += by;
    for (uint32_t s = 0; s < cut->more; s++)
        search->rest[s] += by;
}

bool ebb__valley_place(struct ebb_valley_search *search, uint32_t buffer, const uint32_t *list,
                       uint32_t count)
{
    const struct ebb_pool_cut *cut = &search->cuts[buffer];
    ebb_height top = search->floor[buffer] + search->size[buffer];
    if (!trail_reserve(search, cut->last - cut->first + cut->more + count))
        return false;
    search->placed[buffer] = true;
    search->stack[search->stack_count++] = buffer;
    for (uint32_t s = cut->first; s < cut->last; s++)
        sky_set(search, s, top);
    for (uint32_t s = 0; s < cut->more; s++)
        sky_set(search, s, top);
    for (uint32_t i = 0; i < count; i++)
        if (meet(cut, &search->cuts[list[i]]))
            floor_raise(search, list[i], top);
    crossing_change(search, buffer, UINT32_MAX);
    rest_change(search, buffer, -search->size[buffer]);
    return true;
}

bool ebb__valley_waste(struct ebb_valley_search *search, uint32_t section, ebb_height height,
                       const uint32_t *list, uint32_t count)
{
    if (!trail_reserve(search, 1 + count))
        return false;
    sky_set(search, section, height);
    for (uint32_t i = 0; i < count; i++)
        if (ebb__valley_covers(search, list[i], section))
            floor_raise(search, list[i], height);
    return true;
}

void ebb__valley_take_back(struct ebb_valley_search *search, uint32_t stack_count,
                           size_t trail_count)
{
    while (search->trail_count > trail_count) {
        const struct ebb_valley_trail *entry = &search->trail[--search->trail_count];
        if (entry->index < search->sections)
            search->sky[entry->index] = entry->before;
        else
            search->floor[entry->index - search->sections] = entry->before;
    }
    while (search->stack_count > stack_count) {
        uint32_t buffer = search->stack[--search->stack_count];
        search->placed[buffer] = false;
        crossing_change(search, buffer, 1);
        rest_change(search, buffer, search->size[buffer]);
    }
}

static void twins_find(struct ebb_valley_search *search)
{
    for (uint32_t i = 0; i < search->count; i++) {
        search->twin[i] = i;
        for (uint32_t k = i; k-- && search->twin[i] == i;)
            if (search->size[i] == search->size[k] &&
                memcmp(&search->cuts[i], &search->cuts[k], sizeof *search->cuts) == 0)
                search->twin[i] = k;
    }
}

enum ebb_status ebb__valley_init(struct ebb_valley_search *search,
                                 const struct ebb_pool_problem *problem,
                                 const struct ebb_pool_sections *sections, uint64_t unit,
                                 ebb_height limit)
{
    size_t n = problem->count, m = sections->count;
    *search = (struct ebb_valley_search){
        .count = problem->count, .sections = sections->count, .limit = limit};
    search->size = malloc(n * sizeof *search->size);
    search->cuts = malloc(n * sizeof *search->cuts);
    search->twin = malloc(n * sizeof *search->twin);
    search->key = calloc(n, sizeof *search->key);
    search->deepest = malloc(n * sizeof *search->deepest);
    search->placed = calloc(n, sizeof *search->placed);
    search->sky = calloc(m, sizeof *search->sky);
    search->rest = calloc(m, sizeof *search->rest);
    search->crossing = calloc(m, sizeof *search->crossing);
    search->stack = malloc(n * sizeof *search->stack);
    search->floor = calloc(n, sizeof *search->floor);
    search->above = malloc(m * sizeof *search->above);
    search->change = calloc(m + 1, sizeof *search->change);
    search->ways = malloc(m * sizeof *search->ways);
    search->exact = malloc(m * sizeof *search->exact);
    search->valley_of = malloc(m * sizeof *search->valley_of);
    search->valleys = malloc(m * sizeof *search->valleys);
    search->merit = malloc(n * sizeof *search->merit);
    search->arena = malloc(3 * n * (n + 1) * sizeof *search->arena);
    search->memory = calloc((size_t)1 << EBB_VALLEY_MEMORY_BITS, sizeof *search->memory);
    if (!search->size || !search->cuts || !search->twin || !search->key || !search->deepest ||
        !search->placed || !search->sky || !search->rest || !search->crossing || !search->stack ||
        !search->floor || !search->above || !search->change || !search->ways || !search->exact ||
        !search->valley_of || !search->valleys || !search->merit || !search->arena ||
        !search->memory)
        return EBB_ERR_MEMORY;
    for (uint32_t i = 0; i < problem->count; i++) {
        struct ebb_pool_run run = sections->runs[i];
        uint32_t over = run.last > sections->count ? run.last - sections->count : 0;
        search->size[i] = (ebb_height)((problem->buffers[i].size_bytes + unit - 1) / unit);
        search->cuts[i] = (struct ebb_pool_cut){run.first, run.last - over, over};
        crossing_change(search, i, 1);
        rest_change(search, i, search->size[i]);
    }
    twins_find(search);
    return EBB_OK;
}

void ebb__valley_fini(struct ebb_valley_search *search)
{
    free(search->size);
    free(search->cuts);
    free(search->twin);
    free(search->key);
    free(search->deepest);
    free(search->placed);
    free(search->sky);
    free(search->rest);
    free(search->crossing);
    free(search->stack);
    free(search->floor);
    free(search->above);
    free(search->change);
    free(search->ways);
    free(search->exact);
    free(search->valley_of);
    free(search->valleys);
    free(search->merit);
    free(search->arena);
    free(search->memory);
    free(search->trail);
}
