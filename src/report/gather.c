#include "report/report.h"

#include "base/geometry.h"
#include "base/size.h"
#include "model/coarse.h"

#include <stdlib.h>
#include <string.h>

#define LARGEST_TICKS 150000 /* measured: above it, plans take longer than a reader waits */
#define COARSE_TICKS 4000    /* measured: a forecast and a frontier then take five seconds */
#define FIRST_PERCENT 30     /* of the frontier's budgets, in steps of ten */

static void forget(struct ebb_report_figures *figures)
{
    memset(figures, 0xff, sizeof *figures); /* EBB_REPORT_UNKNOWN, all of them */
}

static uint64_t number_of(const json_t *summary, const char *key)
{
    const json_t *value = json_object_get(summary, key);
    return json_is_integer(value) && json_integer_value(value) >= 0
               ? (uint64_t)json_integer_value(value)
               : EBB_REPORT_UNKNOWN;
}

static uint64_t known(uint64_t value)
{
    return value ? value : EBB_REPORT_UNKNOWN;
}

/* A summary says what happened, and what the run's newest plan predicted. */
static void take_summary(struct ebb_report_run *run)
{
    const json_t *summary = run->source.summary;
    run->measured = (struct ebb_report_figures){
        .peak_bytes = number_of(summary, "peak_resident_bytes"),
        .budget_bytes = number_of(summary, "budget_bytes"),
        .unlimited_bytes = known(number_of(summary, "unmanaged_peak_bytes")),
        .iteration_ns = known(number_of(json_object_get(summary, "iteration_ns"), "median")),
        .unlimited_ns = EBB_REPORT_UNKNOWN,
        .stall_ns = number_of(summary, "stall_ns"),
        .moved_out_bytes = number_of(summary, "moved_out_bytes"),
        .moved_in_bytes = number_of(summary, "moved_in_bytes")};
    uint64_t iteration_ns = known(number_of(summary, "predicted_iteration_ns"));
    if (iteration_ns == EBB_REPORT_UNKNOWN)
        return;
    run->predicted.iteration_ns = iteration_ns;
    run->predicted.peak_bytes = number_of(summary, "predicted_peak_bytes");
    run->predicted.stall_ns = number_of(summary, "predicted_stall_ns_per_iteration");
    if (run->predicted.stall_ns <= iteration_ns)
        run->predicted.unlimited_ns = iteration_ns - run->predicted.stall_ns;
}

static struct ebb_plan_terms terms_of(const struct ebb_report_run *run,
                                      const struct ebb_machine *machine)
{
    const struct ebb_model *model = run->is_coarse ? &run->coarse : &run->source.analysis->model;
    struct ebb_plan_terms terms = ebb__plan_terms(ebb__plan_policy("ebb"), model, machine, 0);
    terms.page_bytes = run->source.page_bytes;
    return terms;
}

static enum ebb_status find_needs(struct ebb_report_run *run, struct ebb_error *error)
{
    for (uint32_t i = 0; i < run->source.machine_count && i < EBB_REPORT_MACHINES; i++) {
        struct ebb_plan_terms terms = terms_of(run, &run->source.machines[i]);
        terms.effort_steps = ebb__forecast_effort(&terms);
        run->needs[i].machine = run->source.machines[i].name;
        enum ebb_status status = ebb__forecast_needs(&terms, &run->needs[i].needs, error);
        if (status)
            return status;
        run->need_count++;
    }
    return EBB_OK;
}

static enum ebb_status find_frontier(struct ebb_report_run *run, struct ebb_error *error)
{
    struct ebb_plan_terms terms = terms_of(run, &run->source.machines[0]);
    terms.effort_steps = ebb__forecast_effort(&terms);
    uint64_t peak_bytes = run->needs[0].needs.peak_bytes;
    for (uint32_t p = 0; p < run->source.policy_count; p++) {
        terms.policy = run->source.policies[p];
        for (uint64_t percent = FIRST_PERCENT; percent <= 100; percent += 10) {
            struct ebb_report_point point = {.policy = terms.policy->name};
            enum ebb_status status =
                ebb__forecast_at(&terms, peak_bytes / 100 * percent, &point.at, error);
            if (status == EBB_ERR_UNSUPPORTED)
                break; /* the policy needs more than this trace has */
            if (status)
                return status;
            if (point.at.feasible && run->point_count < EBB_REPORT_POINTS)
                run->points[run->point_count++] = point;
        }
    }
    return EBB_OK;
}

