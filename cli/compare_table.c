/* The text of `ebb compare`, for people: at most 100 columns, units in the heads of the columns. */
#include "compare.h"

#include "base/size.h"

#define NAME_MOST 18      /* columns of a policy's name; a longer one is cut */
#define BUDGETS_A_LINE 8U /* in a table that has a column for each budget */

/* Units for the figures of one trace: small enough for two digits of the smallest that matters. */
struct units {
    double bytes, ns;
    const char *size, *time;
};

static struct units units_of(const struct ebb_compare_trace *trace)
{
    struct units units = {EBB_MIB, 1e6, "MiB", "ms"};
    if (trace->peak_bytes < 10 * EBB_MIB)
        units.bytes = EBB_KIB, units.size = "KiB";
    else if (trace->peak_bytes >= 100 * EBB_GIB)
        units.bytes = EBB_GIB, units.size = "GiB";
    if (trace->iteration_ns < 10000000)
        units.ns = 1e3, units.time = "us";
    else if (trace->iteration_ns >= 100000000000)
        units.ns = 1e9, units.time = "s";
    return units;
}

/* The widest name of the rows, for the first column. */
static int name_width(const struct ebb_comparison *comparison)
{
    size_t width = 8;
    for (size_t i = 0; i < comparison->rows.count; i++) {
        size_t length = strlen(comparison->rows.items[i].policy);
        width = length > width ? length : width;
    }
    return width < NAME_MOST ? (int)width : NAME_MOST;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static void pair_head(const struct ebb_comparison *comparison, const struct ebb_compare_row *row)
{
    char a[32], b[32];
    const struct ebb_compare_trace *trace = &comparison->traces.items[row->trace];
    printf("%s\non %s; without a plan %s an iteration, peak %s\n", trace->path,
           comparison->list->machines.items[row->machine].name,
           ebb_duration_format(trace->iteration_ns, a, sizeof a),
           ebb_size_format(trace->peak_bytes, b, sizeof b));
}

static void budget_head(const struct ebb_compare_row *row, const struct units *units, int width)
{
    char a[32];
    if (ebb__compare_is_zero_stall(row))
        printf("\nsmallest budget without a stall\n");
    else
        printf("\nbudget %s: %s\n", row->budget,
               ebb_size_format(row->plan.budget_bytes, a, sizeof a));
    printf("%-*s %8s %9s %8s %8s %8s %8s %8s %8s %8s\n", width, "policy", "peak", "slow-down",
           "stall", "bound", "gap", "out", "in", "absences", "planned");
    printf("%-*s %8s %9s %8s %8s %8s %8s %8s %8s %8s\n", width, "", units->size, "", units->time,
           ebb__compare_is_zero_stall(row) ? units->size : units->time, "%", units->size,
           units->size, "", "s");
}

static void plan_print(const struct ebb_compare_row *row, const struct units *units, int width)
{
    const struct ebb_plan *plan = &row->plan;
    const struct ebb_compare_bound *bound = &row->bound;
    char text[32];
    printf("%-*.*s ", width, width, row->policy);
    if (!plan->feasible && plan->smallest_feasible_bytes > plan->budget_bytes) {
        printf("%8s not below %s\n", "-",
               ebb_size_format(plan->smallest_feasible_bytes, text, sizeof text));
        return;
    }
    if (!plan->feasible) {
        printf("%8s needs %s\n", "-", ebb_size_format(plan->peak_bytes, text, sizeof text));
        return;
    }
    if (!ebb__compare_works(row)) {
        printf("%8s stalls at any budget\n", "-");
        return;
    }
    printf("%8.2f %9.4f %8.2f ", (double)plan->peak_bytes / units->bytes, row->slowdown,
           (double)plan->stall_ns / units->ns);
    if (!bound->known)
        printf("%8s %8s ", "-", "-");
    else if (ebb__compare_is_zero_stall(row))
        printf("%8.2f %8.2f ", (double)bound->peak_bytes / units->bytes, 100 * bound->gap);
    else
        printf("%8.2f %8.2f ", (double)bound->stall_ns / units->ns, 100 * bound->gap);
    printf("%8.1f %8.1f %8u %8.3f\n", (double)plan->moved_out_bytes / units->bytes,
           (double)plan->moved_in_bytes / units->bytes, plan->absence_count,
           (double)plan->plan_ns / 1e9);
}

static void plans_print(const struct ebb_comparison *comparison, int width)
{
    const struct ebb_compare_row *first, *before = NULL;
    struct units units = {0};
    for (size_t at = 0; ebb__compare_group(comparison, &at, &first); before = first) {
        const struct ebb_compare_row *row =
            ebb__compare_median(first, at - (size_t)(first - comparison->rows.items));
        bool fresh = !before || before->trace != row->trace || before->machine != row->machine;
        if (fresh) {
            units = units_of(&comparison->traces.items[row->trace]);
            fputs(before ? "\n" : "", stdout);
            pair_head(comparison, row);
        }
        if (fresh || strcmp(before->budget, row->budget) != 0)
            budget_head(row, &units, width);
        plan_print(row, &units, width);
    }
}

/* ---- seeds ----------------------------------------------------------------------------------- */

static void spread_print(const struct ebb_comparison *comparison,
                         const struct ebb_compare_row *rows, size_t count, int width)
{
    const struct ebb_compare_row *middle = ebb__compare_median(rows, count);
    struct units units = units_of(&comparison->traces.items[rows->trace]);
    uint64_t lowest = UINT64_MAX, highest = 0;
    double least = 1e300, most = 0;
    size_t works = 0;
    for (size_t i = 0; i < count; i++) {
        if (!ebb__compare_works(&rows[i]))
            continue;
        works++;
        lowest = rows[i].plan.peak_bytes < lowest ? rows[i].plan.peak_bytes : lowest;
        highest = rows[i].plan.peak_bytes > highest ? rows[i].plan.peak_bytes : highest;
        least = rows[i].slowdown < least ? rows[i].slowdown : least;
        most = rows[i].slowdown > most ? rows[i].slowdown : most;
    }
    printf("%-*.*s %-12.12s %3zu/%zu", width, width, rows->policy, rows->budget, works, count);
    if (works)
        printf(" %8.4f %8.4f %8.4f %8.2f %8.2f %8.2f %s", least, middle->slowdown, most,
               (double)lowest / units.bytes, (double)middle->plan.peak_bytes / units.bytes,
               (double)highest / units.bytes, units.size);
    putchar('\n');
}

/* Only plans that chance takes part in have several rows. */
static void spreads_print(const struct ebb_comparison *comparison, int width)
{
    const struct ebb_compare_row *first, *before = NULL;
    size_t count, at = 0;
    while ((count = ebb__compare_group(comparison, &at, &first))) {
        if (count == 1)
            continue;
        if (!before || before->trace != first->trace || before->machine != first->machine) {
            printf("\n%s\non %s: spread over seeds\n", comparison->traces.items[first->trace].path,
                   comparison->list->machines.items[first->machine].name);
            printf("%-*s %-12s %5s %26s %26s\n", width, "", "", "", "slow-down", "peak");
            printf("%-*s %-12s %5s %8s %8s %8s %8s %8s %8s\n", width, "policy", "budget", "works",
                   "least", "median", "most", "least", "median", "most");
        }
        before = first;
        spread_print(comparison, first, count, width);
    }
}

/* ---- means and front ------------------------------------------------------------------------- */

static bool is_first(const ebb_compare_points *points, size_t at, bool by_policy)
{
    for (size_t i = 0; i < at; i++)
        if (by_policy ? strcmp(points->items[i].policy, points->items[at].policy) == 0
                      : strcmp(points->items[i].budget, points->items[at].budget) == 0)
            return false;
    return true;
}

static const struct ebb_compare_point *point_at(const ebb_compare_points *points,
                                                const char *policy, const char *budget)
{
    for (size_t i = 0; i < points->count; i++)
        if (strcmp(points->items[i].policy, policy) == 0 &&
            strcmp(points->items[i].budget, budget) == 0)
            return &points->items[i];
    return NULL;
}

/* A line for each policy, a column for each of `count` budgets. */
static void means_lines(const ebb_compare_points *points, const char *const *budgets, size_t count,
                        int width)
{
    printf("%-*s", width, "policy");
    for (size_t b = 0; b < count; b++)
        printf(" %8.8s", strcmp(budgets[b], EBB_ZERO_STALL) ? budgets[b] : "*");
    putchar('\n');
    for (size_t i = 0; i < points->count; i++) {
        const char *policy = points->items[i].policy;
        if (!is_first(points, i, true))
            continue;
        printf("%-*.*s", width, width, policy);
        for (size_t b = 0; b < count; b++) {
            const struct ebb_compare_point *point = point_at(points, policy, budgets[b]);
            bool zero_stall = strcmp(budgets[b], EBB_ZERO_STALL) == 0;
            if (point && point->works)
                printf(" %8.4f", zero_stall ? point->memory : point->slowdown);
            else
                printf(" %8s", "-");
        }
        putchar('\n');
    }
}

static void means_print(const struct ebb_comparison *comparison, uint32_t machine,
                        const ebb_compare_points *points, int width)
{
    const char *budgets[BUDGETS_A_LINE];
    size_t count = 0;
    bool zero_stall = false;
    if (!points->count || points->items[0].trace_count < 2)
        return;
    printf("\ngeometric means of %u traces on %s\nslow-down by budget; '-': it fails on a trace\n",
           points->items[0].trace_count, comparison->list->machines.items[machine].name);
    for (size_t i = 0; i < points->count; i++) {
        if (!is_first(points, i, false))
            continue;
        zero_stall |= strcmp(points->items[i].budget, EBB_ZERO_STALL) == 0;
        budgets[count++] = points->items[i].budget;
        if (count == BUDGETS_A_LINE) {
            means_lines(points, budgets, count, width);
            count = 0;
        }
    }
    if (count)
        means_lines(points, budgets, count, width);
    if (zero_stall)
        puts("*: the smallest budget without a stall, over the peak without a plan");
}

/* By memory, and by slow-down, which is the other way round. */
static void front_print(const struct ebb_comparison *comparison, uint32_t machine,
                        const ebb_compare_points *points, int width)
{
    if (points->count < 2)
        return;
    const char *name = comparison->list->machines.items[machine].name;
    uint32_t count = points->items[0].trace_count;
    printf("\nPareto front on %s", name);
    if (count > 1)
        printf(", geometric means of %u traces", count);
    printf("\nno other plan needs less memory and no more time, or less time and no more memory");
    printf("\n%-*s %-12s %11s %9s\n", width, "policy", "budget", "budget/peak", "slow-down");
    double above = 0;
    for (;;) {
        double next = 1e300;
        for (size_t i = 0; i < points->count; i++)
            if (points->items[i].front && points->items[i].memory > above &&
                points->items[i].memory < next)
                next = points->items[i].memory;
        if (next == 1e300)
            return;
        for (size_t i = 0; i < points->count; i++) {
            const struct ebb_compare_point *point = &points->items[i];
            if (point->front && point->memory <= next && point->memory >= next)
                printf("%-*.*s %-12.12s %11.4f %9.4f\n", width, width, point->policy, point->budget,
                       point->memory, point->slowdown);
        }
        above = next;
    }
}

/* ---- memory of others ------------------------------------------------------------------------ */

/* True if the row stands for its seeds. */
static bool is_median(const struct ebb_comparison *comparison, uint32_t row)
{
    const struct ebb_compare_row *first, *rows = comparison->rows.items;
    size_t count, at = 0;
    while ((count = ebb__compare_group(comparison, &at, &first)))
        if (row < at)
            return ebb__compare_median(first, count) == &rows[row];
    return false;
}

static void heights_print(const struct ebb_comparison *comparison, int width)
{
    const struct ebb_compare_row *before = NULL;
    for (size_t i = 0; i < comparison->heights.count; i++) {
        const struct ebb_compare_height *height = &comparison->heights.items[i];
        const struct ebb_compare_row *row = &comparison->rows.items[height->row];
        const struct ebb_compare_trace *trace = &comparison->traces.items[row->trace];
        struct units units = units_of(trace);
        if (!is_median(comparison, height->row))
            continue;
        if (!before || before->trace != row->trace || before->machine != row->machine) {
            printf("\n%s\non %s: what pools need for each plan; CnMem would hold %.1f %s\n",
                   trace->path, comparison->list->machines.items[row->machine].name,
                   (double)trace->cnmem_bytes / units.bytes, units.size);
            printf("%-*s %-12s %-10s %9s %9s %9s %11s\n", width, "policy", "budget", "pool", "peak",
                   "height", "height", "below CnMem");
            printf("%-*s %-12s %-10s %9s %9s %9s %11s\n", width, "", "", "", units.size, units.size,
                   "/ peak", "%");
        }
        before = row;
        printf("%-*.*s %-12.12s %-10.10s %9.2f %9.2f %9.4f %11.1f\n", width, width, row->policy,
               row->budget, height->pool, (double)row->plan.peak_bytes / units.bytes,
               (double)height->height_bytes / units.bytes,
               (double)height->height_bytes / (double)row->plan.peak_bytes,
               100 - 100 * (double)height->height_bytes / (double)trace->cnmem_bytes);
    }
}

static void held_print(const struct ebb_comparison *comparison)
{
    char a[32], b[32];
    uint32_t trace = UINT32_MAX;
    for (size_t i = 0; i < comparison->held.count; i++) {
        const struct ebb_compare_held *held = &comparison->held.items[i];
        const struct ebb_footprint *footprint = &held->footprint;
        const struct ebb_compare_trace *of = &comparison->traces.items[held->trace];
        if (held->trace != trace)
            printf("%s%s\n%-10s %11s %11s %9s %11s  %s\n", comparison->rows.count || i ? "\n" : "",
                   of->path, "allocator", "held", "load", "held/load", "below CnMem", "replayed");
        trace = held->trace;
        printf("%-10s %11s %11s %9.4f %9.1f %%  %s\n", held->allocator,
               ebb_size_format(footprint->peak_held_bytes, a, sizeof a),
               ebb_size_format(footprint->peak_load_bytes, b, sizeof b),
               footprint->peak_load_bytes
                   ? (double)footprint->peak_held_bytes / (double)footprint->peak_load_bytes
                   : 0,
               of->cnmem_bytes
                   ? 100 - 100 * (double)footprint->peak_held_bytes / (double)of->cnmem_bytes
                   : 0,
               held->scope);
    }
}

enum ebb_status ebb__compare_print(const struct ebb_comparison *comparison, struct ebb_error *error)
{
    int width = name_width(comparison);
    enum ebb_status status = EBB_OK;
    plans_print(comparison, width);
    spreads_print(comparison, width);
    for (uint32_t m = 0; !status && m < comparison->list->machines.count; m++) {
        ebb_compare_points points;
        status = ebb__compare_points(comparison, m, EBB_ALL_TRACES, &points, error);
        if (!status) {
            means_print(comparison, m, &points, width);
            front_print(comparison, m, &points, width);
        }
        ebb_vec_free(&points);
    }
    heights_print(comparison, width);
    held_print(comparison);
    return status;
}
