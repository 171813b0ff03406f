#include "planning.h"

#include "base/tuning.h"

#include <string.h>

enum ebb_status ebb__planning_machine(const char *spec, const char *store,
                                      struct ebb_machine *machine, struct ebb_error *error)
{
    return strcmp(spec, "host") == 0
               ? ebb__machine_probe(store, ebb__tuning()->probe_bytes, machine, error)
               : ebb__machine_find(spec, machine, error);
}

void ebb__planning_scale_time(uint64_t time_billionths, struct ebb_model *model)
{
    if (time_billionths)
        ebb__model_scale_time(model, (double)time_billionths / 1e9);
}

enum ebb_status ebb__planning_unmanaged_peak(const struct ebb_plan_terms *terms, uint64_t *bytes,
                                             struct ebb_error *error)
{
    struct ebb_plan none;
    struct ebb_plan_request unlimited = ebb__plan_request(terms);
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

enum ebb_status ebb__planning_make(const struct ebb_plan_terms *terms, bool zero_stall,
                                   struct ebb_planned *planned, struct ebb_error *error)
{
    enum ebb_status status = zero_stall ? ebb__planned_zero_stall(terms, planned, error)
                                        : ebb__planned_make(terms, planned, error);
    if (status)
        return status;
    status = ebb__planned_check(planned, error);
    if (status)
        ebb__planned_fini(planned);
    return status;
}
