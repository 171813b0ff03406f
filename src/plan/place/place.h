/* Addresses for a plan. Blocks that are never evicted within an iteration are packed into the
 * runtime's static placement (src/runtime/address/placement.c), whose pages are whole 2 MiB units.
 *
 *     struct ebb_places places;
 *     if (ebb__place_blocks(&request, &plan, &places, &error) == EBB_OK) {
 *         use(places.offsets[block], places.peak_bytes);
 *         ebb__places_fini(&places);
 *     } */
#ifndef EBB_PLAN_PLACE_H
#define EBB_PLAN_PLACE_H

#include "plan/plan.h"

#define EBB_PLACE_NONE UINT64_MAX

struct ebb_places {
    uint64_t *offsets;        /* by model block: its address there, or EBB_PLACE_NONE */
    uint64_t placement_bytes; /* end of the highest placed block; 0: none is placed */
    uint32_t count;           /* number of placed blocks */
    uint64_t peak_bytes;      /* most resident bytes under the plan, placed units counted whole */
    uint64_t lacking_bytes;   /* memory that was missing to place all blocks */
    /* By model block, 1: it takes whole units (huge_round.h); owned by the caller. NULL: none. */
    const uint8_t *huge_rounded;
};

/* Finds addresses for `plan`, which is for `request`, within its budget. A block is not placed if
 * its units do not fit into the budget. A reactive plan gets no addresses. The caller owns *places.
 * EBB_ERR_MEMORY. O(rounds * (events + blocks + units of the blocks)), and the time of the
 * packing. */
EBB_NODISCARD enum ebb_status ebb__place_blocks(const struct ebb_plan_request *request,
                                                const struct ebb_plan *plan,
                                                struct ebb_places *places, struct ebb_error *error);
void ebb__places_fini(struct ebb_places *places);

#endif