static uint64_t budget_of(const struct ebb_report_run *run)
{
    uint64_t measured = run->measured.budget_bytes;
    if (run->source.budget_bytes)
        return run->source.budget_bytes;
    if (run->source.budget_fraction > 0)
        return (uint64_t)(run->source.budget_fraction * (double)run->needs[0].needs.peak_bytes);
    if (measured != EBB_REPORT_UNKNOWN &&
        measured >= run->needs[0].needs.points[EBB_NEED_LEAST].budget_bytes)
        return measured;
    return run->needs[0].needs.points[EBB_NEED_LOSS_5].budget_bytes;
}

static enum ebb_status refuse(const struct ebb_planned *planned, uint64_t budget_bytes,
                              struct ebb_error *error)
{
    char budget[32], least[32];
    ebb__fail(error, EBB_INFEASIBLE, "--budget", "no plan keeps %s",
              ebb_size_format(budget_bytes, budget, sizeof budget));
    ebb__error_set_remedy(
        error, "the smallest feasible budget is %s",
        ebb_size_format(planned->plan.smallest_feasible_bytes, least, sizeof least));
    return EBB_INFEASIBLE;
}

static enum ebb_status make_plan(struct ebb_report_run *run, struct ebb_error *error)
{
    struct ebb_plan_terms terms = terms_of(run, &run->source.machines[0]);
    terms.model = &run->source.analysis->model;
    terms.budget_bytes = budget_of(run);
    if (ebb__forecast_is_coarse(terms.model))
        terms.policy = ebb__plan_policy("fifo");
    enum ebb_status status = ebb__planned_make(&terms, &run->planned, error);
    if (status)
        return status;
    run->has_plan = true;
    status = ebb__planned_check(&run->planned, error);
    const struct ebb_plan *plan = &run->planned.plan;
    if (!status && !plan->feasible)
        status = refuse(&run->planned, terms.budget_bytes, error);
    if (!status && run->source.bound && !ebb__forecast_is_coarse(terms.model))
        status = run->source.bound(&run->planned.request, plan, &run->bound_bytes, error);
    run->predicted =
        (struct ebb_report_figures){.peak_bytes = plan->peak_bytes,
                                    .budget_bytes = terms.budget_bytes,
                                    .unlimited_bytes = run->needs[0].needs.peak_bytes,
                                    .iteration_ns = plan->iteration_ns,
                                    .unlimited_ns = ebb__model_iteration_ns(terms.model),
                                    .stall_ns = plan->stall_ns,
                                    .moved_out_bytes = plan->moved_out_bytes,
                                    .moved_in_bytes = plan->moved_in_bytes};
    return status;
}

static enum ebb_status draw(struct ebb_report_run *run, enum ebb_report_depth depth,
                            struct ebb_error *error)
{
    const struct ebb_model *model = &run->source.analysis->model;
    const struct ebb_planned *planned = run->has_plan ? &run->planned : NULL;
    enum ebb_status status = ebb__timeline_init(model, planned, &run->timeline, error);
    if (!status)
        status = ebb__curve_init(model, planned, &run->timeline, &run->curve, error);
    if (status || depth < EBB_REPORT_ALL)
        return status;
    status = ebb__block_table_init(model, planned, &run->blocks, error);
    return status ? status
                  : ebb__address_map_init(model, planned, &run->timeline, &run->map, error);
}

/* A forecast makes many plans, so that of a large iteration is one of its coarse model. */
static enum ebb_status forecast(struct ebb_report_run *run, struct ebb_error *error)
{
    const struct ebb_model *model = &run->source.analysis->model;
    if (model->tick_count > LARGEST_TICKS) {
        enum ebb_status status = ebb__model_coarsen(model, COARSE_TICKS, &run->coarse, error);
        if (status)
            return status;
        run->is_coarse = true;
    }
    return find_needs(run, error);
}

