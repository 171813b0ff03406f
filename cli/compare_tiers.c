#include "compare_tiers.h"

#include "command.h"
#include "compare.h"
#include "interrupt.h"
#include "output.h"
#include "planning.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PLANNED_POLICIES "deeptm,autotm:static,autotm:sync,autotm:async,sentinel,ebb,"
#define OTHER_POLICIES "first-touch,hardware-cache"
#define DEFAULT_POLICIES PLANNED_POLICIES OTHER_POLICIES
#define COST_STEPS 7 /* bisection down to 1/128 of the peak */

static const char help[] =
    "usage: ebb compare FILE... --tiers SHARES [options]\n\n"
    "Plans each trace for two memories that compute uses in place: a fast one of the given share,\n"
    "and a slow one. Each plan is checked, simulated and compared with everything in fast memory.\n"
    "With --cost S it finds the cheapest share at which a policy is at most S percent slower.\n";
static const char tail[] =
    "example: ebb compare run.ebbt --tiers 1:1,1:4,1:8 --machine optane --scale-time 0.05\n";

static const char *tier_policy_name(size_t index)
{
    size_t count;
    const struct ebb_tier_policy *policies = ebb__tier_policies(&count);
    return index < count ? policies[index].name : NULL;
}

#define AT(member) .offset = offsetof(struct ebb_tiers_asked, member)

static const struct ebb_option options[] = {
    {.name = "tiers",
     .kind = EBB_OPTION_TEXT,
     .argument = "SHARE,...",
     AT(shares),
     .help = "fast to slow memory, as 1:4, or fast memory in percent of the peak"},
    {.name = "machine",
     .kind = EBB_OPTION_TEXT,
     .argument = "M,...",
     AT(machines),
     .help = "optane (the default), cxl, numa (measured now), or JSON files with tiers"},
    {.name = "policies",
     .kind = EBB_OPTION_TEXT,
     .argument = "P,...",
     AT(policies),
     .help = "default: " PLANNED_POLICIES "\n" OTHER_POLICIES "; known:",
     .names = tier_policy_name},
    {.name = "scale-time",
     .kind = EBB_OPTION_SECONDS,
     .argument = "F",
     AT(time_billionths),
     .help = "times of the program are F times as long"},
    {.name = "time-limit",
     .kind = EBB_OPTION_SECONDS,
     .argument = "S",
     AT(time_limit_ns),
     .help = "seconds that a plan may take (default: 30 for autotm, as many as its effort,\n"
             "a number of steps, takes for deeptm)"},
    {.name = "cost",
     .kind = EBB_OPTION_TEXT,
     .argument = "S",
     AT(cost),
     .help = "instead: the cheapest share at which a policy is at most S percent slower"},
    {.name = "plot",
     .kind = EBB_OPTION_TEXT,
     .argument = "FILE",
     AT(plot_path),
     .help = "draw slow-down by share (SVG)"},
    {.name = "force",
     .letter = 'f',
     .kind = EBB_OPTION_FLAG,
     AT(force),
     .help = "replace a file that exists"},
    {.name = "json",
     .kind = EBB_OPTION_FLAG,
     AT(json),
     .help = "one JSON object on stdout; bytes and nanoseconds as integers"},
    {0},
};

/* The share of the peak that `1:4` or `20%` means; 0 if it means none. */
static double share_parse(const char *text)
{
    char *end;
    double fraction, fast = strtod(text, &end);
    if (ebb_percent_parse(text, &fraction))
        return fraction;
    if (end == text || *end != ':' || !(fast > 0) || !isfinite(fast))
        return 0;
    const char *slow_text = end + 1;
    double slow = strtod(slow_text, &end);
    return end == slow_text || *end || !(slow >= 0) || !isfinite(slow) ? 0 : fast / (fast + slow);
}

static enum ebb_status no_memory(struct ebb_error *error)
{
    return ebb__fail(error, EBB_ERR_MEMORY, "tiers", "no memory for the results");
}

static enum ebb_status trace_load(struct ebb_tiers_comparison *comparison, const char *path,
                                  const ebb_words *machines, struct ebb_error *error)
{
    struct ebb_loaded *loaded = calloc(1, sizeof *loaded);
    if (!loaded || !ebb_vec_push(&comparison->loaded, loaded)) {
        free(loaded);
        return no_memory(error);
    }
    enum ebb_status status = ebb__load(path, EBB_LOAD_ACCESSES, loaded, error);
    if (status)
        return status;
    struct ebb_model *model = &loaded->analysis.model;
    ebb__planning_scale_time(comparison->asked->time_billionths, model);
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    for (size_t i = 0; !status && i < machines->count; i++) {
        struct ebb_tiers_trace trace = {.name = name, .model = model};
        status = ebb__tiers_find(machines->items[i], &trace.machine, error);
        if (!status)
            status = ebb__operations_make(model, &trace.operations, error);
        if (!status)
            status = ebb__tiers_peak(&trace.operations, &trace.machine, &trace.peak_bytes, error);
        if (!status && !ebb_vec_push(&comparison->traces, trace))
            status = no_memory(error);
        if (status)
            ebb__operations_fini(&trace.operations);
    }
    return status;
}

