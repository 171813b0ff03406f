/* Depth-first search in canonical order, for the exact pool.
 *
 * Problem: a packing within a given height, or the proof that there is none.
 * Method: each buffer is placed as low as what is placed below it allows, and buffers are placed in
 * the order of their offsets (ties by rank), so that every packing that rests on its floors is met
 * once. At a node:
 *   floors        an unplaced buffer's floor is the highest top below it. One that was passed over
 *                 can only come to rest on an unplaced neighbour, which raises its floor further
 *   inference     for every section and every height, what must lie above the height there has to
 *                 fit under the limit
 *   dominance     nothing is placed so high that an unplaced buffer would fit below it whole
 *   equals        buffers of one size and one run of sections are placed in one order
 *   decomposition where no unplaced buffer spans a boundary, both sides are searched by themselves
 *   memory        what is left at a node that failed fails again
 * Several rankings take turns, each with a growing number of nodes; the first that ends, decides. A
 * turn that does not end leaves a packing all the same: its deepest placement with the rest on top.
 * In iterations of programs, where most sections have room, it is better than the search over valleys
 * (valley.c), and worse where there is none.
 * Complexity: exponential at worst; O(unplaced * run) a node.
 * Source: docs/papers.md, MiniMalloc; the raised floors, the inference at every height and the
 * memory are ours. */
#include "plan/pool/canonical.h"

#include "base/clock.h"
#include "base/vec.h"
#include "plan/pool/search.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_NODES 2000 /* of a turn, in the first lap through the rankings; arbitrary */
#define PLAIN_LAPS 6     /* laps without noise, with twice the nodes from one to the next */
#define LAP_GROWS 1.2    /* later: many short turns beat few long ones */
#define NOISE 0.5        /* on the keys of a ranking, later; arbitrary */
#define MEMORY_BITS 18 /* 2^18 failed states of 16 bytes: 4 MiB, about a last-level cache's share */
#define CLOCK_NODES 0x3ff /* look at the clock every so many nodes */

/* A run of sections, cut where the circle closes. */
struct cut {
    uint32_t first, last, more; /* [first, last) and [0, more) */
};

struct state {
    uint64_t low, high;
};

struct search {
    uint32_t count, sections;
    ebb_height limit;
    ebb_height *size;
    struct cut *cuts;
    uint32_t *neighbours, *neighbours_from; /* of i: [from[i], from[i + 1]) */
    uint32_t *twin;                         /* the one before it among its equals, or itself */
    uint64_t *salt;
    uint32_t *rank;
    ebb_height
        *floor; /* of an unplaced buffer: the highest top below it; of a placed one: offset */
    ebb_height *raised; /* scratch: floor with what the canonical order adds */
    bool *placed;
    uint32_t *crossing; /* unplaced buffers that live in section s and in the next */
    ebb_height *above;  /* scratch, one a section */
    struct trail {
        uint32_t buffer;
        ebb_height floor;
    } * trail;
    size_t trail_count, trail_room;
    uint32_t *stack; /* buffers in the order in which they were placed */
    uint32_t stack_count;
    uint32_t *deepest; /* the longest stack of this turn */
    uint32_t deepest_count;
    uint32_t *arena; /* lists of the nodes on the path */
    size_t arena_count, arena_room;
    struct state *memory;
    uint64_t nodes, nodes_limit, deadline_ns;
    bool stopped, no_memory;
};

/* ---- placing and taking back ----------------------------------------------------------------- */

static void crossing_change(struct search *search, uint32_t buffer, uint32_t by)
{
    const struct cut *cut = &search->cuts[buffer];
    if (cut->more) {
        for (uint32_t s = cut->first; s < search->sections; s++)
            search->crossing[s] += by;
        for (uint32_t s = 0; s + 1 < cut->more; s++)
            search->crossing[s] += by;
        return;
    }
    for (uint32_t s = cut->first; s + 1 < cut->last; s++)
        search->crossing[s] += by;
}

