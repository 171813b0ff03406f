#include "check/tiers.h"

#include "check/tiers_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SAME_NS 2.0 /* sums of doubles in another order */

static enum ebb_status wrong(const struct ebb__tier_case *it, uint32_t block, const char *why)
{
    return ebb__fail(it->error, EBB_ERR_FORMAT, "tier plan", "block %" PRIu32 ": %s", block, why);
}

/* Walks through the life of a block, one operation at a time, and notes its tier. */
static enum ebb_status life_walk(const struct ebb__tier_case *it, uint32_t b)
{
    const struct ebb_operation_block *block = &it->operations->blocks[b];
    uint32_t count = it->operations->count, stay_count;
    uint32_t from = it->plan->first_stay[b], end = it->plan->first_stay[b + 1];
    if (from >= end || end > it->plan->stays.count)
        return wrong(it, b, "has no stay");
    const struct ebb_stay *stays = it->plan->stays.items + from;
    stay_count = end - from;
    for (uint32_t s = 0; s < stay_count; s++) {
        const struct ebb_stay *stay = &stays[s];
        if (stay->block != b || stay->first >= count || stay->start >= count || stay->tier > 1)
            return wrong(it, b, "a stay names no operation, tier or block");
        if (s && stay->tier == stays[s - 1].tier)
            return wrong(it, b, "two stays in one tier");
    }
    if (block->persistent && stay_count > 1 && stays[0].tier == stays[stay_count - 1].tier)
        return wrong(it, b, "the last stay is in the tier of the first");
    uint32_t birth = block->persistent ? 0 : block->first;
    if (!block->persistent && (stays[0].first != birth || stays[0].start != birth))
        return wrong(it, b, "the first stay does not begin with its life");
    uint32_t next = 0;
    int tier = block->persistent ? stays[stay_count - 1].tier : EBB__TIER_NOWHERE;
    for (uint32_t age = 0; age < block->span; age++) {
        uint32_t at = (birth + age) % count;
        if (next < stay_count && stays[next].first == at)
            tier = stays[next++].tier;
        it->tier_at[(uint64_t)b * count + at] = (uint8_t)tier;
    }
    if (next != stay_count && !(block->persistent && stay_count == 1))
        return wrong(it, b, "a stay begins outside of its life, or out of order");
    return EBB_OK;
}

static bool written_at(const struct ebb__tier_case *it, uint32_t b, uint32_t at)
{
    const struct ebb_operation *operation = &it->operations->items[at];
    for (uint32_t i = 0; i < operation->use_count; i++) {
        const struct ebb_use *use = &it->operations->uses[operation->first_use + i];
        if (use->block == b && use->write_bytes)
            return true;
    }
    return false;
}

/* True if the block is written in [from, to), cyclic; nothing if both are the same. */
static bool written_between(const struct ebb__tier_case *it, uint32_t b, uint32_t from, uint32_t to)
{
    for (uint32_t at = from; at != to; at = (at + 1) % it->operations->count)
        if (written_at(it, b, at))
            return true;
    return false;
}

/* The copies of a block. */
static enum ebb_status copies_check(const struct ebb__tier_case *it, uint32_t b)
{
    uint32_t count = it->operations->count;
    uint32_t stay_count = it->plan->first_stay[b + 1] - it->plan->first_stay[b];
    const struct ebb_stay *stays = it->plan->stays.items + it->plan->first_stay[b];
    bool circle = it->operations->blocks[b].persistent && stay_count > 1;
    if (!circle && stays[0].drops)
        return wrong(it, b, "its first stay drops nothing");
    for (uint32_t s = circle ? 0 : 1; s < stay_count; s++) {
        const struct ebb_stay *stay = &stays[s];
        const struct ebb_stay *old = &stays[(s + stay_count - 1) % stay_count];
        uint32_t whole = (stay->first + count - old->first) % count;
        uint32_t window = (stay->first + count - stay->start) % count;
        if (window > whole)
            return wrong(it, b, "a copy starts before the stay before it");
        if (written_between(it, b, stay->start, stay->first))
            return wrong(it, b, "it is written while it is copied");
        if (!stay->drops)
            continue;
        bool came = circle || s > 1; /* the stay before began with a copy */
        if (stay->tier == EBB_TIER_FAST || !came || window)
            return wrong(it, b, "it drops without a copy to drop to");
        if (written_between(it, b, old->first, stay->first))
            return wrong(it, b, "it drops what was written");
    }
    return EBB_OK;
}

