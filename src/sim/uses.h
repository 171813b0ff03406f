/* The uses of a model, for simulations in which blocks are evicted without a plan. */
#ifndef EBB_SIM_USES_H
#define EBB_SIM_USES_H

#include "plan/plan.h"

#include <stdbool.h>
#include <stdint.h>

struct ebb_sim_uses {
    const struct ebb_model *model;
    uint32_t *over; /* by tick of an access: the event at which its use is over. That is the first
                       clock event after it, or an event within a stretch (ebb__plan_use_over()) */
    uint32_t *next; /* by tick of an access: the block's next one. EBB_TICK_NONE: it is freed first,
                       or allocated anew */
};

/* False: out of memory. Must be released even then. O(ticks + accesses * distance). */
bool ebb__sim_uses_init(struct ebb_sim_uses *uses, const struct ebb_model *model);
void ebb__sim_uses_fini(struct ebb_sim_uses *uses);

/* Sets the margin of an absence that begins when the use at its from_tick is over. */
void ebb__sim_uses_margin(const struct ebb_sim_uses *uses, struct ebb_absence *absence);

#endif
