/* What the files of the checker for two tiers share. */
#ifndef EBB_CHECK_TIERS_INTERNAL_H
#define EBB_CHECK_TIERS_INTERNAL_H

#include "check/tiers.h"

#include <stdbool.h>
#include <stdint.h>

struct ebb__tier_case {
    const struct ebb_operations *operations;
    const struct ebb_tier_machine *machine;
    const struct ebb_tier_plan *plan;
    struct ebb_error *error;
    uint8_t *tier_at; /* block_count * count: 0, 1, or 2 where the block is not live */
};

#define EBB__TIER_NOWHERE 2

static inline int ebb__tier_case_at(const struct ebb__tier_case *it, uint32_t block, uint32_t at)
{
    return it->tier_at[(uint64_t)block * it->operations->count + at];
}

/* Carries the iteration out. Returns false if out of memory. */
bool ebb__tier_case_ns(const struct ebb__tier_case *it, double *iteration_ns);

#endif
