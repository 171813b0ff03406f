/* Depth-first search over valleys, for the exact pool: see valley.c for the method. One turn of it
 * is ebb__valley_turn(); who calls it sets what the turn is about before. */
#ifndef EBB_PLAN_POOL_VALLEY_H
#define EBB_PLAN_POOL_VALLEY_H

#include "plan/pool/search.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A level stretch of the skyline with higher walls, or nothing, on both sides. */
struct ebb_valley {
    ebb_height left, right; /* its walls; EBB_HEIGHT_MAX where there is none */
    uint32_t first, last;   /* the sections at its ends, both in it */
    ebb_height smallest;    /* size of an unplaced buffer within it; EBB_HEIGHT_MAX: none */
};

struct ebb_valley_search {
    struct ebb_search base;
    /* The turn. */
    double *key; /* of a buffer: the larger is tried first */
    bool flush;  /* those that end where a valley or its walls end, before others */
    enum ebb_valley_choice {
        EBB_VALLEY_TIGHT,  /* go on where ways times room to waste are least, */
        EBB_VALLEY_FEWEST, /* ways alone, */
        EBB_VALLEY_ROOM,   /* or room alone */
    } choice;
    /* What is placed: base.floor is the highest of the skyline below an unplaced buffer. */
    ebb_height *sky;  /* one a section, as all below */
    ebb_height *rest; /* sizes of what is unplaced there */
    struct ebb_valley_trail {
        uint32_t index; /* of a section's sky; from `sections` on, of a buffer's floor */
        ebb_height before;
    } * trail;
    size_t trail_count, trail_room;
    /* Scratch of a node. */
    ebb_height *change; /* of sections + 1, 0 between its uses */
    uint32_t *ways, *valley_of;
    uint32_t *exact; /* sections without room to waste that are in no valley */
    struct ebb_valley *valleys;
    double *merit; /* of a way */
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
 * search->base.no_memory. */
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
    const struct ebb_pool_cut *cut = &search->base.cuts[buffer];
    return (cut->first <= section && section < cut->last) || section < cut->more;
}

/* Search from the start, `nodes` nodes at most. True: search->base.floor is a packing within the limit.
 * False and not search->base.stopped: there is none. */
bool ebb__valley_turn(struct ebb_valley_search *search, uint64_t nodes);

/* After a turn without a packing: what it had placed at its deepest, and the rest on top, lowest
 * floor first, is in search->base.floor. Returns its height; EBB_HEIGHT_MAX: none that could be told. */
ebb_height ebb__valley_complete(struct ebb_valley_search *search);

#endif
