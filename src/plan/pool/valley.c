/* Depth-first search over valleys.
 *
 * The placed buffers form a skyline over the sections, and nothing is ever placed below it. A
 * valley is a level stretch of it; on both sides there is a higher wall, or nothing. A packing can
 * be assumed to be settled: each buffer rests on the ground or on another. So any section of a
 * valley has few choices. Either a buffer within the valley covers the section at the valley's
 * level. Or nothing does. The next buffer there is then as high as a wall, or as the lowest top of
 * a buffer on the valley's ground. A node takes the section with the least product of choices and
 * space to waste, and tries the choices. It checks first:
 *   floors        an unplaced buffer's floor is the highest of the skyline below it
 *   space         the skyline and the unplaced buffers fit under the limit, in every section; if
 *                 exactly, the next buffer's floor must be the skyline itself
 *   inference     for every section and every height, the buffers that must be above the height
 *                 there have to fit under the limit
 *   equals        buffers of one size and one run of sections are placed in one order
 *   decomposition if no unplaced buffer spans a boundary, both sides are searched independently
 *   memory        a remaining problem that failed at a node fails again
 * Complexity: exponential at worst; O(unplaced * run) a node.
 * Fails: by time, if much space may be wasted nearly everywhere, but not everywhere.
 * Source: floors, inference and decomposition: docs/papers.md, MiniMalloc; the valleys, the choice
 * among them, the inference at every height and the memory are ours. */
#include "plan/pool/valley.h"

#include <string.h>

/* Amounts of space to waste below this part of the limit count as equal; 25 and 100 give the same
 * packing. */
#define ROOM_SHARE 50.0
#define NO_VALLEY UINT32_MAX

/* The next step of a node: at a section, place a buffer, or waste the space below `raised`. */
struct choice {
    uint32_t section;
    ebb_height raised; /* EBB_HEIGHT_MAX: there is no space for that */
};

/* ---- what a node examines -------------------------------------------------------------------- */

static uint32_t section_at(const struct ebb_valley_search *search, struct ebb_search_part part,
                           uint32_t step)
{
    uint32_t s = part.first + step;
    return s >= search->base.sections ? s - search->base.sections : s;
}

/* Finds the level stretches of the part, and which of them are valleys. */
static void valleys_find(struct ebb_valley_search *search, struct ebb_search_part part)
{
    const ebb_height *sky = search->sky;
    uint32_t count = 0, length = part.length;
    if (part.closed) { /* begin at a step of the skyline */
        uint32_t turns = 0;
        while (turns < length && sky[part.first] == sky[section_at(search, part, length - 1)]) {
            part.first = section_at(search, part, 1);
            turns++;
        }
        part.closed = turns < length;
    }
    for (uint32_t step = 0, next; step < length; step = next) {
        uint32_t first = section_at(search, part, step);
        for (next = step + 1; next < length; next++)
            if (sky[section_at(search, part, next)] != sky[first])
                break;
        struct ebb_valley valley = {EBB_HEIGHT_MAX, EBB_HEIGHT_MAX, first,
                                    section_at(search, part, next - 1), EBB_HEIGHT_MAX};
        if (step || part.closed)
            valley.left = sky[section_at(search, part, step ? step - 1 : length - 1)];
        if (next < length || part.closed)
            valley.right = sky[section_at(search, part, next < length ? next : 0)];
        bool is_one = valley.left > sky[first] && valley.right > sky[first];
        for (uint32_t k = step; k < next; k++) {
            uint32_t s = section_at(search, part, k);
            search->valley_of[s] = is_one ? count : NO_VALLEY;
            search->ways[s] = 0;
        }
        if (is_one)
            search->valleys[count++] = valley;
    }
}

static void count_way(struct ebb_valley_search *search, const struct ebb_pool_cut *cut)
{
    for (uint32_t s = cut->first; s < cut->last; s++)
        search->ways[s]++;
    for (uint32_t s = 0; s < cut->more; s++)
        search->ways[s]++;
}

/* Counts the choices in the sections of valleys. Returns false if a buffer no longer fits. */
static bool ways_count(struct ebb_valley_search *search, const uint32_t *list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t b = list[i];
        const struct ebb_pool_cut *cut = &search->base.cuts[b];
        uint32_t v = search->valley_of[cut->first];
        if (search->base.size[b] > search->base.limit - search->base.floor[b])
            return false;
        if (v == NO_VALLEY || search->sky[cut->first] != search->base.floor[b])
            continue; /* it extends beyond a valley */
        if (search->base.size[b] < search->valleys[v].smallest)
            search->valleys[v].smallest = search->base.size[b];
        if (ebb__search_is_next_twin(&search->base, b))
            count_way(search, cut);
    }
    return true;
}

