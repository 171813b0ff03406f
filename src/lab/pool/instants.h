/* The instants of an iteration under a plan, in one cyclic order: ticks, ends of copies out, starts
 * of copies in. Source: the rules of docs/formats/plan.md. */
#ifndef EBB_LAB_POOL_INSTANTS_H
#define EBB_LAB_POOL_INSTANTS_H

#include "lab/pool/model.h"

/* Positions 0 … count - 1. For each absence, cyclically: from_tick < left < comes < to_tick. */
struct ebb_pool_instants {
    struct ebb_pool_instant *order; /* by position */
    uint32_t count;
    uint32_t *ticks; /* by tick: its position */
    uint32_t *left;  /* by absence */
    uint32_t *comes; /* by absence; unused where it drops */
};

/* EBB_ERR_MEMORY; *instants is then empty. O(n log n) in ticks and absences. */
EBB_NODISCARD enum ebb_status ebb__pool_instants_init(struct ebb_pool_instants *instants,
                                                      const struct ebb_pool_source *source,
                                                      struct ebb_error *error);
void ebb__pool_instants_fini(struct ebb_pool_instants *instants);

#endif
