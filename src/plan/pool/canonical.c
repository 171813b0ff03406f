/* Depth-first search in canonical order, for the exact pool.
 *
 * Problem: a packing within a given height, or the proof that there is none.
 * Method: each buffer is placed as low as the buffers below it permit, in the order of offsets
 * (ties by rank). So every packing that rests on its floors is found exactly once. At a node:
 *   floors        an unplaced buffer's floor is the highest top below it. A buffer that was passed
 *                 over can only rest on an unplaced neighbour, which raises its floor further
 *   inference     for every section and every height, the buffers that must be above the height
 *                 there have to fit under the limit
 *   dominance     nothing is placed so high that an unplaced buffer would fit completely below it
 *   equals        buffers of one size and one run of sections are placed in one order
 *   decomposition if no unplaced buffer spans a boundary, both sides are searched independently
 *   memory        a remaining problem that failed at a node fails again
 * Several rankings take turns, each with a growing number of nodes; the first that finishes
 * decides. An unfinished turn leaves a packing, too: its deepest placement with the rest on top. In
 * iterations of programs, most sections have free space. There it is better than the search over
 * valleys (valley.c), and worse if there is none.
 * Complexity: exponential at worst; O(unplaced * run) a node.
 * Source: docs/papers.md, MiniMalloc; the raised floors, the inference at every height and the
 * memory are ours. */
#include "plan/pool/canonical.h"

#include "base/tuning.h"
#include "base/vec.h"
#include "plan/pool/search.h"

#include <stdlib.h>
#include <string.h>

#define PLAIN_LAPS                                                                                 \
    6                 /* rounds without noise, each with twice the nodes; 3 and 12 give the same
                         packing */
#define LAP_GROWS 1.2 /* turns grow from round to round; 1 and 2.4 give the same packing */

struct search {
    struct ebb_search base;
    uint32_t *neighbours, *neighbours_from; /* those of buffer i: [from[i], from[i + 1]) */
    uint64_t *salt;
    uint32_t *rank;
    ebb_height *raised; /* scratch: floors as raised by the canonical order */
    struct trail {
        uint32_t buffer;
        ebb_height floor;
    } * trail;
    size_t trail_count, trail_room;
};

/* ---- placing and undoing --------------------------------------------------------------------- */

static bool place(struct search *search, uint32_t buffer)
{
    ebb_height top = search->base.floor[buffer] + search->base.size[buffer];
    uint32_t from = search->neighbours_from[buffer], to = search->neighbours_from[buffer + 1];
    if (!ebb__vec_reserve((void **)&search->trail, &search->trail_room,
                          search->trail_count + (to - from), sizeof *search->trail)) {
        search->base.no_memory = true;
        return false;
    }
    for (uint32_t i = from; i < to; i++) {
        uint32_t other = search->neighbours[i];
        if (search->base.placed[other] || search->base.floor[other] >= top)
            continue;
        search->trail[search->trail_count++] = (struct trail){other, search->base.floor[other]};
        search->base.floor[other] = top;
    }
    search->base.placed[buffer] = true;
    search->base.stack[search->base.stack_count++] = buffer;
    ebb__search_crossing_change(&search->base, buffer, UINT32_MAX);
    return true;
}

/* Undoes all placements since the two counts had these values. */
static void take_back(struct search *search, uint32_t stack_count, size_t trail_count)
{
    while (search->trail_count > trail_count) {
        const struct trail *entry = &search->trail[--search->trail_count];
        search->base.floor[entry->buffer] = entry->floor;
    }
    while (search->base.stack_count > stack_count) {
        uint32_t buffer = search->base.stack[--search->base.stack_count];
        search->base.placed[buffer] = false;
        ebb__search_crossing_change(&search->base, buffer, 1);
    }
}

/* ---- a node's bounds ------------------------------------------------------------------------- */

static bool passed_over(const struct search *search, uint32_t buffer, ebb_height level,
                        uint32_t rank)
{
    return search->base.floor[buffer] < level ||
           (search->base.floor[buffer] == level && search->rank[buffer] < rank);
}

/* Raises floors by the canonical order. Returns false if a buffer can no longer rest on
 * anything. */
