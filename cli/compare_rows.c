/* Plans for `ebb compare`: each trace on each machine, with each budget, policy and seed. All plans
 * of a trace on a machine have the same bounds, so these are computed once, and only if needed. */
#include "compare.h"
#include "interrupt.h"
#include "lab/bound/bound.h"
#include "plan/file.h"
#include "planning.h"
#include "progress.h"

#include "base/tuning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct budget {
    char label[32];
    uint64_t bytes; /* 0: the smallest without a stall */
};

typedef EBB_VEC(struct budget) budget_list;

/* A plan that the user gave. */
struct given {
    struct ebb_plan_file file;
    const char *path;
    bool fits;  /* it is for the trace; otherwise `file` is empty */
    bool shown; /* it has a row on this machine */
};

/* A trace on a machine. */
struct pair {
    struct ebb_comparison *comparison;
    uint32_t trace, machine;
    struct ebb_plan_terms terms;
    struct given *given;
    bool peak_known, stall_known; /* of the bounds; the stall is that of stall_budget_bytes */
    uint64_t peak_bytes, stall_budget_bytes, stall_ns;
    struct ebb_error *error;
};

static enum ebb_status no_memory(struct ebb_error *error)
{
    return ebb__fail(error, EBB_ERR_MEMORY, "results", "no memory for them");
}

/* ---- traces ---------------------------------------------------------------------------------- */

static enum ebb_status load(struct ebb_comparison *comparison, const char *path,
                            struct ebb_error *error)
{
    struct ebb_compare_trace *trace = &comparison->traces.items[comparison->traces.count];
    *trace = (struct ebb_compare_trace){.path = path, .name = basename(path)};
    enum ebb_status status = ebb__load(path, EBB_LOAD_MODEL, &trace->loaded, error);
    if (status)
        return status;
    uint32_t index = (uint32_t)comparison->traces.count++;
    if (trace->loaded.analysis.has_model)
        ebb__planning_scale_time(comparison->list->given.time_billionths,
                                 &trace->loaded.analysis.model);
    if (trace->loaded.analysis.has_accesses) {
        const struct ebb_model *model = &trace->loaded.analysis.model;
        struct ebb_plan_terms terms = ebb__plan_terms(ebb__plan_policy("none"), model,
                                                      &comparison->list->machines.items[0], 0);
        terms.page_bytes = trace->loaded.page_bytes;
        trace->iteration_ns = ebb__model_iteration_ns(model);
        status = ebb__planning_unmanaged_peak(&terms, &trace->peak_bytes, error);
    }
    return status ? status : ebb__compare_hold(comparison, index, error);
}

enum ebb_status ebb__compare_load(struct ebb_comparison *comparison, struct ebb_error *error)
{
    const struct ebb_compare_list *list = comparison->list;
    if (!ebb_vec_reserve(&comparison->traces, list->file_count))
        return no_memory(error);
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; !status && i < list->file_count; i++)
        status = load(comparison, list->files[i], error);
    return status ? status : ebb__compare_files_check(comparison, error);
}

