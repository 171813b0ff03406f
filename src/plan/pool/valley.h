/* Depth-first search over valleys, for the exact pool: see valley.c for the method. One turn of it
 * is ebb__valley_turn(); who calls it sets what the turn is about before. */
#ifndef EBB_PLAN_POOL_VALLEY_H
#define EBB_PLAN_POOL_VALLEY_H

#include "plan/pool/pool.h"
#include "plan/pool/search.h"
#include "plan/pool/sections.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EBB_VALLEY_MEMORY_BITS                                                                     \
    18 /* 2^18 failed states of 16 bytes: 4 MiB, about a last-level cache's share */

/* A level stretch of the skyline with higher walls, or nothing, on both sides. */
struct ebb_valley {
    ebb_height left, right; /* its walls; EBB_HEIGHT_MAX where there is none */
    uint32_t first, last;   /* the sections at its ends, both in it */
    ebb_height smallest;    /* size of an unplaced buffer within it; EBB_HEIGHT_MAX: none */
};

/* What is left at a node, hashed. */
struct ebb_valley_state {
    uint64_t low, high;
};

struct ebb_valley_search {
    /* The problem. */
    uint32_t count, sections;
    ebb_height limit;
    ebb_height *size;
    struct ebb_pool_cut {
        uint32_t first, last, more; /* [first, last) and, where the circle closes, [0, more) */
    } * cuts;
    uint32_t *twin; /* the one before it among its equals, or itself */
    /* The turn. */
    double *key; /* of a buffer: the larger is tried first */
    bool flush;  /* those that end where a valley or its walls end, before others */
    enum ebb_valley_choice {
        EBB_VALLEY_TIGHT,  /* go on where ways times room to waste are least, */
        EBB_VALLEY_FEWEST, /* ways alone, */
        EBB_VALLEY_ROOM,   /* or room alone */
    } choice;
    uint64_t nodes, nodes_limit, deadline_ns;
    bool stopped; /* by one of these two */
    bool no_memory;
    uint32_t *deepest; /* what was placed, and in which order, when most was */
    uint32_t deepest_count;
    /* What is placed. */
    bool *placed;
    ebb_height
        *floor; /* the highest of the skyline below an unplaced buffer; a placed one's offset */
    ebb_height *sky;    /* one a section, as all below */
    ebb_height *rest;   /* sizes of what is unplaced there */
    uint32_t *crossing; /* unplaced buffers that live in section s and in the next */
    uint32_t *stack;    /* buffers in the order in which they were placed */
    uint32_t stack_count;
    struct ebb_valley_trail {
        uint32_t index; /* of a section's sky; from `sections` on, of a buffer's floor */
        ebb_height before;
    } * trail;
    size_t trail_count, trail_room;
    /* Scratch of a node. */
    ebb_height *above, *change; /* the second of sections + 1, 0 between its uses */
    uint32_t *ways, *valley_of;
    uint32_t *exact; /* sections without room to waste that are in no valley */
    struct ebb_valley *valleys;
    double *merit;   /* of a way */
    uint32_t *arena; /* lists of the nodes on the path */
    size_t arena_count;
    struct ebb_valley_state *memory; /* of nodes that failed under this limit */
};

/* O(buffers * (buffers + sections)). `unit` divides the heights: sizes are rounded up to it.
 * EBB_ERR_MEMORY; ebb__valley_fini() in any case. */
EBB_NODISCARD enum ebb_status ebb__valley_init(struct ebb_valley_search *search,
                                               const struct ebb_pool_problem *problem,
                                               const struct ebb_pool_sections *sections,
                                               uint64_t unit, ebb_height limit);
void ebb__valley_fini(struct ebb_valley_search *search);

/* The skyline, skyline.c: nothing is placed below it. `list` has all unplaced buffers that live at
 * some time with the one placed, or in the section in which nothing is placed below `height`. False:
 * search->no_memory. */
bool ebb__valley_place(struct ebb_valley_search *search, uint32_t buffer, const uint32_t *list,
                       uint32_t count);
bool ebb__valley_waste(struct ebb_valley_search *search, uint32_t section, ebb_height height,
                       const uint32_t *list, uint32_t count);
/* Take back everything placed or wasted since the two counts were these. */
void ebb__valley_take_back(struct ebb_valley_search *search, uint32_t stack_count,
                           size_t trail_count);

static inline bool ebb__valley_covers(const struct ebb_valley_search *search, uint32_t buffer,
                                      uint32_t section)
{
    const struct ebb_pool_cut *cut = &search->cuts[buffer];
    return (cut->first <= section && section < cut->last) || section < cut->more;
}

/* Search from the start, `nodes` nodes at most. True: search->floor is a packing within the limit.
 * False and not search->stopped: there is none. */
bool ebb__valley_turn(struct ebb_valley_search *search, uint64_t nodes);

/* After a turn without a packing: what it had placed at its deepest, and the rest on top, lowest
 * floor first, is in search->floor. Returns its height; EBB_HEIGHT_MAX: none that could be told. */
ebb_height ebb__valley_complete(struct ebb_valley_search *search);

#endif
