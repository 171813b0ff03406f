/* Contiguous migration: copies in one direction that go together are one transfer, if their
 * blocks have adjacent addresses.
 *
 * Addresses are free to choose, but each block has one place. The sets of copies that go together
 * are taken in the order of the transfers that they save. If none of its blocks has a place, a
 * set gets a new group. If they have places in one group, it is used if no other live block lies
 * between them. */
#include "lab/tier/deeptm.h"

#include <stdlib.h>
#include <string.h>

struct set {
    uint32_t first, count; /* in the sorted copies */
};

static int by_number(uint32_t a, uint32_t b)
{
    return (a > b) - (a < b);
}

static int by_transfer(const void *left, const void *right)
{
    const struct ebb_stay *a = *(struct ebb_stay *const *)left;
    const struct ebb_stay *b = *(struct ebb_stay *const *)right;
    int order = by_number(a->start, b->start);
    if (!order)
        order = by_number(a->first, b->first);
    if (!order)
        order = by_number(a->tier, b->tier);
    return order ? order : by_number(a->block, b->block);
}

static bool is_together(const struct ebb_stay *a, const struct ebb_stay *b)
{
    return a->start == b->start && a->first == b->first && a->tier == b->tier;
}

static int by_count(const void *left, const void *right)
{
    const struct set *a = left, *b = right;
    int order = by_number(b->count, a->count);
    return order ? order : by_number(a->first, b->first);
}

/* All copies, those that go together as neighbours, and their sets. Returns the number of sets.
 * Blocks that share pages are one transfer already. */
static uint32_t sets_find(const struct ebb_operations *operations, struct ebb_tier_plan *plan,
                          struct ebb_stay **copies, struct set *sets)
{
    uint32_t count = 0, set_count = 0;
    for (uint32_t b = 0; b < plan->block_count; b++) {
        uint32_t from = plan->first_stay[b], to = plan->first_stay[b + 1];
        bool circle = operations->blocks[b].persistent && to - from > 1;
        for (uint32_t s = from + !circle; s < to; s++)
            if (!plan->stays.items[s].drops && plan->pages[b] == EBB_NO_GROUP)
                copies[count++] = &plan->stays.items[s];
    }
    qsort(copies, count, sizeof *copies, by_transfer);
    for (uint32_t i = 0; i < count; i++) {
        if (i && is_together(copies[i - 1], copies[i]))
            sets[set_count - 1].count++;
        else
            sets[set_count++] = (struct set){i, 1};
    }
    qsort(sets, set_count, sizeof *sets, by_count);
    return set_count;
}

static bool is_live(const struct ebb_operations *operations, uint32_t b, uint32_t at)
{
    const struct ebb_operation_block *block = &operations->blocks[b];
    return block->persistent || ebb__operations_between(operations, block->first, at) < block->span;
}

static bool is_member(struct ebb_stay *const *copies, const struct set *set, uint32_t b)
{
    for (uint32_t i = 0; i < set->count; i++)
        if (copies[set->first + i]->block == b)
            return true;
    return false;
}

/* True if the set can be a run in the group that its blocks have. */
static bool is_adjacent(const struct ebb_operations *operations, const struct ebb_tier_plan *plan,
                        struct ebb_stay *const *copies, const struct set *set)
{
    uint32_t low = UINT32_MAX, high = 0, at = copies[set->first]->start;
    uint32_t group = plan->group[copies[set->first]->block];
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t b = copies[set->first + i]->block;
        if (plan->group[b] != group || group == EBB_NO_GROUP)
            return false;
        low = plan->place[b] < low ? plan->place[b] : low;
        high = plan->place[b] > high ? plan->place[b] : high;
    }
    for (uint32_t b = 0; b < plan->block_count; b++)
        if (plan->group[b] == group && plan->place[b] > low && plan->place[b] < high &&
            is_live(operations, b, at) && !is_member(copies, set, b))
            return false;
    return true;
}

/* Gives the blocks of a set places in a new group, if none has one. */
static void group_open(struct ebb_tier_plan *plan, struct ebb_stay *const *copies,
                       const struct set *set, uint32_t group)
{
    for (uint32_t i = 0; i < set->count; i++)
        if (plan->group[copies[set->first + i]->block] != EBB_NO_GROUP)
            return;
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t b = copies[set->first + i]->block;
        plan->group[b] = group;
        plan->place[b] = i;
    }
}

/* Blocks that share pages have adjacent places from the start. They are in no other group, so
 * their own copies are a run, and no more. */
static void pages_group(struct ebb_tier_plan *plan, uint32_t *groups)
{
    for (uint32_t b = 0; b < plan->block_count; b++) {
        if (plan->pages[b] == EBB_NO_GROUP)
            continue;
        plan->group[b] = plan->pages[b] == b ? (*groups)++ : plan->group[plan->pages[b]];
        plan->place[b] = b;
    }
}

enum ebb_status ebb__deeptm_runs(const struct ebb_operations *operations,
                                 struct ebb_tier_plan *plan, struct ebb_error *error)
{
    struct ebb_stay **copies = calloc(plan->stays.count + 1, sizeof *copies);
    struct set *sets = calloc(plan->stays.count + 1, sizeof *sets);
    uint32_t groups = 0;
    bool ok = copies && sets;
    uint32_t count = ok ? sets_find(operations, plan, copies, sets) : 0;
    if (ok)
        pages_group(plan, &groups);
    for (uint32_t i = 0; i < count && sets[i].count > 1; i++) {
        group_open(plan, copies, &sets[i], groups++);
        if (!is_adjacent(operations, plan, copies, &sets[i]))
            continue;
        for (uint32_t k = 0; k < sets[i].count; k++)
            copies[sets[i].first + k]->run = i + 1;
    }
    free(copies);
    free(sets);
    return ok ? EBB_OK : ebb__fail(error, EBB_ERR_MEMORY, "deeptm", "no memory for runs");
}
