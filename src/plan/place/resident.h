/* Resident bytes under a plan, over an iteration. A block with pages of its own counts its own
 * bytes. Placed blocks count the whole units of the static placement that they touch.
 *
 *     struct ebb__resident resident;
 *     if (ebb__resident_init(&resident, &request, &plan, offsets, units) == EBB_OK) {
 *         peak_bytes = ebb__resident_peak(&resident, &when);
 *         ebb__resident_fini(&resident);
 *     }
 *
 * The times are the plan's own; stalls are ignored. */
#ifndef EBB_PLAN_RESIDENT_H
#define EBB_PLAN_RESIDENT_H

#include "plan/place/place.h"

struct ebb__resident {
    const struct ebb_plan_request *request;
    const struct ebb_plan *plan;
    const uint64_t *offsets; /* by block, in the static placement; EBB_PLACE_NONE: not in it */
    struct ebb__resident_change *changes;
    uint32_t change_count;
    uint32_t unit_count;
    uint32_t *users; /* current number of placed blocks in each unit */
    bool *live;      /* by block: placed and currently resident */
    bool *dropped;   /* by block: it is absent at its FREE */
    uint64_t bytes;  /* currently resident */
};

/* `offsets` may change between calls, within `unit_count` units. A placed block must have no
 * absence and live for at most an iteration. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__resident_init(struct ebb__resident *resident,
                                                 const struct ebb_plan_request *request,
                                                 const struct ebb_plan *plan,
                                                 const uint64_t *offsets, uint32_t unit_count);
void ebb__resident_fini(struct ebb__resident *resident);

/* The most bytes at any instant. *when (may be NULL) is the number of changes before it. O(changes
 * + units of the blocks). */
uint64_t ebb__resident_peak(struct ebb__resident *resident, uint32_t *when);
/* Sets users, live and bytes to the state after `when` changes. */
void ebb__resident_go_to(struct ebb__resident *resident, uint32_t when);

#endif
