/* The forecast: plans of the newest iteration for several budgets. */
#include "api/internal.h"

#include "plan/request/request.h"

#define STEPS 12 /* of a bisection: the result is exact to a 4,000th of the range */
#define EFFORT_DIVISOR 8

struct budgets {
    struct ebb_plan_terms terms;
    struct ebb_error *error;
};

/* The predicted time with a budget; 0: infeasible. */
static enum ebb_status time_with(struct budgets *budgets, uint64_t budget_bytes, uint64_t *ns,
                                 uint64_t *least_bytes)
{
    struct ebb_plan plan;
    budgets->terms.budget_bytes = budget_bytes;
    struct ebb_plan_request request = ebb__plan_request(&budgets->terms);
    enum ebb_status status = ebb__plan_make(budgets->terms.policy, &request, &plan, budgets->error);
    if (status)
        return status;
    *ns = plan.feasible ? plan.iteration_ns : 0;
    if (least_bytes)
        *least_bytes = plan.smallest_feasible_bytes + budgets->terms.beside_bytes;
    ebb__plan_fini(&plan);
    return EBB_OK;
}

/* The smallest budget of a plan that takes at most `most_ns`. A plan for `high` does. */
static enum ebb_status bisect(struct budgets *budgets, uint64_t low, uint64_t high,
                              uint64_t most_ns, uint64_t *bytes)
{
    enum ebb_status status = EBB_OK;
    for (int step = 0; step < STEPS && high - low > 1 && !status; step++) {
        uint64_t middle = low + (high - low) / 2, ns;
        status = time_with(budgets, middle, &ns, NULL);
        if (ns && ns <= most_ns)
            high = middle;
        else
            low = middle;
    }
    *bytes = high;
    return status;
}

static uint64_t all_bytes(const struct ebb_context *context)
{
    uint64_t bytes = 0;
    for (size_t i = 1; i < context->tensors.count; i++)
        if (context->tensors.items[i].is_declared && context->tensors.items[i].of == i)
            bytes += context->tensors.items[i].bytes;
    return bytes;
}

static enum ebb_status forecast(struct ebb_context *context, const struct ebb_model *model,
                                struct ebb_forecast *out, struct ebb_error *error)
{
    struct budgets budgets = {.terms = ebb__plan_terms(ebb__plan_policy("ebb"), model,
                                                       &context->machine, model->peak_bytes),
                              .error = error};
    budgets.terms.effort_steps /= EFFORT_DIVISOR;
    budgets.terms.beside_bytes = ebb__api_small_bytes(context);
    uint64_t whole_ns = 0, unused;
    *out = (struct ebb_forecast){.peak_bytes = model->peak_bytes,
                                 .static_bytes = all_bytes(context),
                                 .iteration_ns = ebb__model_iteration_ns(model)};
    enum ebb_status status = time_with(&budgets, UINT64_MAX / 4, &whole_ns, NULL);
    if (!status)
        status = time_with(&budgets, 1, &unused, &out->least_bytes);
    out->peak_bytes += budgets.terms.beside_bytes;
    uint64_t least = out->least_bytes, from = least ? least - 1 : 0;
    uint64_t ceiling = out->peak_bytes + model->peak_bytes / 8;
    if (ceiling < least)
        ceiling = least;
    if (!status)
        status = bisect(&budgets, from, ceiling, whole_ns + whole_ns / 1000, &out->no_loss_bytes);
    if (!status)
        status = bisect(&budgets, from, out->no_loss_bytes, whole_ns + whole_ns / 20,
                        &out->loss_5_bytes);
    if (!status)
        status =
            bisect(&budgets, from, out->loss_5_bytes, whole_ns + whole_ns / 5, &out->loss_20_bytes);
    out->planned_ns = whole_ns;
    if (!status && context->budget_bytes != UINT64_MAX)
        status = time_with(&budgets, context->budget_bytes, &out->planned_ns, NULL);
    return status;
}

enum ebb_status ebb_forecast(struct ebb_context *context, struct ebb_forecast *out,
                             struct ebb_error *error)
{
    if (!out)
        return ebb__fail(error, EBB_ERR_ARGUMENT, "ebb_forecast", "an argument is NULL");
    pthread_mutex_lock(&context->lock);
    const struct plan_of_kind *plan = &context->plans[context->kind]; /* of the newest iteration */
    struct ebb_model model;
    enum ebb_status status = EBB_OK;
    if (context->phase != API_IDLE || !plan->newest.is_whole)
        status = ebb__fail(error, EBB_ERR_ARGUMENT, "ebb_forecast",
                           "there is no whole iteration to forecast for");
    if (!status)
        status = ebb__api_model(plan, &model, error);
    if (!status) {
        status = forecast(context, &model, out, error);
        ebb__model_fini(&model);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}
