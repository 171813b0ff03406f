/* PyTorch's memory snapshot (torch.cuda.memory._dump_snapshot), a pickle of plain data:
 *
 *     {"device_traces": [[{"action", "addr", "size", "stream", "time_us", ...}, ...], ...],
 *      "segments": [{"device", "blocks": [{"address", "size", "requested_size", "state"}]}], ...}
 *
 * One device is read: the chosen one, or the only one with a history. `alloc` begins a block.
 * `free_completed` ends it: before that its memory is not reused. Actions on segments are ignored.
 * The history is a ring, so the allocations of the oldest blocks may be lost. Those of these blocks
 * that are never freed occur only in `segments`. They get an ALLOC at the start, so that the load
 * is correct. In snapshots without time_us, each entry counts as 1 us. Source: PyTorch's
 * c10/cuda/CUDACachingAllocator.h (TraceEntry) and torch/cuda/memory.py. Linear in the file. */
#include "lab/import/events.h"
#include "lab/import/kinds.h"
#include "lab/import/pickle.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct reader {
    struct ebb_import_events events;
    struct ebb_pickle pickle;
    const struct ebb_import_request *request;
};

bool ebb__torch_snapshot_recognises(const uint8_t *bytes, size_t size)
{
    return size > 2 && bytes[0] == 0x80 && bytes[1] >= 2 &&
           bytes[1] <= 9; /* 6 to 9: perhaps later ones */
}

/* Reads the whole number `key` of the entry. EBB_ERR_FORMAT if there is no such number. */
static enum ebb_status take_number(struct reader *reader, const struct ebb_pickle_value *entry,
                                   const char *key, uint64_t *number)
{
    const struct ebb_pickle_value *value = ebb__pickle_member(&reader->pickle, entry, key);
    if (!value)
        return ebb__import_fail(&reader->events, "has no %s", key);
    if (value->kind == EBB_PICKLE_ODD_INT)
        return ebb__import_fail(&reader->events, "%s is %s", key,
                                value->as.number ? "negative" : "too large");
    if (value->kind != EBB_PICKLE_INT)
        return ebb__import_fail(&reader->events, "%s is not a whole number", key);
    *number = value->as.number;
    return EBB_OK;
}

enum action { ACTION_OTHER, ACTION_ALLOC, ACTION_FREE };

static enum ebb_status take_action(struct reader *reader, const struct ebb_pickle_value *entry,
                                   enum action *action)
{
    const struct ebb_pickle_value *value = ebb__pickle_member(&reader->pickle, entry, "action");
    if (!value || value->kind != EBB_PICKLE_STRING)
        return ebb__import_fail(&reader->events, "has no action");
    *action = ebb__text_is(value->as.text, "alloc")            ? ACTION_ALLOC
              : ebb__text_is(value->as.text, "free_completed") ? ACTION_FREE
                                                               : ACTION_OTHER;
    return EBB_OK;
}

/* Number of allocations and frees in a device's history. */
static size_t count_events(const struct ebb_pickle *pickle, const struct ebb_pickle_value *trace)
{
    size_t count, events = 0;
    const struct ebb_pickle_value *entries = ebb__pickle_items(pickle, trace, &count);
    for (size_t i = 0; i < count && trace->kind == EBB_PICKLE_LIST; i++) {
        const struct ebb_pickle_value *action = ebb__pickle_member(pickle, &entries[i], "action");
        events += !action || action->kind != EBB_PICKLE_STRING ||
                  ebb__text_is(action->as.text, "alloc") ||
                  ebb__text_is(action->as.text, "free_completed");
    }
    return events;
}

/* Lists the devices that have a history, as far as `out` holds them. */
static void list_devices(const struct ebb_pickle *pickle, const struct ebb_pickle_value *traces,
                         size_t count, char *out, size_t size)
{
    size_t used = 0;
    *out = 0;
    for (size_t i = 0; i < count && used + 40 < size; i++) {
        size_t events = count_events(pickle, &traces[i]);
        if (events)
            used += (size_t)snprintf(out + used, size - used, "%scuda:%zu (%zu events)",
                                     used ? ", " : "", i, events);
    }
}

/* True if the user's name of a device, "cuda:1" or "1", means this number. */
static bool is_device(const char *name, size_t device)
{
    const char *colon = strrchr(name, ':');
    uint64_t number;
    colon = colon ? colon + 1 : name;
    return !ebb__text_number((struct ebb_text){colon, strlen(colon)}, &number) && number == device;
}

/* Sets *chosen to the history of the requested device, or of the only one that has a history, and
 * *device to its number. */
