/* The forecast: plans of the newest iteration for several budgets. */
#include "api/internal.h"

#include "plan/request/forecast.h"

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
    struct ebb_plan_terms terms =
        ebb__plan_terms(ebb__plan_policy("ebb"), model, &context->machine, model->peak_bytes);
    terms.effort_steps = ebb__forecast_effort(&terms);
    terms.beside_bytes = ebb__api_small_bytes(context);
    struct ebb_needs needs;
    enum ebb_status status = ebb__forecast_needs(&terms, &needs, error);
    if (status)
        return status;
    *out = (struct ebb_forecast){
        .peak_bytes = model->peak_bytes + terms.beside_bytes,
        .static_bytes = all_bytes(context),
        .no_loss_bytes = needs.points[EBB_NEED_NO_LOSS].budget_bytes,
        .loss_5_bytes = needs.points[EBB_NEED_LOSS_5].budget_bytes,
        .loss_20_bytes = needs.points[EBB_NEED_LOSS_20].budget_bytes,
        .least_bytes = needs.points[EBB_NEED_LEAST].budget_bytes,
        .iteration_ns = ebb__model_iteration_ns(model),
        .planned_ns = needs.whole_ns,
    };
    struct ebb_forecast_point point;
    if (context->budget_bytes == UINT64_MAX)
        return EBB_OK;
    status = ebb__forecast_at(&terms, context->budget_bytes, &point, error);
    if (!status)
        out->planned_ns = point.iteration_ns;
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
