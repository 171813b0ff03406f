/* A plan for two tiers: where each block lies in each operation of an iteration, and when it is
 * copied. Compute uses a block in place in either tier.
 *
 *     struct ebb_tier_plan plan;
 *     if (!ebb__tier_plan_init(&plan, &operations)) ...
 *     ok = ebb__tier_plan_add(&plan, (struct ebb_stay){.block = b, .first = 4, .start = 2});
 *     status = ebb__tier_plan_close(&plan, &operations);
 *
 * A **stay** is a span of operations in one tier. A block's first stay begins with its life and
 * needs no copy. Each later stay begins with a copy, and so does the first one of a persistent
 * block that has several. Operations before `first` use the block in the old tier.
 *
 * - A copy may start when operation `start` begins. It has ended before operation `first` begins,
 *   or the program waits. If both are the same, the copy is synchronous. In [start, first) the
 *   block is not written, and it takes memory in both tiers.
 * - A block that came from the slow tier and was not written since has a valid copy there. If it
 *   `drops`, it goes back without a copy. Until then the copy takes memory of the slow tier.
 * - Blocks of a group have adjacent addresses, in the order of their places. Copies in one
 *   direction with the same start, first and run (not 0) are one transfer. Their blocks must be
 *   of one group, without a block between them that is live in operation `start`.
 * - Blocks that share pages are rounded to pages as a whole, otherwise each block is. They have
 *   one group, one lifetime, and the same stays with the same runs. */
#ifndef EBB_PLAN_TIERS_H
#define EBB_PLAN_TIERS_H

#include "base/status.h"
#include "base/vec.h"
#include "model/operations.h"

#include <stdbool.h>
#include <stdint.h>

#define EBB_NO_GROUP UINT32_MAX

struct ebb_stay {
    uint32_t block;
    uint32_t first; /* operation */
    uint32_t start; /* operation in which its copy may start */
    uint32_t run;
    uint8_t tier;
    bool drops;
};

struct ebb_tier_plan {
    EBB_VEC(struct ebb_stay) stays; /* by block, in order of occurrence */
    uint32_t *first_stay;           /* block_count + 1: indices into stays; set when closed */
    uint32_t *group;                /* block_count: EBB_NO_GROUP, or a number */
    uint32_t *place;                /* block_count: the order of addresses in a group */
    uint32_t *pages; /* block_count: which blocks share pages: EBB_NO_GROUP, or the first of
                             them */
    uint32_t block_count;
    uint64_t plan_ns;    /* time spent planning */
    uint64_t profile_ns; /* program time that the planner's measurements need, computed */
    double bound_ns;     /* no plan of this kind takes less time, as far as proved; 0: not known */
    bool optimal;        /* proved, within the planner's own model */
    bool fell_back;      /* the planner had no solution in time; `note` says what this is */
    char note[96];
};

/* Makes an empty plan. Returns false if out of memory. */
bool ebb__tier_plan_init(struct ebb_tier_plan *plan, const struct ebb_operations *operations);
void ebb__tier_plan_fini(struct ebb_tier_plan *plan);

/* Adds a stay. Stays of one block are added in order of occurrence since its allocation; stays of
 * different blocks in any order. Returns false if out of memory. */
static inline bool ebb__tier_plan_add(struct ebb_tier_plan *plan, struct ebb_stay stay)
{
    return ebb_vec_push(&plan->stays, stay);
}

/* Sorts the stays by block, merges neighbours in the same tier, and says which copies are dropped.
 * A block without any stay gets one in the slow tier. EBB_ERR_MEMORY. O(stays + uses). */
EBB_NODISCARD enum ebb_status ebb__tier_plan_close(struct ebb_tier_plan *plan,
                                                   const struct ebb_operations *operations,
                                                   struct ebb_error *error);

/* The operation at which a block's life begins, 0 for a persistent one. */
static inline uint32_t ebb__tier_birth(const struct ebb_operations *operations, uint32_t block)
{
    return operations->blocks[block].persistent ? 0 : operations->blocks[block].first;
}

#endif
