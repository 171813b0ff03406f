/* The results of `ebb compare` as one JSON object, `ebb.compare/1`. */
#include "compare.h"
#include "output.h"
#include "tune.h"

#include <jansson.h>

static json_t *bytes(uint64_t value)
{
    return json_integer((json_int_t)value);
}

/* A ratio, or null if it is not known. */
static json_t *ratio(bool known, double value)
{
    return known ? json_real(value) : json_null();
}

static json_t *row_json(const struct ebb_comparison *comparison, const struct ebb_compare_row *row)
{
    const struct ebb_plan *plan = &row->plan;
    const struct ebb_compare_bound *bound = &row->bound;
    const struct ebb_compare_trace *trace = &comparison->traces.items[row->trace];
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:s?, s:s, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:f}", "trace",
        trace->path, "machine", comparison->list->machines.items[row->machine].name, "policy",
        row->policy, "plan", row->path, "budget", row->budget, "seed", bytes(row->seed),
        "budget_bytes", bytes(plan->budget_bytes), "feasible", (int)plan->feasible,
        "smallest_feasible_bytes", bytes(plan->smallest_feasible_bytes), "unmanaged_peak_bytes",
        bytes(trace->peak_bytes), "peak_bytes", bytes(plan->peak_bytes), "stall_ns",
        bytes(plan->stall_ns), "iteration_ns", bytes(plan->iteration_ns), "slowdown",
        row->slowdown);
    json_t *more = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:s?}", "lower_bound_bytes",
        bound->known ? bytes(bound->peak_bytes) : json_null(), "lower_bound_stall_ns",
        bound->known ? bytes(bound->stall_ns) : json_null(), "gap", ratio(bound->known, bound->gap),
        "moved_bytes", bytes(plan->moved_out_bytes + plan->moved_in_bytes), "moved_out_bytes",
        bytes(plan->moved_out_bytes), "moved_in_bytes", bytes(plan->moved_in_bytes), "absences",
        bytes(plan->absence_count), "plan_ns", bytes(plan->plan_ns), "timed_out",
        (int)plan->timed_out, "ground", row->ground);
    if (!object || !more || json_object_update(object, more) != 0) {
        json_decref(object);
        object = NULL;
    }
    json_decref(more);
    return object;
}

static json_t *held_json(const struct ebb_comparison *comparison,
                         const struct ebb_compare_held *held)
{
    const struct ebb_footprint *footprint = &held->footprint;
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:f}", "trace",
                     comparison->traces.items[held->trace].path, "allocator", held->allocator,
                     "scope", held->scope, "held_bytes", bytes(footprint->peak_held_bytes),
                     "load_bytes", bytes(footprint->peak_load_bytes), "ratio",
                     footprint->peak_load_bytes
                         ? (double)footprint->peak_held_bytes / (double)footprint->peak_load_bytes
                         : 0);
}

static json_t *height_json(const struct ebb_comparison *comparison,
                           const struct ebb_compare_height *height)
{
    const struct ebb_compare_row *row = &comparison->rows.items[height->row];
    const struct ebb_compare_trace *trace = &comparison->traces.items[row->trace];
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s, s:o, s:o, s:o}", "trace", trace->path,
                     "machine", comparison->list->machines.items[row->machine].name, "policy",
                     row->policy, "budget", row->budget, "seed", bytes(row->seed), "pool",
                     height->pool, "height_bytes", bytes(height->height_bytes), "peak_bytes",
                     bytes(row->plan.peak_bytes), "cnmem_bytes", bytes(trace->cnmem_bytes));
}

static json_t *point_json(const struct ebb_comparison *comparison,
                          const struct ebb_compare_point *point)
{
    bool works = point->works;
    return json_pack(
        "{s:s, s:s, s:s, s:o, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:o}", "machine",
        comparison->list->machines.items[point->machine].name, "policy", point->policy, "budget",
        point->budget, "traces", bytes(point->trace_count), "works", (int)works, "front",
        (int)point->front, "memory", ratio(works, point->memory), "slowdown",
        ratio(works, point->slowdown), "slowdown_least", ratio(works, point->least),
        "slowdown_most", ratio(works, point->most), "bound_slowdown",
        ratio(works && point->bound_slowdown > 0, point->bound_slowdown), "peak_of_bound",
        ratio(works && point->of_bound_memory > 0, point->of_bound_memory));
}

/* Appends the points of all machines. Returns false if out of memory. */
static bool points_add(const struct ebb_comparison *comparison, json_t *array)
{
    bool ok = true;
    for (uint32_t m = 0; ok && m < comparison->list->machines.count; m++) {
        ebb_compare_points points;
        ok = ebb__compare_points(comparison, m, EBB_ALL_TRACES, &points, NULL) == EBB_OK;
        for (size_t i = 0; ok && i < points.count; i++)
            ok = json_array_append_new(array, point_json(comparison, &points.items[i])) == 0;
        ebb_vec_free(&points);
    }
    return ok;
}

enum ebb_status ebb__compare_print_json(const struct ebb_comparison *comparison,
                                        struct ebb_error *error)
{
    json_t *rows = json_array(), *held = json_array(), *heights = json_array();
    json_t *points = json_array();
    bool ok = points_add(comparison, points);
    for (size_t i = 0; i < comparison->rows.count; i++)
        ok &= json_array_append_new(rows, row_json(comparison, &comparison->rows.items[i])) == 0;
    for (size_t i = 0; i < comparison->held.count; i++)
        ok &= json_array_append_new(held, held_json(comparison, &comparison->held.items[i])) == 0;
    for (size_t i = 0; i < comparison->heights.count; i++)
        ok &= json_array_append_new(heights,
                                    height_json(comparison, &comparison->heights.items[i])) == 0;
    json_t *root =
        json_pack("{s:s, s:o, s:o, s:o, s:o, s:b, s:o}", "schema", "ebb.compare/1", "rows", rows,
                  "footprints", held, "pools", heights, "points", points, "interrupted",
                  (int)comparison->interrupted, "tuning", ebb__tune_json());
    ok = ok && root;
    bool written = ok && json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0 &&
                   putchar('\n') != EOF;
    json_decref(root);
    if (!ok)
        return ebb__fail(error, EBB_ERR_MEMORY, "results", "no memory for them");
    return ebb__output_flush(written, error);
}