static bool place(struct search *search, uint32_t buffer)
{
    ebb_height top = search->floor[buffer] + search->size[buffer];
    uint32_t from = search->neighbours_from[buffer], to = search->neighbours_from[buffer + 1];
    if (search->trail_count + (to - from) > search->trail_room) {
        size_t room = 2 * (search->trail_count + (to - from)) + 1024;
        struct trail *moved = realloc(search->trail, room * sizeof *moved);
        if (!moved) {
            search->no_memory = true;
            return false;
        }
        search->trail = moved;
        search->trail_room = room;
    }
    for (uint32_t i = from; i < to; i++) {
        uint32_t other = search->neighbours[i];
        if (search->placed[other] || search->floor[other] >= top)
            continue;
        search->trail[search->trail_count++] = (struct trail){other, search->floor[other]};
        search->floor[other] = top;
    }
    search->placed[buffer] = true;
    search->stack[search->stack_count++] = buffer;
    crossing_change(search, buffer, UINT32_MAX);
    return true;
}

/* Everything placed since the two counts were these. */
static void take_back(struct search *search, uint32_t stack_count, size_t trail_count)
{
    while (search->trail_count > trail_count) {
        const struct trail *entry = &search->trail[--search->trail_count];
        search->floor[entry->buffer] = entry->floor;
    }
    while (search->stack_count > stack_count) {
        uint32_t buffer = search->stack[--search->stack_count];
        search->placed[buffer] = false;
        crossing_change(search, buffer, 1);
    }
}

/* ---- a node's bounds ------------------------------------------------------------------------- */

static bool passed_over(const struct search *search, uint32_t buffer, ebb_height level,
                        uint32_t rank)
{
    return search->floor[buffer] < level ||
           (search->floor[buffer] == level && search->rank[buffer] < rank);
}

/* Floors as the canonical order raises them; false where one can no longer rest on anything. */
static bool floors_raise(struct search *search, const uint32_t *list, uint32_t count,
                         ebb_height level, uint32_t rank)
{
    bool any = false;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t b = list[i];
        search->raised[b] = search->floor[b] > level ? search->floor[b] : level;
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
            if (search->placed[other])
                continue;
            ebb_height top = search->raised[other] + search->size[other];
            if (top < least)
                least = top;
            if (least <= search->raised[b])
                break;
        }
        if (least > search->limit - search->size[b])
            return false;
        if (least > search->raised[b])
            search->raised[b] = least;
    }
    return true;
}

/* What lies above each floor must fit under the limit, in every section. Sorts the list. */
static bool floors_hold(struct search *search, uint32_t *list, uint32_t count)
{
    ebb__search_sort(search->raised, list, count);
    memset(search->above, 0, search->sections * sizeof *search->above);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t b = list[i];
        const struct cut *cut = &search->cuts[b];
        ebb_height room = search->limit - search->raised[b];
        if (!ebb__search_stack(search->above, cut->first, cut->last, search->size[b], room) ||
            !ebb__search_stack(search->above, 0, cut->more, search->size[b], room))
            return false;
    }
    return true;
}

static struct state state_of(const struct search *search, const uint32_t *list, uint32_t count,
                             ebb_height level, uint32_t rank)
{
    struct state state = {count, count};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t b = list[i];
        uint64_t value = (uint64_t)search->floor[b] * 2 + passed_over(search, b, level, rank);
        uint64_t hash = ebb__search_mix(search->salt[b] + value);
        state.low += hash;
        state.high += ebb__search_mix(hash ^ search->salt[b]);
    }
    return state;
}

/* ---- the search ------------------------------------------------------------------------------ */

static bool solve(struct search *search, uint32_t *list, uint32_t count, ebb_height level,
                  uint32_t rank);

static uint32_t *arena_take(struct search *search, uint32_t count)
{
    /* Its room is enough for the deepest path: see search_init(). */
    uint32_t *list = search->arena + search->arena_count;
    search->arena_count += count;
    return list;
}

static bool is_boundary(const struct search *search, uint32_t section)
{
    return search->crossing[section] == 0;
}

/* The part around one buffer: its sections lie between two boundaries. */
static uint32_t part_take(struct search *search, uint32_t *list, uint32_t count, uint32_t *part)
{
    uint32_t sections = search->sections, steps = 0, taken = 0, kept = 0;
    uint32_t first = search->cuts[list[0]].first, last = first;
    while (steps < sections && !is_boundary(search, (first + sections - 1) % sections)) {
        first = (first + sections - 1) % sections;
        steps++;
    }
    while (steps < sections && !is_boundary(search, last)) {
        last = (last + 1) % sections;
        steps++;
    }
    uint32_t length = (last + sections - first) % sections;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = (search->cuts[list[i]].first + sections - first) % sections;
        if (steps >= sections || at <= length)
            part[taken++] = list[i];
        else
            list[kept++] = list[i];
    }
    return taken;
}

