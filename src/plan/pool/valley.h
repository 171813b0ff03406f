/* Depth-first search over valleys, for the exact pool; valley.c explains the method.
 * ebb__valley_turn() does one turn; its caller sets the parameters of the turn before. */
#ifndef EBB_PLAN_POOL_VALLEY_H
#define EBB_PLAN_POOL_VALLEY_H

#include "plan/pool/search.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A level stretch of the skyline. On both sides there is a higher wall, or nothing. */
struct ebb_valley {
    ebb_height left, right; /* heights of its walls; EBB_HEIGHT_MAX if there is none */
    uint32_t first, last;   /* its first and last section */
    ebb_height smallest;    /* smallest size of an unplaced buffer within it; EBB_HEIGHT_MAX:
                               none */
};

struct ebb_valley_search {
    struct ebb_search base;
    /* The current turn. */
    double *key; /* of a buffer: larger keys are tried first */
    bool flush;  /* prefer buffers that end where a valley or its walls end */
    enum ebb_valley_choice {
        EBB_VALLEY_TIGHT,  /* next valley: fewest ways times wasted space, */
        EBB_VALLEY_FEWEST, /* fewest ways, */
        EBB_VALLEY_ROOM,   /* or least wasted space */
    } choice;
    /* The placed buffers: base.floor is the highest of the skyline below an unplaced buffer. */
    ebb_height *sky;  /* one entry a section, as in all below */
    ebb_height *rest; /* sizes of the unplaced buffers there */
    struct ebb_valley_trail {
        uint32_t index; /* of a section's sky; from `sections` on, of a buffer's floor */
        ebb_height before;
    } * trail;
    size_t trail_count, trail_room;
    /* Scratch memory of a node. */
    ebb_height *change; /* of sections + 1; 0 between uses */
    uint32_t *ways, *valley_of;
    uint32_t *exact; /* sections that may waste nothing and are in no valley */
    struct ebb_valley *valleys;
    double *merit; /* of a way */
};

/* O(buffers * (buffers + sections)). Heights are divided by `unit`: sizes are rounded up to units.
 * EBB_ERR_MEMORY. Call ebb__valley_fini() in any case. */
EBB_NODISCARD enum ebb_status ebb__valley_init(struct ebb_valley_search *search,
                                               const struct ebb_pool_problem *problem,
                                               const struct ebb_pool_sections *sections,
                                               uint64_t unit, ebb_height limit);
void ebb__valley_fini(struct ebb_valley_search *search);

/* The skyline (skyline.c): nothing is placed below it. `list` has all unplaced buffers that are
 * live together with the placed buffer, or in the section in which nothing is placed below
 * `height`. Returns false if search->base.no_memory. */
bool ebb__valley_place(struct ebb_valley_search *search, uint32_t buffer, const uint32_t *list,
                       uint32_t count);
bool ebb__valley_waste(struct ebb_valley_search *search, uint32_t section, ebb_height height,
                       const uint32_t *list, uint32_t count);
/* Undoes all placements and wastes since the two counts had these values. */
void ebb__valley_take_back(struct ebb_valley_search *search, uint32_t stack_count,
                           size_t trail_count);

static inline bool ebb__valley_covers(const struct ebb_valley_search *search, uint32_t buffer,
                                      uint32_t section)
{
    const struct ebb_pool_cut *cut = &search->base.cuts[buffer];
    return (cut->first <= section && section < cut->last) || section < cut->more;
}

/* Searches from the start, at most `nodes` nodes. True: search->base.floor is a packing within the
 * limit. False and not search->base.stopped: there is none. */
bool ebb__valley_turn(struct ebb_valley_search *search, uint64_t nodes);

/* After a turn without a packing: completes its deepest state in search->base.floor, with the rest
 * on top, lowest floor first. Returns the height; EBB_HEIGHT_MAX if it cannot be represented. */
ebb_height ebb__valley_complete(struct ebb_valley_search *search);

#endif
