/* `ebb plan`: predicts the cost of a budget from a trace, without a run. */
#include "plan/plan.h"
#include "base/size.h"
#include "choices.h"
#include "command.h"
#include "interrupt.h"
#include "lab.h"
#include "load.h"
#include "offline.h"
#include "options.h"
#include "output.h"
#include "planning.h"
#include "progress.h"
#include "tune.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct ebb_usage ebb__usage_plan = {
    .command = "plan",
    .text = "usage: ebb plan FILE --budget SIZE|PERCENT [options]\n"
            "       ebb plan FILE --zero-stall [options]\n\n"
            "Plans one iteration of a recorded program within a memory budget as 'ebb run' does,\n"
            "checks the plan, and predicts what it costs.\n",
    .options = ebb__offline_options,
    .commands = EBB_OFFLINE_PLAN,
    .operands = EBB_OPERANDS_FILES,
};

/* Returns -1 to continue, or the exit code. */
static int options_parse(int argc, char **argv, struct ebb_offline *options)
{
    *options = (struct ebb_offline){.policy = "ebb",
                                    .machine = "host",
                                    .store = ".",
                                    .smallest_block_bytes = EBB_OFFLINE_TUNED};
    int code = ebb__offline_parse(&ebb__usage_plan, argc, argv, options);
    if (code >= 0)
        return code;
    if (optind + 1 != argc)
        return ebb__command_usage("plan", optind < argc ? "one FILE at a time" : "no FILE given");
    if (!options->budget == !options->zero_stall)
        return ebb__command_usage("plan", "give one of --budget and --zero-stall");
    return -1;
}

/* ---- results --------------------------------------------------------------------------------- */

