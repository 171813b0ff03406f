#include "budget_at.h"

#include "base/vec.h"
#include "choices.h"
#include "command.h"
#include "load.h"
#include "plan/request/budget_at.h"
#include "planning.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16 }; /* slow-downs in a list */

/* What is asked for, and the rows so far. */
struct work {
    const struct ebb_offline *options;
    double slowdowns[MOST]; /* as shares */
    size_t slowdown_count;
    EBB_VEC(const struct ebb_policy *) policies;
    struct ebb_machine machine;
    json_t *rows;
};

/* Reads percentages, separated by commas. */
static bool slowdowns_parse(const char *text, struct work *work)
{
    while (work->slowdown_count < MOST) {
        char *rest;
        double percent = strtod(text, &rest);
        if (rest == text || !(percent >= 0) || percent > 10000 || (*rest && *rest != ','))
            return false;
        work->slowdowns[work->slowdown_count++] = percent / 100;
        if (!*rest)
            return true;
        text = rest + 1;
    }
    return false;
}

/* Finds the policies of a list, or all. Returns -1, or an exit code. */
static int policies_choose(const char *list, struct work *work)
{
    bool ok = true;
    for (size_t i = 0; !list && ok && ebb__policy_at(i); i++)
        ok = ebb_vec_push(&work->policies, ebb__policy_at(i));
    while (list && ok) {
        char name[64];
        size_t length = strcspn(list, ",");
        snprintf(name, sizeof name, "%.*s", (int)(length < 63 ? length : 63), list);
        const struct ebb_policy *policy = ebb__policy_choose("compare", name);
        if (!policy)
            return ebb_status_exit_code(EBB_ERR_ARGUMENT);
        ok = ebb_vec_push(&work->policies, policy);
        list = list[length] ? list + length + 1 : NULL;
    }
    return ok ? -1 : ebb_status_exit_code(EBB_ERR_MEMORY);
}

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
                                const struct ebb_loaded *loaded, struct ebb_error *error)
{
    struct ebb_plan_terms terms =
        ebb__plan_terms(ebb__policy_at(0), &loaded->analysis.model, &work->machine, 0);
    terms.page_bytes = loaded->page_bytes;
    terms.smallest_block_bytes = work->options->smallest_block_bytes;
    uint64_t peak_bytes;
    enum ebb_status status = ebb__planning_unmanaged_peak(&terms, &peak_bytes, error);
    for (size_t p = 0; !status && p < work->policies.count; p++) {
        terms.policy = work->policies.items[p];
        for (size_t i = 0; !status && i < work->slowdown_count; i++) {
            struct ebb_budget_at found;
            status = ebb__plan_budget_at(&terms, peak_bytes, work->slowdowns[i], &found, error);
            if (!status)
                json_array_append_new(
                    work->rows, row_of(trace, &terms, work->slowdowns[i], peak_bytes, &found));
        }
        if (status == EBB_ERR_UNSUPPORTED && !work->options->policies)
            status = EBB_OK; /* of all policies, those that the trace suffices for */
    }
    return status;
}

/* A row of the table for each trace and policy, with a column for each slow-down. */
static void print_text(const struct work *work)
{
    size_t count = json_array_size(work->rows);
    const char *trace = "";
    for (size_t i = 0; i < count; i += work->slowdown_count) {
        const json_t *first = json_array_get(work->rows, i);
        const char *own = json_string_value(json_object_get(first, "trace"));
        if (strcmp(own, trace) != 0) {
            printf("%s%s on %s\n%-16s", *trace ? "\n" : "", own, work->machine.name, "policy");
            for (size_t k = 0; k < work->slowdown_count; k++)
                printf("%18.6g %%", 100 * work->slowdowns[k]);
            putchar('\n');
        }
        trace = own;
        printf("%-16s", json_string_value(json_object_get(first, "policy")));
        for (size_t k = 0; k < work->slowdown_count; k++) {
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

static enum ebb_status do_all(struct work *work, char *const *files, size_t file_count,
                              struct ebb_error *error)
{
    enum ebb_status status =
        ebb__planning_machine(work->options->machine, work->options->store, &work->machine, error);
    for (size_t i = 0; !status && i < file_count; i++) {
        struct ebb_loaded loaded;
        status = ebb__load(files[i], EBB_LOAD_ACCESSES, &loaded, error);
        if (status)
            return status;
        ebb__planning_scale_time(work->options->time_billionths, &loaded.analysis.model);
        status = do_trace(work, files[i], &loaded, error);
        ebb__load_fini(&loaded);
    }
    return status;
}

int ebb__budget_at(const struct ebb_offline *options, char *const *files, size_t file_count)
{
    struct work work = {.options = options};
    struct ebb_error error = {0};
    if (!slowdowns_parse(options->budget_at, &work))
        return ebb__command_usage("compare", "'%s' is no list of percentages", options->budget_at);
    int code = policies_choose(options->policies, &work);
    enum ebb_status status = EBB_OK;
    if (code < 0) {
        work.rows = json_array();
        status = do_all(&work, files, file_count, &error);
        code = 0;
    }
    if (!status && work.rows) {
        bool ok = true;
        if (options->json)
            ok = print_json(&work);
        else
            print_text(&work);
        if (!ok || fflush(stdout) != 0 || ferror(stdout)) {
            status = ebb__fail(&error, EBB_ERR_IO, "standard output", "cannot be written");
            ebb__error_set_remedy(&error, "see that its disk is not full");
        }
    }
    json_decref(work.rows);
    ebb_vec_free(&work.policies);
    return status ? ebb__command_fail("compare", &error) : code;
}