/* The bytes that a block holds in a tier in an operation, copies included. */
static bool holds(const struct ebb__tier_case *it, uint32_t b, int tier, uint32_t at)
{
    uint32_t count = it->operations->count;
    uint32_t stay_count = it->plan->first_stay[b + 1] - it->plan->first_stay[b];
    const struct ebb_stay *stays = it->plan->stays.items + it->plan->first_stay[b];
    bool circle = it->operations->blocks[b].persistent && stay_count > 1;
    if (ebb__tier_case_at(it, b, at) == tier)
        return true;
    if (ebb__tier_case_at(it, b, at) == EBB__TIER_NOWHERE)
        return false;
    for (uint32_t s = circle ? 0 : 1; s < stay_count; s++) {
        const struct ebb_stay *stay = &stays[s];
        const struct ebb_stay *old = &stays[(s + stay_count - 1) % stay_count];
        uint32_t begin = stay->drops ? old->first : stay->start;
        if (stay->tier == tier &&
            (at + count - begin) % count < (stay->first + count - begin) % count)
            return true;
    }
    return false;
}

static uint64_t whole_pages(const struct ebb__tier_case *it, uint64_t bytes)
{
    uint64_t rest = bytes % it->machine->page_bytes;
    return rest ? bytes + it->machine->page_bytes - rest : bytes;
}

static uint64_t bytes_at(const struct ebb__tier_case *it, uint64_t *together, int tier, uint32_t at)
{
    uint64_t sum = 0;
    uint32_t blocks = it->operations->block_count;
    memset(together, 0, blocks * sizeof *together);
    for (uint32_t b = 0; b < blocks; b++) {
        if (!holds(it, b, tier, at))
            continue;
        if (it->plan->pages[b] == EBB_NO_GROUP)
            sum += whole_pages(it, it->operations->blocks[b].size_bytes);
        else
            together[it->plan->pages[b]] += it->operations->blocks[b].size_bytes;
    }
    for (uint32_t b = 0; b < blocks; b++)
        sum += whole_pages(it, together[b]);
    return sum;
}

static enum ebb_status bytes_check(const struct ebb__tier_case *it,
                                   const struct ebb_tier_claim *claim)
{
    const uint64_t limits[] = {claim->budget_bytes, it->machine->tiers[1].capacity_bytes};
    const uint64_t claims[] = {claim->fast_peak_bytes, claim->slow_peak_bytes};
    static const char *const names[] = {"fast", "slow"};
    uint64_t *together = calloc(it->operations->block_count + 1, sizeof *together);
    if (!together)
        return ebb__fail(it->error, EBB_ERR_MEMORY, "tier plan", "no memory to check it");
    enum ebb_status status = EBB_OK;
    for (int tier = 0; !status && tier < 2; tier++) {
        if (limits[tier] && claims[tier] > limits[tier])
            status = ebb__fail(it->error, EBB_ERR_FORMAT, "tier plan",
                               "its peak exceeds the %s tier", names[tier]);
        for (uint32_t at = 0; !status && at < it->operations->count; at++)
            if (bytes_at(it, together, tier, at) > claims[tier])
                status = ebb__fail(it->error, EBB_ERR_FORMAT, "tier plan",
                                   "operation %" PRIu32 ": the %s tier holds more than the peak",
                                   at, names[tier]);
    }
    free(together);
    return status;
}

/* Blocks that share pages with the first of them are like it. */
static enum ebb_status pages_check(const struct ebb__tier_case *it, uint32_t b)
{
    const struct ebb_tier_plan *plan = it->plan;
    uint32_t first = plan->pages[b];
    if (first == EBB_NO_GROUP)
        return EBB_OK;
    if (first > b || plan->pages[first] != first)
        return wrong(it, b, "it shares pages with no first block");
    const struct ebb_operation_block *mine = &it->operations->blocks[b];
    const struct ebb_operation_block *its = &it->operations->blocks[first];
    uint32_t stays = plan->first_stay[b + 1] - plan->first_stay[b];
    bool same = mine->persistent == its->persistent && mine->first == its->first &&
                mine->span == its->span && plan->group[b] == plan->group[first] &&
                plan->first_stay[first + 1] - plan->first_stay[first] == stays;
    for (uint32_t s = 0; same && s < stays; s++) {
        const struct ebb_stay *a = &plan->stays.items[plan->first_stay[b] + s];
        const struct ebb_stay *c = &plan->stays.items[plan->first_stay[first] + s];
        same = a->first == c->first && a->start == c->start && a->tier == c->tier &&
               a->drops == c->drops && a->run == c->run;
    }
    return same ? EBB_OK : wrong(it, b, "it does not stay with the blocks of its pages");
}

