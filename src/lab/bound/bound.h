/* Lower bounds: no plan of any policy needs less memory, or stalls less, than these.
 *
 *     uint64_t bytes;
 *     status = ebb__bound_peak(&request, EBB_BOUND_ALL, steps, &bytes, &error);
 *     ... the plan's peak exceeds the best stall-free one by at most plan.peak_bytes / bytes - 1
 *
 * A bound holds for every plan that ebb__check_plan() accepts and that the simulator confirms. The
 * plan must have the request's model, machine, page size and smallest block. Simulator and checker
 * charge every copy out. The runtime does not: it evicts a block without a write if its copy in the
 * store is still valid. What holds for the runtime, too, is the bound over dirty blocks alone.
 * Thread-safe. Deterministic if the search takes less time than plan_box_ns. */
#ifndef EBB_LAB_BOUND_BOUND_H
#define EBB_LAB_BOUND_BOUND_H

#include "plan/plan.h"

#include <stdint.h>

enum ebb_bound_copies {
    EBB_BOUND_ALL,   /* every copy out takes its lane's time */
    EBB_BOUND_DIRTY, /* only that of a block that was written since it could be evicted before */
};

/* The least peak of any plan whose stalls may have any length, in bytes. It is the most that must
 * be resident at one tick if all other blocks are absent. Needs no solver. O(ticks + gaps). */
EBB_NODISCARD enum ebb_status ebb__bound_floor(const struct ebb_plan_request *request,
                                               uint64_t *bytes, struct ebb_error *error);

/* The least peak of any plan without a stall, in bytes. The request's budget is not used. After
 * about `effort_steps` the search stops and returns the best bound so far. A step is an iteration
 * of the solver times the size of its basis. EBB_ERR_MEMORY. EBB_ERR_ARGUMENT if the model has no
 * events or no time. */
EBB_NODISCARD enum ebb_status ebb__bound_peak(const struct ebb_plan_request *request,
                                              enum ebb_bound_copies copies, uint64_t effort_steps,
                                              uint64_t *bytes, struct ebb_error *error);

/* The least stall per iteration of any plan within request->budget_bytes, in ns. If the budget is
 * below the floor, returns EBB_INFEASIBLE and sets *stall_ns to UINT64_MAX. Otherwise as
 * ebb__bound_peak(). */
EBB_NODISCARD enum ebb_status ebb__bound_stall(const struct ebb_plan_request *request,
                                               enum ebb_bound_copies copies, uint64_t effort_steps,
                                               uint64_t *stall_ns, struct ebb_error *error);

#endif
