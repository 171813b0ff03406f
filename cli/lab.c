#include "lab.h"

#include "base/tuning.h"
#include "lab/bound/bound.h"
#include "lab/import/import.h"

bool ebb__lab_is_here(void)
{
    return true;
}

enum ebb_status ebb__lab_trace_open(const char *path, struct ebb_trace *trace,
                                    struct ebb_error *error)
{
    return ebb__trace_open(path, trace, error);
}

enum ebb_status ebb__lab_bounds(const struct ebb_plan_request *request, const struct ebb_plan *plan,
                                bool zero_stall, struct ebb_bounds *bounds, struct ebb_error *error)
{
    *bounds = (struct ebb_bounds){.known = plan->rules.share_count == 0};
    if (!bounds->known)
        return EBB_OK; /* the bound is on plans in which each block has memory of its own */
    uint64_t steps = ebb__tuning()->bound_steps;
    enum ebb_status status =
        ebb__bound_peak(request, EBB_BOUND_ALL, steps, &bounds->peak_bytes, error);
    if (!status)
        status = ebb__bound_peak(request, EBB_BOUND_DIRTY, steps, &bounds->dirty_peak_bytes, error);
    if (bounds->dirty_peak_bytes > bounds->peak_bytes)
        bounds->dirty_peak_bytes = bounds->peak_bytes; /* both are searched, with limited effort */
    if (!status && !zero_stall && plan->stall_ns > 0)
        status = ebb__bound_stall(request, EBB_BOUND_ALL, steps, &bounds->stall_ns, error);
    if (!status && bounds->stall_ns > 0)
        status = ebb__bound_stall(request, EBB_BOUND_DIRTY, steps, &bounds->dirty_stall_ns, error);
    if (bounds->dirty_stall_ns > bounds->stall_ns)
        bounds->dirty_stall_ns = bounds->stall_ns;
    if (status == EBB_INFEASIBLE)
        bounds->stall_ns = bounds->dirty_stall_ns = 0; /* no plan at all fits the budget */
    else if (status)
        return status;
    if (zero_stall)
        bounds->gap =
            bounds->peak_bytes ? (double)plan->peak_bytes / (double)bounds->peak_bytes - 1 : 0;
    else
        bounds->gap = (double)plan->iteration_ns /
                          (double)(ebb__model_iteration_ns(request->model) + bounds->stall_ns) -
                      1;
    return EBB_OK;
}