static enum ebb_status choose_trace(struct reader *reader, const struct ebb_pickle_value **chosen,
                                    size_t *device)
{
    const struct ebb_pickle *pickle = &reader->pickle;
    const char *name = reader->request->name, *wanted = reader->request->device;
    struct ebb_error *error = reader->events.error;
    const struct ebb_pickle_value *member =
        ebb__pickle_member(pickle, &pickle->root, "device_traces");
    size_t count, found = 0;
    const struct ebb_pickle_value *traces = ebb__pickle_items(pickle, member, &count);
    for (size_t i = 0; i < count; i++) {
        if (!count_events(pickle, &traces[i]))
            continue;
        bool is_wanted = wanted && is_device(wanted, i);
        if (!found++ || is_wanted) {
            *chosen = &traces[i];
            *device = i;
        }
        if (is_wanted)
            return EBB_OK;
    }
    if (!member)
        return ebb__fail(error, EBB_ERR_FORMAT, name,
                         "no memory snapshot with a history (device_traces)");
    if (!found)
        return ebb__fail(error, EBB_ERR_FORMAT, name,
                         "its history is empty: call torch.cuda.memory._record_memory_history() "
                         "before the training");
    if (found == 1 && !wanted)
        return EBB_OK;
    char all[160];
    list_devices(pickle, traces, count, all, sizeof all);
    if (wanted)
        return ebb__fail(error, EBB_ERR_ARGUMENT, name, "has no device '%.40s'; it has %s", wanted,
                         all);
    ebb__fail(error, EBB_ERR_UNSUPPORTED, name, "has several devices: %s", all);
    if (error)
        ebb__error_set_remedy(
            error, "choose one: 'ebb import torch-snapshot IN -o FILE --device cuda:%zu'", *device);
    return EBB_ERR_UNSUPPORTED;
}

/* The first release of PyTorch whose snapshots have such fields, as far as fields tell. Releases by
 * the dates of PyTorch's changes: 112266 (time_us), 130964 (external_annotations), 165490
 * (user_metadata), 177717 (pool_id). */
static const char *release(const struct ebb_pickle *pickle)
{
    size_t count;
    const struct ebb_pickle_value *root = &pickle->root, *entry = NULL;
    const struct ebb_pickle_value *traces =
        ebb__pickle_items(pickle, ebb__pickle_member(pickle, root, "device_traces"), &count);
    for (size_t i = 0, entries; i < count && !entry; i++) {
        entry = ebb__pickle_items(pickle, &traces[i], &entries);
        entry = entries ? entry : NULL;
    }
    if (ebb__pickle_member(pickle, entry, "pool_id"))
        return "2.12 or later";
    if (ebb__pickle_member(pickle, entry, "user_metadata"))
        return "2.10 or later";
    if (ebb__pickle_member(pickle, root, "external_annotations"))
        return "2.5 or later";
    if (ebb__pickle_member(pickle, entry, "time_us"))
        return "2.2 or later";
    if (traces)
        return "2.0 or later";
    return root->kind == EBB_PICKLE_LIST ? "1.x, or torch.cuda.memory_snapshot()" : NULL;
}

/* Says which version wrote a file that cannot be read. */
static void say_version(const struct reader *reader, uint8_t protocol)
{
    const char *fields = release(&reader->pickle);
    struct ebb_error *error = reader->events.error;
    if (!error || error->remedy[0])
        return;
    ebb__error_set_remedy(error,
                          "it is of pickle protocol %d%s%s; docs/formats/import.md says what "
                          "'torch-snapshot' reads",
                          protocol, fields ? ", with the fields of PyTorch " : "",
                          fields ? fields : "");
}

static enum ebb_status take_time(struct reader *reader, const struct ebb_pickle_value *entry)
{
    if (ebb__pickle_member(&reader->pickle, entry, "time_us"))
        return take_number(reader, entry, "time_us", &reader->events.time);
    reader->events.time++;
    return EBB_OK;
}

static enum ebb_status read_entry(struct reader *reader, const struct ebb_pickle_value *entry)
{
    struct ebb_import_events *events = &reader->events;
    enum action action;
    uint64_t id, size_bytes;
    enum ebb_status status = take_action(reader, entry, &action);
    if (!status)
        status = take_time(reader, entry);
    if (status || action == ACTION_OTHER)
        return status;
    status = take_number(reader, entry, "addr", &id);
    if (!status)
        status = take_number(reader, entry, "size", &size_bytes);
    if (status)
        return status;
    return action == ACTION_ALLOC ? ebb__import_alloc(events, id, size_bytes)
                                  : ebb__import_free(events, id, size_bytes);
}

/* Records in `live`, by address, if a block is allocated (1) or freed (0) at the history's end. */
static enum ebb_status collect_live(struct reader *reader, const struct ebb_pickle_value *entries,
                                    size_t count, struct ebb_map *live)
{
    for (size_t i = 0; i < count; i++) {
        enum action action;
        uint64_t id;
        reader->events.place = i + 1;
        enum ebb_status status = take_action(reader, &entries[i], &action);
        if (!status && action != ACTION_OTHER)
            status = take_number(reader, &entries[i], "addr", &id);
        if (status)
            return status;
        if (action == ACTION_OTHER || id == EBB_MAP_NO_KEY)
            continue;
        if (!ebb__map_put(live, id, action == ACTION_ALLOC))
            return EBB_ERR_MEMORY;
    }
    return EBB_OK;
}

