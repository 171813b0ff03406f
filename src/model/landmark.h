/* Iterations of programs whose threads interleave: each has the same allocations in a varying
 * order.
 *
 * Such programs never repeat exactly, but some sizes occur once per iteration. Such a size is a
 * *landmark* under two conditions. The allocations between two occurrences are, as a multiset,
 * nearly those between the next two. The load returns to its old value. For strictly periodic
 * programs detect.h is exact, faster and sees inside an iteration. This header is for all
 * others. */
#ifndef EBB_MODEL_LANDMARK_H
#define EBB_MODEL_LANDMARK_H

#include "model/detect.h"

#include "base/tuning.h"

struct ebb_landmark {
    uint64_t size_bytes;   /* size of the allocation that begins each iteration */
    size_t period_symbols; /* allocations in the newest whole iteration */
    size_t first_symbol;   /* start of the older of the two compared iterations */
    size_t last_symbol;    /* end of the newer one: the landmark of the iteration in progress */
};

/* The permitted difference between the numbers of allocations of two iterations. */
static inline size_t ebb__landmark_tolerance(size_t period_symbols)
{
    return period_symbols / ebb__tuning()->stray_divisor + 4;
}

/* Looks for a landmark among the newest symbols of `detector`, which must be sizes of allocations.
 * Sets *found to true if there is one and the program still repeats. O(n log n) for up to 2^15
 * symbols: too slow to be called for each symbol. EBB_ERR_MEMORY. Not thread-safe. */
EBB_NODISCARD enum ebb_status ebb__landmark_find(const struct ebb_detector *detector,
                                                 struct ebb_landmark *landmark, bool *found);

#endif
