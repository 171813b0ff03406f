/* Iterations of programs whose threads interleave: the same allocations in each, in varying order.
 *
 * Nothing repeats exactly there, but some sizes occur once an iteration. Such a size is a
 * *landmark*: the allocations between two of its occurrences are an iteration if they are, as a
 * multiset, nearly those between the next two, and if the load is back. For strictly periodic
 * programs detect.h is exact, faster and sees inside an iteration; this is for what it cannot see. */
#ifndef EBB_MODEL_LANDMARK_H
#define EBB_MODEL_LANDMARK_H

#include "model/detect.h"

#include "base/tuning.h"

struct ebb_landmark {
    uint64_t size_bytes;   /* of the allocation with which each iteration begins */
    size_t period_symbols; /* allocations in the newest whole iteration */
    size_t first_symbol;   /* the older of the two iterations that were compared begins here */
    size_t last_symbol;    /* the newer one ends here: the landmark of the one in progress */
};

/* How many allocations more or fewer an iteration may have. */
static inline size_t ebb__landmark_tolerance(size_t period_symbols)
{
    return period_symbols / ebb__tuning()->stray_divisor + 4;
}

/* Look for a landmark among the newest symbols of `detector`, which must be sizes of allocations.
 * *found: there is one, and the program still does what it stands for. O(n log n) for up to
 * 2^15 symbols: not to be called for each of them. EBB_ERR_MEMORY. Not thread-safe. */
EBB_NODISCARD enum ebb_status ebb__landmark_find(const struct ebb_detector *detector,
                                                 struct ebb_landmark *landmark, bool *found);

#endif