static enum ebb_status gather(struct ebb_report_run *run, enum ebb_report_depth depth,
                              struct ebb_error *error)
{
    const struct ebb_model *model = &run->source.analysis->model;
    enum ebb_status status = EBB_OK;
    run->has_model = true;
    if (run->predicted.unlimited_bytes == EBB_REPORT_UNKNOWN)
        run->predicted.unlimited_bytes = model->peak_bytes;
    if (run->predicted.unlimited_ns == EBB_REPORT_UNKNOWN)
        run->predicted.unlimited_ns = ebb__model_iteration_ns(model);
    bool has_forecast = run->source.analysis->has_accesses && run->source.machine_count;
    if (has_forecast)
        status = forecast(run, error);
    if (status || depth == EBB_REPORT_NEEDS)
        return status;
    bool is_budget_given = run->source.budget_bytes || run->source.budget_fraction > 0;
    if (has_forecast && (!run->is_coarse || is_budget_given))
        status = make_plan(run, error);
    if (!status && has_forecast)
        status = find_frontier(run, error);
    return status ? status : draw(run, depth, error);
}

enum ebb_status ebb__report_gather(const struct ebb_report_source *source,
                                   enum ebb_report_depth depth, struct ebb_report_run *run,
                                   struct ebb_error *error)
{
    memset(run, 0, sizeof *run);
    run->source = *source;
    forget(&run->predicted);
    forget(&run->measured);
    run->has_summary = source->summary;
    if (source->summary)
        take_summary(run);
    enum ebb_status status = source->analysis ? gather(run, depth, error) : EBB_OK;
    if (status)
        ebb__report_fini(run);
    return status;
}

void ebb__report_fini(struct ebb_report_run *run)
{
    if (run->has_plan)
        ebb__planned_fini(&run->planned);
    if (run->is_coarse)
        ebb__model_fini(&run->coarse);
    ebb__timeline_fini(&run->timeline);
    ebb__curve_fini(&run->curve);
    ebb__block_table_fini(&run->blocks);
    ebb__address_map_fini(&run->map);
    memset(run, 0, sizeof *run);
}

/* The budget as a user would type it, rounded up to three digits or so. */
static void budget_text(uint64_t bytes, char *out, size_t size)
{
    static const struct {
        uint64_t unit;
        char letter;
    } units[] = {{EBB_GIB, 'G'}, {EBB_MIB, 'M'}, {EBB_KIB, 'K'}};
    size_t i = 0;
    while (i + 1 < sizeof units / sizeof units[0] && bytes < units[i].unit)
        i++;
    uint64_t tenths = (bytes * 10 + units[i].unit - 1) / units[i].unit;
    if (tenths < 1000 && tenths % 10)
        snprintf(out, size, "%llu.%llu%c", (unsigned long long)tenths / 10,
                 (unsigned long long)tenths % 10, units[i].letter);
    else
        snprintf(out, size, "%llu%c", (unsigned long long)(tenths + 9) / 10, units[i].letter);
}

bool ebb__report_sentence(const struct ebb_report_run *run, char *out, size_t bytes)
{
    char budget[32];
    if (!run->need_count)
        return false;
    const struct ebb_needs *needs = &run->needs[0].needs;
    uint64_t wanted = needs->points[EBB_NEED_LOSS_5].budget_bytes;
    if (wanted >= needs->peak_bytes)
        return false;
    budget_text(wanted, budget, sizeof budget);
    /* The command of an imported trace names a file, not a program. A long one is cut. */
    const struct ebb_trace_info *info = run->source.info;
    bool is_shown = info && run->source.page_bytes == EBB_PAGE_BYTES && info->command[0] &&
                    strlen(info->command) + 1 < sizeof info->command && !run->source.is_redacted;
    static const char format[] = "ebb run --budget %s -- %s";
    int length = snprintf(out, bytes, format, budget, is_shown ? info->command : "CMD");
    if (length < 0 || (size_t)length >= bytes)
        snprintf(out, bytes, format, budget, "CMD");
    return true;
}
