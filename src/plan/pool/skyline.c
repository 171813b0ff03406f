/* The skyline of a search over valleys: placed buffers, floors of unplaced ones, and undoing both.
 *
 * Every change is recorded in a trail, newest last, so that undoing costs as much as doing. When
 * the skyline is raised, so are the floors of the buffers that are live there: O(unplaced + run) a
 * placement. */
#include "plan/pool/valley.h"

#include "base/vec.h"

#include <stdlib.h>

static bool trail_reserve(struct ebb_valley_search *search, size_t more)
{
    if (ebb__vec_reserve((void **)&search->trail, &search->trail_room, search->trail_count + more,
                         sizeof *search->trail))
        return true;
    search->base.no_memory = true;
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
    if (search->base.placed[buffer] || search->base.floor[buffer] >= height)
        return;
    search->trail[search->trail_count++] =
        (struct ebb_valley_trail){search->base.sections + buffer, search->base.floor[buffer]};
    search->base.floor[buffer] = height;
}

static void rest_change(struct ebb_valley_search *search, uint32_t buffer, ebb_height by)
{
    const struct ebb_pool_cut *cut = &search->base.cuts[buffer];
    for (uint32_t s = cut->first; s < cut->last; s++)
        search->rest[s] += by;
    for (uint32_t s = 0; s < cut->more; s++)
        search->rest[s] += by;
}

bool ebb__valley_place(struct ebb_valley_search *search, uint32_t buffer, const uint32_t *list,
                       uint32_t count)
{
    const struct ebb_pool_cut *cut = &search->base.cuts[buffer];
    ebb_height top = search->base.floor[buffer] + search->base.size[buffer];
    if (!trail_reserve(search, cut->last - cut->first + cut->more + count))
        return false;
    search->base.placed[buffer] = true;
    search->base.stack[search->base.stack_count++] = buffer;
    for (uint32_t s = cut->first; s < cut->last; s++)
        sky_set(search, s, top);
    for (uint32_t s = 0; s < cut->more; s++)
        sky_set(search, s, top);
    for (uint32_t i = 0; i < count; i++)
        if (meet(cut, &search->base.cuts[list[i]]))
            floor_raise(search, list[i], top);
    ebb__search_crossing_change(&search->base, buffer, UINT32_MAX);
    rest_change(search, buffer, -search->base.size[buffer]);
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
        if (entry->index < search->base.sections)
            search->sky[entry->index] = entry->before;
        else
            search->base.floor[entry->index - search->base.sections] = entry->before;
    }
    while (search->base.stack_count > stack_count) {
        uint32_t buffer = search->base.stack[--search->base.stack_count];
        search->base.placed[buffer] = false;
        ebb__search_crossing_change(&search->base, buffer, 1);
        rest_change(search, buffer, search->base.size[buffer]);
    }
}

enum ebb_status ebb__valley_init(struct ebb_valley_search *search,
                                 const struct ebb_pool_problem *problem,
                                 const struct ebb_pool_sections *sections, uint64_t unit,
                                 ebb_height limit)
{
    size_t n = problem->count, m = sections->count;
    *search = (struct ebb_valley_search){.trail_count = 0};
    enum ebb_status status = ebb__search_init(&search->base, problem, sections, unit, limit);
    search->key = calloc(n, sizeof *search->key);
    search->sky = calloc(m, sizeof *search->sky);
    search->rest = calloc(m, sizeof *search->rest);
    search->change = calloc(m + 1, sizeof *search->change);
    search->ways = malloc(m * sizeof *search->ways);
    search->exact = malloc(m * sizeof *search->exact);
    search->valley_of = malloc(m * sizeof *search->valley_of);
    search->valleys = malloc(m * sizeof *search->valleys);
    search->merit = malloc(n * sizeof *search->merit);
    if (status || !search->key || !search->sky || !search->rest || !search->change ||
        !search->ways || !search->exact || !search->valley_of || !search->valleys || !search->merit)
        return EBB_ERR_MEMORY;
    for (uint32_t i = 0; i < problem->count; i++)
        rest_change(search, i, search->base.size[i]);
    return EBB_OK;
}

void ebb__valley_fini(struct ebb_valley_search *search)
{
    ebb__search_fini(&search->base);
    free(search->key);
    free(search->sky);
    free(search->rest);
    free(search->change);
    free(search->ways);
    free(search->exact);
    free(search->valley_of);
    free(search->valleys);
    free(search->merit);
    free(search->trail);
}
