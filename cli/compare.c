/* `ebb compare`: every policy with every budget on the same models and machine, and what other
 * allocators would have held. */
#include "budget_at.h"
#include "check/packing.h"
#include "choices.h"
#include "command.h"
#include "lab/peers/peer.h"
#include "lab/pool/model.h"
#include "load.h"
#include "offline.h"
#include "options.h"
#include "plan/pool/pool.h"
#include "planning.h"

#include "base/tuning.h"
#include "base/vec.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ZERO_STALL "zero-stall" /* as a budget: the smallest budget without a stall */

struct options {
    struct ebb_offline given;
    char *const *files;
    size_t file_count;
};

/* One plan as a row of the table. */
struct row {
    const char *trace;
    char policy[32];
    char budget[32];      /* as the user gave it */
    struct ebb_plan plan; /* without its absences */
    double slowdown;
};

struct held {
    const char *trace, *allocator;
    const char *scope; /* what was replayed: the whole "trace", or the steady "iteration" */
    struct ebb_footprint footprint;
};

struct results {
    EBB_VEC(struct row) rows;
    EBB_VEC(struct held) held;
};

typedef EBB_VEC(char *) words;

static const char help[] =
    "usage: ebb compare FILE... [options]\n\n"
    "Plans each trace under each policy and budget, checks and simulates each plan, and\n"
    "shows them side by side; below, the memory that the allocators of others would have\n"
    "held for each whole trace (cnmem, torch, bfc, which is TensorFlow's, glibc), and what\n"
    "Ebb's packing needs for its iteration. Policies that need layer marks are left out of\n"
    "a trace without them, unless --policies names them.\n";
static const char tail[] =
    "example: ebb compare run.ebbt --budgets 60%,zero-stall --policies ebb,autoswap\n";

/* Returns -1 to continue, or the exit code. */
static int options_parse(int argc, char **argv, struct options *options)
{
    *options = (struct options){.given = {.budgets = EBB_DEFAULT_BUDGETS,
                                          .machine = "host",
                                          .store = ".",
                                          .smallest_block_bytes = EBB_OFFLINE_TUNED}};
    int code =
        ebb__offline_parse(EBB_OFFLINE_COMPARE, "compare", help, tail, argc, argv, &options->given);
    if (code >= 0)
        return code;
    if (optind == argc)
        return ebb__command_usage("compare", "no FILE given");
    options->files = argv + optind;
    options->file_count = (size_t)(argc - optind);
    return -1;
}

/* Splits a list at its commas. The parts lie in a copy, which theirs[0] owns. */
static bool split(const char *text, words *parts)
{
    char *copy = strdup(text);
    if (!copy)
        return false;
    bool ok = true;
    for (char *at = copy, *next; ok && at; at = next) {
        next = strchr(at, ',');
        if (next)
            *next++ = 0;
        ok = ebb_vec_push(parts, at);
    }
    if (!ok && parts->count == 0)
        free(copy);
    return ok;
}

static void free_words(words *parts)
{
    if (parts->count)
        free(parts->items[0]);
    ebb_vec_free(parts);
}

typedef EBB_VEC(const struct ebb_policy *) policy_list;

/* Finds the policies of a list with commas, or all. Returns an exit code if one is unknown. *status
 * tells if memory is lacking. */
static int policies_choose(const char *list, policy_list *chosen, enum ebb_status *status)
{
    words names = {0};
    bool ok = !list || split(list, &names);
    int code = 0;
    for (size_t i = 0; ok && list && !code && i < names.count; i++) {
        const struct ebb_policy *policy = ebb__policy_choose("compare", names.items[i]);
        if (policy)
            ok = ebb_vec_push(chosen, policy);
        else
            code = ebb_status_exit_code(EBB_ERR_ARGUMENT);
    }
    for (size_t i = 0; ok && !list && ebb__policy_at(i); i++)
        ok = ebb_vec_push(chosen, ebb__policy_at(i));
    free_words(&names);
    *status = ok ? EBB_OK : EBB_ERR_MEMORY;
    return code;
}

