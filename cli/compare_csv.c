/* The rows of `ebb compare` as CSV (RFC 4180, but lines end with a newline alone), one a plan. An
 * empty field is a figure that is not known. */
#include "compare.h"

#include <inttypes.h>

static void text(FILE *out, const char *value)
{
    if (!strpbrk(value, ",\"\r\n")) {
        fputs(value, out);
        return;
    }
    putc('"', out);
    for (; *value; value++) {
        if (*value == '"')
            putc('"', out);
        putc(*value, out);
    }
    putc('"', out);
}

static void number(FILE *out, uint64_t value)
{
    fprintf(out, ",%" PRIu64, value);
}

static void row_write(const struct ebb_comparison *comparison, size_t index, FILE *out)
{
    const struct ebb_compare_row *row = &comparison->rows.items[index];
    const struct ebb_compare_trace *trace = &comparison->traces.items[row->trace];
    const struct ebb_plan *plan = &row->plan;
    const char *const texts[] = {trace->path, comparison->list->machines.items[row->machine].name,
                                 row->policy, row->path ? row->path : "", row->budget};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (i)
            putc(',', out);
        text(out, texts[i]);
    }
    const uint64_t figures[] = {row->seed,
                                plan->budget_bytes,
                                ebb__compare_works(row),
                                plan->smallest_feasible_bytes,
                                trace->peak_bytes,
                                plan->peak_bytes};
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        number(out, figures[i]);
    if (row->bound.known)
        fprintf(out, ",%" PRIu64 ",%" PRIu64 ",%.6f", row->bound.peak_bytes, row->bound.stall_ns,
                row->bound.gap);
    else
        fputs(",,,", out);
    number(out, plan->stall_ns);
    number(out, plan->iteration_ns);
    fprintf(out, ",%.6f", row->slowdown);
    number(out, plan->moved_out_bytes);
    number(out, plan->moved_in_bytes);
    number(out, plan->absence_count);
    number(out, plan->plan_ns);
    number(out, plan->timed_out);
}

void ebb__compare_write_csv(const struct ebb_comparison *comparison, FILE *out)
{
    const struct ebb_compare_list *list = comparison->list;
    size_t height = 0;
    fputs("trace,machine,policy,plan,budget,seed,budget_bytes,works,smallest_feasible_bytes,"
          "unmanaged_peak_bytes,peak_bytes,lower_bound_bytes,lower_bound_stall_ns,gap,stall_ns,"
          "iteration_ns,slowdown,moved_out_bytes,moved_in_bytes,absences,plan_ns,timed_out",
          out);
    for (size_t i = 0; i < list->pools.count; i++)
        fprintf(out, ",%s_height_bytes", list->pools.items[i]->name);
    putc('\n', out);
    for (size_t i = 0; i < comparison->rows.count; i++) {
        row_write(comparison, i, out);
        for (size_t p = 0; p < list->pools.count; p++) {
            const struct ebb_compare_height *next = comparison->heights.items + height;
            bool known = height < comparison->heights.count && next->row == i;
            if (known)
                number(out, next->height_bytes);
            else
                putc(',', out);
            height += known;
        }
        putc('\n', out);
    }
}
