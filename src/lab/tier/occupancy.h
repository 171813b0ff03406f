/* Bytes of fast memory by operation, while a plan is made. A block takes whole pages. */
#ifndef EBB_LAB_TIER_OCCUPANCY_H
#define EBB_LAB_TIER_OCCUPANCY_H

#include "model/operations.h"

#include <stdbool.h>
#include <stdint.h>

/* True if `bytes` more fit into [first, first + span), cyclic. */
static inline bool ebb__occupancy_fits(const uint64_t *used, uint32_t count, uint32_t first,
                                       uint32_t span, uint64_t bytes, uint64_t budget_bytes)
{
    if (bytes > budget_bytes)
        return false;
    for (uint32_t i = 0, at = first; i < span; i++, at = at + 1 == count ? 0 : at + 1)
        if (used[at] > budget_bytes - bytes)
            return false;
    return true;
}

/* Adds `bytes` to [first, first + span), cyclic; as a negative number, removes them. */
static inline void ebb__occupancy_add(uint64_t *used, uint32_t count, uint32_t first, uint32_t span,
                                      int64_t bytes)
{
    for (uint32_t i = 0, at = first; i < span; i++, at = at + 1 == count ? 0 : at + 1)
        used[at] += (uint64_t)bytes;
}

#endif