static bool is_in_run(const struct ebb__tier_case *it, uint32_t b, const struct ebb_stay *run)
{
    for (uint32_t s = it->plan->first_stay[b]; s < it->plan->first_stay[b + 1]; s++) {
        const struct ebb_stay *stay = &it->plan->stays.items[s];
        if (stay->run == run->run && stay->start == run->start && stay->first == run->first &&
            stay->tier == run->tier && !stay->drops)
            return true;
    }
    return false;
}

/* The blocks of a run are adjacent. */
static enum ebb_status run_check(const struct ebb__tier_case *it, const struct ebb_stay *run)
{
    const struct ebb_tier_plan *plan = it->plan;
    uint32_t group = plan->group[run->block], low = UINT32_MAX, high = 0;
    for (uint32_t b = 0; b < plan->block_count; b++) {
        if (!is_in_run(it, b, run))
            continue;
        if (plan->group[b] != group || (group == EBB_NO_GROUP && b != run->block))
            return wrong(it, b, "its run has blocks of two groups");
        low = plan->place[b] < low ? plan->place[b] : low;
        high = plan->place[b] > high ? plan->place[b] : high;
    }
    for (uint32_t b = 0; group != EBB_NO_GROUP && b < plan->block_count; b++)
        if (plan->group[b] == group && plan->place[b] > low && plan->place[b] < high &&
            ebb__tier_case_at(it, b, run->start) != EBB__TIER_NOWHERE && !is_in_run(it, b, run))
            return wrong(it, b, "it lies in the middle of a run");
    return EBB_OK;
}

static int by_run(const void *left, const void *right)
{
    const struct ebb_stay *a = *(const struct ebb_stay *const *)left;
    const struct ebb_stay *b = *(const struct ebb_stay *const *)right;
    const uint32_t keys[][2] = {
        {a->run, b->run}, {a->start, b->start}, {a->first, b->first}, {a->tier, b->tier}};
    for (int i = 0; i < 4; i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

/* Each run once. */
static enum ebb_status runs_check(const struct ebb__tier_case *it)
{
    const struct ebb_stay **runs = calloc(it->plan->stays.count + 1, sizeof(void *));
    size_t count = 0;
    enum ebb_status status = EBB_OK;
    if (!runs)
        return ebb__fail(it->error, EBB_ERR_MEMORY, "tier plan", "no memory to check it");
    for (size_t i = 0; i < it->plan->stays.count; i++)
        if (it->plan->stays.items[i].run && !it->plan->stays.items[i].drops)
            runs[count++] = &it->plan->stays.items[i];
    qsort(runs, count, sizeof *runs, by_run);
    for (size_t i = 0; !status && i < count; i++)
        if (i == 0 || by_run(&runs[i - 1], &runs[i]) != 0)
            status = run_check(it, runs[i]);
    free(runs);
    return status;
}

static enum ebb_status all_check(const struct ebb__tier_case *it,
                                 const struct ebb_tier_claim *claim)
{
    double iteration_ns = 0;
    enum ebb_status status = EBB_OK;
    for (uint32_t b = 0; !status && b < it->operations->block_count; b++)
        status = life_walk(it, b);
    for (uint32_t b = 0; !status && b < it->operations->block_count; b++) {
        status = copies_check(it, b);
        if (!status)
            status = pages_check(it, b);
    }
    if (!status)
        status = runs_check(it);
    if (!status)
        status = bytes_check(it, claim);
    if (status)
        return status;
    if (!ebb__tier_case_ns(it, &iteration_ns))
        return ebb__fail(it->error, EBB_ERR_MEMORY, "tier plan", "no memory to check it");
    if (!(fabs(iteration_ns - claim->iteration_ns) <= SAME_NS + 1e-9 * iteration_ns))
        return ebb__fail(it->error, EBB_ERR_FORMAT, "tier plan",
                         "an iteration takes %.0f ns, and not %.0f", iteration_ns,
                         claim->iteration_ns);
    return EBB_OK;
}

enum ebb_status ebb__check_tiers(const struct ebb_operations *operations,
                                 const struct ebb_tier_machine *machine,
                                 const struct ebb_tier_plan *plan,
                                 const struct ebb_tier_claim *claim, struct ebb_error *error)
{
    struct ebb__tier_case it = {operations, machine, plan, error, NULL};
    uint64_t cells = (uint64_t)operations->block_count * operations->count;
    if (plan->block_count != operations->block_count)
        return ebb__fail(error, EBB_ERR_FORMAT, "tier plan", "it is for another iteration");
    it.tier_at = malloc(cells + 1);
    if (!it.tier_at)
        return ebb__fail(error, EBB_ERR_MEMORY, "tier plan", "no memory to check it");
    memset(it.tier_at, EBB__TIER_NOWHERE, cells);
    enum ebb_status status = all_check(&it, claim);
    free(it.tier_at);
    return status;
}
