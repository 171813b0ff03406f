/* Several iterations of interleaving threads laid over one another: what holds in all of them.
 *
 * One iteration is the *pattern*: its allocations and frees, in its order, are what the model shows.
 * The others are laid over it: their blocks are matched to the pattern's by size and order, and
 * wherever they accessed a block, the pattern is given an access as well. So a gap of the model is
 * a stretch in which no observed iteration used the block, and what is anchored to its ends held in
 * all of them. */
#ifndef EBB_MODEL_UNORDERED_H
#define EBB_MODEL_UNORDERED_H

#include "model/windows.h"

/* A trace in which every iteration has the pattern's order. */
struct ebb_unordered {
    EBB_VEC(struct ebb_event) events;
    size_t first, period; /* the pattern's events in it */
    uint64_t slack_bytes; /* by so much an observed iteration exceeded the pattern's load, the same
                             number of events after its start */
};

/* Lay `windows` (successive iterations, each ending where the next begins) over windows[own].
 * `observed`: of the newest so many (1 or more) that were traced the accesses are taken. Release
 * with ebb__unordered_fini(). EBB_ERR_MEMORY, with *unordered empty. O(events log events). */
EBB_NODISCARD enum ebb_status ebb__unordered_make(const struct ebb_stream *stream,
                                                  const struct ebb_window *windows, size_t count,
                                                  size_t own, size_t observed,
                                                  struct ebb_unordered *unordered);
void ebb__unordered_fini(struct ebb_unordered *unordered);

#endif