/* ---- work ------------------------------------------------------------------------------------ */

static enum ebb_status fail_memory(struct ebb_error *error)
{
    return ebb__fail(error, EBB_ERR_MEMORY, "results", "no memory for them");
}

static enum ebb_status compare_plan(const char *trace, const char *budget,
                                    struct ebb_plan_terms terms, uint64_t peak_bytes,
                                    struct results *results, struct ebb_error *error)
{
    struct row row = {.trace = trace};
    bool zero_stall = strcmp(budget, ZERO_STALL) == 0;
    enum ebb_status status =
        zero_stall ? EBB_OK : ebb__planning_budget(budget, peak_bytes, &terms.budget_bytes, error);
    if (zero_stall)
        terms.effort_steps = 0;
    struct ebb_planned planned;
    if (!status)
        status = ebb__planning_make(&terms, zero_stall, &planned, error);
    if (status)
        return status;
    row.plan = planned.plan;
    row.plan.absences = NULL; /* only the figures are kept */
    row.plan.rules = (struct ebb_plan_rules){0};
    ebb__planned_fini(&planned);
    row.slowdown = (double)row.plan.iteration_ns / (double)ebb__model_iteration_ns(terms.model);
    snprintf(row.policy, sizeof row.policy, "%s", terms.policy->name);
    snprintf(row.budget, sizeof row.budget, "%s", budget);
    return ebb_vec_push(&results->rows, row) ? EBB_OK : fail_memory(error);
}

static enum ebb_status add_held(const struct held *held, struct results *results,
                                struct ebb_error *error)
{
    return ebb_vec_push(&results->held, *held) ? EBB_OK : fail_memory(error);
}

/* What the packing needs for one iteration, after a check. */
static enum ebb_status compare_pool(const char *trace, const struct ebb_model *model,
                                    struct results *results, struct ebb_error *error)
{
    const struct ebb_pool *pool = ebb__pool_at(0);
    struct held held = {.trace = trace, .allocator = "ebb", .scope = "iteration"};
    struct ebb_pool_blocks blocks;
    struct ebb_pool_source source = {.model = model, .unroll = pool->unrolls};
    enum ebb_status status = ebb__pool_from_model(&source, &blocks, error);
    if (status)
        return status;
    struct ebb_pool_problem problem = {.buffers = blocks.buffers,
                                       .count = blocks.count,
                                       .period = blocks.period,
                                       .capacity_bytes = EBB_POOL_NO_CAPACITY,
                                       .effort_steps = ebb__tuning()->pack_steps / 5};
    struct ebb_pool_solution solution;
    status = ebb__pool_solve_by(pool, &problem, &solution, error);
    if (!status) {
        status = ebb__check_packing(&problem, &solution, error);
        held.footprint.peak_held_bytes = held.footprint.last_held_bytes = solution.height_bytes;
        held.footprint.peak_load_bytes = model->peak_bytes;
        ebb__pool_solution_fini(&solution);
    }
    ebb__pool_blocks_fini(&blocks);
    return status ? status : add_held(&held, results, error);
}

