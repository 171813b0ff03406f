/* XLA's profile, XSpace (*.xplane.pb): TensorFlow and JAX write it.
 *
 * A plane has lines, one a thread, and a line has events. Names are in tables of the plane. Only
 * the BFC allocator reports: it serves GPUs, and CPUs if TensorFlow is told so. Its events are
 * MemoryAllocation and MemoryDeallocation, with addr, requested_bytes, allocation_bytes and
 * allocator_name. bytes_allocated is all that is in use after it. An event with step_num and _r
 * begins an iteration. Source: xplane.proto and bfc_allocator.cc of openxla/xla. Linear in the
 * file, but for the order of times. */
#include "base/map.h"
#include "lab/import/kinds.h"
#include "lab/import/samples.h"
#include "lab/import/wire.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Some releases count time from the start of the profile, others from 1970. */
#define YEAR_2001_NS UINT64_C(1000000000000000000)

/* Numbers of fields in xplane.proto. */
enum { SPACE_PLANE = 1 };
enum { PLANE_NAME = 2, PLANE_LINE = 3, PLANE_EVENT_NAMES = 4, PLANE_STAT_NAMES = 5 };
enum { ENTRY_KEY = 1, ENTRY_VALUE = 2, METADATA_NAME = 2 };
enum { LINE_ID = 1, LINE_TIME_NS = 3, LINE_EVENT = 4 };
enum { EVENT_NAME = 1, EVENT_OFFSET_PS = 2, EVENT_STAT = 4 };
enum { STAT_NAME = 1, STAT_UNSIGNED = 3, STAT_SIGNED = 4, STAT_TEXT = 5, STAT_REFERENCE = 7 };

/* Statistics that are looked at. */
enum stat { ADDRESS, REQUESTED, ALLOCATED, IN_USE, ALLOCATOR, STEP, ROOT, STAT_COUNT };

static const char *const stat_names[STAT_COUNT] = {
    "addr", "requested_bytes", "allocation_bytes", "bytes_allocated", "allocator_name", "step_num",
    "_r"};

struct reader {
    const uint8_t *bytes;
    char plane[48];
    struct ebb_map texts; /* number of a stat's name -> index in `names` */
    EBB_VEC(struct ebb_text) names;
    uint64_t allocation, deallocation; /* numbers of the names of events */
    bool has_memory;                   /* this plane names them */
    uint64_t stat_ids[STAT_COUNT];     /* UINT64_MAX: not in this plane */
    uint64_t place;                    /* events so far */
    struct ebb_samples samples;
};

/* One event's statistics. */
struct stats {
    bool known[STAT_COUNT];
    uint64_t numbers[STAT_COUNT];
    struct ebb_text allocator;
};

/* The first plane has a name, which is text. In a pprof profile this field is a number. */
bool ebb__xplane_recognises(const uint8_t *bytes, size_t size)
{
    struct ebb_wire space = {bytes, bytes + size, false};
    struct ebb_wire_field plane, field;
    if (!ebb__wire_next(&space, &plane) || plane.number != SPACE_PLANE ||
        plane.kind != EBB_WIRE_BYTES)
        return false;
    while (ebb__wire_next(&plane.bytes, &field))
        if (field.number == PLANE_NAME)
            return field.kind == EBB_WIRE_BYTES && field.bytes.at < field.bytes.end;
    return false;
}

static enum ebb_status fail_damaged(struct reader *r, const struct ebb_wire *message)
{
    return ebb__fail(r->samples.error, EBB_ERR_FORMAT, r->samples.request->name,
                     "byte %zu: ends too early, or is no XSpace (protocol buffer)",
                     (size_t)(message->at - r->bytes));
}

/* Reads an entry of a table of names: its number and its name. */
static bool read_name(struct ebb_wire *entry, uint64_t *number, struct ebb_text *name)
{
    struct ebb_wire_field field, part;
    *number = 0;
    *name = (struct ebb_text){"", 0};
    while (ebb__wire_next(entry, &field)) {
        if (field.number == ENTRY_KEY)
            *number = field.value;
        else if (field.number == ENTRY_VALUE)
            while (ebb__wire_next(&field.bytes, &part))
                if (part.number == METADATA_NAME)
                    *name = ebb__wire_text(&part);
    }
    return !entry->damaged;
}

