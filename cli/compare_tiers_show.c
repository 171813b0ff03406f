/* The results of `ebb compare --tiers` as text, and as one JSON object, `ebb.compare-tiers/1`. */
#include "compare_tiers.h"

#include "base/size.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

/* What is to be said of a row, or an empty text. */
static const char *remark_of(const struct ebb_tiers_row *row)
{
    return row->made ? row->note : row->why;
}

/* The first row of the same trace with the same remark. */
static size_t first_with_remark(const struct ebb_tiers_comparison *comparison, size_t index)
{
    const struct ebb_tiers_row *rows = comparison->rows.items;
    size_t first = index;
    for (size_t i = index; i-- > 0 && rows[i].trace == rows[index].trace;)
        if (strcmp(remark_of(&rows[i]), remark_of(&rows[index])) == 0)
            first = i;
    return first;
}

/* The number of a row's remark below its table, from 1 on; 0: there is none. */
static uint32_t remark_number(const struct ebb_tiers_comparison *comparison, size_t index)
{
    const struct ebb_tiers_row *rows = comparison->rows.items;
    size_t first = first_with_remark(comparison, index);
    uint32_t number = 1;
    if (!*remark_of(&rows[index]))
        return 0;
    for (size_t i = first; i-- > 0 && rows[i].trace == rows[index].trace;)
        number += *remark_of(&rows[i]) && first_with_remark(comparison, i) == i;
    return number;
}

static void row_print(const struct ebb_tiers_comparison *comparison, size_t index)
{
    char fast[32], slow[32], plan[32], iteration[32];
    const struct ebb_tiers_row *row = &comparison->rows.items[index];
    const struct ebb_tier_result *result = &row->result;
    uint32_t remark = remark_number(comparison, index);
    printf("%-8s %-22s ", row->share, row->policy);
    if (!row->made) {
        printf("%9s: (%u)\n", "no plan", remark);
        return;
    }
    printf("%9s  %9s", ebb_size_format(row->budget_bytes, fast, sizeof fast),
           ebb_size_format(result->slow_peak_bytes, slow, sizeof slow));
    printf(" %10s %7.3f x %10s %8.2f",
           ebb_duration_format((uint64_t)result->iteration_ns, iteration, sizeof iteration),
           row->slowdown, ebb_duration_format(row->plan_ns, plan, sizeof plan),
           row->all_fast_price > 0 ? row->price / row->all_fast_price : 0);
    if (remark)
        printf(" (%u)", remark);
    putchar('\n');
}

/* The remarks on the rows of the trace of row `last`, its last one. */
static void remarks_print(const struct ebb_tiers_comparison *comparison, size_t last)
{
    const struct ebb_tiers_row *rows = comparison->rows.items;
    size_t begin = last;
    while (begin > 0 && rows[begin - 1].trace == rows[last].trace)
        begin--;
    for (size_t i = begin; i <= last; i++)
        if (*remark_of(&rows[i]) && first_with_remark(comparison, i) == i)
            printf("(%u) %s\n", remark_number(comparison, i), remark_of(&rows[i]));
}

/* The geometric mean of a policy's times over all-fast, for a share on a machine. It is 0 if a
 * trace has none. *count is the number of traces. */
static double mean_of(const struct ebb_tiers_comparison *comparison, const char *machine,
                      const char *share, const char *policy, uint32_t *count)
{
    double sum = 0;
    *count = 0;
    for (size_t i = 0; i < comparison->rows.count; i++) {
        const struct ebb_tiers_row *row = &comparison->rows.items[i];
        if (strcmp(row->policy, policy) != 0 || strcmp(row->share, share) != 0 ||
            strcmp(comparison->traces.items[row->trace].machine.name, machine) != 0)
            continue;
        if (!row->made)
            return 0;
        sum += log(row->slowdown);
        ++*count;
    }
    return *count ? exp(sum / *count) : 0;
}

static bool is_first_of(const struct ebb_tiers_comparison *comparison, size_t index)
{
    const struct ebb_tiers_row *row = &comparison->rows.items[index];
    const char *machine = comparison->traces.items[row->trace].machine.name;
    for (size_t i = 0; i < index; i++) {
        const struct ebb_tiers_row *other = &comparison->rows.items[i];
        if (strcmp(other->policy, row->policy) == 0 && strcmp(other->share, row->share) == 0 &&
            strcmp(comparison->traces.items[other->trace].machine.name, machine) == 0)
            return false;
    }
    return true;
}

