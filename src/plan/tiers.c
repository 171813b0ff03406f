#include "plan/tiers.h"

#include <stdlib.h>
#include <string.h>

/* The arrays that have an entry for each block. */
static uint32_t **const *arrays(struct ebb_tier_plan *plan, uint32_t **places[4])
{
    places[0] = &plan->first_stay;
    places[1] = &plan->group;
    places[2] = &plan->place;
    places[3] = &plan->pages;
    return places;
}

bool ebb__tier_plan_init(struct ebb_tier_plan *plan, const struct ebb_operations *operations)
{
    size_t bytes = ((size_t)operations->block_count + 1) * sizeof(uint32_t);
    uint32_t **places[4];
    bool ok = true;
    *plan = (struct ebb_tier_plan){.block_count = operations->block_count};
    for (int i = 0; i < 4; i++) {
        uint32_t *array = *arrays(plan, places)[i] = malloc(bytes);
        ok = ok && array;
        if (array)
            memset(array, i % 2 ? 0xff : 0, bytes); /* no stays, no group, place 0, no pages */
    }
    if (!ok)
        ebb__tier_plan_fini(plan);
    return ok;
}

void ebb__tier_plan_fini(struct ebb_tier_plan *plan)
{
    uint32_t **places[4];
    ebb_vec_free(&plan->stays);
    for (int i = 0; i < 4; i++)
        free(*arrays(plan, places)[i]);
    *plan = (struct ebb_tier_plan){0};
}

/* Stable: counts, then places. */
static bool sort_by_block(struct ebb_tier_plan *plan, const struct ebb_operations *operations)
{
    uint32_t count = plan->block_count, at = 0;
    uint32_t *fill = calloc(count + 1, sizeof *fill);
    size_t most = plan->stays.count + count;
    struct ebb_stay *sorted = malloc((most + 1) * sizeof *sorted);
    if (!fill || !sorted) {
        free(fill);
        free(sorted);
        return false;
    }
    for (size_t i = 0; i < plan->stays.count; i++)
        fill[plan->stays.items[i].block]++;
    for (uint32_t b = 0; b < count; b++) {
        uint32_t stays = fill[b];
        plan->first_stay[b] = fill[b] = at;
        if (!stays) {
            uint32_t birth = ebb__tier_birth(operations, b);
            sorted[at] = (struct ebb_stay){.block = b, .first = birth, .start = birth, .tier = 1};
        }
        at += stays ? stays : 1;
    }
    plan->first_stay[count] = at;
    for (size_t i = 0; i < plan->stays.count; i++)
        sorted[fill[plan->stays.items[i].block]++] = plan->stays.items[i];
    free(plan->stays.items);
    plan->stays.items = sorted;
    plan->stays.count = at;
    plan->stays.capacity = most + 1;
    free(fill);
    return true;
}

/* Removes stays that change nothing. */
static void merge(struct ebb_tier_plan *plan, const struct ebb_operations *operations)
{
    uint32_t kept = 0;
    for (uint32_t b = 0; b < plan->block_count; b++) {
        uint32_t from = plan->first_stay[b], to = plan->first_stay[b + 1], first = kept;
        for (uint32_t i = from; i < to; i++)
            if (kept == first || plan->stays.items[kept - 1].tier != plan->stays.items[i].tier)
                plan->stays.items[kept++] = plan->stays.items[i];
        if (operations->blocks[b].persistent && kept - first > 1 &&
            plan->stays.items[kept - 1].tier == plan->stays.items[first].tier) {
            memmove(&plan->stays.items[first], &plan->stays.items[first + 1],
                    (kept - first - 1) * sizeof *plan->stays.items);
            kept--;
        }
        plan->first_stay[b] = first;
    }
    plan->first_stay[plan->block_count] = kept;
    plan->stays.count = kept;
}

static bool is_written(const struct ebb_operations *operations, uint32_t block, uint32_t from,
                       uint32_t span)
{
    const struct ebb_operation_block *of = &operations->blocks[block];
    for (uint32_t i = 0; i < of->use_count; i++) {
        const struct ebb_use *use = ebb__block_use(operations, block, i);
        if (use->write_bytes && ebb__operations_between(operations, from, use->operation) < span)
            return true;
    }
    return false;
}

static void drops_set(struct ebb_tier_plan *plan, const struct ebb_operations *operations,
                      uint32_t block)
{
    struct ebb_stay *stays = plan->stays.items + plan->first_stay[block];
    uint32_t count = plan->first_stay[block + 1] - plan->first_stay[block];
    bool cyclic = operations->blocks[block].persistent;
    for (uint32_t i = 0; i < count; i++) {
        struct ebb_stay *stay = &stays[i];
        const struct ebb_stay *before = i ? stay - 1 : &stays[count - 1];
        stay->drops = false;
        if (stay->tier == 0 || count == 1 || (!cyclic && i < 2))
            continue; /* what was born in fast memory has no copy */
        uint32_t span = ebb__operations_between(operations, before->first, stay->first);
        stay->drops = !is_written(operations, block, before->first, span);
        if (stay->drops)
            stay->start = stay->first;
    }
}

enum ebb_status ebb__tier_plan_close(struct ebb_tier_plan *plan,
                                     const struct ebb_operations *operations,
                                     struct ebb_error *error)
{
    if (!sort_by_block(plan, operations))
        return ebb__fail(error, EBB_ERR_MEMORY, "tiers", "no memory for a plan");
    merge(plan, operations);
    for (uint32_t b = 0; b < plan->block_count; b++)
        drops_set(plan, operations, b);
    return EBB_OK;
}