static enum ebb_status note_stat_name(struct reader *r, uint64_t number, struct ebb_text name)
{
    for (size_t i = 0; i < STAT_COUNT; i++)
        if (ebb__text_is(name, stat_names[i]))
            r->stat_ids[i] = number;
    if (number == EBB_MAP_NO_KEY)
        return EBB_OK;
    if (ebb_vec_push(&r->names, name) && ebb__map_put(&r->texts, number, r->names.count - 1))
        return EBB_OK;
    return ebb__fail(r->samples.error, EBB_ERR_MEMORY, r->samples.request->name,
                     "no memory for its names");
}

/* Reads the tables of a plane, which may stand behind its lines. */
static enum ebb_status read_names(struct reader *r, struct ebb_wire plane)
{
    struct ebb_wire_field field;
    r->has_memory = false;
    r->plane[0] = 0;
    r->allocation = r->deallocation = UINT64_MAX;
    for (size_t i = 0; i < STAT_COUNT; i++)
        r->stat_ids[i] = UINT64_MAX;
    ebb__map_fini(&r->texts);
    r->names.count = 0;
    while (ebb__wire_next(&plane, &field)) {
        uint64_t number;
        struct ebb_text name = ebb__wire_text(&field);
        enum ebb_status status = EBB_OK;
        if (field.number == PLANE_NAME) {
            int shown = name.size < sizeof r->plane ? (int)name.size : (int)sizeof r->plane;
            snprintf(r->plane, sizeof r->plane, "%.*s", shown, name.at ? name.at : "");
        }
        if (field.number != PLANE_EVENT_NAMES && field.number != PLANE_STAT_NAMES)
            continue;
        if (!read_name(&field.bytes, &number, &name))
            return fail_damaged(r, &field.bytes);
        if (field.number == PLANE_STAT_NAMES)
            status = note_stat_name(r, number, name);
        else if (ebb__text_is(name, "MemoryAllocation"))
            r->allocation = number;
        else if (ebb__text_is(name, "MemoryDeallocation"))
            r->deallocation = number;
        if (status)
            return status;
    }
    r->has_memory = r->allocation != UINT64_MAX || r->deallocation != UINT64_MAX;
    return plane.damaged ? fail_damaged(r, &plane) : EBB_OK;
}

/* Reads one statistic of an event. */
static void read_stat(const struct reader *r, struct ebb_wire *stat, struct stats *stats)
{
    struct ebb_wire_field field;
    uint64_t number = UINT64_MAX, value = 0, index;
    struct ebb_text text = {"", 0};
    while (ebb__wire_next(stat, &field)) {
        if (field.number == STAT_NAME)
            number = field.value;
        else if (field.number == STAT_UNSIGNED || field.number == STAT_SIGNED)
            value = field.value;
        else if (field.number == STAT_TEXT && field.kind == EBB_WIRE_BYTES)
            text = ebb__wire_text(&field);
        else if (field.number == STAT_REFERENCE && field.value != EBB_MAP_NO_KEY &&
                 ebb__map_get(&r->texts, field.value, &index))
            text = r->names.items[index];
    }
    for (size_t i = 0; i < STAT_COUNT && number != UINT64_MAX; i++) {
        if (r->stat_ids[i] != number)
            continue;
        stats->known[i] = true;
        stats->numbers[i] = value;
        if (i == ALLOCATOR)
            stats->allocator = text;
    }
}

static enum ebb_status add_memory(struct reader *r, const struct stats *stats,
                                  struct ebb_sample *sample)
{
    const char *missing = !stats->known[ADDRESS]     ? stat_names[ADDRESS]
                          : !stats->known[ALLOCATED] ? stat_names[ALLOCATED]
                                                     : NULL;
    if (missing)
        return ebb__fail(r->samples.error, EBB_ERR_FORMAT, r->samples.request->name,
                         "event %" PRIu64 ": a memory event without %s", r->place, missing);
    char allocator[48];
    struct ebb_text name = stats->allocator;
    int shown = name.size < sizeof allocator ? (int)name.size : (int)sizeof allocator;
    snprintf(allocator, sizeof allocator, "%.*s", shown, name.size ? name.at : "memory");
    if (!name.size)
        snprintf(allocator, sizeof allocator, "memory");
    enum ebb_status status = ebb__samples_device(&r->samples, r->plane, allocator, &sample->device);
    if (status)
        return status;
    sample->address = stats->numbers[ADDRESS];
    sample->counted_bytes = stats->numbers[ALLOCATED];
    sample->size_bytes =
        stats->numbers[REQUESTED] ? stats->numbers[REQUESTED] : sample->counted_bytes;
    sample->total_bytes = stats->known[IN_USE] ? stats->numbers[IN_USE] : EBB_SAMPLE_TOTAL_UNKNOWN;
    return ebb__samples_add(&r->samples, sample);
}

