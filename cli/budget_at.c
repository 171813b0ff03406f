#include "budget_at.h"

#include "command.h"
#include "load.h"
#include "output.h"
#include "plan/request/budget_at.h"
#include "planning.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* What is asked for, and the rows so far. */
struct work {
    const struct ebb_compare_list *list;
    json_t *rows;
};

static json_t *row_of(const char *trace, const struct ebb_plan_terms *terms, double slowdown,
                      uint64_t peak_bytes, const struct ebb_budget_at *found)
{
    bool any = found->budget_bytes != 0;
    return json_pack(
        "{s:s, s:s, s:s, s:f, s:o, s:o, s:o, s:I}", "trace", trace, "policy", terms->policy->name,
        "machine", terms->machine->name, "at_percent", 100 * slowdown, "budget_bytes",
        any ? json_integer((json_int_t)found->budget_bytes) : json_null(), "share",
        any ? json_real((double)found->budget_bytes / (double)peak_bytes) : json_null(), "slowdown",
        any ? json_real(1 + found->slowdown) : json_null(), "peak_bytes", (json_int_t)peak_bytes);
}

static enum ebb_status do_trace(struct work *work, const char *trace,
                                const struct ebb_loaded *loaded, const struct ebb_machine *machine,
                                struct ebb_error *error)
{
    struct ebb_plan_terms terms =
        ebb__plan_terms(ebb__plan_policy("none"), &loaded->analysis.model, machine, 0);
    terms.page_bytes = loaded->page_bytes;
    terms.smallest_block_bytes = work->list->given.smallest_block_bytes;
    uint64_t peak_bytes;
    enum ebb_status status = ebb__planning_unmanaged_peak(&terms, &peak_bytes, error);
    for (size_t p = 0; !status && p < work->list->policies.count; p++) {
        terms.policy = work->list->policies.items[p];
        for (size_t i = 0; !status && i < work->list->slowdowns.count; i++) {
            struct ebb_budget_at found;
            status = ebb__plan_budget_at(&terms, peak_bytes, work->list->slowdowns.items[i], &found,
                                         error);
            if (!status)
                json_array_append_new(
                    work->rows,
                    row_of(trace, &terms, work->list->slowdowns.items[i], peak_bytes, &found));
        }
        if (status == EBB_ERR_UNSUPPORTED && !work->list->given.policies)
            status = EBB_OK; /* of all policies, those that the trace suffices for */
    }
    return status;
}

/* A row of the table for each trace and policy, with a column for each slow-down. */
static void print_text(const struct work *work)
{
    size_t count = json_array_size(work->rows);
    const char *trace = "", *machine = "";
    for (size_t i = 0; i < count; i += work->list->slowdowns.count) {
        const json_t *first = json_array_get(work->rows, i);
        const char *own = json_string_value(json_object_get(first, "trace"));
        const char *on = json_string_value(json_object_get(first, "machine"));
        if (strcmp(own, trace) != 0 || strcmp(on, machine) != 0) {
            printf("%s%s on %s\n%-16s", *trace ? "\n" : "", own, on, "policy");
            for (size_t k = 0; k < work->list->slowdowns.count; k++)
                printf("%18.6g %%", 100 * work->list->slowdowns.items[k]);
            putchar('\n');
        }
        trace = own;
        machine = on;
        printf("%-16s", json_string_value(json_object_get(first, "policy")));
        for (size_t k = 0; k < work->list->slowdowns.count; k++) {
            const json_t *row = json_array_get(work->rows, i + k);
            const json_t *budget = json_object_get(row, "budget_bytes");
            char text[32];
            if (json_is_null(budget))
                printf("%20s", "-");
            else
                printf("%12s (%3.0f %%)",
                       ebb_size_format((uint64_t)json_integer_value(budget), text, sizeof text),
                       100 * json_real_value(json_object_get(row, "share")));
        }
        putchar('\n');
    }
}

static bool print_json(const struct work *work)
{
    json_t *root = json_pack("{s:s, s:O}", "schema", "ebb.budget-at/1", "rows", work->rows);
    bool ok = root && json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0 &&
              putchar('\n') != EOF;
    json_decref(root);
    return ok;
}

static enum ebb_status do_all(struct work *work, struct ebb_error *error)
{
    const struct ebb_compare_list *list = work->list;
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; !status && i < list->file_count; i++) {
        struct ebb_loaded loaded;
        status = ebb__load(list->files[i], EBB_LOAD_ACCESSES, &loaded, error);
        if (status)
            return status;
        ebb__planning_scale_time(list->given.time_billionths, &loaded.analysis.model);
        for (size_t m = 0; !status && m < list->machines.count; m++)
            status = do_trace(work, list->files[i], &loaded, &list->machines.items[m], error);
        ebb__load_fini(&loaded);
    }
    return status;
}

int ebb__budget_at(const struct ebb_compare_list *list)
{
    struct work work = {.list = list};
    struct ebb_error error = {0};
    work.rows = json_array();
    enum ebb_status status =
        work.rows ? do_all(&work, &error)
                  : ebb__fail(&error, EBB_ERR_MEMORY, "results", "no memory for them");
    if (!status) {
        bool ok = true;
        if (list->given.json)
            ok = print_json(&work);
        else
            print_text(&work);
        status = ebb__output_flush(ok, &error);
    }
    json_decref(work.rows);
    return status ? ebb__command_fail("compare", &error) : 0;
}