/* Allocates a block of a segment, if it is in use and the history has no allocation of it. */
static enum ebb_status read_block(struct reader *reader, const struct ebb_pickle_value *block,
                                  uint64_t *address, const struct ebb_map *live)
{
    const struct ebb_pickle *pickle = &reader->pickle;
    const struct ebb_pickle_value *state = ebb__pickle_member(pickle, block, "state");
    uint64_t size_bytes, here = *address, in_use;
    enum ebb_status status = take_number(reader, block, "size", &size_bytes);
    if (!status && ebb__pickle_member(pickle, block, "address"))
        status = take_number(reader, block, "address", &here);
    if (status)
        return status;
    *address = here + size_bytes;
    if (!state || state->kind != EBB_PICKLE_STRING || ebb__text_is(state->as.text, "inactive") ||
        (ebb__map_get(live, here, &in_use) && in_use))
        return EBB_OK;
    if (ebb__pickle_member(pickle, block, "requested_size"))
        status = take_number(reader, block, "requested_size", &size_bytes);
    return status ? status : ebb__import_alloc(&reader->events, here, size_bytes);
}

static enum ebb_status read_segments(struct reader *reader, size_t device,
                                     const struct ebb_map *live)
{
    const struct ebb_pickle *pickle = &reader->pickle;
    size_t count, block_count;
    const struct ebb_pickle_value *segments =
        ebb__pickle_items(pickle, ebb__pickle_member(pickle, &pickle->root, "segments"), &count);
    for (size_t i = 0; i < count; i++) {
        uint64_t owner = 0, address = 0;
        reader->events.place = i + 1;
        enum ebb_status status = EBB_OK;
        if (ebb__pickle_member(pickle, &segments[i], "device"))
            status = take_number(reader, &segments[i], "device", &owner);
        if (!status && owner != device)
            continue;
        if (!status)
            status = take_number(reader, &segments[i], "address", &address);
        const struct ebb_pickle_value *blocks = ebb__pickle_items(
            pickle, ebb__pickle_member(pickle, &segments[i], "blocks"), &block_count);
        for (size_t k = 0; !status && k < block_count; k++)
            status = read_block(reader, &blocks[k], &address, live);
        if (status)
            return status;
    }
    return EBB_OK;
}

static enum ebb_status read_snapshot(struct reader *reader)
{
    struct ebb_import_events *events = &reader->events;
    size_t device = 0, count;
    const struct ebb_pickle_value *trace = NULL;
    enum ebb_status status = choose_trace(reader, &trace, &device);
    if (status)
        return status;
    const struct ebb_pickle_value *entries = ebb__pickle_items(&reader->pickle, trace, &count);
    struct ebb_map live = {0};
    status = collect_live(reader, entries, count, &live);
    if (status == EBB_ERR_MEMORY)
        ebb__fail(events->error, status, events->name, "no memory for its blocks");
    events->place = 1;
    if (!status)
        status = take_time(reader, &entries[0]);
    events->unit = "segment";
    if (!status)
        status = read_segments(reader, device, &live);
    events->unit = "entry";
    ebb__map_fini(&live);
    for (size_t i = 0; !status && i < count; i++) {
        events->place = i + 1;
        status = read_entry(reader, &entries[i]);
    }
    return status;
}

enum ebb_status ebb__torch_snapshot_read(const uint8_t *bytes, size_t size,
                                         struct ebb_import_request *request,
                                         struct ebb_trace *trace, struct ebb_error *error)
{
    struct reader reader = {.request = request};
    uint8_t protocol = size > 1 ? bytes[1] : 0;
    ebb__import_events_init(&reader.events, request->name, "entry", error);
    enum ebb_status status;
    if (size < 2 || bytes[0] != 0x80)
        status = ebb__fail(error, EBB_ERR_FORMAT, request->name,
                           "byte 0: no pickle of protocol 2 or later begins like this");
    else if (protocol > 5)
        status = ebb__fail(error, EBB_ERR_FORMAT, request->name,
                           "byte 1: pickle protocol %d is not known, 2 to 5 are", protocol);
    else
        status = ebb__pickle_read(bytes, size, request->name, &reader.pickle, error);
    if (!status)
        status = read_snapshot(&reader);
    if (!status)
        status = ebb__import_finish(&reader.events, 1000, trace);
    if (status == EBB_ERR_FORMAT && size > 1 && bytes[0] == 0x80)
        say_version(&reader, protocol);
    if (!status && reader.events.begin <= UINT64_MAX / 1000)
        trace->info.start_unix_ns = reader.events.begin * 1000;
    ebb__import_events_fini(&reader.events);
    ebb__pickle_fini(&reader.pickle);
    return status;
}
