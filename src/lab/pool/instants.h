/* The instants of an iteration under a plan, in one cyclic order. They are its ticks, the ends of
 * copies out and the starts of copies in. Source: the rules of docs/formats/plan.md. */
#ifndef EBB_LAB_POOL_INSTANTS_H
#define EBB_LAB_POOL_INSTANTS_H

#include "lab/pool/model.h"

/* Positions are 0 … count - 1. For each absence, in cyclic order: from_tick < left < comes <
 * to_tick. */
struct ebb_pool_instants {
    struct ebb_pool_instant *order; /* by position */
    uint32_t count;
    uint32_t *ticks; /* by tick: its position */
    uint32_t *left;  /* by absence: position of the end of its copy out */
    uint32_t *comes; /* by absence: position of the start of its copy in; unused if it drops */
};

/* EBB_ERR_MEMORY; *instants is then empty. O(n log n), n = ticks + absences. */
EBB_NODISCARD enum ebb_status ebb__pool_instants_init(struct ebb_pool_instants *instants,
                                                      const struct ebb_pool_source *source,
                                                      struct ebb_error *error);
void ebb__pool_instants_fini(struct ebb_pool_instants *instants);

#endif
