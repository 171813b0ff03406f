/* Huge-rounded blocks: a block that is evicted again and again takes whole 2 MiB units.
 *
 * A move of a huge page interrupts the program's cores once, a move of the 4 KiB pages at a block's
 * end once for each few dozen of them. The unit that they are taken from must be split and
 * assembled again. So a block that is evicted and ends in more than half a unit gets all of it, as
 * long as the waste is a small part and the plan does not become slower.
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
    struct ebb_model
        model;       /* with the sizes that blocks take; all but `blocks` is the original's */
    uint8_t *blocks; /* by model block: 1: it is huge-rounded */
    uint32_t count;  /* huge-rounded blocks */
};

/* The blocks allocated in the iteration that `plan`, made for `model`, evicts and that should be
 * huge-rounded; none if they would be too small a part of what is moved. `model` must outlive
 * *huge_rounded, which is the caller's; EBB_ERR_MEMORY. O(blocks + absences). */
EBB_NODISCARD enum ebb_status ebb__huge_round(const struct ebb_model *model,
                                              const struct ebb_plan *plan,
                                              struct ebb_huge_rounded *huge_rounded);
/* The same by hand, for plans that say themselves which blocks are huge-rounded: none is yet.
 * EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__huge_rounded_init(const struct ebb_model *model,
                                                     struct ebb_huge_rounded *huge_rounded);
/* The block is rounded; false where it is already, or may not be: its size stays. */
bool ebb__huge_rounded_add(struct ebb_huge_rounded *huge_rounded, uint32_t block);
void ebb__huge_rounded_fini(struct ebb_huge_rounded *huge_rounded); /* an empty one is fine */

#endif
