/* What both exact searches share: placed buffers, lists of the nodes, memory of failed nodes, and
 * the division into independent parts. Loops that run at every node are inline here, because they
 * determine the speed. */
#ifndef EBB_PLAN_POOL_SEARCH_H
#define EBB_PLAN_POOL_SEARCH_H

#include "base/effort.h"
#include "plan/pool/pool.h"
#include "plan/pool/sections.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef int32_t ebb_height; /* in units; the inner loops are fast only with a narrow type */
#define EBB_HEIGHT_MAX INT32_MAX

#define EBB_SEARCH_MEMORY_BITS                                                                     \
    18 /* 2^18 failed states of 16 bytes: 4 MiB, about a share of the last-level cache */

/* A run of sections, cut at the end of the circle: [first, last) and [0, more). */
struct ebb_pool_cut {
    uint32_t first, last, more;
};

/* Sections between two boundaries that no unplaced buffer spans, from `first` onwards around the
 * circle. `closed`: the whole circle, without a boundary. */
struct ebb_search_part {
    uint32_t first, length;
    bool closed;
};

/* Hash of the remaining problem at a node. */
struct ebb_search_state {
    uint64_t low, high;
};

/* Each search embeds it as its `base`. */
struct ebb_search {
    /* The problem. */
    uint32_t count, sections;
    ebb_height limit;
    ebb_height *size;
    struct ebb_pool_cut *cuts;
    uint32_t *twin; /* the previous one of its equals, or itself */
    /* The current turn. */
    uint64_t nodes, nodes_limit;
    struct ebb_effort *effort; /* counts the buffers that nodes examine */
    uint64_t limit_steps;      /* limit of that effort */
    bool stopped;              /* the turn ended by one of these two limits */
    bool no_memory;
    uint32_t *deepest; /* the placed buffers, in order, at the deepest point */
    uint32_t deepest_count;
    /* The placed buffers. */
    bool *placed;
    ebb_height *floor;  /* unplaced: the highest top below it; placed: its offset */
    uint32_t *crossing; /* unplaced buffers live both in section s and in the next */
    uint32_t *stack;    /* buffers in the order of placement */
    uint32_t stack_count;
    /* Scratch memory of a node. */
    ebb_height *above; /* one entry a section */
    uint32_t *arena;   /* lists of the nodes on the current path */
    size_t arena_count;
    struct ebb_search_state *memory; /* nodes that failed under this limit */
};

/* O(buffers^2). Heights are divided by `unit`: sizes are rounded up to units. EBB_ERR_MEMORY. Call
 * ebb__search_fini() in any case. */
EBB_NODISCARD enum ebb_status ebb__search_init(struct ebb_search *search,
                                               const struct ebb_pool_problem *problem,
                                               const struct ebb_pool_sections *sections,
                                               uint64_t unit, ebb_height limit);
void ebb__search_fini(struct ebb_search *search);

/* Starts a turn of at most `nodes` nodes, with nothing placed. Returns a list of all buffers, in
 * the arena. */
uint32_t *ebb__search_begin(struct ebb_search *search, uint64_t nodes);

/* Finds the part around the first buffer of the list and moves the part's buffers to `taken`.
 * Returns their number; the rest of the list closes up. O(sections + count). */
uint32_t ebb__search_part_take(const struct ebb_search *search, uint32_t *list, uint32_t count,
                               uint32_t *taken, struct ebb_search_part *part);

/* Spreads the bits of a value, for hashes of states. */
static inline uint64_t ebb__search_mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x7fb5d329728ea185ull;
    x ^= x >> 27;
    x *= 0x81dadef4bc2dd44dull;
    return x ^ x >> 33;
}

/* The slot of a failed state; it replaces any other state there. */
static inline struct ebb_search_state *ebb__search_slot(const struct ebb_search *search,
                                                        struct ebb_search_state state)
{
    return &search->memory[ebb__search_mix(state.low) &
                           (((uint64_t)1 << EBB_SEARCH_MEMORY_BITS) - 1)];
}

static inline bool ebb__search_failed_before(const struct ebb_search *search,
                                             struct ebb_search_state state)
{
    const struct ebb_search_state *slot = ebb__search_slot(search, state);
    return slot->low == state.low && slot->high == state.high;
}