/* Parts that have no section in common, one after the other: what one needs is nothing to another,
 * so the first that fails decides. */
static bool solve_parts(struct search *search, uint32_t *list, uint32_t count, ebb_height level,
                        uint32_t rank)
{
    bool solved = true;
    size_t arena_count = search->arena_count;
    while (count && solved) {
        uint32_t *part = arena_take(search, count);
        uint32_t part_count = part_take(search, list, count, part);
        count -= part_count;
        solved = solve(search, part, part_count, level, rank);
        search->arena_count = arena_count;
    }
    return solved;
}

static bool divides(const struct search *search, uint32_t buffer)
{
    const struct cut *cut = &search->cuts[buffer];
    uint32_t end = cut->more ? search->sections : cut->last - 1;
    for (uint32_t s = cut->first; s < end; s++)
        if (is_boundary(search, s))
            return true;
    for (uint32_t s = 0; s + 1 < cut->more; s++)
        if (is_boundary(search, s))
            return true;
    return false;
}

/* What is left once `chosen` has been placed. */
static bool solve_rest(struct search *search, const uint32_t *list, uint32_t count, uint32_t chosen)
{
    size_t arena_count = search->arena_count;
    uint32_t *rest = arena_take(search, count);
    uint32_t left = 0;
    for (uint32_t i = 0; i < count; i++)
        if (list[i] != chosen)
            rest[left++] = list[i];
    ebb_height level = search->floor[chosen];
    uint32_t rank = search->rank[chosen];
    bool solved = divides(search, chosen) ? solve_parts(search, rest, left, level, rank)
                                          : solve(search, rest, left, level, rank);
    search->arena_count = arena_count;
    return solved;
}

/* Candidates in the order in which they are tried: lowest floor first, then by rank. */
static uint32_t candidates_find(const struct search *search, const uint32_t *list, uint32_t count,
                                ebb_height level, uint32_t rank, uint32_t *found)
{
    ebb_height least_top = EBB_HEIGHT_MAX;
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < count; i++) {
        ebb_height top = search->floor[list[i]] + search->size[list[i]];
        if (top < least_top)
            least_top = top;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t b = list[i];
        if (search->floor[b] >= least_top || passed_over(search, b, level, rank))
            continue;
        if (search->twin[b] != b && !search->placed[search->twin[b]])
            continue;
        uint32_t k = chosen++;
        for (; k; k--) {
            uint32_t other = found[k - 1];
            if (search->floor[other] < search->floor[b] ||
                (search->floor[other] == search->floor[b] && search->rank[other] < search->rank[b]))
                break;
            found[k] = other;
        }
        found[k] = b;
    }
    return chosen;
}

static bool out_of_time(struct search *search)
{
    if (search->nodes >= search->nodes_limit ||
        ((search->nodes & CLOCK_NODES) == 0 && ebb__now_ns() > search->deadline_ns))
        search->stopped = true;
    return search->stopped || search->no_memory;
}

static bool solve(struct search *search, uint32_t *list, uint32_t count, ebb_height level,
                  uint32_t rank)
{
    if (count == 0)
        return true;
    search->nodes++;
    if (out_of_time(search) || !floors_raise(search, list, count, level, rank) ||
        !floors_hold(search, list, count))
        return false;
    struct state state = state_of(search, list, count, level, rank);
    struct state *slot = &search->memory[state.low & (((uint64_t)1 << MEMORY_BITS) - 1)];
    if (slot->low == state.low && slot->high == state.high)
        return false;
    if (search->stack_count > search->deepest_count) {
        search->deepest_count = search->stack_count;
        memcpy(search->deepest, search->stack, search->stack_count * sizeof *search->deepest);
    }
    size_t arena_count = search->arena_count;
    uint32_t *candidates = arena_take(search, count);
    uint32_t candidate_count = candidates_find(search, list, count, level, rank, candidates);
    search->arena_count = arena_count + candidate_count;
    bool solved = false;
    for (uint32_t i = 0; i < candidate_count && !solved && !search->stopped; i++) {
        size_t trail_count = search->trail_count;
        uint32_t stack_count = search->stack_count;
        if (!place(search, candidates[i]))
            break;
        solved = solve_rest(search, list, count, candidates[i]);
        if (!solved)
            take_back(search, stack_count, trail_count);
    }
    search->arena_count = arena_count;
    if (!solved && !search->stopped && !search->no_memory)
        *slot = state;
    return solved;
}

