/* Summaries of `ebb compare`: the median over seeds, geometric means over traces, and the points
 * that no other point beats in memory and in time.
 *
 * Ratios have geometric means (Fleming and Wallace, CACM 1986). How two policies compare then does
 * not depend on which trace takes longer. Means over different sets of traces cannot
 * be compared, so a policy that fails on one trace has none. */
#include "compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t ebb__compare_group(const struct ebb_comparison *comparison, size_t *at,
                          const struct ebb_compare_row **first)
{
    size_t begin = *at, end = begin;
    const struct ebb_compare_row *rows = comparison->rows.items;
    *first = rows + begin;
    while (end < comparison->rows.count &&
           (end == begin ||
            (rows[end].seed > rows[end - 1].seed && rows[end].trace == rows[begin].trace &&
             rows[end].machine == rows[begin].machine && !rows[end].path &&
             strcmp(rows[end].budget, rows[begin].budget) == 0 &&
             strcmp(rows[end].policy, rows[begin].policy) == 0)))
        end++;
    *at = end;
    return end - begin;
}

/* A plan that fails is worse than every one that does not. */
static double order_of(const struct ebb_compare_row *row)
{
    if (!ebb__compare_works(row))
        return INFINITY;
    return ebb__compare_is_zero_stall(row) ? (double)row->plan.peak_bytes
                                           : (double)row->plan.iteration_ns;
}

const struct ebb_compare_row *ebb__compare_median(const struct ebb_compare_row *first, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t before = 0;
        for (size_t k = 0; k < count; k++)
            before += order_of(&first[k]) < order_of(&first[i]) ||
                      (order_of(&first[k]) <= order_of(&first[i]) && k < i);
        if (before == (count - 1) / 2)
            return &first[i];
    }
    return first;
}

bool ebb__compare_works(const struct ebb_compare_row *row)
{
    return row->plan.feasible && !(ebb__compare_is_zero_stall(row) && row->plan.stall_ns > 0);
}

/* ---- points ---------------------------------------------------------------------------------- */

static struct ebb_compare_point *point_find(ebb_compare_points *points,
                                            const struct ebb_compare_row *row)
{
    for (size_t i = 0; i < points->count; i++)
        if (strcmp(points->items[i].policy, row->policy) == 0 &&
            strcmp(points->items[i].budget, row->budget) == 0)
            return &points->items[i];
    return NULL;
}

/* Adds the logarithms of a group's figures to its point. */
static void point_add(struct ebb_compare_point *point, const struct ebb_comparison *comparison,
                      const struct ebb_compare_row *first, size_t count)
{
    const struct ebb_compare_row *row = ebb__compare_median(first, count);
    const struct ebb_compare_trace *trace = &comparison->traces.items[row->trace];
    double least = INFINITY, most = 0;
    for (size_t i = 0; i < count; i++) {
        least = first[i].slowdown < least ? first[i].slowdown : least;
        most = first[i].slowdown > most ? first[i].slowdown : most;
        point->works = point->works && ebb__compare_works(&first[i]);
    }
    point->trace_count++;
    point->memory += log((double)row->plan.budget_bytes / (double)trace->peak_bytes);
    point->slowdown += log(row->slowdown);
    point->least += log(least);
    point->most += log(most);
    const struct ebb_compare_bound *bound = &row->bound;
    point->bound_slowdown +=
        bound->known ? log(1 + (double)bound->stall_ns / (double)trace->iteration_ns) : NAN;
    point->of_bound_memory +=
        bound->known ? log((double)row->plan.peak_bytes / (double)bound->peak_bytes) : NAN;
}

static double mean_of(double logarithms, uint32_t count)
{
    double mean = exp(logarithms / count);
    return isfinite(mean) ? mean : 0;
}

static void point_finish(struct ebb_compare_point *point)
{
    point->memory = mean_of(point->memory, point->trace_count);
    point->slowdown = mean_of(point->slowdown, point->trace_count);
    point->least = mean_of(point->least, point->trace_count);
    point->most = mean_of(point->most, point->trace_count);
    point->bound_slowdown = mean_of(point->bound_slowdown, point->trace_count);
    point->of_bound_memory = mean_of(point->of_bound_memory, point->trace_count);
}

/* O(points^2): there are hundreds. */
static void front_mark(ebb_compare_points *points)
{
    for (size_t i = 0; i < points->count; i++) {
        struct ebb_compare_point *point = &points->items[i];
        point->front = point->works;
        for (size_t k = 0; point->front && k < points->count; k++) {
            const struct ebb_compare_point *other = &points->items[k];
            bool less = other->memory < point->memory || other->slowdown < point->slowdown;
            point->front = !(other->works && less && other->memory <= point->memory &&
                             other->slowdown <= point->slowdown);
        }
    }
}

/* The number of traces that have a plan on this machine. */
static uint32_t planned_count(const struct ebb_comparison *comparison, uint32_t machine)
{
    uint32_t count = 0, last = EBB_ALL_TRACES;
    for (size_t i = 0; i < comparison->rows.count; i++) {
        const struct ebb_compare_row *row = &comparison->rows.items[i];
        if (row->machine != machine || row->trace == last)
            continue;
        last = row->trace;
        count++;
    }
    return count;
}

enum ebb_status ebb__compare_points(const struct ebb_comparison *comparison, uint32_t machine,
                                    uint32_t trace, ebb_compare_points *points,
                                    struct ebb_error *error)
{
    const struct ebb_compare_row *first;
    size_t at = 0, count, kept = 0;
    *points = (ebb_compare_points){0};
    while ((count = ebb__compare_group(comparison, &at, &first))) {
        if (first->machine != machine || (trace != EBB_ALL_TRACES && first->trace != trace))
            continue;
        struct ebb_compare_point fresh = {
            .policy = first->policy, .budget = first->budget, .machine = machine, .works = true};
        struct ebb_compare_point *point = point_find(points, first);
        if (!point && !ebb_vec_push(points, fresh))
            return ebb__fail(error, EBB_ERR_MEMORY, "results", "no memory for them");
        point_add(point ? point : &points->items[points->count - 1], comparison, first, count);
    }
    uint32_t wanted = trace == EBB_ALL_TRACES ? planned_count(comparison, machine) : 1;
    for (size_t i = 0; i < points->count; i++)
        if (points->items[i].trace_count == wanted) {
            points->items[kept] = points->items[i];
            point_finish(&points->items[kept++]);
        }
    points->count = kept;
    front_mark(points);
    return EBB_OK;
}