/* Plans one row. A policy that cannot plan it is no error: the row says why. */
static enum ebb_status row_make(const struct ebb_tiers_comparison *comparison,
                                const struct ebb_tier_policy *policy, struct ebb_tiers_row *row,
                                struct ebb_error *error)
{
    const struct ebb_tiers_trace *trace = &comparison->traces.items[row->trace];
    const struct ebb_tier_machine *machine = &trace->machine;
    const struct ebb_tier_request request = {&trace->operations, machine, row->budget_bytes,
                                             comparison->asked->time_limit_ns, trace->model};
    struct ebb_tier_row made;
    enum ebb_status status = ebb__tier_run(policy, &request, &made, error);
    row->made = status == EBB_OK;
    if (status) {
        snprintf(row->why, sizeof row->why, "%.100s", error->why);
        return status == EBB_ERR_UNSUPPORTED ? EBB_OK : status;
    }
    row->result = made.result;
    row->plan_ns = made.plan.plan_ns;
    row->profile_ns = made.plan.profile_ns;
    row->bound_ns = made.plan.bound_ns;
    snprintf(row->note, sizeof row->note, "%s", made.plan.note);
    row->slowdown = made.result.fast_ns > 0 ? made.result.iteration_ns / made.result.fast_ns : 1;
    row->price = ebb__tier_price(&machine->tiers[0], row->budget_bytes) +
                 ebb__tier_price(&machine->tiers[1], made.result.slow_peak_bytes);
    row->all_fast_price = ebb__tier_price(&machine->tiers[0], trace->peak_bytes);
    ebb__tier_plan_fini(&made.plan);
    return EBB_OK;
}

static enum ebb_status row_add(struct ebb_tiers_comparison *comparison,
                               const struct ebb_tiers_row *row, struct ebb_error *error)
{
    return ebb_vec_push(&comparison->rows, *row) ? EBB_OK : no_memory(error);
}

static struct ebb_tiers_row row_begin(const struct ebb_tiers_comparison *comparison, uint32_t trace,
                                      const struct ebb_tier_policy *policy, double share)
{
    const struct ebb_tiers_trace *of = &comparison->traces.items[trace];
    struct ebb_tiers_row row = {.trace = trace, .policy = policy->name};
    row.budget_bytes = (uint64_t)(share * (double)of->peak_bytes);
    return row;
}

static enum ebb_status rows_of_share(struct ebb_tiers_comparison *comparison, uint32_t trace,
                                     const char *share, const ebb_words *policies,
                                     struct ebb_error *error)
{
    enum ebb_status status = EBB_OK;
    for (size_t p = 0; !status && p < policies->count; p++) {
        if (ebb__interrupt_seen()) {
            comparison->interrupted = true;
            return EBB_OK;
        }
        const struct ebb_tier_policy *policy = ebb__tier_policy(policies->items[p]);
        struct ebb_tiers_row row = row_begin(comparison, trace, policy, share_parse(share));
        snprintf(row.share, sizeof row.share, "%.20s", share);
        status = row_make(comparison, policy, &row, error);
        if (!status)
            status = row_add(comparison, &row, error);
    }
    return status;
}

/* The cheapest share: the smallest one that is fast enough, as a share of fast memory costs more
 * than one of the slow tier. */
static enum ebb_status cost_row(struct ebb_tiers_comparison *comparison, uint32_t trace,
                                const struct ebb_tier_policy *policy, double most,
                                struct ebb_error *error)
{
    double low = 0, high = 1;
    struct ebb_tiers_row best = row_begin(comparison, trace, policy, 1);
    snprintf(best.share, sizeof best.share, "100%%");
    enum ebb_status status = row_make(comparison, policy, &best, error);
    for (int i = 0; !status && best.made && i < COST_STEPS && !ebb__interrupt_seen(); i++) {
        double share = (low + high) / 2;
        struct ebb_tiers_row row = row_begin(comparison, trace, policy, share);
        status = row_make(comparison, policy, &row, error);
        snprintf(row.share, sizeof row.share, "%.1f%%", 100 * share);
        if (!status && row.made && row.slowdown <= most) {
            best = row;
            high = share;
        } else {
            low = share;
        }
    }
    return status ? status : row_add(comparison, &best, error);
}

