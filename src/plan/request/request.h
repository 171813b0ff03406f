/* The request for a plan, and what follows from it: shared by `ebb run` and `ebb plan`.
 *
 *     struct ebb_plan_terms terms =
 *         ebb__plan_terms(ebb__plan_policy("ebb"), &model, &machine, budget_bytes);
 *     struct ebb_planned planned;
 *     if (ebb__planned_make(&terms, &planned, &error) == EBB_OK) {
 *         if (ebb__planned_check(&planned, &error) == EBB_OK && !planned.plan.reactive &&
 *             ebb__planned_script(&planned, &script, &error) == EBB_OK)
 *             ... send it, free(script) ...
 *         ebb__planned_fini(&planned);
 *     }
 *
 * A live run knows more than a trace does: the memory of small blocks and of other processes. Such
 * facts are terms. All plans are derived from terms here. No shared state. */
#ifndef EBB_PLAN_REQUEST_H
#define EBB_PLAN_REQUEST_H

#include "plan/idle.h"
#include "plan/place/huge_round.h"
#include "plan/place/place.h"
#include "plan/plan.h"
#include "runtime/script.h"

/* The facts known when a plan is requested. */
struct ebb_plan_terms {
    const struct ebb_policy *policy;
    const struct ebb_model *model;
    const struct ebb_machine *machine;
    uint64_t budget_bytes; /* budget of the whole run; UINT64_MAX: none */
    uint64_t beside_bytes; /* part of the budget that small blocks and other processes hold */
    uint64_t margin_bytes; /* to be left free of the rest, but at most a sixth of it */
    uint64_t page_bytes;   /* as in struct ebb_plan_request, like the next. EBB_PAGE_BYTES: a plan
                              for the runtime, limited to what that can do */
    uint64_t smallest_block_bytes, place_unit_bytes;
    uint64_t effort_steps; /* of all planning; this and the next as in struct ebb_plan_request */
    uint64_t time_limit_ns;
    uint64_t seed; /* this and the next as in struct ebb_plan_request */
    bool *chance_used;
    const atomic_bool *stop; /* as in struct ebb_effort */
};

/* Default terms of a run; the caller changes what it knows better. */
struct ebb_plan_terms ebb__plan_terms(const struct ebb_policy *policy,
                                      const struct ebb_model *model,
                                      const struct ebb_machine *machine, uint64_t budget_bytes);
/* The planner's request for these terms, with the whole share of the budget. */
struct ebb_plan_request ebb__plan_request(const struct ebb_plan_terms *terms);
/* Bytes of the share that are left free if a plan is feasible without them: the margin, and memory
 * for another order of events. */
uint64_t ebb__plan_slack(const struct ebb_plan_terms *terms);

/* As ebb__plan_make(). If the plan for the runtime does not fit, the plan without idle blocks
 * replaces it, and request->model is then *without_idle's. Release the latter after the request. */
EBB_NODISCARD enum ebb_status ebb__plan_make_for_uses(const struct ebb_policy *policy,
                                                      struct ebb_plan_request *request,
                                                      struct ebb_without_idle *without_idle,
                                                      struct ebb_plan *plan,
                                                      struct ebb_error *error);

/* A plan and all that belongs to it. It contains addresses of its own members: do not copy it. */
struct ebb_planned {
    const struct ebb_model *model; /* of the terms */
    /* The request that the plan answers; its model may be that of `without_idle`, or of
     * `huge_rounded`, which is made from the former. */
    struct ebb_plan_request request;
    struct ebb_plan plan;
    struct ebb_without_idle without_idle; /* count 0: idle blocks are resident */
    struct ebb_huge_rounded huge_rounded; /* blocks rounded to whole units; count 0: none */
    struct ebb_places places;             /* addresses; empty until they are needed */
    uint64_t beside_bytes;                /* part of the budget that was not available to the
                                             plan */
};

/* Plans. If no plan for the runtime fits, idle blocks are left out. So a budget is called too
 * small only if the blocks in use do not fit. If it costs no time, the plan has more huge
 * pages. Some blocks are then huge-rounded, and memory is left for the waste of the static
 * placement's units. On EBB_OK the caller owns *planned. An infeasible budget is EBB_OK, as in
 * ebb__plan_make(). Errors as in ebb__plan_make(). */
EBB_NODISCARD enum ebb_status ebb__planned_make(const struct ebb_plan_terms *terms,
                                                struct ebb_planned *planned,
                                                struct ebb_error *error);
/* Plans for the smallest budget without a stall instead: ebb__plan_zero_stall(). */
EBB_NODISCARD enum ebb_status ebb__planned_zero_stall(const struct ebb_plan_terms *terms,
                                                      struct ebb_planned *planned,
                                                      struct ebb_error *error);
/* Checks the plan, as ebb__check_plan() does. */
EBB_NODISCARD enum ebb_status ebb__planned_check(const struct ebb_planned *planned,
                                                 struct ebb_error *error);
/* The plan in the runtime's form, with addresses; fills planned->places. Not for reactive plans.
 * EBB_ERR_UNSUPPORTED if the plan has rules. *script is malloc'ed. Other errors as in
 * ebb__place_blocks() and ebb__compile_script(). */
EBB_NODISCARD enum ebb_status ebb__planned_script(struct ebb_planned *planned,
                                                  struct ebb_script **script,
                                                  struct ebb_error *error);
void ebb__planned_fini(struct ebb_planned *planned);

#endif