/* If nothing may be wasted, a buffer must come next. */
static bool exact_reached(struct ebb_valley_search *search, struct ebb_search_part part,
                          const uint32_t *list, uint32_t count)
{
    uint32_t left = 0;
    for (uint32_t step = 0; step < part.length; step++) {
        uint32_t s = section_at(search, part, step);
        if (search->valley_of[s] == NO_VALLEY &&
            search->base.limit - search->sky[s] == search->rest[s])
            search->exact[left++] = s;
    }
    for (uint32_t i = 0; i < count && left; i++)
        for (uint32_t k = 0; k < left;)
            if (search->sky[search->exact[k]] == search->base.floor[list[i]] &&
                ebb__valley_covers(search, list[i], search->exact[k]))
                search->exact[k] = search->exact[--left];
            else
                k++;
    return left == 0;
}

/* The height of the skyline of a valley's section if nothing is placed on its ground. The next
 * buffer there is then within the valley, on another buffer, or crosses a wall. */
static ebb_height raised(const struct ebb_valley_search *search, uint32_t section)
{
    const struct ebb_valley *valley = &search->valleys[search->valley_of[section]];
    ebb_height to = valley->left < valley->right ? valley->left : valley->right;
    if (search->ways[section] && search->sky[section] + valley->smallest < to)
        to = search->sky[section] + valley->smallest;
    return to <= search->base.limit - search->rest[section] ? to : EBB_HEIGHT_MAX;
}

/* Wastes ground that no buffer can cover; *any is true if there was such ground. Returns false if
 * there is no space. */
static bool dead_waste(struct ebb_valley_search *search, struct ebb_search_part part,
                       const uint32_t *list, uint32_t count, bool *any)
{
    *any = false;
    for (uint32_t step = 0; step < part.length; step++) {
        uint32_t s = section_at(search, part, step);
        if (search->valley_of[s] == NO_VALLEY || search->ways[s])
            continue;
        ebb_height to = raised(search, s);
        if (to == EBB_HEIGHT_MAX || !ebb__valley_waste(search, s, to, list, count))
            return false;
        *any = true;
    }
    return true;
}

/* Computes the skyline without useless ground, its valleys, and the choices. Returns false if there
 * are none. */
static bool ground_find(struct ebb_valley_search *search, struct ebb_search_part part,
                        const uint32_t *list, uint32_t count)
{
    bool any = true;
    while (any) {
        valleys_find(search, part);
        if (!ways_count(search, list, count) || !dead_waste(search, part, list, count, &any))
            return false;
    }
    return true;
}

/* The order of sections: the least first. A forced choice is made at once. */
static double urgency(const struct ebb_valley_search *search, uint32_t ways, ebb_height room)
{
    if (ways == 1)
        return 0;
    switch (search->choice) {
    case EBB_VALLEY_ROOM:
        return (double)room + 1;
    case EBB_VALLEY_FEWEST:
        return ways;
    default:
        return (double)ways * ((double)room + (double)search->base.limit / ROOM_SHARE);
    }
}

/* Returns false if some section has no choice. */
static bool section_choose(const struct ebb_valley_search *search, struct ebb_search_part part,
                           struct choice *choice)
{
    double best = -1;
    for (uint32_t step = 0; step < part.length; step++) {
        uint32_t s = section_at(search, part, step);
        ebb_height room = search->base.limit - search->sky[s] - search->rest[s];
        if (room < 0)
            return false; /* it did not fit even with nothing placed */
        if (search->valley_of[s] == NO_VALLEY)
            continue;
        ebb_height to = raised(search, s);
        uint32_t ways = search->ways[s] + (to != EBB_HEIGHT_MAX);
        if (ways == 0)
            return false;
        double merit = urgency(search, ways, room);
        if (best < 0 || merit < best ||
            (merit <= best && search->sky[s] < search->sky[choice->section])) {
            best = merit;
            *choice = (struct choice){s, to};
        }
    }
    return best >= 0;
}

static uint32_t length_of(const struct ebb_pool_cut *cut)
{
    return cut->last - cut->first + cut->more;
}

/* The same for many of one floor: collects the changes between sections first, then sums them in
 * one sweep. */
