/* Resident bytes under a plan, over an iteration: blocks in pages of their own count by themselves,
 * placed ones by the whole units of the static placement that they touch.
 *
 *     struct ebb__resident resident;
 *     if (ebb__resident_init(&resident, &request, &plan, offsets, units) == EBB_OK) {
 *         peak_bytes = ebb__resident_peak(&resident, &when);
 *         ebb__resident_fini(&resident);
 *     }
 *
 * The times are the plan's own; what it stalls for is not looked at. */
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
    uint32_t *users; /* placed blocks in each unit, now */
    bool *live;      /* by block: placed and there, now */
    bool *dropped;   /* by block: it is absent at its FREE */
    uint64_t bytes;  /* now */
};

/* `offsets` may change between calls, within `unit_count` units; a placed block has no absence and
 * lives for an iteration at most. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__resident_init(struct ebb__resident *resident,
                                                 const struct ebb_plan_request *request,
                                                 const struct ebb_plan *plan,
                                                 const uint64_t *offsets, uint32_t unit_count);
void ebb__resident_fini(struct ebb__resident *resident);

/* The most bytes at any instant; *when, may be NULL: how many changes happen before it. O(changes +
 * units of the blocks). */
uint64_t ebb__resident_peak(struct ebb__resident *resident, uint32_t *when);
/* Put users, live and bytes to where `when` changes have happened. */
void ebb__resident_go_to(struct ebb__resident *resident, uint32_t when);

#endif