static enum ebb_status compare_trace(const char *trace, const struct options *options,
                                     const struct ebb_loaded *loaded,
                                     const struct ebb_machine *machine, const policy_list *policies,
                                     const words *budgets, struct results *results,
                                     struct ebb_error *error)
{
    struct ebb_event_span span = {loaded->trace.events, loaded->trace.count};
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; !status && ebb__peer_name(i); i++) {
        struct held held = {.trace = trace, .allocator = ebb__peer_name(i), .scope = "trace"};
        status = ebb__peer_footprint(held.allocator, span, &held.footprint, error);
        if (!status)
            status = add_held(&held, results, error);
    }
    if (!status && loaded->analysis.has_model)
        status = compare_pool(trace, &loaded->analysis.model, results, error);
    /* Without accesses no eviction can be planned. Only the allocators can be compared. */
    if (status || !loaded->analysis.has_accesses)
        return status;
    struct ebb_plan_terms terms =
        ebb__plan_terms(ebb__policy_at(0), &loaded->analysis.model, machine, 0);
    terms.page_bytes = loaded->page_bytes;
    terms.smallest_block_bytes = options->given.smallest_block_bytes;
    uint64_t peak_bytes;
    status = ebb__planning_unmanaged_peak(&terms, &peak_bytes, error);
    for (size_t b = 0; !status && b < budgets->count; b++)
        for (size_t p = 0; !status && p < policies->count; p++) {
            terms.policy = policies->items[p];
            status = compare_plan(trace, budgets->items[b], terms, peak_bytes, results, error);
            if (status == EBB_ERR_UNSUPPORTED && !options->given.policies)
                status = EBB_OK; /* of all policies, those that the trace suffices for */
        }
    return status;
}

static enum ebb_status compare(const struct options *options, const policy_list *policies,
                               const words *budgets, struct results *results,
                               struct ebb_error *error)
{
    struct ebb_machine machine;
    enum ebb_status status =
        ebb__planning_machine(options->given.machine, options->given.store, &machine, error);
    for (size_t i = 0; !status && i < options->file_count; i++) {
        struct ebb_loaded loaded;
        status = ebb__load(options->files[i], EBB_LOAD_TRACE, &loaded, error);
        if (!status && loaded.analysis.has_model)
            ebb__planning_scale_time(options->given.time_billionths, &loaded.analysis.model);
        if (!status)
            status = compare_trace(options->files[i], options, &loaded, &machine, policies, budgets,
                                   results, error);
        ebb__load_fini(&loaded);
    }
    return status;
}

/* ---- results --------------------------------------------------------------------------------- */

static json_t *bytes(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *json_row(const struct row *row)
{
    const struct ebb_plan *plan = &row->plan;
    return json_pack("{s:s, s:s, s:s, s:o, s:b, s:o, s:o, s:o, s:o, s:f, s:o, s:o}", "trace",
                     row->trace, "policy", row->policy, "budget", row->budget, "budget_bytes",
                     bytes(plan->budget_bytes), "feasible", (int)plan->feasible,
                     "smallest_feasible_bytes", bytes(plan->smallest_feasible_bytes), "peak_bytes",
                     bytes(plan->peak_bytes), "stall_ns", bytes(plan->stall_ns), "iteration_ns",
                     bytes(plan->iteration_ns), "slowdown", row->slowdown, "moved_bytes",
                     bytes(plan->moved_out_bytes + plan->moved_in_bytes), "plan_ns",
                     bytes(plan->plan_ns));
}

static double ratio_of(const struct ebb_footprint *footprint)
{
    return footprint->peak_load_bytes
               ? (double)footprint->peak_held_bytes / (double)footprint->peak_load_bytes
               : 0;
}

static json_t *json_held(const struct held *held)
{
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:f}", "trace", held->trace, "allocator",
                     held->allocator, "scope", held->scope, "held_bytes",
                     bytes(held->footprint.peak_held_bytes), "load_bytes",
                     bytes(held->footprint.peak_load_bytes), "ratio", ratio_of(&held->footprint));
}

static bool print_json(const struct results *results)
{
    json_t *rows = json_array(), *footprints = json_array();
    bool ok = true;
    for (size_t i = 0; i < results->rows.count; i++)
        ok &= json_array_append_new(rows, json_row(&results->rows.items[i])) == 0;
    for (size_t i = 0; i < results->held.count; i++)
        ok &= json_array_append_new(footprints, json_held(&results->held.items[i])) == 0;
    json_t *root = json_pack("{s:s, s:o, s:o}", "schema", "ebb.compare/1", "rows", rows,
                             "footprints", footprints);
    ok = ok && root && json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0 &&
         putchar('\n') != EOF;
    json_decref(root);
    return ok;
}

