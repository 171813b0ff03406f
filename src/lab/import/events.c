#include "lab/import/events.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void ebb__import_events_init(struct ebb_import_events *events, const char *name, const char *unit,
                             struct ebb_error *error)
{
    *events = (struct ebb_import_events){.name = name, .unit = unit, .error = error};
}

void ebb__import_events_fini(struct ebb_import_events *events)
{
    ebb_vec_free(&events->events);
    ebb_vec_free(&events->blocks);
    ebb__map_fini(&events->serials);
}

enum ebb_status ebb__import_fail(struct ebb_import_events *events, const char *why, ...)
{
    char text[200];
    va_list arguments;
    va_start(arguments, why);
    vsnprintf(text, sizeof text, why, arguments);
    va_end(arguments);
    return ebb__fail(events->error, EBB_ERR_FORMAT, events->name, "%s %" PRIu64 ": %s",
                     events->unit, events->place, text);
}

static enum ebb_status fail_memory(struct ebb_import_events *events)
{
    return ebb__fail(events->error, EBB_ERR_MEMORY, events->name, "no memory for its events");
}

static enum ebb_status fail_number(struct ebb_import_events *events, const char *what,
                                   struct ebb_text text, const char *why)
{
    char shown[32];
    return why ? ebb__import_fail(events, "%s '%s' %s", what, ebb__text_show(text, shown), why)
               : EBB_OK;
}

enum ebb_status ebb__import_number(struct ebb_import_events *events, const char *what,
                                   struct ebb_text text, uint64_t *value)
{
    return fail_number(events, what, text, ebb__text_number(text, value));
}

enum ebb_status ebb__import_pointer(struct ebb_import_events *events, struct ebb_text text,
                                    uint64_t *value)
{
    *value = 0;
    if (ebb__text_is(text, "(nil)"))
        return EBB_OK;
    return fail_number(events, "pointer", text, ebb__text_hex(text, value));
}

/* If several threads write a log, its times may decrease slightly. They are then raised. */
static enum ebb_status push(struct ebb_import_events *events, struct ebb_event event)
{
    size_t count = events->events.count;
    if (!count)
        events->begin = events->time;
    event.thread = events->thread;
    event.time_ns = events->time > events->begin ? events->time - events->begin : 0;
    if (count && event.time_ns < events->events.items[count - 1].time_ns)
        event.time_ns = events->events.items[count - 1].time_ns;
    return ebb_vec_push(&events->events, event) ? EBB_OK : fail_memory(events);
}

static enum ebb_status check_size(struct ebb_import_events *events, uint64_t size_bytes)
{
    if (size_bytes > EBB_EVENT_SIZE_LIMIT)
        return ebb__import_fail(events, "a block of %" PRIu64 " bytes is impossibly large",
                                size_bytes);
    if (size_bytes > INT64_MAX - events->live_bytes)
        return ebb__import_fail(events, "all blocks together are impossibly large");
    return EBB_OK;
}

/* The newest block with this identity, or NULL. */
static struct ebb_import_block *find(struct ebb_import_events *events, uint64_t id,
                                     uint64_t *serial)
{
    if (id == EBB_MAP_NO_KEY || !ebb__map_get(&events->serials, id, serial))
        return NULL;
    return &events->blocks.items[*serial - 1];
}

/* Makes a new block for the identity. */
static enum ebb_status begin_block(struct ebb_import_events *events, uint64_t id,
                                   uint64_t size_bytes, uint64_t *serial)
{
    enum ebb_status status = check_size(events, size_bytes);
    if (status)
        return status;
    if (id == EBB_MAP_NO_KEY)
        return ebb__import_fail(events, "%#" PRIx64 " is no address", id);
    struct ebb_import_block block = {.size_bytes = size_bytes, .first_place = events->place};
    *serial = events->blocks.count + 1;
    if (!ebb_vec_push(&events->blocks, block) || !ebb__map_put(&events->serials, id, *serial))
        return fail_memory(events);
    events->live_bytes += size_bytes;
    return EBB_OK;
}

