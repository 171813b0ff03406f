/* Depth-first search over valleys.
 *
 * What is placed forms a skyline over the sections, and nothing is ever placed below it. A valley is
 * a level stretch of it with higher walls, or nothing, on both sides. A packing may be taken to be
 * settled: each buffer rests on the ground or on another. So at any section of any valley there are
 * few ways to go on: a buffer that lies within the valley covers the section at the valley's level;
 * or nothing does, and what comes next there is as high as a wall, or as the lowest top of a buffer
 * on the valley's ground. A node takes the section that leaves least, ways to go on times room to
 * waste, and tries them. What it looks at first:
 *   floors        an unplaced buffer's floor is the highest of the skyline below it
 *   room          the skyline and what is to come fit under the limit, in every section; where
 *                 exactly, the next buffer's floor must be the skyline itself
 *   inference     for every section and every height, what must lie above the height there has to
 *                 fit under the limit
 *   equals        buffers of one size and one run of sections are placed in one order
 *   decomposition where no unplaced buffer spans a boundary, both sides are searched by themselves
 *   memory        what is left at a node that failed fails again
 * Complexity: exponential at worst; O(unplaced * run) a node.
 * Fails: by time, where much may be wasted nearly everywhere, yet not all of it.
 * Source: floors, inference and decomposition: docs/papers.md, MiniMalloc; the valleys, the choice
 * among them, the inference at every height and the memory are ours. */
#include "plan/pool/valley.h"

#include "base/clock.h"

#include <string.h>

#define ROOM_SHARE 50    /* below a 50th of the limit, room to waste counts alike; arbitrary */
#define CLOCK_NODES 0x3f /* look at the clock every so many nodes */

#define NO_VALLEY UINT32_MAX

/* Sections between two boundaries that no unplaced buffer spans, from `first` on around the circle.
 * `closed`: all of it, without a boundary. */
struct part {
    uint32_t first, length;
    bool closed;
};

/* Where a node goes on: at a section with a buffer, or by wasting what is below `raised`. */
struct choice {
    uint32_t section;
    ebb_height raised; /* EBB_HEIGHT_MAX: there is no room for that */
};

/* ---- what a node looks at -------------------------------------------------------------------- */

static uint32_t section_at(const struct ebb_valley_search *search, struct part part, uint32_t step)
{
    uint32_t s = part.first + step;
    return s >= search->sections ? s - search->sections : s;
}

/* The level stretches of the part, and which of them are valleys. */
static void valleys_find(struct ebb_valley_search *search, struct part part)
{
    const ebb_height *sky = search->sky;
    uint32_t count = 0, length = part.length;
    if (part.closed) { /* begin where the skyline has a step */
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

/* Is it among the ways, as far as its equals go? */
static bool is_next_twin(const struct ebb_valley_search *search, uint32_t buffer)
{
    return search->twin[buffer] == buffer || search->placed[search->twin[buffer]];
}

/* The ways to go on in the sections of valleys. False: a buffer no longer fits. */
static bool ways_count(struct ebb_valley_search *search, const uint32_t *list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t b = list[i];
        const struct ebb_pool_cut *cut = &search->cuts[b];
        uint32_t v = search->valley_of[cut->first];
        if (search->size[b] > search->limit - search->floor[b])
            return false;
        if (v == NO_VALLEY || search->sky[cut->first] != search->floor[b])
            continue; /* it reaches beyond a valley */
        if (search->size[b] < search->valleys[v].smallest)
            search->valleys[v].smallest = search->size[b];
        if (is_next_twin(search, b))
            count_way(search, cut);
    }
    return true;
}

/* Where nothing may be wasted, something must come next. */
static bool exact_reached(struct ebb_valley_search *search, struct part part, const uint32_t *list,
                          uint32_t count)
{
    uint32_t left = 0;
    for (uint32_t step = 0; step < part.length; step++) {
        uint32_t s = section_at(search, part, step);
        if (search->valley_of[s] == NO_VALLEY && search->limit - search->sky[s] == search->rest[s])
            search->exact[left++] = s;
    }
    for (uint32_t i = 0; i < count && left; i++)
        for (uint32_t k = 0; k < left;)
            if (search->sky[search->exact[k]] == search->floor[list[i]] &&
                ebb__valley_covers(search, list[i], search->exact[k]))
                search->exact[k] = search->exact[--left];
            else
                k++;
    return left == 0;
}

/* How high the skyline of a valley's section becomes if nothing is put on its ground. What comes next
 * lies within the valley, on something there, or crosses a wall. */
static ebb_height raised(const struct ebb_valley_search *search, uint32_t section)
{
    const struct ebb_valley *valley = &search->valleys[search->valley_of[section]];
    ebb_height to = valley->left < valley->right ? valley->left : valley->right;
    if (search->ways[section] && search->sky[section] + valley->smallest < to)
        to = search->sky[section] + valley->smallest;
    return to <= search->limit - search->rest[section] ? to : EBB_HEIGHT_MAX;
}

/* Waste what nothing can be put on; *any says whether there was such ground. False: no room. */
static bool dead_waste(struct ebb_valley_search *search, struct part part, const uint32_t *list,
                       uint32_t count, bool *any)
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

/* The skyline without dead ground, its valleys, and the ways to go on. False: there are none. */
static bool ground_find(struct ebb_valley_search *search, struct part part, const uint32_t *list,
                        uint32_t count)
{
    bool any = true;
    while (any) {
        valleys_find(search, part);
        if (!ways_count(search, list, count) || !dead_waste(search, part, list, count, &any))
            return false;
    }
    return true;
}

/* How soon to go on at a section: the least first. What is forced is done at once. */
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
        return (double)ways * ((double)room + (double)search->limit / ROOM_SHARE);
    }
}

