#include "report/data.h"

#include "report/lost_json.h"

#define MOST_DIGITS_VALUE ((uint64_t)1 << 20) /* of a curve: finer than any screen */
#define LANE_PIECES 4000

/* ---- figures --------------------------------------------------------------------------------- */

static void put(json_t *object, const char *key, uint64_t value)
{
    json_object_set_new(
        object, key, value == EBB_REPORT_UNKNOWN ? json_null() : json_integer((json_int_t)value));
}

/* Text of others may not be UTF-8: JSON cannot hold it. */
static void put_text(json_t *object, const char *key, const char *text)
{
    json_t *value = text ? json_string(text) : NULL;
    json_object_set_new(object, key, value ? value : json_null());
}

static json_t *figures_json(const struct ebb_report_figures *figures)
{
    json_t *object = json_object();
    put(object, "peak_bytes", figures->peak_bytes);
    put(object, "budget_bytes", figures->budget_bytes);
    put(object, "unlimited_bytes", figures->unlimited_bytes);
    put(object, "iteration_ns", figures->iteration_ns);
    put(object, "unlimited_ns", figures->unlimited_ns);
    put(object, "stall_ns", figures->stall_ns);
    put(object, "moved_out_bytes", figures->moved_out_bytes);
    put(object, "moved_in_bytes", figures->moved_in_bytes);
    return object;
}

static json_t *point_json(const struct ebb_forecast_point *point, uint64_t whole_ns)
{
    json_t *object = json_object();
    put(object, "budget_bytes", point->budget_bytes);
    put(object, "iteration_ns", point->iteration_ns);
    put(object, "stall_ns", point->stall_ns);
    put(object, "moved_bytes", point->moved_out_bytes + point->moved_in_bytes);
    json_object_set_new(object, "slowdown",
                        json_real(whole_ns ? (double)point->iteration_ns / (double)whole_ns : 0));
    return object;
}

static json_t *needs_json(const struct ebb_report_run *run)
{
    static const char *const names[] = {"no_loss", "loss_5", "loss_20", "least"};
    json_t *array = json_array();
    for (uint32_t i = 0; i < run->need_count; i++) {
        const struct ebb_needs *needs = &run->needs[i].needs;
        json_t *object = json_object();
        put_text(object, "machine", run->needs[i].machine);
        put(object, "peak_bytes", needs->peak_bytes);
        for (int n = 0; n < EBB_NEED_COUNT; n++)
            json_object_set_new(object, names[n], point_json(&needs->points[n], needs->whole_ns));
        json_array_append_new(array, object);
    }
    return array;
}

static json_t *frontier_json(const struct ebb_report_run *run)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < run->point_count; i++) {
        json_t *object = point_json(&run->points[i].at, run->predicted.unlimited_ns);
        json_object_set_new(object, "policy", json_string(run->points[i].policy));
        json_array_append_new(array, object);
    }
    return array;
}

json_t *ebb__report_figures_json(const struct ebb_report_run *run)
{
    json_t *object = json_object();
    const struct ebb_trace_info *info = run->source.info;
    bool is_shown = info && !run->source.is_redacted;
    char sentence[512];
    put_text(object, "name", run->source.name);
    put_text(object, "command", is_shown ? info->command : NULL);
    json_object_set_new(object, "predicted", figures_json(&run->predicted));
    json_object_set_new(object, "measured", figures_json(&run->measured));
    json_object_set_new(object, "lower_bound_bytes",
                        run->bound_bytes ? json_integer((json_int_t)run->bound_bytes)
                                         : json_null());
    json_object_set_new(object, "needs", needs_json(run));
    json_object_set_new(object, "frontier", frontier_json(run));
    json_object_set_new(object, "lost",
                        run->source.lost ? ebb__lost_to_json(run->source.lost) : json_array());
    if (ebb__report_sentence(run, sentence, sizeof sentence))
        put_text(object, "next", sentence);
    return object;
}

/* ---- the page -------------------------------------------------------------------------------- */

struct scale {
    uint64_t bytes, ns; /* the units */
};

static uint64_t unit_for(uint64_t most)
{
    uint64_t unit = 1;
    while (most / unit >= MOST_DIGITS_VALUE)
        unit *= 2;
    return unit;
}

static void append(json_t *array, uint64_t value)
{
    json_array_append_new(array, json_integer((json_int_t)value));
}

/* One array a column: time, load, resident, kinds, size classes. */
static json_t *level_json(const struct ebb_curve_level *level, struct scale scale)
{
    json_t *columns = json_array();
    for (int c = 0; c < 3 + EBB_KIND_COUNT + EBB_SIZE_CLASSES; c++) {
        json_t *column = json_array();
        for (uint32_t i = 0; i < level->count; i++) {
            const struct ebb_curve_cell *cell = &level->cells[i];
            if (c == 0)
                append(column, cell->start_ns / scale.ns);
            else if (c == 1)
                append(column, cell->load_bytes / scale.bytes);
            else if (c == 2)
                append(column, cell->resident_bytes / scale.bytes);
            else if (c < 3 + EBB_KIND_COUNT)
                append(column, cell->kinds[c - 3] / scale.bytes);
            else
                append(column, cell->sizes[c - 3 - EBB_KIND_COUNT] / scale.bytes);
        }
        json_array_append_new(columns, column);
    }
    return columns;
}

struct piece {
    uint64_t start_ns, end_ns;
};