static bool sweep_holds(struct ebb_valley_search *search, const uint32_t *list, uint32_t count,
                        ebb_height room)
{
    ebb_height *change = search->change, load = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct ebb_pool_cut *cut = &search->base.cuts[list[i]];
        change[cut->first] += search->base.size[list[i]];
        change[cut->last] -= search->base.size[list[i]];
        if (cut->more) {
            change[0] += search->base.size[list[i]];
            change[cut->more] -= search->base.size[list[i]];
        }
    }
    int over = 0;
    for (uint32_t s = 0; s < search->base.sections; s++) {
        load += change[s];
        change[s] = 0;
        search->base.above[s] += load;
        over |= search->base.above[s] > room;
    }
    change[search->base.sections] = 0;
    return !over;
}

/* Checks that the buffers above each floor fit under the limit, in every section. Sorts the
 * list. */
static bool floors_hold(struct ebb_valley_search *search, uint32_t *list, uint32_t count)
{
    ebb__search_sort(search->base.floor, list, count);
    memset(search->base.above, 0, search->base.sections * sizeof *search->base.above);
    for (uint32_t i = 0, next; i < count; i = next) {
        ebb_height floor = search->base.floor[list[i]], room = search->base.limit - floor;
        uint64_t length = 0;
        for (next = i; next < count && search->base.floor[list[next]] == floor; next++)
            length += length_of(&search->base.cuts[list[next]]);
        if (length > search->base.sections) {
            if (!sweep_holds(search, list + i, next - i, room))
                return false;
            continue;
        }
        for (uint32_t k = i; k < next; k++) {
            ebb_height size = search->base.size[list[k]];
            if (!ebb__search_stack_cut(search->base.above, &search->base.cuts[list[k]], size, room))
                return false;
        }
    }
    return true;
}

static struct ebb_search_state state_of(const struct ebb_valley_search *search,
                                        struct ebb_search_part part, const uint32_t *list,
                                        uint32_t count)
{
    struct ebb_search_state state = {count, part.length};
    for (uint32_t i = 0; i < count; i++) {
        uint64_t hash = ebb__search_mix((uint64_t)list[i] + 1);
        state.low += hash;
        state.high += ebb__search_mix(hash + 1);
    }
    for (uint32_t step = 0; step < part.length; step++) {
        uint32_t s = section_at(search, part, step);
        uint64_t hash = ebb__search_mix(((uint64_t)(s + 1) << 32) + (uint32_t)search->sky[s]);
        state.low += hash;
        state.high += ebb__search_mix(hash + 1);
    }
    return state;
}

/* ---- the search ------------------------------------------------------------------------------ */

static bool solve(struct ebb_valley_search *search, uint32_t *list, uint32_t count,
                  struct ebb_search_part part);

/* Searches parts with no common section one after the other. They are independent, so the first
 * that fails decides. */
static bool solve_parts(struct ebb_valley_search *search, uint32_t *list, uint32_t count)
{
    bool solved = true;
    size_t arena_count = search->base.arena_count;
    while (count && solved) {
        struct ebb_search_part part;
        uint32_t *taken = ebb__search_arena_take(&search->base, count);
        uint32_t taken_count = ebb__search_part_take(&search->base, list, count, taken, &part);
        count -= taken_count;
        solved = solve(search, taken, taken_count, part);
        search->base.arena_count = arena_count;
    }
    return solved;
}

/* Searches the remaining problem after `chosen` has been placed. If it was the last buffer at an
 * end of the part, the part shrinks at that end, where the boundaries agree. */
static bool solve_rest(struct ebb_valley_search *search, const uint32_t *list, uint32_t count,
                       uint32_t chosen, struct ebb_search_part part)
{
    size_t arena_count = search->base.arena_count;
    uint32_t *rest = ebb__search_without(&search->base, list, count, chosen);
    bool solved = ebb__search_divides(&search->base, chosen) ? solve_parts(search, rest, count - 1)
                                                             : solve(search, rest, count - 1, part);
    search->base.arena_count = arena_count;
    return solved;
}

static double merit_of(const struct ebb_valley_search *search, uint32_t buffer,
                       const struct ebb_valley *valley)
{
    if (!search->flush)
        return search->key[buffer];
    const struct ebb_pool_cut *cut = &search->base.cuts[buffer];
    uint32_t last = cut->more ? cut->more - 1 : cut->last - 1;
    ebb_height top = search->base.floor[buffer] + search->base.size[buffer];
    int ends = 1 + (cut->first == valley->first) + (last == valley->last) + (top == valley->left) +
               (top == valley->right);
    return search->key[buffer] * ends;
}