static bool floors_raise(struct search *search, const uint32_t *list, uint32_t count,
                         ebb_height level, uint32_t rank)
{
    bool any = false;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t b = list[i];
        search->raised[b] = search->base.floor[b] > level ? search->base.floor[b] : level;
        any = any || passed_over(search, b, level, rank);
    }
    if (!any)
        return true;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t b = list[i];
        if (!passed_over(search, b, level, rank))
            continue;
        ebb_height least = EBB_HEIGHT_MAX;
        for (uint32_t k = search->neighbours_from[b]; k < search->neighbours_from[b + 1]; k++) {
            uint32_t other = search->neighbours[k];
            if (search->base.placed[other])
                continue;
            ebb_height top = search->raised[other] + search->base.size[other];
            if (top < least)
                least = top;
            if (least <= search->raised[b])
                break;
        }
        if (least > search->base.limit - search->base.size[b])
            return false;
        if (least > search->raised[b])
            search->raised[b] = least;
    }
    return true;
}

/* Checks that the buffers above each floor fit under the limit, in every section. Sorts the
 * list. */
static bool floors_hold(struct search *search, uint32_t *list, uint32_t count)
{
    ebb__search_sort(search->raised, list, count);
    memset(search->base.above, 0, search->base.sections * sizeof *search->base.above);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t b = list[i];
        ebb_height room = search->base.limit - search->raised[b];
        if (!ebb__search_stack_cut(search->base.above, &search->base.cuts[b], search->base.size[b],
                                   room))
            return false;
    }
    return true;
}

static struct ebb_search_state state_of(const struct search *search, const uint32_t *list,
                                        uint32_t count, ebb_height level, uint32_t rank)
{
    struct ebb_search_state state = {count, count};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t b = list[i];
        uint64_t value = (uint64_t)search->base.floor[b] * 2 + passed_over(search, b, level, rank);
        uint64_t hash = ebb__search_mix(search->salt[b] + value);
        state.low += hash;
        state.high += ebb__search_mix(hash ^ search->salt[b]);
    }
    return state;
}

/* ---- the search ------------------------------------------------------------------------------ */

static bool solve(struct search *search, uint32_t *list, uint32_t count, ebb_height level,
                  uint32_t rank);

/* Searches parts with no common section one after the other. They are independent, so the first
 * that fails decides. */
static bool solve_parts(struct search *search, uint32_t *list, uint32_t count, ebb_height level,
                        uint32_t rank)
{
    bool solved = true;
    size_t arena_count = search->base.arena_count;
    while (count && solved) {
        struct ebb_search_part part;
        uint32_t *taken = ebb__search_arena_take(&search->base, count);
        uint32_t taken_count = ebb__search_part_take(&search->base, list, count, taken, &part);
        count -= taken_count;
        solved = solve(search, taken, taken_count, level, rank);
        search->base.arena_count = arena_count;
    }
    return solved;
}

/* Searches the remaining problem after `chosen` has been placed. */
static bool solve_rest(struct search *search, const uint32_t *list, uint32_t count, uint32_t chosen)
{
    size_t arena_count = search->base.arena_count;
    uint32_t *rest = ebb__search_without(&search->base, list, count, chosen);
    ebb_height level = search->base.floor[chosen];
    uint32_t rank = search->rank[chosen];
    bool solved = ebb__search_divides(&search->base, chosen)
                      ? solve_parts(search, rest, count - 1, level, rank)
                      : solve(search, rest, count - 1, level, rank);
    search->base.arena_count = arena_count;
    return solved;
}

/* Lists the candidates in the order in which they are tried: lowest floor first, then by rank. */
static uint32_t candidates_find(const struct search *search, const uint32_t *list, uint32_t count,
                                ebb_height level, uint32_t rank, uint32_t *found)
{
    ebb_height least_top = EBB_HEIGHT_MAX;
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < count; i++) {
        ebb_height top = search->base.floor[list[i]] + search->base.size[list[i]];
        if (top < least_top)
            least_top = top;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t b = list[i];
        if (search->base.floor[b] >= least_top || passed_over(search, b, level, rank))
            continue;
        if (!ebb__search_is_next_twin(&search->base, b))
            continue;
        uint32_t k = chosen++;
        for (; k; k--) {
            uint32_t other = found[k - 1];
            if (search->base.floor[other] < search->base.floor[b] ||
                (search->base.floor[other] == search->base.floor[b] &&
                 search->rank[other] < search->rank[b]))
                break;
            found[k] = other;
        }
        found[k] = b;
    }
    return chosen;
}