enum ebb_status ebb__import_alloc(struct ebb_import_events *events, uint64_t id,
                                  uint64_t size_bytes)
{
    uint64_t serial;
    const struct ebb_import_block *known = find(events, id, &serial);
    if (known && !known->free_place)
        return ebb__import_fail(
            events, "block %#" PRIx64 " is allocated again while it is live (%s %" PRIu64 ")", id,
            events->unit, known->first_place);
    enum ebb_status status = begin_block(events, id, size_bytes, &serial);
    if (status)
        return status;
    return push(events, (struct ebb_event){
                            .block = serial, .size_bytes = size_bytes, .kind = EBB_EVENT_ALLOC});
}

/* Finds the live block of an access or a free. Makes one if the identity has no block yet. */
static enum ebb_status find_live(struct ebb_import_events *events, uint64_t id, uint64_t size_bytes,
                                 const char *verb, uint64_t *serial)
{
    const struct ebb_import_block *known = find(events, id, serial);
    if (!known)
        return begin_block(events, id, size_bytes, serial);
    if (known->free_place)
        return ebb__import_fail(events, "block %#" PRIx64 " is %s after its end (%s %" PRIu64 ")",
                                id, verb, events->unit, known->free_place);
    if (size_bytes != EBB_IMPORT_SIZE_UNKNOWN && size_bytes != known->size_bytes)
        return ebb__import_fail(
            events,
            "block %#" PRIx64 " has %" PRIu64 " bytes here and %" PRIu64 " before (%s %" PRIu64 ")",
            id, size_bytes, known->size_bytes, events->unit, known->first_place);
    return EBB_OK;
}

enum ebb_status ebb__import_free(struct ebb_import_events *events, uint64_t id, uint64_t size_bytes)
{
    uint64_t serial;
    if (size_bytes == EBB_IMPORT_SIZE_UNKNOWN && !find(events, id, &serial))
        return EBB_OK;
    enum ebb_status status = find_live(events, id, size_bytes, "freed", &serial);
    if (status)
        return status;
    struct ebb_import_block *block = &events->blocks.items[serial - 1];
    block->free_place = events->place;
    events->live_bytes -= block->size_bytes;
    return push(events, (struct ebb_event){.block = serial,
                                           .size_bytes = block->size_bytes,
                                           .kind = EBB_EVENT_FREE});
}

enum ebb_status ebb__import_access(struct ebb_import_events *events, uint64_t id,
                                   uint64_t size_bytes, enum ebb_access_kind access)
{
    uint64_t serial;
    enum ebb_status status = find_live(events, id, size_bytes, "used", &serial);
    if (status)
        return status;
    return push(events,
                (struct ebb_event){.block = serial,
                                   .size_bytes = events->blocks.items[serial - 1].size_bytes,
                                   .kind = EBB_EVENT_ACCESS,
                                   .flags = EBB_EVENT_ANNOUNCED,
                                   .access = (uint8_t)access});
}

enum ebb_status ebb__import_mark(struct ebb_import_events *events, enum ebb_mark mark,
                                 uint64_t value)
{
    return push(events, (struct ebb_event){
                            .size_bytes = value, .kind = EBB_EVENT_MARK, .mark = (uint8_t)mark});
}

enum ebb_status ebb__import_finish(struct ebb_import_events *events, uint64_t unit_ns,
                                   struct ebb_trace *trace)
{
    size_t count = events->events.count;
    if (!count)
        return ebb__fail(events->error, EBB_ERR_FORMAT, events->name, "holds no events");
    if (events->events.items[count - 1].time_ns > EBB_EVENT_TIME_LIMIT_NS / unit_ns)
        return ebb__fail(events->error, EBB_ERR_FORMAT, events->name,
                         "lasts for more than 18 years");
    for (size_t i = 0; i < count; i++)
        events->events.items[i].time_ns *= unit_ns;
    trace->events = events->events.items;
    trace->count = count;
    memset(&events->events, 0, sizeof events->events);
    return EBB_OK;
}