static void print_rows(const struct results *results)
{
    char a[32], b[32], c[32], d[32], e[32];
    const char *trace = NULL, *budget = NULL;
    for (size_t i = 0; i < results->rows.count; i++) {
        const struct row *row = &results->rows.items[i];
        const struct ebb_plan *plan = &row->plan;
        if (row->trace != trace) {
            printf("%s%s\n%-16s %-10s %11s %11s %10s %9s %11s %9s\n", trace ? "\n" : "", row->trace,
                   "policy", "budget", "bytes", "peak", "stall", "slowdown", "moved", "planned");
        } else if (strcmp(row->budget, budget) != 0) {
            putchar('\n');
        }
        trace = row->trace;
        budget = row->budget;
        printf("%-16s %-10s %11s ", row->policy, row->budget,
               ebb_size_format(plan->budget_bytes, a, sizeof a));
        if (plan->feasible)
            printf("%11s %10s %8.3fx %11s %9s\n", ebb_size_format(plan->peak_bytes, b, sizeof b),
                   ebb_duration_format(plan->stall_ns, c, sizeof c), row->slowdown,
                   ebb_size_format(plan->moved_out_bytes + plan->moved_in_bytes, d, sizeof d),
                   ebb_duration_format(plan->plan_ns, e, sizeof e));
        else
            printf("%11s not below %s\n", "-",
                   ebb_size_format(plan->smallest_feasible_bytes, b, sizeof b));
    }
}

static void print_held(const struct results *results)
{
    char a[32], b[32];
    const char *trace = NULL;
    for (size_t i = 0; i < results->held.count; i++) {
        const struct held *held = &results->held.items[i];
        if (held->trace != trace)
            printf("%s%s\n%-16s %11s %11s %9s  %s\n", results->rows.count || trace ? "\n" : "",
                   held->trace, "allocator", "held", "load", "ratio", "of the");
        trace = held->trace;
        printf("%-16s %11s %11s %8.4fx  %s\n", held->allocator,
               ebb_size_format(held->footprint.peak_held_bytes, a, sizeof a),
               ebb_size_format(held->footprint.peak_load_bytes, b, sizeof b),
               ratio_of(&held->footprint), held->scope);
    }
}

int ebb__cmd_compare(int argc, char **argv)
{
    struct options options;
    int exit_code = options_parse(argc, argv, &options);
    if (exit_code >= 0)
        return exit_code;
    if (options.given.budget_at)
        return ebb__budget_at(&options.given, options.files, options.file_count);
    struct ebb_error error = {0};
    struct results results = {0};
    policy_list policies = {0};
    words budgets = {0};
    bool ok = true;
    enum ebb_status status;
    exit_code = policies_choose(options.given.policies, &policies, &status);
    if (status || !split(options.given.budgets, &budgets))
        status = fail_memory(&error);
    uint64_t unused;
    for (size_t i = 0; !status && !exit_code && i < budgets.count; i++)
        if (strcmp(budgets.items[i], ZERO_STALL) != 0 &&
            ebb__planning_budget(budgets.items[i], 1, &unused, NULL) != EBB_OK)
            exit_code = ebb__command_usage("compare", "'%s' is no budget", budgets.items[i]);
    if (!status && !exit_code)
        status = compare(&options, &policies, &budgets, &results, &error);
    if (!status && !exit_code) {
        if (options.given.json) {
            ok = print_json(&results);
        } else {
            print_rows(&results);
            print_held(&results);
        }
        if (!ok || fflush(stdout) != 0 || ferror(stdout)) {
            status = ebb__fail(&error, EBB_ERR_IO, "standard output", "cannot be written");
            ebb__error_set_remedy(&error, "see that its disk is not full");
        }
    }
    ebb_vec_free(&policies);
    free_words(&budgets);
    ebb_vec_free(&results.rows);
    ebb_vec_free(&results.held);
    return status ? ebb__command_fail("compare", &error) : exit_code;
}
