#include "plan/request/forecast.h"

#define STEPS 12 /* of a bisection: the result is exact to a 4,000th of the range */
#define EFFORT_DIVISOR 8
#define COARSE_TICKS 50000 /* measured: one search takes seconds from here on */
#define COARSE_STEPS 3

struct search {
    struct ebb_plan_terms terms;
    struct ebb_error *error;
    int steps;
};

bool ebb__forecast_is_coarse(const struct ebb_model *model)
{
    return model->tick_count > COARSE_TICKS;
}

uint64_t ebb__forecast_effort(const struct ebb_plan_terms *terms)
{
    return terms->effort_steps / EFFORT_DIVISOR;
}

static enum ebb_status plan_for(const struct ebb_plan_terms *given, uint64_t budget_bytes,
                                struct ebb_forecast_point *point, uint64_t *least_bytes,
                                struct ebb_error *error)
{
    struct ebb_plan_terms terms = *given;
    struct ebb_plan plan;
    terms.budget_bytes = budget_bytes;
    struct ebb_plan_request request = ebb__plan_request(&terms);
    struct ebb_without_idle without_idle;
    enum ebb_status status =
        ebb__plan_make_for_uses(terms.policy, &request, &without_idle, &plan, error);
    ebb__without_idle_fini(&without_idle); /* only figures of the plan are wanted */
    if (status)
        return status;
    *point = (struct ebb_forecast_point){.budget_bytes = budget_bytes, .feasible = plan.feasible};
    if (plan.feasible) {
        point->peak_bytes = plan.peak_bytes + terms.beside_bytes;
        point->iteration_ns = plan.iteration_ns;
        point->stall_ns = plan.stall_ns;
        point->moved_out_bytes = plan.moved_out_bytes;
        point->moved_in_bytes = plan.moved_in_bytes;
    }
    if (least_bytes)
        *least_bytes = plan.smallest_feasible_bytes + terms.beside_bytes;
    ebb__plan_fini(&plan);
    return EBB_OK;
}

enum ebb_status ebb__forecast_at(const struct ebb_plan_terms *terms, uint64_t budget_bytes,
                                 struct ebb_forecast_point *point, struct ebb_error *error)
{
    return plan_for(terms, budget_bytes, point, NULL, error);
}

/* The smallest budget of a plan that takes at most `most_ns`. A plan for the one of *found, the
 * upper end, does. */
static enum ebb_status bisect(const struct search *search, uint64_t low, uint64_t most_ns,
                              struct ebb_forecast_point *found)
{
    enum ebb_status status = EBB_OK;
    for (int step = 0; step < search->steps && found->budget_bytes - low > 1 && !status; step++) {
        uint64_t middle = low + (found->budget_bytes - low) / 2;
        struct ebb_forecast_point point;
        status = plan_for(&search->terms, middle, &point, NULL, search->error);
        if (!status && point.feasible && point.iteration_ns <= most_ns)
            *found = point;
        else
            low = middle;
    }
    return status;
}

/* The plan for the smallest feasible budget. What a policy calls smallest may be a little too
 * small for it. Then larger budgets are tried, up to the one for a loss of 20 %. */
static enum ebb_status find_least(const struct search *search, uint64_t least_bytes,
                                  struct ebb_needs *needs)
{
    struct ebb_forecast_point *least = &needs->points[EBB_NEED_LEAST];
    *least = needs->points[EBB_NEED_LOSS_20];
    if (least_bytes >= least->budget_bytes)
        return EBB_OK;
    struct ebb_forecast_point point;
    enum ebb_status status = plan_for(&search->terms, least_bytes, &point, NULL, search->error);
    if (!status && point.feasible)
        *least = point;
    return status || point.feasible ? status : bisect(search, least_bytes, UINT64_MAX, least);
}

enum ebb_status ebb__forecast_needs(const struct ebb_plan_terms *terms, struct ebb_needs *needs,
                                    struct ebb_error *error)
{
    struct search search = {.terms = *terms, .error = error, .steps = STEPS};
    const struct ebb_model *model = terms->model;
    if (ebb__forecast_is_coarse(model)) {
        search.terms.policy = ebb__plan_policy("fifo");
        search.steps = COARSE_STEPS;
    }
    uint64_t beside = terms->beside_bytes, least_bytes = 0;
    struct ebb_forecast_point whole, unused;
    enum ebb_status status = plan_for(&search.terms, UINT64_MAX / 4, &whole, NULL, error);
    if (!status)
        status = plan_for(&search.terms, 1, &unused, &least_bytes, error);
    if (status)
        return status;
    *needs = (struct ebb_needs){.peak_bytes = whole.peak_bytes, .whole_ns = whole.iteration_ns};
    uint64_t ceiling = whole.peak_bytes + (whole.peak_bytes - beside) / 8;
    uint64_t from = least_bytes ? least_bytes - 1 : 0;
    static const uint64_t loss_divisors[] = {1000, 20, 5};
    struct ebb_forecast_point *points = needs->points;
    points[0] = whole;
    points[0].budget_bytes = ceiling > least_bytes ? ceiling : least_bytes;
    for (int i = 0; i <= EBB_NEED_LOSS_20 && !status; i++) {
        if (i)
            points[i] = points[i - 1];
        status = bisect(&search, from, whole.iteration_ns + whole.iteration_ns / loss_divisors[i],
                        &points[i]);
    }
    return status ? status : find_least(&search, least_bytes, needs);
}
