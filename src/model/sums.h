/* Sums of the first numbers of a growing sequence: the sum of any range in O(1). Only every 32nd
 * sum is kept, since the caller has the numbers: a quarter of a byte for each. Inline, because the
 * detector adds every symbol. Not thread-safe. */
#ifndef EBB_MODEL_SUMS_H
#define EBB_MODEL_SUMS_H

#include "base/vec.h"

enum { EBB_SUMS_STEP = 32 }; /* numbers without a sum of their own; arbitrary */

/* A zeroed struct is that of the empty sequence. */
struct ebb_sums {
    EBB_VEC(uint64_t) kept; /* [i]: sum of the first i * EBB_SUMS_STEP numbers */
};

static inline uint64_t ebb__sums_of(const uint64_t *items, size_t first, size_t last)
{
    uint64_t sum = 0;
    for (size_t i = first; i < last; i++)
        sum += items[i];
    return sum;
}

/* Call it after each appended number; `count` includes it. Returns false if out of memory. */
static inline bool ebb__sums_follow(struct ebb_sums *sums, const uint64_t *items, size_t count)
{
    size_t kept = sums->kept.count;
    if (count / EBB_SUMS_STEP < kept)
        return true;
    uint64_t sum =
        kept ? sums->kept.items[kept - 1] + ebb__sums_of(items, count - EBB_SUMS_STEP, count) : 0;
    return ebb_vec_push(&sums->kept, sum);
}

/* The sum of the first `count` numbers; 0 if nothing was followed. */
static inline uint64_t ebb__sums_first(const struct ebb_sums *sums, const uint64_t *items,
                                       size_t count)
{
    size_t step = count / EBB_SUMS_STEP;
    if (sums->kept.count == 0)
        return 0;
    return sums->kept.items[step] + ebb__sums_of(items, step * EBB_SUMS_STEP, count);
}

#endif
