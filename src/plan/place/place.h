/* Addresses for a plan: blocks that are never evicted within an iteration are packed into the
 * static placement of the runtime (src/runtime/address/placement.c), whose pages are whole 2 MiB
 * units.
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
    uint64_t placement_bytes; /* no placed block reaches beyond; 0: none is placed */
    uint32_t count;           /* placed blocks */
    uint64_t peak_bytes;      /* most resident under the plan, placed units counted whole */
    uint64_t lacking_bytes;   /* so much more would have been enough to place all */
    /* By model block, 1: it takes whole units (huge_round.h); the caller's. NULL: none. */
    const uint8_t *huge_rounded;
};

/* Addresses for `plan`, made for `request`, whose budget they keep: a block for which no unit can
 * be afforded is not placed. A reactive plan gets none. *places is the caller's; EBB_ERR_MEMORY.
 * Beside the static placement's time O(rounds * (events + blocks + units of the blocks)). */
EBB_NODISCARD enum ebb_status ebb__place_blocks(const struct ebb_plan_request *request,
                                                const struct ebb_plan *plan,
                                                struct ebb_places *places, struct ebb_error *error);
void ebb__places_fini(struct ebb_places *places);

#endif
