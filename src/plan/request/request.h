/* The request for a plan, and what follows from it: one way for `ebb run` and `ebb plan`.
 *
 *     struct ebb_plan_terms terms = ebb__plan_terms(ebb__plan_policy("ebb"), &model, &machine, budget_bytes);
 *     struct ebb_planned planned;
 *     if (ebb__planned_make(&terms, &planned, &error) == EBB_OK) {
 *         if (ebb__planned_check(&planned, &error) == EBB_OK && !planned.plan.reactive &&
 *             ebb__planned_script(&planned, &script, &error) == EBB_OK)
 *             ... send it, free(script) ...
 *         ebb__planned_fini(&planned);
 *     }
 *
 * A living run knows more than a trace does: what small blocks hold, what other processes hold. These
 * are terms. Everything that is made of terms is made here. No shared state. */
#ifndef EBB_PLAN_REQUEST_H
#define EBB_PLAN_REQUEST_H

#include "plan/place/huge_round.h"
#include "plan/place/place.h"
#include "plan/plan.h"
#include "runtime/script.h"

/* What is known when a plan is wanted. */
struct ebb_plan_terms {
    const struct ebb_policy *policy;
    const struct ebb_model *model;
    const struct ebb_machine *machine;
    uint64_t budget_bytes; /* of the whole run; UINT64_MAX: none */
    uint64_t beside_bytes; /* of these: what small blocks and other processes hold */
    uint64_t margin_bytes; /* of the rest: to be left free, as far as that is no sixth of it */
    uint64_t page_bytes;   /* as of struct ebb_plan_request, and so the next; EBB_PAGE_BYTES: the
                              plan is one for the runtime, with what that can do and cannot */
    uint64_t smallest_block_bytes;
    uint64_t effort_steps; /* of all planning, and the next, as of struct ebb_plan_request */
    uint64_t time_limit_ns;
};

/* The terms of a run that knows nothing else; the caller changes what it knows better. */
struct ebb_plan_terms ebb__plan_terms(const struct ebb_policy *policy,
                                      const struct ebb_model *model,
                                      const struct ebb_machine *machine, uint64_t budget_bytes);
/* What the planner is asked by these terms, with the whole share of the budget. */
struct ebb_plan_request ebb__plan_request(const struct ebb_plan_terms *terms);
/* Bytes of the share that are left free if a plan is feasible without them: what another order of events
 * may need, and the margin. */
uint64_t ebb__plan_slack(const struct ebb_plan_terms *terms);

/* A plan and all that belongs to it. It holds addresses of its own members: do not copy it. */
struct ebb_planned {
    const struct ebb_model *model; /* of the terms */
    /* That the plan answers; its model may be that of `huge_rounded`. */
    struct ebb_plan_request request;
    struct ebb_plan plan;
    struct ebb_huge_rounded huge_rounded; /* which blocks take whole units; count 0: none */
    struct ebb_places places;             /* addresses; empty as long as nobody needed them */
    uint64_t beside_bytes;                /* of the budget: all that the plan could not have */
};

/* Plan. Where it costs no time the plan is one with more huge pages: some blocks are huge-rounded,
 * and there is room for what the static placement's units waste. *planned is the caller's on
 * EBB_OK. An infeasible budget is EBB_OK, as of ebb__plan_make(). Errors as of ebb__plan_make(). */
EBB_NODISCARD enum ebb_status ebb__planned_make(const struct ebb_plan_terms *terms,
                                                struct ebb_planned *planned,
                                                struct ebb_error *error);
/* Plan for the smallest budget without a stall instead: ebb__plan_zero_stall(). */
EBB_NODISCARD enum ebb_status ebb__planned_zero_stall(const struct ebb_plan_terms *terms,
                                                      struct ebb_planned *planned,
                                                      struct ebb_error *error);
/* Is the plan one? As of ebb__check_plan(). */
EBB_NODISCARD enum ebb_status ebb__planned_check(const struct ebb_planned *planned,
                                                 struct ebb_error *error);
/* The plan as the runtime reads it, with addresses: planned->places is filled. Not for reactive plans.
 * *script is malloc'ed. Errors as of ebb__place_blocks() and ebb__compile_script(). */
EBB_NODISCARD enum ebb_status ebb__planned_script(struct ebb_planned *planned,
                                                  struct ebb_script **script,
                                                  struct ebb_error *error);
void ebb__planned_fini(struct ebb_planned *planned);

#endif