/* ---- rankings and turns ---------------------------------------------------------------------- */

enum { BY_TOTAL, BY_WIDTH, BY_AREA, BY_SIZE, KEYS };

/* Ties among candidates of one floor. The first three are those of docs/papers.md, MiniMalloc. */
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

/* What failed under a plain ranking is remembered from lap to lap: it need not be searched again. */
static void rank_all(struct search *search, const struct ebb_pool_problem *problem,
                     const struct ebb_pool_sections *sections, uint64_t turn_index,
                     struct ranked *ranked)
{
    size_t ranking = turn_index % RANKINGS;
    bool plain = turn_index < PLAIN_LAPS * RANKINGS;
    uint64_t chance = ebb__search_mix(turn_index + 1);
    double noise = plain ? 0 : NOISE;
    for (uint32_t i = 0; i < search->count; i++) {
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
    qsort(ranked, search->count, sizeof *ranked, ranked_compare);
    for (uint32_t i = 0; i < search->count; i++) {
        search->rank[ranked[i].buffer] = i;
        search->salt[ranked[i].buffer] =
            ebb__search_mix(((plain ? ranking : turn_index) << 32) + ranked[i].buffer + 1);
    }
}

static bool turn(struct search *search, uint64_t nodes)
{
    search->nodes = 0;
    search->nodes_limit = nodes;
    search->stopped = false;
    search->arena_count = 0;
    search->deepest_count = 0;
    take_back(search, 0, 0);
    uint32_t *list = arena_take(search, search->count);
    for (uint32_t i = 0; i < search->count; i++)
        list[i] = i;
    return solve_parts(search, list, search->count, 0, 0);
}

/* A turn that ends without a packing got somewhere: what it had placed at its deepest is dense, so
 * with the rest on top, lowest floor first, it is a packing that is too high, but often by little.
 * Returns its height; EBB_HEIGHT_MAX where that would not fit. */
static ebb_height complete(struct search *search)
{
    ebb_height height = 0;
    take_back(search, 0, 0);
    for (uint32_t i = 0; i < search->count; i++) {
        uint32_t chosen = UINT32_MAX;
        if (i < search->deepest_count)
            chosen = search->deepest[i];
        for (uint32_t b = 0; b < search->count && i >= search->deepest_count; b++)
            if (!search->placed[b] &&
                (chosen == UINT32_MAX || search->floor[b] < search->floor[chosen] ||
                 (search->floor[b] == search->floor[chosen] &&
                  search->rank[b] < search->rank[chosen])))
                chosen = b;
        ebb_height top = search->floor[chosen] + search->size[chosen];
        if (top > EBB_HEIGHT_MAX / 2 || !place(search, chosen))
            return EBB_HEIGHT_MAX;
        height = top > height ? top : height;
    }
    return height;
}

static bool neighbours_find(struct search *search, const struct ebb_pool_sections *sections)
{
    size_t count = 0, room = 0;
    for (uint32_t i = 0; i < search->count; i++) {
        search->neighbours_from[i] = (uint32_t)count;
        for (uint32_t k = 0; k < search->count; k++) {
            if (i == k ||
                !ebb__pool_runs_meet(sections->runs[i], sections->runs[k], sections->count))
                continue;
            if (!ebb__vec_reserve((void **)&search->neighbours, &room, count + 1,
                                  sizeof *search->neighbours))
                return false;
            search->neighbours[count++] = k;
            if (search->size[i] == search->size[k] && k < i &&
                sections->runs[i].first == sections->runs[k].first &&
                sections->runs[i].last == sections->runs[k].last)
                search->twin[i] = k;
        }
    }
    search->neighbours_from[search->count] = (uint32_t)count;
    return true;
}

static void search_fini(struct search *search)
{
    free(search->size);
    free(search->cuts);
    free(search->neighbours);
    free(search->neighbours_from);
    free(search->twin);
    free(search->salt);
    free(search->rank);
    free(search->floor);
    free(search->raised);
    free(search->placed);
    free(search->crossing);
    free(search->above);
    free(search->trail);
    free(search->stack);
    free(search->deepest);
    free(search->arena);
    free(search->memory);
}

static bool search_init(struct search *search, const struct ebb_pool_problem *problem,
                        const struct ebb_pool_sections *sections, uint64_t unit)
{
    size_t n = problem->count;
    *search = (struct search){.count = problem->count, .sections = sections->count};
    search->arena_room = 3 * n * (n + 1);
    search->size = malloc(n * sizeof *search->size);
    search->cuts = malloc(n * sizeof *search->cuts);
    search->neighbours_from = malloc((n + 1) * sizeof *search->neighbours_from);
    search->twin = malloc(n * sizeof *search->twin);
    search->salt = malloc(n * sizeof *search->salt);
    search->rank = malloc(n * sizeof *search->rank);
    search->floor = calloc(n, sizeof *search->floor);
    search->raised = malloc(n * sizeof *search->raised);
    search->placed = calloc(n, sizeof *search->placed);
    search->crossing = calloc(sections->count, sizeof *search->crossing);
    search->above = malloc(sections->count * sizeof *search->above);
    search->stack = malloc(n * sizeof *search->stack);
    search->deepest = malloc(n * sizeof *search->deepest);
    search->arena = malloc(search->arena_room * sizeof *search->arena);
    search->memory = calloc((size_t)1 << MEMORY_BITS, sizeof *search->memory);
    if (!search->size || !search->cuts || !search->neighbours_from || !search->twin ||
        !search->salt || !search->rank || !search->floor || !search->raised || !search->placed ||
        !search->crossing || !search->above || !search->stack || !search->deepest ||
        !search->arena || !search->memory)
        return false;
    for (uint32_t i = 0; i < problem->count; i++) {
        struct ebb_pool_run run = sections->runs[i];
        uint32_t over = run.last > sections->count ? run.last - sections->count : 0;
        search->size[i] = (ebb_height)((problem->buffers[i].size_bytes + unit - 1) / unit);
        search->cuts[i] = (struct cut){run.first, run.last - over, over};
        search->twin[i] = i;
        crossing_change(search, i, 1);
    }
    return neighbours_find(search, sections);
}

enum ebb_status ebb__pool_canonical(const struct ebb_pool_problem *problem,
                                    const struct ebb_pool_sections *sections, uint64_t unit,
                                    uint32_t limit, uint64_t deadline_ns, uint64_t *turns,
                                    uint64_t *offsets, enum ebb_pool_verdict *verdict)
{
    *verdict = EBB_POOL_TIME_OUT;
    struct search search;
    struct ranked *ranked = malloc(problem->count * sizeof *ranked);
    enum ebb_status status = EBB_ERR_MEMORY;
    if (search_init(&search, problem, sections, unit) && ranked) {
        search.limit = (ebb_height)limit;
        search.deadline_ns = deadline_ns;
        bool found = false;
        ebb_height lowest = EBB_HEIGHT_MAX;
        uint64_t nodes = FIRST_NODES;
        for (uint64_t i = 0;; i++, (*turns)++) {
            if (i && i % RANKINGS == 0)
                nodes =
                    (uint64_t)((double)nodes * (*turns < PLAIN_LAPS * RANKINGS ? 2 : LAP_GROWS));
            rank_all(&search, problem, sections, *turns, ranked);
            found = turn(&search, nodes);
            ebb_height height = found ? search.limit : complete(&search);
            if (height < lowest) {
                lowest = height;
                for (uint32_t b = 0; b < problem->count; b++)
                    offsets[b] = (uint64_t)search.floor[b] * unit;
            }
            if (found || !search.stopped || search.no_memory || ebb__now_ns() > deadline_ns)
                break;
        }
        *verdict = found            ? EBB_POOL_FOUND
                   : search.stopped ? EBB_POOL_TIME_OUT
                                    : EBB_POOL_IMPOSSIBLE;
        if (!found && lowest == EBB_HEIGHT_MAX)
            memset(offsets, 0xff, problem->count * sizeof *offsets);
        if (!search.no_memory)
            status = EBB_OK;
    }
    free(ranked);
    search_fini(&search);
    return status;
}