static bool solve(struct search *search, uint32_t *list, uint32_t count, ebb_height level,
                  uint32_t rank)
{
    if (count == 0)
        return true;
    search->base.nodes++;
    if (ebb__search_is_over(&search->base, count) ||
        !floors_raise(search, list, count, level, rank) || !floors_hold(search, list, count))
        return false;
    struct ebb_search_state state = state_of(search, list, count, level, rank);
    if (ebb__search_failed_before(&search->base, state))
        return false;
    ebb__search_deepest_keep(&search->base);
    size_t arena_count = search->base.arena_count;
    uint32_t *candidates = ebb__search_arena_take(&search->base, count);
    uint32_t candidate_count = candidates_find(search, list, count, level, rank, candidates);
    search->base.arena_count = arena_count + candidate_count;
    bool solved = false;
    for (uint32_t i = 0; i < candidate_count && !solved && !search->base.stopped; i++) {
        size_t trail_count = search->trail_count;
        uint32_t stack_count = search->base.stack_count;
        if (!place(search, candidates[i]))
            break;
        solved = solve_rest(search, list, count, candidates[i]);
        if (!solved)
            take_back(search, stack_count, trail_count);
    }
    search->base.arena_count = arena_count;
    if (!solved && !search->base.stopped && !search->base.no_memory)
        *ebb__search_slot(&search->base, state) = state;
    return solved;
}

/* ---- rankings and turns ---------------------------------------------------------------------- */

enum { BY_TOTAL, BY_WIDTH, BY_AREA, BY_SIZE, KEYS };

/* Rankings of candidates with equal floors. The first three are those of docs/papers.md,
 * MiniMalloc. */
static const uint8_t rankings[][3] = {
    {BY_TOTAL, BY_WIDTH, BY_AREA}, {BY_TOTAL, BY_AREA, BY_WIDTH}, {BY_WIDTH, BY_AREA, BY_TOTAL},
    {BY_AREA, BY_TOTAL, BY_WIDTH}, {BY_SIZE, BY_WIDTH, BY_TOTAL}, {BY_WIDTH, BY_SIZE, BY_TOTAL},
};

#define RANKINGS (sizeof rankings / sizeof rankings[0])

struct ranked {
    double key[3];
    uint32_t buffer;
};

static int ranked_compare(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    for (int k = 0; k < 3; k++)
        if (a->key[k] != b->key[k])
            return a->key[k] > b->key[k] ? -1 : 1;
    return (a->buffer > b->buffer) - (a->buffer < b->buffer);
}

/* States that failed under a plain ranking are remembered from round to round, so that they are not
 * searched again. */
static void rank_all(struct search *search, const struct ebb_pool_problem *problem,
                     const struct ebb_pool_sections *sections, uint64_t turn_index,
                     struct ranked *ranked)
{
    size_t ranking = turn_index % RANKINGS;
    bool plain = turn_index < PLAIN_LAPS * RANKINGS;
    uint64_t chance = ebb__search_mix(turn_index + 1);
    double noise = plain ? 0 : ebb__tuning()->pack_noise;
    for (uint32_t i = 0; i < search->base.count; i++) {
        const struct ebb_pool_buffer *item = &problem->buffers[i];
        double keys[KEYS] = {0};
        keys[BY_TOTAL] = (double)ebb__pool_sections_peak(sections, i);
        keys[BY_WIDTH] = (double)(item->upper - item->lower);
        keys[BY_SIZE] = (double)item->size_bytes;
        keys[BY_AREA] = keys[BY_WIDTH] * keys[BY_SIZE];
        ranked[i].buffer = i;
        for (int k = 0; k < 3; k++)
            ranked[i].key[k] =
                keys[rankings[ranking][k]] *
                (1 +
                 noise * ((double)(ebb__search_mix(chance + 3 * i + (unsigned)k) >> 11) * 0x1p-53));
    }
    qsort(ranked, search->base.count, sizeof *ranked, ranked_compare);
    for (uint32_t i = 0; i < search->base.count; i++) {
        search->rank[ranked[i].buffer] = i;
        search->salt[ranked[i].buffer] =
            ebb__search_mix(((plain ? ranking : turn_index) << 32) + ranked[i].buffer + 1);
    }
}

static bool turn(struct search *search, uint64_t nodes)
{
    take_back(search, 0, 0);
    uint32_t *list = ebb__search_begin(&search->base, nodes);
    return solve_parts(search, list, search->base.count, 0, 0);
}

/* Completes an unfinished turn. Its deepest placement is dense. With the rest on top, lowest floor
 * first, it is a packing that is too high, but often by little. Returns its height; EBB_HEIGHT_MAX
 * if it cannot be represented. */
