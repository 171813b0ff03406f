#include "planning.h"
#include "progress.h"

#include "base/tuning.h"
#include "sim/reactive.h"

#include <stdlib.h>
#include <string.h>

enum ebb_status ebb__planning_machine(const char *spec, const char *store,
                                      struct ebb_machine *machine, struct ebb_error *error)
{
    if (strcmp(spec, "host") == 0)
        ebb__progress_say("measuring the disk of %s", store);
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

enum ebb_status ebb__planning_simulate(const struct ebb_plan_file *file,
                                       const struct ebb_model *model,
                                       const struct ebb_machine *machine,
                                       uint64_t smallest_block_bytes, struct ebb_sim_result *result,
                                       struct ebb_error *error)
{
    model = ebb__plan_file_model(file, model);
    if (!file->plan.reactive) {
        struct ebb_sim_request request = {model,
                                          machine,
                                          file->plan.absences,
                                          file->plan.absence_count,
                                          file->plan.budget_bytes,
                                          file->page_bytes,
                                          &file->plan.rules};
        return ebb__simulate(&request, NULL, result, error);
    }
    struct ebb_reactive_request request = {model,
                                           machine,
                                           file->plan.budget_bytes,
                                           file->page_bytes,
                                           smallest_block_bytes,
                                           ebb__reactive_order(file->plan.policy)};
    struct ebb_reactive_result reactive;
    enum ebb_status status = ebb__simulate_reactive(&request, &reactive, error);
    if (status)
        return status;
    free(reactive.absences);
    *result = (struct ebb_sim_result){.peak_bytes = reactive.peak_bytes,
                                      .iteration_ns = reactive.iteration_ns,
                                      .stall_ns = reactive.stall_ns,
                                      .moved_out_bytes = reactive.moved_out_bytes,
                                      .moved_in_bytes = reactive.moved_in_bytes,
                                      .laps = reactive.laps,
                                      .steady = reactive.steady,
                                      .feasible = reactive.peak_bytes <= file->plan.budget_bytes};
    return EBB_OK;
}