/* False: at some section there is no way to go on. */
static bool section_choose(const struct ebb_valley_search *search, struct part part,
                           struct choice *choice)
{
    double best = -1;
    for (uint32_t step = 0; step < part.length; step++) {
        uint32_t s = section_at(search, part, step);
        ebb_height room = search->limit - search->sky[s] - search->rest[s];
        if (room < 0)
            return false; /* not even before anything was placed */
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

/* The same for many of one floor: what changes from section to section first, then one sweep. */
static bool sweep_holds(struct ebb_valley_search *search, const uint32_t *list, uint32_t count,
                        ebb_height room)
{
    ebb_height *change = search->change, load = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct ebb_pool_cut *cut = &search->cuts[list[i]];
        change[cut->first] += search->size[list[i]];
        change[cut->last] -= search->size[list[i]];
        if (cut->more) {
            change[0] += search->size[list[i]];
            change[cut->more] -= search->size[list[i]];
        }
    }
    int over = 0;
    for (uint32_t s = 0; s < search->sections; s++) {
        load += change[s];
        change[s] = 0;
        search->above[s] += load;
        over |= search->above[s] > room;
    }
    change[search->sections] = 0;
    return !over;
}

/* What lies above each floor must fit under the limit, in every section. Sorts the list. */
static bool floors_hold(struct ebb_valley_search *search, uint32_t *list, uint32_t count)
{
    ebb__search_sort(search->floor, list, count);
    memset(search->above, 0, search->sections * sizeof *search->above);
    for (uint32_t i = 0, next; i < count; i = next) {
        ebb_height floor = search->floor[list[i]], room = search->limit - floor;
        uint64_t length = 0;
        for (next = i; next < count && search->floor[list[next]] == floor; next++)
            length += length_of(&search->cuts[list[next]]);
        if (length > search->sections) {
            if (!sweep_holds(search, list + i, next - i, room))
                return false;
            continue;
        }
        for (uint32_t k = i; k < next; k++) {
            const struct ebb_pool_cut *cut = &search->cuts[list[k]];
            ebb_height size = search->size[list[k]];
            if (!ebb__search_stack(search->above, cut->first, cut->last, size, room) ||
                !ebb__search_stack(search->above, 0, cut->more, size, room))
                return false;
        }
    }
    return true;
}

static struct ebb_valley_state state_of(const struct ebb_valley_search *search, struct part part,
                                        const uint32_t *list, uint32_t count)
{
    struct ebb_valley_state state = {count, part.length};
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

static struct ebb_valley_state *slot_of(const struct ebb_valley_search *search,
                                        struct ebb_valley_state state)
{
    return &search->memory[ebb__search_mix(state.low) &
                           (((uint64_t)1 << EBB_VALLEY_MEMORY_BITS) - 1)];
}

/* ---- the search ------------------------------------------------------------------------------ */

static bool solve(struct ebb_valley_search *search, uint32_t *list, uint32_t count,
                  struct part part);

static uint32_t *arena_take(struct ebb_valley_search *search, uint32_t count)
{
    /* Its room is enough for the deepest path: see skyline.c. */
    uint32_t *list = search->arena + search->arena_count;
    search->arena_count += count;
    return list;
}

static bool is_boundary(const struct ebb_valley_search *search, uint32_t section)
{
    return search->crossing[section] == 0;
}

/* The part around one buffer; moves its buffers from the list to `taken`. */
static uint32_t part_take(struct ebb_valley_search *search, uint32_t *list, uint32_t count,
                          uint32_t *taken, struct part *part)
{
    uint32_t sections = search->sections, taken_count = 0, kept = 0;
    uint32_t first = search->cuts[list[0]].first, last = first;
    *part = (struct part){first, 1, false};
    while (part->length < sections && !is_boundary(search, (first + sections - 1) % sections)) {
        first = (first + sections - 1) % sections;
        part->length++;
    }
    while (part->length < sections && !is_boundary(search, last)) {
        last = (last + 1) % sections;
        part->length++;
    }
    part->first = first;
    part->closed =
        part->length == sections && !is_boundary(search, (first + sections - 1) % sections);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = (search->cuts[list[i]].first + sections - first) % sections;
        if (at < part->length)
            taken[taken_count++] = list[i];
        else
            list[kept++] = list[i];
    }
    return taken_count;
}

/* Parts that have no section in common, one after the other: what one needs is nothing to another,
 * so the first that fails decides. */
static bool solve_parts(struct ebb_valley_search *search, uint32_t *list, uint32_t count)
{
    bool solved = true;
    size_t arena_count = search->arena_count;
    while (count && solved) {
        struct part part;
        uint32_t *taken = arena_take(search, count);
        uint32_t taken_count = part_take(search, list, count, taken, &part);
        count -= taken_count;
        solved = solve(search, taken, taken_count, part);
        search->arena_count = arena_count;
    }
    return solved;
}

static bool divides(const struct ebb_valley_search *search, uint32_t buffer)
{
    const struct ebb_pool_cut *cut = &search->cuts[buffer];
    uint32_t end = cut->more ? search->sections : cut->last - 1;
    for (uint32_t s = cut->first; s < end; s++)
        if (is_boundary(search, s))
            return true;
    for (uint32_t s = 0; s + 1 < cut->more; s++)
        if (is_boundary(search, s))
            return true;
    return false;
}

/* What is left once `chosen` has been placed. Where it was the last at an end of the part, the part
 * shrinks, which the boundaries there say as well. */
static bool solve_rest(struct ebb_valley_search *search, const uint32_t *list, uint32_t count,
                       uint32_t chosen, struct part part)
{
    size_t arena_count = search->arena_count;
    uint32_t *rest = arena_take(search, count);
    uint32_t left = 0;
    for (uint32_t i = 0; i < count; i++)
        if (list[i] != chosen)
            rest[left++] = list[i];
    bool solved =
        divides(search, chosen) ? solve_parts(search, rest, left) : solve(search, rest, left, part);
    search->arena_count = arena_count;
    return solved;
}

static double merit_of(const struct ebb_valley_search *search, uint32_t buffer,
                       const struct ebb_valley *valley)
{
    if (!search->flush)
        return search->key[buffer];
    const struct ebb_pool_cut *cut = &search->cuts[buffer];
    uint32_t last = cut->more ? cut->more - 1 : cut->last - 1;
    ebb_height top = search->floor[buffer] + search->size[buffer];
    int ends = 1 + (cut->first == valley->first) + (last == valley->last) + (top == valley->left) +
               (top == valley->right);
    return search->key[buffer] * ends;
}

/* The buffers that may come next at this section of a valley, the best first. */
static uint32_t ways_find(const struct ebb_valley_search *search, const uint32_t *list,
                          uint32_t count, uint32_t section, uint32_t *found)
{
    const struct ebb_valley *valley = &search->valleys[search->valley_of[section]];
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t b = list[i];
        if (search->floor[b] != search->sky[section] || !ebb__valley_covers(search, b, section) ||
            !is_next_twin(search, b))
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

static bool out_of_time(struct ebb_valley_search *search)
{
    if (search->nodes >= search->nodes_limit ||
        ((search->nodes & CLOCK_NODES) == 0 && ebb__now_ns() > search->deadline_ns))
        search->stopped = true;
    return search->stopped || search->no_memory;
}

static void deepest_keep(struct ebb_valley_search *search)
{
    if (search->stack_count <= search->deepest_count)
        return;
    search->deepest_count = search->stack_count;
    memcpy(search->deepest, search->stack, search->stack_count * sizeof *search->deepest);
}

/* A node is a loop: to waste ground is the last way, and leaves the same buffers. */
static bool solve(struct ebb_valley_search *search, uint32_t *list, uint32_t count,
                  struct part part)
{
    if (count == 0)
        return true;
    size_t arena_count = search->arena_count, first_trail = search->trail_count;
    uint32_t first_stack = search->stack_count;
    struct ebb_valley_state state = state_of(search, part, list, count), first_state = state;
    bool solved = false;
    for (;;) {
        struct choice choice = {0};
        search->nodes++;
        const struct ebb_valley_state *slot = slot_of(search, state);
        if (out_of_time(search) || (slot->low == state.low && slot->high == state.high))
            break;
        if (!ground_find(search, part, list, count) || !section_choose(search, part, &choice) ||
            !exact_reached(search, part, list, count) || !floors_hold(search, list, count))
            break;
        deepest_keep(search);
        uint32_t *ways = arena_take(search, count);
        uint32_t way_count = ways_find(search, list, count, choice.section, ways);
        search->arena_count = arena_count + way_count;
        size_t trail_count = search->trail_count;
        uint32_t stack_count = search->stack_count;
        for (uint32_t i = 0; i < way_count && !solved && !search->stopped && !search->no_memory;
             i++) {
            if (!ebb__valley_place(search, ways[i], list, count))
                break;
            solved = solve_rest(search, list, count, ways[i], part);
            if (!solved)
                ebb__valley_take_back(search, stack_count, trail_count);
        }
        search->arena_count = arena_count;
        if (solved || search->stopped || search->no_memory || choice.raised == EBB_HEIGHT_MAX ||
            !ebb__valley_waste(search, choice.section, choice.raised, list, count))
            break;
        state = state_of(search, part, list, count);
    }
    if (!solved)
        ebb__valley_take_back(search, first_stack, first_trail);
    if (!solved && !search->stopped && !search->no_memory) {
        *slot_of(search, state) = state;
        *slot_of(search, first_state) = first_state;
    }
    return solved;
}

bool ebb__valley_turn(struct ebb_valley_search *search, uint64_t nodes)
{
    search->nodes = 0;
    search->nodes_limit = nodes;
    search->stopped = false;
    search->arena_count = 0;
    search->deepest_count = 0;
    ebb__valley_take_back(search, 0, 0);
    uint32_t *list = arena_take(search, search->count);
    for (uint32_t i = 0; i < search->count; i++)
        list[i] = i;
    return solve_parts(search, list, search->count);
}

/* A turn that ends without a packing got somewhere: what it had placed at its deepest is dense, so
 * with the rest on top it is a packing that is too high, but often by little. */
ebb_height ebb__valley_complete(struct ebb_valley_search *search)
{
    ebb_height height = 0;
    ebb__valley_take_back(search, 0, 0);
    uint32_t *list = search->arena, left = search->count;
    for (uint32_t i = 0; i < left; i++)
        list[i] = i;
    for (uint32_t i = 0; i < search->count; i++) {
        uint32_t at = 0;
        for (uint32_t k = 0; k < left; k++) {
            uint32_t b = list[k], best = list[at];
            if (i < search->deepest_count ? b == search->deepest[i]
                                          : search->floor[b] < search->floor[best] ||
                                                (search->floor[b] == search->floor[best] &&
                                                 search->key[b] > search->key[best]))
                at = k;
        }
        uint32_t chosen = list[at];
        list[at] = list[--left];
        if (search->floor[chosen] > EBB_HEIGHT_MAX / 2 - search->size[chosen] ||
            !ebb__valley_place(search, chosen, list, left))
            return EBB_HEIGHT_MAX;
        ebb_height top = search->floor[chosen] + search->size[chosen];
        height = top > height ? top : height;
    }
    return height;
}