static ebb_height complete(struct search *search)
{
    ebb_height height = 0;
    take_back(search, 0, 0);
    for (uint32_t i = 0; i < search->base.count; i++) {
        uint32_t chosen = UINT32_MAX;
        if (i < search->base.deepest_count)
            chosen = search->base.deepest[i];
        for (uint32_t b = 0; b < search->base.count && i >= search->base.deepest_count; b++)
            if (!search->base.placed[b] &&
                (chosen == UINT32_MAX || search->base.floor[b] < search->base.floor[chosen] ||
                 (search->base.floor[b] == search->base.floor[chosen] &&
                  search->rank[b] < search->rank[chosen])))
                chosen = b;
        ebb_height top = search->base.floor[chosen] + search->base.size[chosen];
        if (top > EBB_HEIGHT_MAX / 2 || !place(search, chosen))
            return EBB_HEIGHT_MAX;
        height = top > height ? top : height;
    }
    return height;
}

static bool neighbours_find(struct search *search, const struct ebb_pool_sections *sections)
{
    size_t count = 0, room = 0;
    for (uint32_t i = 0; i < search->base.count; i++) {
        search->neighbours_from[i] = (uint32_t)count;
        for (uint32_t k = 0; k < search->base.count; k++) {
            if (i == k ||
                !ebb__pool_runs_meet(sections->runs[i], sections->runs[k], sections->count))
                continue;
            if (!ebb__vec_reserve((void **)&search->neighbours, &room, count + 1,
                                  sizeof *search->neighbours))
                return false;
            search->neighbours[count++] = k;
        }
    }
    search->neighbours_from[search->base.count] = (uint32_t)count;
    return true;
}

static void search_fini(struct search *search)
{
    ebb__search_fini(&search->base);
    free(search->neighbours);
    free(search->neighbours_from);
    free(search->salt);
    free(search->rank);
    free(search->raised);
    free(search->trail);
}

static bool search_init(struct search *search, const struct ebb_pool_problem *problem,
                        const struct ebb_pool_sections *sections, uint64_t unit, ebb_height limit)
{
    size_t n = problem->count;
    *search = (struct search){.trail_count = 0};
    enum ebb_status status = ebb__search_init(&search->base, problem, sections, unit, limit);
    search->neighbours_from = malloc((n + 1) * sizeof *search->neighbours_from);
    search->salt = malloc(n * sizeof *search->salt);
    search->rank = malloc(n * sizeof *search->rank);
    search->raised = malloc(n * sizeof *search->raised);
    return !status && search->neighbours_from && search->salt && search->rank && search->raised &&
           neighbours_find(search, sections);
}

enum ebb_status ebb__pool_canonical(const struct ebb_pool_problem *problem,
                                    const struct ebb_pool_sections *sections, uint64_t unit,
                                    uint32_t limit, struct ebb_effort *effort, uint64_t limit_steps,
                                    uint64_t *turns, uint64_t *offsets,
                                    enum ebb_pool_verdict *verdict)
{
    *verdict = EBB_POOL_TIME_OUT;
    struct search search;
    struct ranked *ranked = malloc(problem->count * sizeof *ranked);
    enum ebb_status status = EBB_ERR_MEMORY;
    if (search_init(&search, problem, sections, unit, (ebb_height)limit) && ranked) {
        search.base.effort = effort;
        search.base.limit_steps = limit_steps;
        bool found = false;
        ebb_height lowest = EBB_HEIGHT_MAX;
        uint64_t nodes = ebb__tuning()->pack_turn_nodes;
        for (uint64_t i = 0;; i++, (*turns)++) {
            if (i && i % RANKINGS == 0)
                nodes =
                    (uint64_t)((double)nodes * (*turns < PLAIN_LAPS * RANKINGS ? 2 : LAP_GROWS));
            rank_all(&search, problem, sections, *turns, ranked);
            found = turn(&search, nodes);
            ebb_height height = found ? search.base.limit : complete(&search);
            if (height < lowest) {
                lowest = height;
                for (uint32_t b = 0; b < problem->count; b++)
                    offsets[b] = (uint64_t)search.base.floor[b] * unit;
            }
            if (found || !search.base.stopped || search.base.no_memory ||
                ebb__effort_is_over(effort, limit_steps))
                break;
        }
        *verdict = found                 ? EBB_POOL_FOUND
                   : search.base.stopped ? EBB_POOL_TIME_OUT
                                         : EBB_POOL_IMPOSSIBLE;
        if (!found && lowest == EBB_HEIGHT_MAX)
            memset(offsets, 0xff, problem->count * sizeof *offsets);
        if (!search.base.no_memory)
            status = EBB_OK;
    }
    free(ranked);
    search_fini(&search);
    return status;
}
