/* Huge-rounded blocks: a block that is evicted repeatedly takes whole 2 MiB units.
 *
 * A move of a huge page interrupts the program's cores once. A move of the 4 KiB pages at a block's
 * end interrupts them once for each few dozen pages. The unit of these pages must be split and
 * reassembled. So an evicted block whose end fills more than half a unit gets the whole unit. The
 * waste must be small, and the plan must not become slower.
 *
 *     struct ebb_huge_rounded rounded;
 *     if (ebb__huge_round(model, &plan, &rounded) == EBB_OK && rounded.count) {
 *         plan again for rounded.model; the script is compiled from `model` with rounded.blocks
 *     }
 *     ebb__huge_rounded_fini(&rounded); */
#ifndef EBB_PLAN_HUGE_ROUND_H
#define EBB_PLAN_HUGE_ROUND_H

#include "plan/plan.h"

#include <stdbool.h>

struct ebb_huge_rounded {
    struct ebb_model model; /* with the rounded sizes; all but `blocks` belongs to the original */
    uint8_t *blocks;        /* by model block; 1: it is huge-rounded */
    uint32_t count;         /* number of huge-rounded blocks */
};

/* Chooses the blocks to be huge-rounded: allocated in the iteration and evicted by `plan`, which is
 * for `model`. Chooses none if they are too small a part of the moved bytes. `model` must outlive
 * *huge_rounded, which the caller owns. EBB_ERR_MEMORY. O(blocks + absences). */
EBB_NODISCARD enum ebb_status ebb__huge_round(const struct ebb_model *model,
                                              const struct ebb_plan *plan,
                                              struct ebb_huge_rounded *huge_rounded);
/* Starts with no huge-rounded block, for plans that specify them. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__huge_rounded_init(const struct ebb_model *model,
                                                     struct ebb_huge_rounded *huge_rounded);
/* Rounds the size of a block. Returns false if it is rounded already or must not be: its size is
 * then unchanged. */
bool ebb__huge_rounded_add(struct ebb_huge_rounded *huge_rounded, uint32_t block);
void ebb__huge_rounded_fini(struct ebb_huge_rounded *huge_rounded); /* an empty one is allowed */

#endif
