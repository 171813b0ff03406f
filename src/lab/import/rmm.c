/* RMM's log of allocations (RAPIDS Memory Manager, logging_resource_adaptor): CSV with the header
 *
 *     Thread,Time,Action,Pointer,Size,Stream
 *
 * Time is the time of day: HH:MM:SS, a point (a colon in earlier versions) and a fraction. If it
 * decreases by half a day, midnight has passed. Action is allocate, free or `allocate failure`; the
 * last has no effect. Source: RMM's logging_resource_adaptor_impl.cpp and the parser of its replay
 * benchmark. Linear in the file. */
#include "base/text.h"
#include "lab/import/events.h"
#include "lab/import/kinds.h"

#define DAY_NS UINT64_C(86400000000000)

static const char header[] = "Thread,Time,Action,Pointer,Size,Stream";

struct reader {
    struct ebb_import_events events;
    uint64_t days_ns; /* midnights passed */
};

bool ebb__rmm_recognises(const uint8_t *bytes, size_t size)
{
    struct ebb_text rest = {(const char *)bytes, size}, line;
    return ebb__text_line(&rest, &line) && ebb__text_is(line, header);
}

/* Reads the number before the next colon or point. */
static bool clock_part(struct ebb_text *text, uint64_t limit, uint64_t *value)
{
    size_t size = 0;
    while (size < text->size && text->at[size] != ':' && text->at[size] != '.')
        size++;
    struct ebb_text part = {text->at, size};
    size_t taken = size < text->size ? size + 1 : size;
    *text = (struct ebb_text){text->at + taken, text->size - taken};
    return size <= 2 && !ebb__text_number(part, value) && *value < limit;
}

/* Parses HH:MM:SS.ffffff. The fraction has up to nine digits, or is missing. */
static bool parse_clock(struct ebb_text text, uint64_t *ns)
{
    uint64_t hours, minutes, seconds, fraction = 0;
    if (!clock_part(&text, 24, &hours) || !clock_part(&text, 60, &minutes) ||
        !clock_part(&text, 61, &seconds) || text.size > 9)
        return false;
    if (text.size && ebb__text_number(text, &fraction))
        return false;
    for (size_t digits = text.size; digits < 9; digits++)
        fraction *= 10;
    *ns = ((hours * 60 + minutes) * 60 + seconds) * 1000000000 + fraction;
    return true;
}

static enum ebb_status take_time(struct reader *reader, struct ebb_text text)
{
    struct ebb_import_events *events = &reader->events;
    char shown[32];
    uint64_t ns;
    if (!parse_clock(text, &ns))
        return ebb__import_fail(events, "time '%s' is no time of day", ebb__text_show(text, shown));
    ns += reader->days_ns;
    if (events->events.count && ns + DAY_NS / 2 < events->time) {
        reader->days_ns += DAY_NS;
        ns += DAY_NS;
    }
    events->time = ns;
    return EBB_OK;
}

static enum ebb_status read_line(struct reader *reader, struct ebb_text line)
{
    enum { THREAD, TIME, ACTION, POINTER, SIZE, STREAM, FIELD_COUNT };
    static const char *const names[] = {"thread", "time", "action", "pointer", "size", "stream"};
    struct ebb_import_events *events = &reader->events;
    struct ebb_text fields[FIELD_COUNT];
    for (size_t i = 0; i < FIELD_COUNT; i++)
        if (!ebb__text_field(&line, &fields[i]))
            return ebb__import_fail(events, "ends before its %s", names[i]);
    if (ebb__text_field(&line, &fields[0]))
        return ebb__import_fail(events, "has more than %d fields", FIELD_COUNT);
    uint64_t thread, id, size_bytes;
    enum ebb_status status = ebb__import_number(events, "thread", fields[THREAD], &thread);
    if (!status)
        status = take_time(reader, fields[TIME]);
    if (!status)
        status = ebb__import_pointer(events, fields[POINTER], &id);
    if (!status)
        status = ebb__import_number(events, "size", fields[SIZE], &size_bytes);
    if (status)
        return status;
    events->thread = (uint32_t)thread;
    char shown[32];
    bool is_alloc = ebb__text_is(fields[ACTION], "allocate");
    if (!is_alloc && !ebb__text_is(fields[ACTION], "free")) {
        if (ebb__text_is(fields[ACTION], "allocate failure"))
            return EBB_OK;
        return ebb__import_fail(events, "action '%s' is not known",
                                ebb__text_show(fields[ACTION], shown));
    }
    if (!id) /* a request of 0 bytes */
        return EBB_OK;
    return is_alloc ? ebb__import_alloc(events, id, size_bytes)
                    : ebb__import_free(events, id, size_bytes);
}

enum ebb_status ebb__rmm_read(const uint8_t *bytes, size_t size, struct ebb_import_request *request,
                              struct ebb_trace *trace, struct ebb_error *error)
{
    struct reader reader = {0};
    struct ebb_text rest = {(const char *)bytes, size}, line;
    ebb__import_events_init(&reader.events, request->name, "line", error);
    enum ebb_status status = EBB_OK;
    while (!status && ebb__text_line(&rest, &line)) {
        struct ebb_text look = line, word;
        reader.events.place++;
        if (reader.events.place == 1 && !ebb__text_is(line, header))
            status = ebb__import_fail(&reader.events, "is not the header %s", header);
        else if (reader.events.place > 1 && ebb__text_word(&look, &word))
            status = read_line(&reader, line);
    }
    if (!status)
        status = ebb__import_finish(&reader.events, 1, trace);
    ebb__import_events_fini(&reader.events);
    return status;
}
