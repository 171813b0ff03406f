/* Idle blocks: those that live through the iteration, which does not use them.
 *
 * No plan moves them, so they count as resident. If no plan fits, they are left out: they take no
 * bytes of the plan. The runtime then evicts them first when memory is lacking, since no use of
 * them is known. They stay absent until the program uses them. Pure functions. */
#ifndef EBB_PLAN_IDLE_H
#define EBB_PLAN_IDLE_H

#include "base/status.h"
#include "model/model.h"

/* A model in which idle blocks have no bytes. All but its blocks belongs to the model that it was
 * made from, and is valid as long as that one. */
struct ebb_without_idle {
    struct ebb_model model;
    uint32_t count; /* of idle blocks; 0: there is no model */
};

/* Leaves out the idle blocks of `model`. Without any, and without observed accesses, count is 0.
 * Release with ebb__without_idle_fini(). EBB_ERR_MEMORY: *without is empty. */
EBB_NODISCARD enum ebb_status ebb__without_idle_init(const struct ebb_model *model,
                                                     struct ebb_without_idle *without);
void ebb__without_idle_fini(struct ebb_without_idle *without);

#endif
