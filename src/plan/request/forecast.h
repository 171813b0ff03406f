/* The forecast: which budgets cost no time, 5 %, 20 %, and which is the least. It is shared by
 * ebb_forecast(), `ebb advise` and reports.
 *
 *     struct ebb_plan_terms terms =
 *         ebb__plan_terms(ebb__plan_policy("ebb"), &model, &machine, 0);
 *     struct ebb_needs needs;
 *     if (ebb__forecast_needs(&terms, &needs, &error) == EBB_OK)
 *         use(needs.points[EBB_NEED_NO_LOSS].budget_bytes);
 *
 * All figures are predictions. No shared state. */
#ifndef EBB_PLAN_FORECAST_H
#define EBB_PLAN_FORECAST_H

#include "plan/request/request.h"

enum ebb_need {
    EBB_NEED_NO_LOSS, /* at most 0.1 % more time than without a budget */
    EBB_NEED_LOSS_5,  /* at most 5 % more */
    EBB_NEED_LOSS_20,
    EBB_NEED_LEAST, /* the smallest budget of any plan */
    EBB_NEED_COUNT
};

/* An iteration within a budget, predicted. */
struct ebb_forecast_point {
    uint64_t budget_bytes;
    bool feasible;
    uint64_t peak_bytes; /* resident; this and the rest: 0 if infeasible */
    uint64_t iteration_ns, stall_ns;
    uint64_t moved_out_bytes, moved_in_bytes;
};

struct ebb_needs {
    uint64_t peak_bytes; /* without a budget, with what is beside the plan */
    uint64_t whole_ns;   /* the predicted iteration without a budget */
    struct ebb_forecast_point points[EBB_NEED_COUNT];
};

/* Plans for one budget; terms->budget_bytes is ignored. Errors as in ebb__plan_make(). */
EBB_NODISCARD enum ebb_status ebb__forecast_at(const struct ebb_plan_terms *terms,
                                               uint64_t budget_bytes,
                                               struct ebb_forecast_point *point,
                                               struct ebb_error *error);

/* Finds the budgets by bisection. Each plan gets terms->effort_steps: give it a fraction of a
 * run's, since this makes some 30 plans. Large models are planned by a fast policy instead, with
 * fewer plans: see ebb__forecast_is_coarse(). Errors as in ebb__plan_make(). */
EBB_NODISCARD enum ebb_status ebb__forecast_needs(const struct ebb_plan_terms *terms,
                                                  struct ebb_needs *needs, struct ebb_error *error);

/* True if the model is too large for the search of the policy `ebb` many times. A forecast then
 * plans by `fifo`, which may demand more memory than a run needs. */
bool ebb__forecast_is_coarse(const struct ebb_model *model);

/* The effort of one plan of a forecast. */
uint64_t ebb__forecast_effort(const struct ebb_plan_terms *terms);

#endif
