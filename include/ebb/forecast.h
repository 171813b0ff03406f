/* The dry run and the forecast: what an iteration needs, before any memory is there.
 *
 *     ebb_dry_run_begin(context, 0, &error);
 *     one_iteration(context);   it acquires, releases and discards, but computes nothing
 *     ebb_dry_run_end(context, &error);
 *
 *     struct ebb_forecast forecast;
 *     ebb_forecast(context, &forecast, &error);
 *     printf("%llu bytes at no loss\n", (unsigned long long)forecast.no_loss_bytes);
 *
 * In a dry run time passes only by ebb_dry_run_elapse(). Parameters and optimizer state count as if
 * they had contents. After it, tensors have contents or none as before it. A plan is in force from
 * the first iteration on. */
#ifndef EBB_FORECAST_H
#define EBB_FORECAST_H

#include "ebb/context.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_forecast {
    uint64_t peak_bytes;    /* most bytes that tensors have at a time: needed without Ebb */
    uint64_t static_bytes;  /* of all tensors together: needed if each keeps its memory */
    uint64_t no_loss_bytes; /* smallest budget of a plan that loses no time */
    uint64_t loss_5_bytes;  /* smallest budget of a plan that loses at most 5 % */
    uint64_t loss_20_bytes; /* likewise 20 % */
    uint64_t least_bytes;   /* smallest budget of any plan */
    uint64_t iteration_ns;  /* of the iteration itself */
    uint64_t planned_ns;    /* predicted with the budget of the context; 0: infeasible */
};

/* Begins a dry run of one iteration of a kind, as ebb_iteration_begin() would. EBB_ERR_ARGUMENT: an
 * iteration or a dry run has begun, the kind is invalid, or a tensor is acquired. */
EBB_API EBB_NODISCARD enum ebb_status ebb_dry_run_begin(struct ebb_context *context, uint32_t kind,
                                                        struct ebb_error *error);
/* `ns` of computing pass. EBB_ERR_ARGUMENT: there is no dry run. */
EBB_API enum ebb_status ebb_dry_run_elapse(struct ebb_context *context, uint64_t ns,
                                           struct ebb_error *error);
/* Ends the dry run and plans the iteration. EBB_INFEASIBLE: the budget is below the smallest
 * feasible one, which the error names; the context works on without a plan. EBB_ERR_ARGUMENT: there
 * is no dry run. EBB_ERR_MEMORY. */
EBB_API EBB_NODISCARD enum ebb_status ebb_dry_run_end(struct ebb_context *context,
                                                      struct ebb_error *error);

/* Forecast for the newest iteration, of a dry run or a real one. Takes some seconds at most; plans
 * are made for several budgets. EBB_ERR_ARGUMENT: there was none. EBB_ERR_MEMORY. */
EBB_API EBB_NODISCARD enum ebb_status ebb_forecast(struct ebb_context *context,
                                                   struct ebb_forecast *forecast,
                                                   struct ebb_error *error);

#ifdef __cplusplus
}
#endif

#endif
