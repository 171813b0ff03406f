/* `ebb simulate`: simulates a plan on a machine, which may differ from the plan's own. */
#include "sim/simulate.h"

#include "choices.h"
#include "command.h"
#include "load.h"
#include "offline.h"
#include "options.h"
#include "output.h"
#include "plan/file.h"
#include "planning.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct ebb_usage ebb__usage_simulate = {
    .command = "simulate",
    .text = "usage: ebb simulate FILE PLAN [options]\n\n"
            "Replays one iteration of the trace FILE under PLAN, which 'ebb plan -o' wrote, again\n"
            "and again until it is steady, and says what it costs beside what the plan predicts.\n"
            "Without --budget: the plan's.\n",
    .options = ebb__offline_options,
    .commands = EBB_OFFLINE_SIMULATE,
    .tail = "example: ebb plan run.ebbt --budget 60% -o p.json && ebb simulate run.ebbt p.json "
            "--machine pcie3\n",
    .operands = EBB_OPERANDS_FILES,
};

/* Returns -1 to continue, or the exit code. */
static int options_parse(int argc, char **argv, struct ebb_offline *options)
{
    *options = (struct ebb_offline){.store = ".", .smallest_block_bytes = EBB_OFFLINE_TUNED};
    int code = ebb__offline_parse(&ebb__usage_simulate, argc, argv, options);
    if (code >= 0)
        return code;
    if (argc - optind != 2)
        return ebb__command_usage("simulate", "give FILE and PLAN, not %d arguments",
                                  argc - optind);
    return -1;
}

/* Replaces the plan's machine and budget by those that the user gave. */
static enum ebb_status replace(const struct ebb_offline *options, const struct ebb_model *model,
                               struct ebb_plan_file *file, struct ebb_error *error)
{
    enum ebb_status status = EBB_OK;
    if (options->machine)
        status = ebb__planning_machine(options->machine, options->store, &file->machine, error);
    if (status || !options->budget)
        return status;
    struct ebb_plan_terms terms = ebb__plan_terms(ebb__policy_at(0), model, &file->machine, 0);
    terms.page_bytes = file->page_bytes;
    uint64_t peak_bytes;
    status = ebb__planning_unmanaged_peak(&terms, &peak_bytes, error);
    return status
               ? status
               : ebb__planning_budget(options->budget, peak_bytes, &file->plan.budget_bytes, error);
}

static json_t *bytes(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static bool print_json(const struct ebb_plan_file *file, const struct ebb_sim_result *result,
                       double slowdown)
{
    json_t *root = json_pack(
        "{s:s, s:s, s:s, s:o, s:b, s:o, s:o, s:o, s:f, s:o, s:o, s:o, s:o, s:b, s:o, s:o}",
        "schema", "ebb.simulate/1", "policy", file->plan.policy, "machine", file->machine.name,
        "budget_bytes", bytes(file->plan.budget_bytes), "feasible", (int)result->feasible,
        "peak_bytes", bytes(result->peak_bytes), "stall_ns", bytes(result->stall_ns),
        "iteration_ns", bytes(result->iteration_ns), "slowdown", slowdown, "moved_out_bytes",
        bytes(result->moved_out_bytes), "moved_in_bytes", bytes(result->moved_in_bytes),
        "cancelled", bytes(result->cancelled_count), "laps", bytes(result->laps), "steady",
        (int)result->steady, "predicted_peak_bytes", bytes(file->plan.peak_bytes),
        "predicted_stall_ns", bytes(file->plan.stall_ns));
    bool ok = root && json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0 &&
              putchar('\n') != EOF;
    json_decref(root);
    return ok;
}

static void print_text(const struct ebb_plan_file *file, const struct ebb_sim_result *result,
                       double slowdown)
{
    char a[32], b[32];
    printf("plan        %s on machine %s, %u absences%s\n", file->plan.policy, file->machine.name,
           file->plan.absence_count, file->plan.reactive ? ", reactive" : "");
    printf("budget      %s%s\n", ebb_size_format(file->plan.budget_bytes, a, sizeof a),
           result->feasible ? "" : ", which is broken");
    printf("peak        %s, predicted %s\n", ebb_size_format(result->peak_bytes, a, sizeof a),
           ebb_size_format(file->plan.peak_bytes, b, sizeof b));
    printf("stall       %s, predicted %s\n", ebb_duration_format(result->stall_ns, a, sizeof a),
           ebb_duration_format(file->plan.stall_ns, b, sizeof b));
    printf("iteration   %s, %.3f times the unlimited%s\n",
           ebb_duration_format(result->iteration_ns, a, sizeof a), slowdown,
           result->steady ? "" : "; it never becomes steady");
    printf("moved       %s out and %s in, an iteration\n",
           ebb_size_format(result->moved_out_bytes, a, sizeof a),
           ebb_size_format(result->moved_in_bytes, b, sizeof b));
}

int ebb__cmd_simulate(int argc, char **argv)
{
    struct ebb_offline options;
    int exit_code = options_parse(argc, argv, &options);
    if (exit_code >= 0)
        return exit_code;
    struct ebb_error error = {0};
    struct ebb_loaded loaded;
    struct ebb_plan_file file = {0};
    struct ebb_sim_result result = {0};
    enum ebb_status status = ebb__load(argv[optind], EBB_LOAD_ACCESSES, &loaded, &error);
    const struct ebb_model *model = &loaded.analysis.model;
    if (!status)
        ebb__planning_scale_time(options.time_billionths, &loaded.analysis.model);
    if (!status)
        status = ebb__plan_file_read(argv[optind + 1], model, &file, &error);
    if (!status)
        status = replace(&options, model, &file, &error);
    if (!status)
        status = ebb__planning_simulate(&file, model, &file.machine, options.smallest_block_bytes,
                                        &result, &error);
    if (!status) {
        double slowdown = (double)result.iteration_ns / (double)ebb__model_iteration_ns(model);
        bool ok = true;
        if (options.json)
            ok = print_json(&file, &result, slowdown);
        else
            print_text(&file, &result, slowdown);
        status = ebb__output_flush(ok, &error);
        exit_code = result.feasible ? 0 : ebb_status_exit_code(EBB_INFEASIBLE);
    }
    ebb__plan_file_fini(&file);
    ebb__load_fini(&loaded);
    return status ? ebb__command_fail("simulate", &error) : exit_code;
}
