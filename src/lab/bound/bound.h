/* Lower bounds: what no plan can do better, whatever policy made it.
 *
 *     uint64_t bytes;
 *     status = ebb__bound_peak(&request, ebb__tuning()->bound_steps, &bytes, &error);
 *     ... the plan is within plan.peak_bytes / bytes - 1 of the best without a stall
 *
 * A bound holds for every plan that ebb__check_plan() accepts and that the simulator confirms, under
 * the request's model, machine, page size and smallest block. Thread-safe; deterministic as long as
 * the search takes less time than plan_box_ns. */
#ifndef EBB_LAB_BOUND_BOUND_H
#define EBB_LAB_BOUND_BOUND_H

#include "plan/plan.h"

#include <stdint.h>

/* The least peak of any plan, with stalls of any length: what must be there together while the rest
 * is absent. Needs no solver. O(ticks + gaps). */
EBB_NODISCARD enum ebb_status ebb__bound_floor(const struct ebb_plan_request *request,
                                               uint64_t *bytes, struct ebb_error *error);

/* The least peak of any plan without a stall, bytes. The budget plays no part in it. After
 * `effort_steps` (iterations of the solver times the size of its basis; soft) the best bound so far is
 * the answer.
 * EBB_ERR_MEMORY, EBB_ERR_ARGUMENT where the model has no events or no time. */
EBB_NODISCARD enum ebb_status ebb__bound_peak(const struct ebb_plan_request *request,
                                              uint64_t effort_steps, uint64_t *bytes,
                                              struct ebb_error *error);

/* The least stall an iteration of any plan within request->budget_bytes, ns. EBB_INFEASIBLE, with
 * *stall_ns UINT64_MAX, where the budget is below the floor. Otherwise as ebb__bound_peak(). */
EBB_NODISCARD enum ebb_status ebb__bound_stall(const struct ebb_plan_request *request,
                                               uint64_t effort_steps, uint64_t *stall_ns,
                                               struct ebb_error *error);

#endif