static int by_start(const void *left, const void *right)
{
    const struct piece *a = left, *b = right;
    return (a->start_ns > b->start_ns) - (a->start_ns < b->start_ns);
}

/* Joins pieces with little between them until few enough are left. */
static json_t *pieces_json(struct piece *pieces, size_t count, uint64_t iteration_ns,
                           struct scale scale)
{
    json_t *array = json_array();
    uint64_t near_ns = count > LANE_PIECES ? iteration_ns / (LANE_PIECES / 2) : 0;
    if (count)
        qsort(pieces, count, sizeof *pieces, by_start);
    for (size_t i = 0; i < count;) {
        struct piece joined = pieces[i++];
        while (near_ns && i < count && pieces[i].start_ns < joined.end_ns + near_ns) {
            if (pieces[i].end_ns > joined.end_ns)
                joined.end_ns = pieces[i].end_ns;
            i++;
        }
        append(array, joined.start_ns / scale.ns);
        append(array, (joined.end_ns - joined.start_ns) / scale.ns);
    }
    return array;
}

/* What wraps is drawn in two pieces. */
static size_t add_piece(struct piece *pieces, size_t count, uint64_t start_ns, uint64_t end_ns,
                        uint64_t iteration_ns)
{
    if (end_ns <= start_ns)
        return count;
    if (end_ns > iteration_ns && start_ns < iteration_ns) {
        pieces[count++] = (struct piece){0, end_ns - iteration_ns};
        end_ns = iteration_ns;
    }
    pieces[count++] = (struct piece){start_ns, end_ns};
    return count;
}

static json_t *lanes_json(const struct ebb_timeline *timeline, struct scale scale)
{
    size_t most = 2 * ((size_t)timeline->copy_count + timeline->stall_count) + 1;
    struct piece *pieces = calloc(most, sizeof *pieces);
    json_t *object = json_object();
    if (!pieces)
        return object;
    size_t count = 0;
    uint64_t end_ns = timeline->iteration_ns;
    for (uint32_t i = 0; i < timeline->copy_count; i++)
        count = add_piece(pieces, count, timeline->copies[i].out_start_ns,
                          timeline->copies[i].out_end_ns, end_ns);
    json_object_set_new(object, "out", pieces_json(pieces, count, end_ns, scale));
    count = 0;
    for (uint32_t i = 0; i < timeline->copy_count; i++)
        count = add_piece(pieces, count, timeline->copies[i].in_start_ns,
                          timeline->copies[i].in_end_ns, end_ns);
    json_object_set_new(object, "in", pieces_json(pieces, count, end_ns, scale));
    count = 0;
    for (uint32_t i = 0; i < timeline->stall_count; i++)
        count = add_piece(pieces, count, timeline->stalls[i].start_ns,
                          timeline->stalls[i].start_ns + timeline->stalls[i].ns, end_ns);
    json_object_set_new(object, "stall", pieces_json(pieces, count, end_ns, scale));
    free(pieces);
    return object;
}

/* Five numbers a rectangle: start, length, address, size, kind. */
static json_t *map_json(const struct ebb_address_map *map, struct scale scale)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < map->count; i++) {
        const struct ebb_map_rectangle *rectangle = &map->rectangles[i];
        append(array, rectangle->start_ns / scale.ns);
        append(array, (rectangle->end_ns - rectangle->start_ns) / scale.ns);
        append(array, rectangle->offset_bytes / scale.bytes);
        append(array, rectangle->size_bytes / scale.bytes);
        append(array, rectangle->kind);
    }
    return json_pack("{s:o, s:i, s:i, s:o}", "rectangles", array, "count", (int)map->count, "total",
                     (int)map->total, "height", json_integer((json_int_t)map->height_bytes));
}

static json_t *blocks_json(const struct ebb_block_table *table)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < table->count; i++) {
        const struct ebb_block_row *row = &table->rows[i];
        json_t *cells = json_array();
        append(cells, row->serial);
        append(cells, row->size_bytes);
        append(cells, row->kind);
        append(cells, row->alloc_ns);
        append(cells, row->life_ns);
        append(cells, row->accesses);
        append(cells, row->gaps);
        append(cells, row->longest_gap_ns);
        append(cells, row->absences);
        json_array_append_new(cells, json_string(row->history));
        json_array_append_new(array, cells);
    }
    return array;
}

json_t *ebb__report_page_json(const struct ebb_report_run *run)
{
    json_t *object = ebb__report_figures_json(run);
    if (!run->has_model)
        return object;
    uint64_t most_bytes = run->curve.peak_load_bytes > run->map.height_bytes
                              ? run->curve.peak_load_bytes
                              : run->map.height_bytes;
    struct scale scale = {unit_for(most_bytes), unit_for(run->timeline.iteration_ns)};
    json_t *levels = json_array();
    for (uint32_t i = 0; i < run->curve.level_count; i++)
        json_array_append_new(levels, level_json(&run->curve.levels[i], scale));
    put(object, "unit_bytes", scale.bytes);
    put(object, "unit_ns", scale.ns);
    put(object, "length_ns", run->timeline.iteration_ns);
    json_object_set_new(object, "levels", levels);
    json_object_set_new(object, "lanes", lanes_json(&run->timeline, scale));
    json_object_set_new(object, "map", map_json(&run->map, scale));
    json_object_set_new(object, "blocks", blocks_json(&run->blocks));
    put(object, "blocks_total", run->blocks.total);
    return object;
}