/* Sorts by descending height, by insertion: the lists are short and nearly sorted. `heights` is
 * indexed by buffer. */
static inline void ebb__search_sort(const ebb_height *heights, uint32_t *list, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        uint32_t b = list[i], k = i;
        ebb_height key = heights[b];
        for (; k && heights[list[k - 1]] < key; k--)
            list[k] = list[k - 1];
        list[k] = b;
    }
}

/* Adds `size` to `above` in sections [first, last). Returns whether it is within `room` in each. */
static inline bool ebb__search_stack(ebb_height *above, uint32_t first, uint32_t last,
                                     ebb_height size, ebb_height room)
{
    int over = 0;
    for (uint32_t s = first; s < last; s++) {
        above[s] += size;
        over |= above[s] > room;
    }
    return !over;
}

/* The same over all sections of a buffer. */
static inline bool ebb__search_stack_cut(ebb_height *above, const struct ebb_pool_cut *cut,
                                         ebb_height size, ebb_height room)
{
    return ebb__search_stack(above, cut->first, cut->last, size, room) &&
           ebb__search_stack(above, 0, cut->more, size, room);
}

/* Counts a buffer as unplaced (`by` 1) or placed (UINT32_MAX, which subtracts one). */
static inline void ebb__search_crossing_change(struct ebb_search *search, uint32_t buffer,
                                               uint32_t by)
{
    const struct ebb_pool_cut *cut = &search->cuts[buffer];
    uint32_t end = cut->more ? search->sections : cut->last - 1;
    for (uint32_t s = cut->first; s < end; s++)
        search->crossing[s] += by;
    for (uint32_t s = 0; s + 1 < cut->more; s++)
        search->crossing[s] += by;
}

/* True if no unplaced buffer is live both in the section and in the next. */
static inline bool ebb__search_is_boundary(const struct ebb_search *search, uint32_t section)
{
    return search->crossing[section] == 0;
}

/* True if a boundary is within the run of the newly placed buffer. */
static inline bool ebb__search_divides(const struct ebb_search *search, uint32_t buffer)
{
    const struct ebb_pool_cut *cut = &search->cuts[buffer];
    uint32_t end = cut->more ? search->sections : cut->last - 1;
    for (uint32_t s = cut->first; s < end; s++)
        if (ebb__search_is_boundary(search, s))
            return true;
    for (uint32_t s = 0; s + 1 < cut->more; s++)
        if (ebb__search_is_boundary(search, s))
            return true;
    return false;
}

/* Takes space for a list of a node. To free it, set arena_count to its old value. The arena
 * suffices for the deepest path: see search.c. */
static inline uint32_t *ebb__search_arena_take(struct ebb_search *search, uint32_t count)
{
    uint32_t *list = search->arena + search->arena_count;
    search->arena_count += count;
    return list;
}

/* A copy of the list without `chosen`, in the arena. */
static inline uint32_t *ebb__search_without(struct ebb_search *search, const uint32_t *list,
                                            uint32_t count, uint32_t chosen)
{
    uint32_t *rest = ebb__search_arena_take(search, count);
    uint32_t left = 0;
    for (uint32_t i = 0; i < count; i++)
        if (list[i] != chosen)
            rest[left++] = list[i];
    return rest;
}

/* True if the buffer may be placed next, considering its equals: they are placed in one order. */
static inline bool ebb__search_is_next_twin(const struct ebb_search *search, uint32_t buffer)
{
    return search->twin[buffer] == buffer || search->placed[search->twin[buffer]];
}

static inline void ebb__search_deepest_keep(struct ebb_search *search)
{
    if (search->stack_count <= search->deepest_count)
        return;
    search->deepest_count = search->stack_count;
    memcpy(search->deepest, search->stack, search->stack_count * sizeof *search->deepest);
}

/* Counts a node that examines `count` buffers; true if the search must stop. */
static inline bool ebb__search_is_over(struct ebb_search *search, uint32_t count)
{
    ebb__effort_spend(search->effort, count);
    if (search->nodes >= search->nodes_limit ||
        ebb__effort_is_over(search->effort, search->limit_steps))
        search->stopped = true;
    return search->stopped || search->no_memory;
}

#endif