/* Lists the buffers that may come next at this section of a valley, the best first. */
static uint32_t ways_find(const struct ebb_valley_search *search, const uint32_t *list,
                          uint32_t count, uint32_t section, uint32_t *found)
{
    const struct ebb_valley *valley = &search->valleys[search->valley_of[section]];
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t b = list[i];
        if (search->base.floor[b] != search->sky[section] ||
            !ebb__valley_covers(search, b, section) || !ebb__search_is_next_twin(&search->base, b))
            continue;
        double merit = merit_of(search, b, valley);
        uint32_t k = chosen++;
        for (; k && search->merit[k - 1] < merit; k--) {
            found[k] = found[k - 1];
            search->merit[k] = search->merit[k - 1];
        }
        found[k] = b;
        search->merit[k] = merit;
    }
    return chosen;
}

/* A node is a loop: wasting ground is the last choice, and keeps the same list of buffers. */
static bool solve(struct ebb_valley_search *search, uint32_t *list, uint32_t count,
                  struct ebb_search_part part)
{
    if (count == 0)
        return true;
    size_t arena_count = search->base.arena_count, first_trail = search->trail_count;
    uint32_t first_stack = search->base.stack_count;
    struct ebb_search_state state = state_of(search, part, list, count), first_state = state;
    bool solved = false;
    for (;;) {
        struct choice choice = {0};
        search->base.nodes++;
        if (ebb__search_is_over(&search->base, count) ||
            ebb__search_failed_before(&search->base, state))
            break;
        if (!ground_find(search, part, list, count) || !section_choose(search, part, &choice) ||
            !exact_reached(search, part, list, count) || !floors_hold(search, list, count))
            break;
        ebb__search_deepest_keep(&search->base);
        uint32_t *ways = ebb__search_arena_take(&search->base, count);
        uint32_t way_count = ways_find(search, list, count, choice.section, ways);
        search->base.arena_count = arena_count + way_count;
        size_t trail_count = search->trail_count;
        uint32_t stack_count = search->base.stack_count;
        for (uint32_t i = 0;
             i < way_count && !solved && !search->base.stopped && !search->base.no_memory; i++) {
            if (!ebb__valley_place(search, ways[i], list, count))
                break;
            solved = solve_rest(search, list, count, ways[i], part);
            if (!solved)
                ebb__valley_take_back(search, stack_count, trail_count);
        }
        search->base.arena_count = arena_count;
        if (solved || search->base.stopped || search->base.no_memory ||
            choice.raised == EBB_HEIGHT_MAX ||
            !ebb__valley_waste(search, choice.section, choice.raised, list, count))
            break;
        state = state_of(search, part, list, count);
    }
    if (!solved)
        ebb__valley_take_back(search, first_stack, first_trail);
    if (!solved && !search->base.stopped && !search->base.no_memory) {
        *ebb__search_slot(&search->base, state) = state;
        *ebb__search_slot(&search->base, first_state) = first_state;
    }
    return solved;
}

bool ebb__valley_turn(struct ebb_valley_search *search, uint64_t nodes)
{
    ebb__valley_take_back(search, 0, 0);
    uint32_t *list = ebb__search_begin(&search->base, nodes);
    return solve_parts(search, list, search->base.count);
}

/* Completes an unfinished turn. Its deepest placement is dense. With the rest on top it is a
 * packing that is too high, but often by little. */
ebb_height ebb__valley_complete(struct ebb_valley_search *search)
{
    ebb_height height = 0;
    ebb__valley_take_back(search, 0, 0);
    uint32_t *list = search->base.arena, left = search->base.count;
    for (uint32_t i = 0; i < left; i++)
        list[i] = i;
    for (uint32_t i = 0; i < search->base.count; i++) {
        uint32_t at = 0;
        for (uint32_t k = 0; k < left; k++) {
            uint32_t b = list[k], best = list[at];
            if (i < search->base.deepest_count
                    ? b == search->base.deepest[i]
                    : search->base.floor[b] < search->base.floor[best] ||
                          (search->base.floor[b] == search->base.floor[best] &&
                           search->key[b] > search->key[best]))
                at = k;
        }
        uint32_t chosen = list[at];
        list[at] = list[--left];
        if (search->base.floor[chosen] > EBB_HEIGHT_MAX / 2 - search->base.size[chosen] ||
            !ebb__valley_place(search, chosen, list, left))
            return EBB_HEIGHT_MAX;
        ebb_height top = search->base.floor[chosen] + search->base.size[chosen];
        height = top > height ? top : height;
    }
    return height;
}
