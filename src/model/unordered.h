/* Merges several iterations of interleaving threads: what holds in all of them.
 *
 * One iteration is the *pattern*: the model shows its allocations and frees, in its order. The
 * blocks of the other iterations are matched to the pattern's by size and order. Wherever another
 * iteration accessed a block, the pattern gets an access, too. So a gap of the model is a stretch
 * in which no observed iteration used the block. Events at its ends were at its ends in all of
 * them. */
#ifndef EBB_MODEL_UNORDERED_H
#define EBB_MODEL_UNORDERED_H

#include "model/windows.h"

/* A trace in which every iteration has the pattern's order. */
struct ebb_unordered {
    EBB_VEC(struct ebb_event) events;
    size_t first, period; /* the pattern's events in it */
    uint64_t slack_bytes; /* most bytes by which an observed iteration exceeded the pattern's load,
                             the same number of events after its start */
};

/* Merges `windows` (successive iterations, each ending where the next begins) into windows[own].
 * `observed`: how many of the newest traced ones (1 or more) the accesses are taken from. Release
 * with ebb__unordered_fini(). EBB_ERR_MEMORY, with *unordered empty. O(events log events). */
EBB_NODISCARD enum ebb_status ebb__unordered_make(const struct ebb_stream *stream,
                                                  const struct ebb_window *windows, size_t count,
                                                  size_t own, size_t observed,
                                                  struct ebb_unordered *unordered);
void ebb__unordered_fini(struct ebb_unordered *unordered);

#endif