void ebb__comparison_fini(struct ebb_comparison *comparison)
{
    for (size_t i = 0; i < comparison->traces.count; i++)
        ebb__load_fini(&comparison->traces.items[i].loaded);
    ebb_vec_free(&comparison->traces);
    ebb_vec_free(&comparison->rows);
    ebb_vec_free(&comparison->held);
    ebb_vec_free(&comparison->heights);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

static enum ebb_status bound_peak(struct pair *pair, const struct ebb_plan_request *request)
{
    if (pair->peak_known)
        return EBB_OK;
    pair->peak_known = true;
    return ebb__bound_peak(request, EBB_BOUND_ALL, ebb__tuning()->bound_steps, &pair->peak_bytes,
                           pair->error);
}

static enum ebb_status bound_stall(struct pair *pair, const struct ebb_plan_request *request)
{
    if (pair->stall_known && pair->stall_budget_bytes == request->budget_bytes)
        return EBB_OK;
    pair->stall_known = true;
    pair->stall_budget_bytes = request->budget_bytes;
    enum ebb_status status = ebb__bound_stall(request, EBB_BOUND_ALL, ebb__tuning()->bound_steps,
                                              &pair->stall_ns, pair->error);
    if (status != EBB_INFEASIBLE)
        return status;
    pair->stall_ns = 0; /* no plan at all fits the budget */
    return EBB_OK;
}

/* The bounds are on plans in which each block has memory of its own. */
static enum ebb_status bound(struct pair *pair, const struct ebb_plan_terms *terms, bool zero_stall,
                             struct ebb_compare_row *row)
{
    const struct ebb_plan *plan = &row->plan;
    struct ebb_plan_request request = ebb__plan_request(terms);
    row->bound = (struct ebb_compare_bound){.known = plan->rules.share_count == 0};
    if (!row->bound.known)
        return EBB_OK;
    enum ebb_status status = bound_peak(pair, &request);
    row->bound.peak_bytes = pair->peak_bytes;
    if (!status && !zero_stall && plan->stall_ns > 0) {
        status = bound_stall(pair, &request);
        row->bound.stall_ns = pair->stall_ns;
    }
    double reached = zero_stall ? (double)plan->peak_bytes : (double)plan->iteration_ns;
    double least = zero_stall
                       ? (double)pair->peak_bytes
                       : (double)(ebb__model_iteration_ns(terms->model) + row->bound.stall_ns);
    row->bound.gap = least > 0 ? reached / least - 1 : 0;
    return status;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static struct ebb_compare_row row_of(const struct pair *pair, const struct budget *budget,
                                     const char *policy)
{
    struct ebb_compare_row row = {.trace = pair->trace, .machine = pair->machine};
    snprintf(row.policy, sizeof row.policy, "%s", policy);
    snprintf(row.budget, sizeof row.budget, "%s", budget->label);
    return row;
}

static enum ebb_status plan_row(struct pair *pair, const struct budget *budget,
                                struct ebb_plan_terms terms)
{
    bool zero_stall = budget->bytes == 0;
    struct ebb_compare_row row = row_of(pair, budget, terms.policy->name);
    struct ebb_planned planned;
    ebb__progress_say("plan %zu: %s, budget %s, %s (Ctrl-C: those that are done)",
                      pair->comparison->rows.count + 1,
                      pair->comparison->traces.items[pair->trace].name, budget->label,
                      terms.policy->name);
    terms.stop = ebb__interrupt_flag();
    enum ebb_status status = ebb__planning_make(&terms, zero_stall, &planned, pair->error);
    if (status)
        return status;
    if (ebb__interrupt_seen()) { /* a plan that was stopped is not comparable */
        pair->comparison->interrupted = true;
        ebb__planned_fini(&planned);
        return EBB_OK;
    }
    row.ground = terms.policy->ground;
    row.seed = terms.seed;
    row.plan = planned.plan;
    row.slowdown = (double)row.plan.iteration_ns / (double)ebb__model_iteration_ns(terms.model);
    status = bound(pair, &terms, zero_stall, &row);
    row.plan.absences = NULL; /* only the figures are kept */
    row.plan.rules = (struct ebb_plan_rules){0};
    if (!status && !ebb_vec_push(&pair->comparison->rows, row))
        status = no_memory(pair->error);
    struct ebb_compare_packed packed = {planned.request.model, &planned.plan,
                                        planned.request.page_bytes};
    if (!status && ebb__compare_works(&row))
        status = ebb__compare_pack(pair->comparison, &packed, pair->error);
    ebb__planned_fini(&planned);
    return status;
}

/* Plans with each seed, if chance decides anything. */
static enum ebb_status plan_seeds(struct pair *pair, const struct budget *budget,
                                  const struct ebb_policy *policy)
{
    const struct ebb_offline *given = &pair->comparison->list->given;
    enum ebb_status status = EBB_OK;
    bool chance = true;
    for (uint64_t seed = 0; !status && chance && seed < given->seeds; seed++) {
        struct ebb_plan_terms terms = pair->terms;
        if ((pair->comparison->interrupted = ebb__interrupt_seen()))
            return EBB_OK;
        chance = false;
        terms.policy = policy;
        terms.budget_bytes = budget->bytes;
        terms.seed = seed;
        terms.chance_used = &chance;
        if (budget->bytes == 0 || given->time_limit_ns)
            terms.effort_steps = 0;
        status = plan_row(pair, budget, terms);
    }
    if (status == EBB_ERR_UNSUPPORTED && !given->policies)
        status = EBB_OK; /* of all policies, those that the trace suffices for */
    return status;
}

/* Rows of given plans for this budget; NULL: of those that have no row yet. */
static enum ebb_status given_rows(struct pair *pair, const struct budget *budget)
{
    const struct ebb_compare_trace *trace = &pair->comparison->traces.items[pair->trace];
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; !status && i < pair->comparison->list->given.plan_paths.count; i++) {
        struct given *given = &pair->given[i];
        uint64_t bytes = given->file.plan.budget_bytes;
        if (!given->fits || given->shown || (budget && budget->bytes != bytes))
            continue;
        struct budget own = {.bytes = bytes};
        snprintf(own.label, sizeof own.label, "%.2f%%",
                 100 * (double)bytes / (double)trace->peak_bytes);
        struct ebb_compare_row row = row_of(pair, budget ? budget : &own, basename(given->path));
        row.path = given->path;
        given->shown = true;
        status = ebb__compare_file_row(pair->comparison, &row, &given->file, pair->error);
    }
    return status;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Adds the budget of a given plan: in percent, if that says exactly as much. */
static bool add_budget(uint64_t bytes, uint64_t peak_bytes, budget_list *budgets)
{
    struct budget budget = {.bytes = bytes};
    uint64_t meant = 0;
    for (size_t i = 0; i < budgets->count; i++)
        if (budgets->items[i].bytes == bytes)
            return true;
    for (int digits = 0; digits < 5 && meant != bytes; digits++) {
        snprintf(budget.label, sizeof budget.label, "%.*f%%", digits,
                 100 * (double)bytes / (double)peak_bytes);
        if (ebb__planning_budget(budget.label, peak_bytes, &meant, NULL) != EBB_OK)
            meant = 0;
    }
    return ebb_vec_push(budgets, budget);
}

/* The budgets of a trace: what the user asked for, else those of the given plans, else the
 * default. */
static enum ebb_status budgets_make(struct pair *pair, budget_list *budgets)
{
    const struct ebb_compare_list *list = pair->comparison->list;
    uint64_t peak_bytes = pair->comparison->traces.items[pair->trace].peak_bytes;
    ebb_words words = {0};
    bool ok = true;
    for (size_t i = 0; ok && !list->budgets.count && i < list->given.plan_paths.count; i++)
        if (pair->given[i].fits)
            ok = add_budget(pair->given[i].file.plan.budget_bytes, peak_bytes, budgets);
    const ebb_words *asked = &list->budgets;
    if (ok && !asked->count && !budgets->count) {
        ok = ebb__words_split(EBB_DEFAULT_BUDGETS, &words);
        asked = &words;
    }
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; ok && !status && i < asked->count; i++) {
        struct budget budget = {.bytes = 0};
        snprintf(budget.label, sizeof budget.label, "%s", asked->items[i]);
        if (strcmp(asked->items[i], EBB_ZERO_STALL) != 0)
            status = ebb__planning_budget(asked->items[i], peak_bytes, &budget.bytes, pair->error);
        ok = ebb_vec_push(budgets, budget);
    }
    ebb__words_fini(&words);
    return ok ? status : no_memory(pair->error);
}

static enum ebb_status compare_pair(struct pair *pair)
{
    const struct ebb_comparison *comparison = pair->comparison;
    budget_list budgets = {0};
    enum ebb_status status = budgets_make(pair, &budgets);
    for (size_t b = 0; !status && !comparison->interrupted && b < budgets.count; b++) {
        const struct budget *budget = &budgets.items[b];
        for (size_t p = 0;
             !status && !comparison->interrupted && p < comparison->list->policies.count; p++)
            status = plan_seeds(pair, budget, comparison->list->policies.items[p]);
        if (!status && budget->bytes)
            status = given_rows(pair, budget);
    }
    if (!status && !comparison->interrupted)
        status = given_rows(pair, NULL);
    ebb_vec_free(&budgets);
    return status;
}

static enum ebb_status compare_trace(struct ebb_comparison *comparison, uint32_t index,
                                     struct given *given, struct ebb_error *error)
{
    const struct ebb_compare_list *list = comparison->list;
    const struct ebb_compare_trace *trace = &comparison->traces.items[index];
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; !status && i < list->given.plan_paths.count; i++) {
        given[i] = (struct given){.path = list->given.plan_paths.items[i]};
        status =
            ebb__compare_file_read(given[i].path, trace, &given[i].file, &given[i].fits, error);
    }
    for (uint32_t m = 0; !status && !comparison->interrupted && m < list->machines.count; m++) {
        struct pair pair = {comparison, index, m, .given = given, .error = error};
        for (size_t i = 0; i < list->given.plan_paths.count; i++)
            given[i].shown = false;
        pair.terms = ebb__plan_terms(ebb__plan_policy("none"), &trace->loaded.analysis.model,
                                     &list->machines.items[m], 0);
        pair.terms.page_bytes = trace->loaded.page_bytes;
        pair.terms.smallest_block_bytes = list->given.smallest_block_bytes;
        pair.terms.time_limit_ns = list->given.time_limit_ns;
        status = compare_pair(&pair);
    }
    for (size_t i = 0; i < list->given.plan_paths.count; i++)
        if (given[i].fits)
            ebb__plan_file_fini(&given[i].file);
    return status;
}

enum ebb_status ebb__compare_plan(struct ebb_comparison *comparison, struct ebb_error *error)
{
    struct given *given = calloc(EBB_OPTION_TEXTS_MAX, sizeof *given);
    if (!given)
        return no_memory(error);
    enum ebb_status status = EBB_OK;
    /* Without accesses no eviction can be planned. Only the allocators can be compared. */
    for (uint32_t i = 0; !status && i < comparison->traces.count; i++)
        if (comparison->traces.items[i].loaded.analysis.has_accesses) {
            memset(given, 0, EBB_OPTION_TEXTS_MAX * sizeof *given);
            status = compare_trace(comparison, i, given, error);
        }
    free(given);
    return status;
}
