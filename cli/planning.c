#include "planning.h"

#include "check/check.h"

#include <string.h>

#define PROBE_BYTES (256 * EBB_MIB)

enum ebb_status ebb__planning_machine(const char *spec, const char *store,
                                      struct ebb_machine *machine, struct ebb_error *error)
{
    return strcmp(spec, "host") == 0 ? ebb__machine_probe(store, PROBE_BYTES, machine, error)
                                     : ebb__machine_find(spec, machine, error);
}

enum ebb_status ebb__planning_unmanaged_peak(const struct ebb_plan_request *request,
                                             uint64_t *bytes, struct ebb_error *error)
{
    struct ebb_plan none;
    struct ebb_plan_request unlimited = *request;
    unlimited.budget_bytes = UINT64_MAX / 4;
    enum ebb_status status = ebb__plan_make(ebb__plan_policy("none"), &unlimited, &none, error);
    if (status)
        return status;
    *bytes = none.peak_bytes;
    ebb__plan_fini(&none);
    return EBB_OK;
}

enum ebb_status ebb__planning_budget(const char *text, uint64_t peak_bytes, uint64_t *bytes,
                                     struct ebb_error *error)
{
    double fraction;
    if (ebb_percent_parse(text, &fraction))
        *bytes = (uint64_t)(fraction * (double)peak_bytes);
    else if (!ebb_size_parse(text, bytes))
        return ebb__fail(error, EBB_ERR_ARGUMENT, text, "not a size nor a percentage");
    return EBB_OK;
}

enum ebb_status ebb__planning_make(const struct ebb_policy *policy, bool zero_stall,
                                   const struct ebb_plan_request *request, struct ebb_plan *plan,
                                   struct ebb_error *error)
{
    enum ebb_status status = zero_stall ? ebb__plan_zero_stall(policy, request, plan, error)
                                        : ebb__plan_make(policy, request, plan, error);
    if (status)
        return status;
    struct ebb_check_request check = {request->model, request->machine, plan->budget_bytes,
                                      request->page_bytes};
    status = ebb__check_plan(&check, plan, error);
    if (status)
        ebb__plan_fini(plan);
    return status;
}
