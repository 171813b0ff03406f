/* From a plan to a script: the planner's decisions in the runtime's form. */
#ifndef EBB_PLAN_COMPILE_H
#define EBB_PLAN_COMPILE_H

#include "plan/place/place.h"
#include "plan/plan.h"
#include "runtime/script.h"

/* Compiles `plan`, made for `model`, and addresses (`places`, NULL: none) into one malloc'ed blob
 * of (*script)->bytes bytes, owned by the caller. Ticks become positions among the clock events.
 * The eviction starts at the first one after the use. The prefetch starts a delay after the last
 * one before its planned start. It is due at the last one before the access. EBB_ERR_ARGUMENT if
 * the model has no clock event, or is unordered with announced accesses among them: who announces
 * them keeps their order. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__compile_script(const struct ebb_model *model,
                                                  const struct ebb_plan *plan,
                                                  const struct ebb_places *places,
                                                  struct ebb_script **script);

#endif