static json_t *json_bytes(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *json_figures(const struct ebb_plan *plan, const struct ebb_bounds *bounds,
                            const char *schema)
{
    json_t *object = json_object();
    json_object_set_new(object, "schema", json_string(schema));
    json_object_set_new(object, "policy", json_string(plan->policy));
    json_object_set_new(object, "budget_bytes", json_bytes(plan->budget_bytes));
    json_object_set_new(object, "feasible", json_boolean(plan->feasible));
    json_object_set_new(object, "smallest_feasible_bytes",
                        json_bytes(plan->smallest_feasible_bytes));
    json_object_set_new(object, "peak_bytes", json_bytes(plan->peak_bytes));
    json_object_set_new(object, "lower_bound_bytes",
                        bounds->known ? json_bytes(bounds->peak_bytes) : json_null());
    json_object_set_new(object, "lower_bound_stall_ns",
                        bounds->known ? json_bytes(bounds->stall_ns) : json_null());
    json_object_set_new(object, "lower_bound_dirty_bytes",
                        bounds->known ? json_bytes(bounds->dirty_peak_bytes) : json_null());
    json_object_set_new(object, "lower_bound_dirty_stall_ns",
                        bounds->known ? json_bytes(bounds->dirty_stall_ns) : json_null());
    json_object_set_new(object, "gap", bounds->known ? json_real(bounds->gap) : json_null());
    json_object_set_new(object, "stall_ns", json_bytes(plan->stall_ns));
    json_object_set_new(object, "iteration_ns", json_bytes(plan->iteration_ns));
    json_object_set_new(object, "overhead_ns", json_bytes(plan->overhead_ns));
    json_object_set_new(object, "moved_out_bytes", json_bytes(plan->moved_out_bytes));
    json_object_set_new(object, "moved_in_bytes", json_bytes(plan->moved_in_bytes));
    json_object_set_new(object, "plan_ns", json_bytes(plan->plan_ns));
    json_object_set_new(object, "timed_out", json_boolean(plan->timed_out));
    json_object_set_new(object, "tuning", ebb__tune_json());
    return object;
}

static json_t *json_huge_rounded(const struct ebb_planned *planned)
{
    json_t *array = json_array();
    for (uint32_t i = 0; planned->huge_rounded.count && i < planned->model->block_count; i++)
        if (planned->huge_rounded.blocks[i])
            json_array_append_new(array, json_bytes(i));
    return array;
}

/* Writes what the plan asks of the program beyond absences, if it does. */
static void json_rules(json_t *root, const struct ebb_plan_rules *rules)
{
    json_t *barriers = json_array(), *shares = json_array();
    for (uint32_t i = 0; i < rules->barrier_count; i++)
        json_array_append_new(barriers, json_bytes(rules->barriers[i]));
    for (uint32_t i = 0; i < rules->share_count; i++) {
        json_t *item = json_object();
        json_object_set_new(item, "block", json_bytes(rules->shares[i].block));
        json_object_set_new(item, "host", json_bytes(rules->shares[i].host));
        json_array_append_new(shares, item);
    }
    json_object_set_new(root, "barriers", barriers);
    json_object_set_new(root, "shares", shares);
    json_object_set_new(root, "keeps_all", json_boolean(rules->keeps_all));
}

static enum ebb_status plan_write(const struct ebb_offline *options,
                                  const struct ebb_planned *planned,
                                  const struct ebb_bounds *bounds, struct ebb_error *error)
{
    const struct ebb_plan_request *request = &planned->request;
    const struct ebb_plan *plan = &planned->plan;
    const struct ebb_model *model = request->model;
    json_t *root = json_figures(plan, bounds, "ebb.plan-file/2");
    json_t *absences = json_array();
    json_object_set_new(root, "reactive", json_boolean(plan->reactive));
    if (plan->searched_bytes)
        json_object_set_new(root, "searched_bytes", json_bytes(plan->searched_bytes));
    json_object_set_new(root, "page_bytes", json_bytes(request->page_bytes));
    json_object_set_new(root, "model_ticks", json_bytes(model->tick_count));
    json_object_set_new(root, "model_iteration_ns", json_bytes(ebb__model_iteration_ns(model)));
    json_object_set_new(root, "machine", ebb__machine_to_json(request->machine));
    for (uint32_t i = 0; i < plan->absence_count; i++) {
        const struct ebb_absence *absence = &plan->absences[i];
        const struct ebb_model_block *block = &model->blocks[absence->block];
        json_t *item = json_object();
        json_object_set_new(item, "block", json_bytes(absence->block));
        json_object_set_new(item, "serial", json_bytes(block->serial));
        json_object_set_new(item, "bytes", json_bytes(ebb__plan_block_bytes(request, block)));
        json_object_set_new(item, "from_tick", json_bytes(absence->from_tick));
        json_object_set_new(item, "to_tick", json_bytes(absence->to_tick));
        json_object_set_new(item, "margin_ticks", json_bytes(absence->margin_ticks));
        json_object_set_new(item, "drops", json_boolean(absence->drops));
        json_object_set_new(item, "keep_copy", json_boolean(absence->keep_copy));
        json_object_set_new(item, "out_within", json_boolean(absence->out_within));
        json_object_set_new(item, "in_within", json_boolean(absence->in_within));
        if (absence->passive)
            json_object_set_new(item, "passive", json_true());
        json_object_set_new(item, "out_start_ns", json_bytes(absence->out_start_ns));
        json_object_set_new(item, "out_end_ns", json_bytes(absence->out_end_ns));
        if (!absence->drops) {
            json_object_set_new(item, "in_start_ns", json_bytes(absence->in_start_ns));
            json_object_set_new(item, "in_end_ns", json_bytes(absence->in_end_ns));
            json_object_set_new(item, "stall_ns", json_bytes(absence->stall_ns));
        }
        json_array_append_new(absences, item);
    }
    json_object_set_new(root, "absences", absences);
    json_object_set_new(root, "huge_rounded_blocks", json_huge_rounded(planned));
    json_object_set_new(root, "idle_left_out", json_boolean(planned->without_idle.count > 0));
    if (!ebb__plan_is_plain(plan))
        json_rules(root, &plan->rules);
    if (plan->rules.passive)
        json_object_set_new(root, "passive_least_bytes",
                            json_bytes(plan->rules.passive_least_bytes));
    struct ebb_output output;
    enum ebb_status status = ebb__output_open(options->out_path, &output, error);
    if (!status && json_dumpf(root, output.stream, JSON_INDENT(1)) == 0)
        status = ebb__output_close(&output, options->force, error);
    else if (!status) {
        ebb__output_discard(&output);
        status = ebb__fail(error, EBB_ERR_MEMORY, options->out_path, "no memory for it");
    }
    json_decref(root);
    return status;
}

static void print_json(const struct ebb_plan *plan, const struct ebb_bounds *bounds)
{
    json_t *root = json_figures(plan, bounds, "ebb.plan/1");
    json_object_set_new(root, "absences", json_bytes(plan->absence_count));
    json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
}

static void print_text(const struct ebb_plan *plan, const struct ebb_plan_request *request,
                       const struct ebb_bounds *bounds, uint64_t unmanaged_bytes, bool zero_stall)
{
    char a[32], b[32], c[32];
    uint64_t free_ns = ebb__model_iteration_ns(request->model);
    printf("policy      %s on machine %s (planned in %s)\n", plan->policy, request->machine->name,
           ebb_duration_format(plan->plan_ns, a, sizeof a));
    printf("budget      %s of a peak of %s (%.1f %%)\n",
           ebb_size_format(plan->budget_bytes, a, sizeof a),
           ebb_size_format(unmanaged_bytes, b, sizeof b),
           100 * (double)plan->budget_bytes / (double)unmanaged_bytes);
    printf("peak        %s%s", ebb_size_format(plan->peak_bytes, a, sizeof a),
           plan->feasible ? "" : ", over the budget");
    if (bounds->known)
        printf("; no plan without a stall is below %s",
               ebb_size_format(bounds->peak_bytes, b, sizeof b));
    if (bounds->known && bounds->dirty_peak_bytes < bounds->peak_bytes)
        printf("\n            %s if unchanged blocks need no write",
               ebb_size_format(bounds->dirty_peak_bytes, b, sizeof b));
    printf("\niteration   %s, %s of it stalls: %.3f times the unlimited\n",
           ebb_duration_format(plan->iteration_ns, a, sizeof a),
           ebb_duration_format(plan->stall_ns, b, sizeof b),
           (double)plan->iteration_ns / (double)free_ns);
    if (bounds->known && plan->stall_ns > 0 && plan->feasible && !zero_stall)
        printf("bound       no plan within the budget stalls less than %s\n",
               ebb_duration_format(bounds->stall_ns, a, sizeof a));
    if (bounds->known && plan->feasible)
        printf("gap         %.2f %% above the bound on the %s\n", 100 * bounds->gap,
               zero_stall ? "peak" : "iteration");
    printf("moved       %s out and %s in, an iteration, in %u absences\n",
           ebb_size_format(plan->moved_out_bytes, a, sizeof a),
           ebb_size_format(plan->moved_in_bytes, b, sizeof b), plan->absence_count);
    if (ebb__interrupt_seen())
        printf("interrupted the best plan so far; a longer search may find a better one\n");
    else if (plan->timed_out)
        printf(
            "time        the search ended by the time, not by its effort: another machine may plan "
            "otherwise\n");
    if (!plan->feasible)
        printf("infeasible  the smallest feasible budget is %s\n",
               ebb_size_format(plan->smallest_feasible_bytes, c, sizeof c));
}

static enum ebb_status plan_model(const struct ebb_offline *options,
                                  const struct ebb_policy *policy, const struct ebb_model *model,
                                  uint64_t page_bytes, int *exit_code, struct ebb_error *error)
{
    struct ebb_machine machine;
    struct ebb_plan_terms terms = ebb__plan_terms(policy, model, &machine, 0);
    terms.page_bytes = page_bytes;
    terms.smallest_block_bytes = options->smallest_block_bytes;
    if (options->time_limit_ns || options->zero_stall)
        terms.effort_steps = 0;
    terms.time_limit_ns = options->time_limit_ns;
    terms.stop = ebb__interrupt_flag();
    struct ebb_planned planned;
    struct ebb_bounds bounds;
    uint64_t unmanaged_bytes;
    enum ebb_status status =
        ebb__planning_machine(options->machine, options->store, &machine, error);
    if (!status)
        status = ebb__planning_unmanaged_peak(&terms, &unmanaged_bytes, error);
    if (!status && !options->zero_stall)
        status = ebb__planning_budget(options->budget, unmanaged_bytes, &terms.budget_bytes, error);
    if (!status)
        ebb__interrupt_expect();
    if (!status)
        ebb__progress_say("planning with %s (Ctrl-C: the best so far)", policy->name);
    if (!status)
        status = ebb__planning_make(&terms, options->zero_stall, &planned, error);
    if (status)
        return status;
    const struct ebb_plan *plan = &planned.plan;
    struct ebb_plan_request request = ebb__plan_request(&terms);
    request.budget_bytes = plan->budget_bytes;
    bounds = (struct ebb_bounds){.known = false};
    ebb__progress_say("computing what no plan can do better");
    if (!ebb__interrupt_seen())
        status = ebb__lab_bounds(&request, plan, options->zero_stall, &bounds, error);
    ebb__progress_end();
    if (!status && options->out_path)
        status = plan_write(options, &planned, &bounds, error);
    if (!status) {
        if (options->json)
            print_json(plan, &bounds);
        else
            print_text(plan, &request, &bounds, unmanaged_bytes, options->zero_stall);
        bool stalls = options->zero_stall && plan->stall_ns > 0;
        if (stalls)
            fprintf(stderr, "ebb: plan: %s stalls at any budget\n", plan->policy);
        *exit_code = plan->feasible && !stalls ? 0 : ebb_status_exit_code(EBB_INFEASIBLE);
    }
    ebb__planned_fini(&planned);
    return status;
}

int ebb__cmd_plan(int argc, char **argv)
{
    struct ebb_offline options;
    int exit_code = options_parse(argc, argv, &options);
    if (exit_code >= 0)
        return exit_code;
    const struct ebb_policy *policy = ebb__policy_choose("plan", options.policy);
    if (!policy)
        return ebb_status_exit_code(EBB_ERR_ARGUMENT);
    struct ebb_error error = {0};
    struct ebb_loaded loaded;
    if (options.out_path && ebb__output_check(options.out_path, options.force, &error))
        return ebb__command_fail("plan", &error);
    ebb__progress_begin("plan");
    enum ebb_status status = ebb__load(argv[optind], EBB_LOAD_ACCESSES, &loaded, &error);
    if (!status)
        ebb__planning_scale_time(options.time_billionths, &loaded.analysis.model);
    if (!status)
        status = plan_model(&options, policy, &loaded.analysis.model, loaded.page_bytes, &exit_code,
                            &error);
    ebb__load_fini(&loaded);
    if (status)
        return ebb__command_fail("plan", &error);
    ebb__interrupt_die();
    return exit_code;
}