static enum ebb_status read_event(struct reader *r, struct ebb_wire event, uint64_t line_ns,
                                  uint32_t thread)
{
    struct ebb_wire_field field;
    struct stats stats = {.allocator = {"", 0}};
    uint64_t name = UINT64_MAX, offset_ps = 0;
    r->place++;
    while (ebb__wire_next(&event, &field)) {
        if (field.number == EVENT_NAME)
            name = field.value;
        else if (field.number == EVENT_OFFSET_PS)
            offset_ps = field.value;
        else if (field.number == EVENT_STAT)
            read_stat(r, &field.bytes, &stats);
    }
    if (event.damaged)
        return fail_damaged(r, &event);
    bool is_memory = name != UINT64_MAX && (name == r->allocation || name == r->deallocation);
    bool is_step = stats.known[STEP] && stats.known[ROOT];
    if (!is_memory && !is_step)
        return EBB_OK;
    struct ebb_sample sample = {.place = r->place,
                                .time_ns = line_ns + offset_ps / 1000,
                                .kind = EBB_SAMPLE_ITERATION,
                                .thread = thread};
    if (is_memory) {
        sample.kind = name == r->allocation ? EBB_SAMPLE_ALLOC : EBB_SAMPLE_FREE;
        return add_memory(r, &stats, &sample);
    }
    enum ebb_status status = ebb__samples_device(&r->samples, r->plane, "", &sample.device);
    return status ? status : ebb__samples_add(&r->samples, &sample);
}

static enum ebb_status read_line(struct reader *r, struct ebb_wire line)
{
    struct ebb_wire_field field;
    struct ebb_wire events = line;
    uint64_t line_ns = 0;
    uint32_t thread = 0;
    while (ebb__wire_next(&line, &field)) {
        if (field.number == LINE_ID)
            thread = (uint32_t)field.value;
        else if (field.number == LINE_TIME_NS)
            line_ns = field.value;
    }
    if (line.damaged)
        return fail_damaged(r, &line);
    if (line_ns > INT64_MAX)
        return ebb__fail(r->samples.error, EBB_ERR_FORMAT, r->samples.request->name,
                         "byte %zu: a thread's time is impossible", (size_t)(events.at - r->bytes));
    while (ebb__wire_next(&events, &field)) {
        if (field.number != LINE_EVENT)
            continue;
        enum ebb_status status = read_event(r, field.bytes, line_ns, thread);
        if (status)
            return status;
    }
    return EBB_OK;
}

static enum ebb_status read_plane(struct reader *r, struct ebb_wire plane)
{
    struct ebb_wire_field field;
    enum ebb_status status = read_names(r, plane);
    while (!status && r->has_memory && ebb__wire_next(&plane, &field))
        if (field.number == PLANE_LINE)
            status = read_line(r, field.bytes);
    return status;
}

enum ebb_status ebb__xplane_read(const uint8_t *bytes, size_t size,
                                 struct ebb_import_request *request, struct ebb_trace *trace,
                                 struct ebb_error *error)
{
    struct reader r = {.bytes = bytes};
    struct ebb_wire space = {bytes, bytes + size, false};
    struct ebb_wire_field field;
    ebb__samples_init(&r.samples, request, "event", error);
    enum ebb_status status = EBB_OK;
    while (!status && ebb__wire_next(&space, &field))
        if (field.number == SPACE_PLANE)
            status = read_plane(&r, field.bytes);
    if (!status && space.damaged)
        status = fail_damaged(&r, &space);
    if (!status)
        status = ebb__samples_finish(&r.samples,
                                     "has no memory events: only the BFC allocator writes them, "
                                     "on GPUs or with TF_CPU_ALLOCATOR_USE_BFC=true",
                                     trace);
    if (!status && r.samples.begin_ns >= YEAR_2001_NS)
        trace->info.start_unix_ns = r.samples.begin_ns;
    ebb__samples_fini(&r.samples);
    ebb__map_fini(&r.texts);
    ebb_vec_free(&r.names);
    return status;
}