static void means_print(const struct ebb_tiers_comparison *comparison)
{
    bool headed = false;
    for (size_t i = 0; i < comparison->rows.count && !comparison->asked->cost; i++) {
        const struct ebb_tiers_row *row = &comparison->rows.items[i];
        const char *machine = comparison->traces.items[row->trace].machine.name;
        uint32_t count;
        if (!is_first_of(comparison, i))
            continue;
        double mean = mean_of(comparison, machine, row->share, row->policy, &count);
        if (count < 2)
            continue;
        if (!headed)
            printf("geometric means of time / all in fast memory\n");
        headed = true;
        printf("%-10s %-8s %-22s %7.3f x over %u traces\n", machine, row->share, row->policy, mean,
               count);
    }
}

void ebb__tiers_print(const struct ebb_tiers_comparison *comparison)
{
    uint32_t shown = UINT32_MAX;
    char peak[32], fast[32];
    for (size_t i = 0; i < comparison->rows.count; i++) {
        const struct ebb_tiers_row *row = &comparison->rows.items[i];
        const struct ebb_tiers_trace *trace = &comparison->traces.items[row->trace];
        if (row->trace != shown) {
            double fast_ns = ebb__tiers_fast_ns(&trace->operations, &trace->machine);
            printf("%s%s on %s: peak %s, %s an iteration in fast memory alone\n", i ? "\n" : "",
                   trace->name, trace->machine.name,
                   ebb_size_format(trace->peak_bytes, peak, sizeof peak),
                   ebb_duration_format((uint64_t)fast_ns, fast, sizeof fast));
            printf("%-8s %-22s %9s  %9s %10s %9s %10s %8s\n", "share", "policy", "fast", "slow",
                   "iteration", "time", "planned", "price");
        }
        shown = row->trace;
        row_print(comparison, i);
        if (i + 1 == comparison->rows.count || row[1].trace != row->trace)
            remarks_print(comparison, i);
    }
    if (comparison->rows.count)
        putchar('\n');
    means_print(comparison);
    printf("price: of both tiers, over that of fast memory for the peak\n");
}

static json_t *number(double value)
{
    return json_integer((json_int_t)value);
}

static json_t *row_json(const struct ebb_tiers_comparison *comparison,
                        const struct ebb_tiers_row *row)
{
    const struct ebb_tiers_trace *trace = &comparison->traces.items[row->trace];
    const struct ebb_tier_result *result = &row->result;
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:s, s:b, s:s, s:o, s:o}", "trace", trace->name, "machine",
        trace->machine.name, "share", row->share, "policy", row->policy, "made", (int)row->made,
        "note", row->made ? row->note : row->why, "peak_bytes", number((double)trace->peak_bytes),
        "budget_bytes", number((double)row->budget_bytes));
    if (!object || !row->made)
        return object;
    json_t *more = json_pack(
        "{s:o, s:o, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:f}",
        "iteration_ns", number(result->iteration_ns), "fast_ns", number(result->fast_ns),
        "slowdown", row->slowdown, "wait_ns", number(result->wait_ns), "synchronous_ns",
        number(result->synchronous_ns), "fast_peak_bytes", number((double)result->fast_peak_bytes),
        "slow_peak_bytes", number((double)result->slow_peak_bytes), "moved_out_bytes",
        number((double)result->moved_out_bytes), "moved_in_bytes",
        number((double)result->moved_in_bytes), "transfers", number((double)result->transfers),
        "plan_ns", number((double)row->plan_ns), "profile_ns", number((double)row->profile_ns),
        "bound_ns", row->bound_ns > 0 ? number(row->bound_ns) : json_null(), "price", row->price,
        "all_fast_price", row->all_fast_price);
    if (!more || json_object_update(object, more) != 0) {
        json_decref(object);
        object = NULL;
    }
    json_decref(more);
    return object;
}

enum ebb_status ebb__tiers_print_json(const struct ebb_tiers_comparison *comparison,
                                      struct ebb_error *error)
{
    json_t *rows = json_array();
    bool ok = rows != NULL;
    for (size_t i = 0; ok && i < comparison->rows.count; i++)
        ok = json_array_append_new(rows, row_json(comparison, &comparison->rows.items[i])) == 0;
    json_t *root =
        ok ? json_pack("{s:s, s:O}", "schema", "ebb.compare-tiers/1", "rows", rows) : NULL;
    json_decref(rows);
    if (!root)
        return ebb__fail(error, EBB_ERR_MEMORY, "json", "no memory for it");
    int failed = json_dumpf(root, stdout, JSON_INDENT(2));
    json_decref(root);
    putchar('\n');
    return failed ? ebb__fail(error, EBB_ERR_IO, "standard output", "cannot be written") : EBB_OK;
}
