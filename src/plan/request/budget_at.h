/* The smallest budget at which a program is slowed down by no more than a given share.
 *
 * A policy is usually judged by its stall at some budgets. On a fast lane most of these stalls are
 * 0, on a slow one hardly any plan is feasible. The budgets for given slow-downs tell policies and
 * machines apart on any lane. */
#ifndef EBB_PLAN_BUDGET_AT_H
#define EBB_PLAN_BUDGET_AT_H

#include "plan/request/request.h"

struct ebb_budget_at {
    uint64_t budget_bytes; /* 0: it is slower even if the budget is the peak */
    double slowdown;       /* at that budget: what is added to an iteration, as a share of it */
};

/* Searches a budget at which stalls and overhead are at most `slowdown` of an iteration, and below
 * which they are more.
 *   terms       the budget in them is ignored
 *   peak_bytes  the peak without a budget
 * For 0 it is the policy's own search, otherwise a bisection down to peak_bytes / 256. Planners are
 * heuristic: a smaller budget may happen to work although a larger one does not. Every plan is
 * checked. Errors as in ebb__planned_make(). */
EBB_NODISCARD enum ebb_status ebb__plan_budget_at(const struct ebb_plan_terms *terms,
                                                  uint64_t peak_bytes, double slowdown,
                                                  struct ebb_budget_at *found,
                                                  struct ebb_error *error);

#endif
