/* Iterations and dry runs. */
#include "api/internal.h"

#include "base/clock.h"

#include <unistd.h>

static enum ebb_status refuse(struct ebb_error *error, const char *why)
{
    return ebb__fail(error, EBB_ERR_ARGUMENT, "iteration", "%s", why);
}

static enum ebb_status begin(struct ebb_context *context, enum phase_of_context phase,
                             uint32_t kind, struct ebb_error *error)
{
    if (context->phase != API_IDLE)
        return refuse(error, "an iteration has begun already");
    if (kind >= EBB_ITERATION_KINDS)
        return refuse(error, "there is no such kind of iterations");
    if (phase == API_DRY_RUN && context->held_bytes)
        return refuse(error, "a tensor is in use");
    context->phase = phase;
    context->kind = kind;
    return EBB_OK;
}

/* The newest record of the kind becomes the one before it. */
static bool begin_record(struct ebb_context *context)
{
    struct plan_of_kind *plan = &context->plans[context->kind];
    struct record oldest = plan->before;
    plan->before = plan->newest;
    plan->newest = oldest;
    return ebb__api_record_begin(context, &plan->newest);
}

enum ebb_status ebb_iteration_begin(struct ebb_context *context, uint32_t kind,
                                    struct ebb_error *error)
{
    pthread_mutex_lock(&context->lock);
    enum ebb_status status = begin(context, API_ITERATION, kind, error);
    if (!status) {
        context->time_ns = ebb__runtime_progress_ns(context->runtime);
        if (context->recording.writer)
            ebb__api_record_mark(context, EBB_MARK_ITERATION, 0);
        context->is_recorded = begin_record(context);
        ebb__api_plan_begin(context, kind);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

/* The record of the iteration is complete. The one before it counts only if it is alike. */
static void end_record(struct ebb_context *context)
{
    struct plan_of_kind *plan = &context->plans[context->kind];
    ebb__api_record_mark(context, EBB_MARK_ITERATION, 0); /* the time at which it ended */
    context->is_recorded = false;
    if (plan->newest.events.count <= plan->newest.first + 1)
        plan->newest.is_whole = false;
    if (plan->before.digest != plan->newest.digest || !plan->before.is_whole)
        plan->before.events.count = 0;
}

enum ebb_status ebb_iteration_end(struct ebb_context *context, struct ebb_error *error)
{
    pthread_mutex_lock(&context->lock);
    enum ebb_status status =
        context->phase == API_ITERATION ? EBB_OK : refuse(error, "none has begun");
    if (!status) {
        context->time_ns = ebb__runtime_progress_ns(context->runtime);
        bool followed = ebb__runtime_end(context->runtime);
        context->followed = followed ? context->plans[context->kind].script : NULL;
        context->counts.iterations++;
        context->counts.planned_iterations += followed;
        end_record(context);
        context->phase = API_IDLE;
        status = ebb__api_plan(context, context->kind, error);
        if (status == EBB_INFEASIBLE) /* tensors move without a plan, and statistics say why */
            status = EBB_OK;
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

static enum ebb_status mark(struct ebb_context *context, enum ebb_mark kind, uint64_t value,
                            bool is_valid, struct ebb_error *error)
{
    pthread_mutex_lock(&context->lock);
    enum ebb_status status = EBB_OK;
    if (context->phase == API_IDLE)
        status = refuse(error, "a mark is set, but none has begun");
    else if (!is_valid)
        status = refuse(error, "there is no such phase");
    else
        ebb__api_record_mark(context, kind, value);
    pthread_mutex_unlock(&context->lock);
    return status;
}

enum ebb_status ebb_phase_begin(struct ebb_context *context, enum ebb_phase phase,
                                struct ebb_error *error)
{
    return mark(context, EBB_MARK_PHASE, (uint64_t)phase,
                phase >= EBB_PHASE_FORWARD && phase < EBB_PHASE_COUNT, error);
}

enum ebb_status ebb_layer_begin(struct ebb_context *context, uint32_t layer,
                                struct ebb_error *error)
{
    return mark(context, EBB_MARK_LAYER, layer, true, error);
}

/* In a dry run parameters and optimizer state have contents, and afterwards all is as before. */
static void assume(struct ebb_context *context, bool begins)
{
    for (size_t i = 1; i < context->tensors.count; i++) {
        struct tensor *tensor = &context->tensors.items[i];
        if (begins) {
            tensor->was_alive = tensor->is_alive;
            tensor->is_alive |= ebb__api_is_assumed(tensor);
        } else {
            tensor->is_alive = tensor->was_alive;
        }
    }
}

enum ebb_status ebb_dry_run_begin(struct ebb_context *context, uint32_t kind,
                                  struct ebb_error *error)
{
    pthread_mutex_lock(&context->lock);
    enum ebb_status status = begin(context, API_DRY_RUN, kind, error);
    if (!status) {
        context->time_ns = 0;
        assume(context, true);
        context->is_recorded = begin_record(context);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

enum ebb_status ebb_dry_run_elapse(struct ebb_context *context, uint64_t ns,
                                   struct ebb_error *error)
{
    pthread_mutex_lock(&context->lock);
    enum ebb_status status =
        context->phase == API_DRY_RUN ? EBB_OK : refuse(error, "there is no dry run");
    if (!status && ns > EBB_EVENT_TIME_LIMIT_NS - context->time_ns)
        status = refuse(error, "so much time cannot pass");
    if (!status)
        context->time_ns += ns;
    pthread_mutex_unlock(&context->lock);
    return status;
}

enum ebb_status ebb_dry_run_end(struct ebb_context *context, struct ebb_error *error)
{
    pthread_mutex_lock(&context->lock);
    enum ebb_status status =
        context->phase == API_DRY_RUN ? EBB_OK : refuse(error, "there is no dry run");
    if (!status && context->held_bytes)
        status = refuse(error, "a tensor is in use");
    if (!status) {
        end_record(context);
        assume(context, false);
        context->phase = API_IDLE;
        status = ebb__api_plan(context, context->kind, error);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

enum ebb_status ebb_record(struct ebb_context *context, const char *path, struct ebb_error *error)
{
    pthread_mutex_lock(&context->lock);
    enum ebb_status status = EBB_OK;
    struct ebb_trace_info info = {.process_id = (uint32_t)getpid()};
    if (!path || context->recording.writer)
        status = ebb__fail(error, EBB_ERR_ARGUMENT, "ebb_record",
                           path ? "a file is being recorded" : "there is no path");
    if (!status)
        status = ebb__trace_writer_open(path, &info, &context->recording.writer, error);
    if (!status) {
        context->time_ns = ebb__runtime_progress_ns(context->runtime);
        ebb__api_record_mark(context, EBB_MARK_TRACE_ON, 0);
        for (size_t i = 1; i < context->tensors.count; i++)
            if (context->tensors.items[i].is_alive && context->tensors.items[i].of == i)
                ebb__api_record_event(context, EBB_EVENT_ALLOC, &context->tensors.items[i],
                                      EBB_ACCESS_UNKNOWN, false);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}
