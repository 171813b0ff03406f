/* Plans of the user's own in `ebb compare`. They need not come from Ebb, so nothing that they claim
 * is shown. src/check checks them for the machine that they were made for. Then they are simulated
 * on each machine of the comparison. */
#include "compare.h"
#include "lab/bound/bound.h"
#include "plan/file.h"
#include "planning.h"

#include "base/tuning.h"
#include "check/check.h"

#include <jansson.h>
#include <string.h>

/* False if the file says that it is for another trace. Any other defect is the reader's to find. */
static bool is_for(const char *path, const struct ebb_model *model)
{
    json_t *root = json_load_file(path, 0, NULL);
    json_int_t ticks, iteration_ns;
    bool other = root &&
                 json_unpack(root, "{s:I, s:I}", "model_ticks", &ticks, "model_iteration_ns",
                             &iteration_ns) == 0 &&
                 ((uint64_t)ticks != model->tick_count ||
                  (uint64_t)iteration_ns != ebb__model_iteration_ns(model));
    json_decref(root);
    return !other;
}

enum ebb_status ebb__compare_file_read(const char *path, const struct ebb_compare_trace *trace,
                                       struct ebb_plan_file *file, bool *fits,
                                       struct ebb_error *error)
{
    const struct ebb_model *model = &trace->loaded.analysis.model;
    *fits = trace->loaded.analysis.has_accesses && is_for(path, model);
    if (!*fits)
        return EBB_OK;
    *fits = false;
    enum ebb_status status = ebb__plan_file_read(path, model, file, error);
    if (status)
        return status;
    struct ebb_check_request check = {ebb__plan_file_model(file, model), &file->machine,
                                      file->plan.budget_bytes, file->page_bytes};
    struct ebb_error wrong = {0};
    status = ebb__check_plan(&check, &file->plan, &wrong);
    if (status)
        ebb__plan_file_fini(file);
    if (status)
        ebb__fail(error, status, path, "%s: %s", wrong.what, wrong.why);
    *fits = !status;
    return status;
}

enum ebb_status ebb__compare_files_check(const struct ebb_comparison *comparison,
                                         struct ebb_error *error)
{
    const struct ebb_option_texts *paths = &comparison->list->given.plan_paths;
    for (size_t i = 0; i < paths->count; i++) {
        bool found = false, fits;
        for (size_t t = 0; t < comparison->traces.count; t++) {
            struct ebb_plan_file file;
            enum ebb_status status = ebb__compare_file_read(
                paths->items[i], &comparison->traces.items[t], &file, &fits, error);
            if (status)
                return status;
            if (fits)
                ebb__plan_file_fini(&file);
            found |= fits;
        }
        if (found)
            continue;
        ebb__fail(error, EBB_ERR_FORMAT, paths->items[i], "the plan was made for another trace");
        ebb__error_set_remedy(error, "give its trace, too, or make the plan anew: "
                                     "ebb plan FILE -o PLAN");
        return EBB_ERR_FORMAT;
    }
    return EBB_OK;
}

/* A plan of others may evict blocks that Ebb's own policies leave alone. A bound that holds for it
 * must allow that. */
static enum ebb_status bound(const struct ebb_plan_terms *terms, const struct ebb_plan_file *file,
                             struct ebb_compare_row *row, struct ebb_error *error)
{
    struct ebb_plan_request request = ebb__plan_request(terms);
    row->bound = (struct ebb_compare_bound){.known = file->plan.rules.share_count == 0};
    if (!row->bound.known)
        return EBB_OK;
    request.newest_only = false;
    for (uint32_t i = 0; i < file->plan.absence_count; i++) {
        uint64_t bytes = terms->model->blocks[file->plan.absences[i].block].size_bytes;
        if (bytes < request.smallest_block_bytes)
            request.smallest_block_bytes = bytes;
    }
    enum ebb_status status = ebb__bound_peak(&request, EBB_BOUND_ALL, ebb__tuning()->bound_steps,
                                             &row->bound.peak_bytes, error);
    if (!status && row->plan.stall_ns)
        status = ebb__bound_stall(&request, EBB_BOUND_ALL, ebb__tuning()->bound_steps,
                                  &row->bound.stall_ns, error);
    if (status == EBB_INFEASIBLE) {
        row->bound.stall_ns = 0; /* no plan at all fits the budget */
        status = EBB_OK;
    }
    row->bound.gap = (double)row->plan.iteration_ns /
                         (double)(ebb__model_iteration_ns(terms->model) + row->bound.stall_ns) -
                     1;
    return status;
}

enum ebb_status ebb__compare_file_row(struct ebb_comparison *comparison,
                                      struct ebb_compare_row *row, const struct ebb_plan_file *file,
                                      struct ebb_error *error)
{
    const struct ebb_compare_list *list = comparison->list;
    const struct ebb_model *model = &comparison->traces.items[row->trace].loaded.analysis.model;
    const struct ebb_machine *machine = &list->machines.items[row->machine];
    struct ebb_sim_result result;
    enum ebb_status status = ebb__planning_simulate(
        file, model, machine, list->given.smallest_block_bytes, &result, error);
    if (status)
        return status;
    row->plan = file->plan;
    row->plan.feasible = result.feasible;
    row->plan.peak_bytes = result.peak_bytes;
    row->plan.stall_ns = result.stall_ns;
    row->plan.iteration_ns = result.iteration_ns;
    row->plan.moved_out_bytes = result.moved_out_bytes;
    row->plan.moved_in_bytes = result.moved_in_bytes;
    row->slowdown = (double)result.iteration_ns / (double)ebb__model_iteration_ns(model);
    struct ebb_plan_terms terms =
        ebb__plan_terms(ebb__plan_policy("none"), model, machine, file->plan.budget_bytes);
    terms.page_bytes = file->page_bytes;
    terms.smallest_block_bytes = list->given.smallest_block_bytes;
    status = bound(&terms, file, row, error);
    row->plan.absences = NULL; /* the file owns them */
    row->plan.rules = (struct ebb_plan_rules){0};
    if (!status && !ebb_vec_push(&comparison->rows, *row))
        status = ebb__fail(error, EBB_ERR_MEMORY, "results", "no memory for them");
    struct ebb_compare_packed packed = {ebb__plan_file_model(file, model), &file->plan,
                                        file->page_bytes};
    return status || !result.feasible ? status : ebb__compare_pack(comparison, &packed, error);
}