static enum ebb_status rows_make(struct ebb_tiers_comparison *comparison, const ebb_words *shares,
                                 const ebb_words *policies, struct ebb_error *error)
{
    const char *cost = comparison->asked->cost;
    enum ebb_status status = EBB_OK;
    for (uint32_t t = 0; !status && t < comparison->traces.count; t++) {
        for (size_t s = 0; !cost && !status && s < shares->count; s++)
            status = rows_of_share(comparison, t, shares->items[s], policies, error);
        for (size_t p = 0; cost && !status && p < policies->count; p++)
            status = cost_row(comparison, t, ebb__tier_policy(policies->items[p]),
                              1 + strtod(cost, NULL) / 100, error);
    }
    return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* Returns -1 to continue, or the exit code. */
static int words_check(const struct ebb_tiers_asked *asked, const ebb_words *shares,
                       const ebb_words *policies)
{
    char *end;
    for (size_t i = 0; i < shares->count; i++)
        if (!(share_parse(shares->items[i]) > 0) || share_parse(shares->items[i]) > 1)
            return ebb__command_usage("compare", "--tiers: '%s' is no share", shares->items[i]);
    for (size_t i = 0; i < policies->count; i++)
        if (!ebb__tier_policy(policies->items[i]))
            return ebb__command_usage("compare", "no policy for tiers is called '%s'",
                                      policies->items[i]);
    if (asked->cost && (!(strtod(asked->cost, &end) >= 0) || end == asked->cost || *end ||
                        !(strtod(asked->cost, NULL) < 1e6)))
        return ebb__command_usage("compare", "--cost: '%s' is no percentage", asked->cost);
    struct ebb_error error = {0};
    if (asked->plot_path && ebb__output_check(asked->plot_path, asked->force, &error))
        return ebb__command_fail("compare", &error);
    return -1;
}

static enum ebb_status show(const struct ebb_tiers_comparison *comparison, struct ebb_error *error)
{
    const struct ebb_tiers_asked *asked = comparison->asked;
    enum ebb_status status = EBB_OK;
    if (asked->plot_path) {
        struct ebb_output output;
        status = ebb__output_open(asked->plot_path, &output, error);
        if (!status) {
            ebb__tiers_write_plot(comparison, output.stream);
            status = ebb__output_close(&output, asked->force, error);
        }
    }
    if (!status && asked->json)
        status = ebb__tiers_print_json(comparison, error);
    else if (!status)
        ebb__tiers_print(comparison);
    if (!status && (fflush(stdout) != 0 || ferror(stdout)))
        status = ebb__fail(error, EBB_ERR_IO, "standard output", "cannot be written");
    return status;
}

static void comparison_fini(struct ebb_tiers_comparison *comparison)
{
    for (size_t i = 0; i < comparison->traces.count; i++)
        ebb__operations_fini(&comparison->traces.items[i].operations);
    for (size_t i = 0; i < comparison->loaded.count; i++) {
        ebb__load_fini(comparison->loaded.items[i]);
        free(comparison->loaded.items[i]);
    }
    ebb_vec_free(&comparison->loaded);
    ebb_vec_free(&comparison->traces);
    ebb_vec_free(&comparison->rows);
}

int ebb__compare_tiers(int argc, char **argv)
{
    static const struct ebb_usage usage = {
        .command = "compare", .text = help, .options = options, .tail = tail};
    struct ebb_tiers_asked asked = {.machines = "optane", .policies = DEFAULT_POLICIES};
    struct ebb_tiers_comparison comparison = {.asked = &asked};
    struct ebb_error error = {0};
    ebb_words shares = {0}, machines = {0}, policies = {0};
    int code = ebb__options_parse(&usage, argc, argv, &asked);
    if (code >= 0)
        return code;
    if (optind == argc)
        return ebb__command_usage("compare", "no FILE given");
    enum ebb_status status = EBB_OK;
    if (!ebb__words_split(asked.shares, &shares) || !ebb__words_split(asked.machines, &machines) ||
        !ebb__words_split(asked.policies, &policies))
        status = no_memory(&error);
    if (!status)
        code = words_check(&asked, &shares, &policies);
    if (code < 0) {
        ebb__interrupt_expect();
        for (int i = optind; !status && i < argc; i++)
            status = trace_load(&comparison, argv[i], &machines, &error);
        if (!status)
            status = rows_make(&comparison, &shares, &policies, &error);
        if (!status)
            status = show(&comparison, &error);
        code = status ? ebb__command_fail("compare", &error) : 0;
    }
    comparison_fini(&comparison);
    ebb__words_fini(&shares);
    ebb__words_fini(&machines);
    ebb__words_fini(&policies);
    if (comparison.interrupted)
        ebb__interrupt_die();
    return code;
}
