/* PyTorch's profile (torch.profiler, profile_memory=True), a Chrome trace as Kineto writes it:
 *
 *     {"baseTimeNanoseconds": N, "traceEvents": [
 *       {"ph": "i", "name": "[memory]", "pid", "tid", "ts": US, "args": {"Addr", "Bytes",
 *        "Device Type", "Device Id", "Total Allocated", ...}}, ...]}
 *
 * Bytes is negative for a free. "ProfilerStep#N" begins an iteration. Operators name no address, so
 * there are no accesses. A profile of a hundred thousand allocations has hundreds of megabytes, and
 * as one tree of values ten times as much. So jansson gets one event at a time. Source: PyTorch's
 * torch/csrc/profiler/kineto_shim.cpp and collection.cpp, Kineto's output_json.cpp. Linear in the
 * file, but for the order of times. */
#include "lab/import/kinds.h"
#include "lab/import/samples.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define HEAD_BYTES 65536   /* arbitrary: metadata in front of the events is shorter */
#define TIME_LIMIT_US 4e15 /* 120 years; such a number of nanoseconds fits into 63 bits */

struct reader {
    const char *bytes;
    size_t size;
    size_t at;
    uint64_t place; /* of the current event, from 1 */
    bool has_events;
    uint64_t base_ns; /* unix time of ts 0 */
    struct ebb_samples samples;
};

static bool contains(const uint8_t *bytes, size_t size, const char *word)
{
    return memmem(bytes, size < HEAD_BYTES ? size : HEAD_BYTES, word, strlen(word)) != NULL;
}

bool ebb__torch_profile_recognises(const uint8_t *bytes, size_t size)
{
    size_t at = 0;
    while (at < size && strchr(" \t\r\n", bytes[at]) && bytes[at])
        at++;
    if (at == size || (bytes[at] != '{' && bytes[at] != '['))
        return false;
    return contains(bytes, size, "\"traceEvents\"") || contains(bytes, size, "\"schemaVersion\"") ||
           contains(bytes, size, "\"ph\"");
}

static enum ebb_status fail_byte(struct reader *r, size_t byte, const char *why)
{
    return ebb__fail(r->samples.error, EBB_ERR_FORMAT, r->samples.request->name, "byte %zu: %s",
                     byte, why);
}

static enum ebb_status fail_event(struct reader *r, const char *key, const char *why)
{
    return ebb__fail(r->samples.error, EBB_ERR_FORMAT, r->samples.request->name,
                     "event %" PRIu64 ": %s %s", r->place, key, why);
}

/* The next byte that is not blank, which stays there; 0 at the end. */
static char peek(struct reader *r)
{
    while (r->at < r->size && strchr(" \t\r\n", r->bytes[r->at]) && r->bytes[r->at])
        r->at++;
    return r->at < r->size ? r->bytes[r->at] : 0;
}

static enum ebb_status take_value(struct reader *r, json_t **value)
{
    json_error_t error;
    if (!peek(r))
        return fail_byte(r, r->at, "the file ends within its JSON");
    size_t left = r->size - r->at < INT_MAX ? r->size - r->at : INT_MAX;
    *value = json_loadb(r->bytes + r->at, left,
                        JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &error);
    if (*value) {
        r->at += (size_t)error.position;
        return EBB_OK;
    }
    size_t byte = r->at + (error.position > 0 ? (size_t)error.position : 0);
    if (json_error_code(&error) == json_error_premature_end_of_input)
        return fail_byte(r, r->size, "the file ends within its JSON");
    char why[200];
    snprintf(why, sizeof why, "no valid JSON: %s", error.text);
    return fail_byte(r, byte, why);
}

/* Reads a whole number of the arguments. */
static enum ebb_status take_number(struct reader *r, const json_t *args, const char *key,
                                   int64_t *number)
{
    const json_t *value = json_object_get(args, key);
    if (!value)
        return fail_event(r, key, "is missing");
    if (!json_is_integer(value))
        return fail_event(r, key, "is not a whole number");
    *number = json_integer_value(value);
    return EBB_OK;
}

static enum ebb_status take_time(struct reader *r, const json_t *event, uint64_t *time_ns)
{
    const json_t *value = json_object_get(event, "ts");
    double us = json_number_value(value);
    if (!json_is_number(value) || !(us >= 0) || us > TIME_LIMIT_US)
        return fail_event(r, "ts", "is no time in microseconds");
    *time_ns = (uint64_t)llround(us * 1000);
    return EBB_OK;
}

/* The text of a process's number or name. */
static void process_name(const json_t *event, char *out, size_t size)
{
    const json_t *pid = json_object_get(event, "pid");
    if (json_is_string(pid))
        snprintf(out, size, "%s", json_string_value(pid));
    else
        snprintf(out, size, "%" JSON_INTEGER_FORMAT, json_integer_value(pid));
}

/* Names a device as PyTorch does: "cuda:0", or "cpu". */
static enum ebb_status device_name(struct reader *r, const json_t *args, char *out, size_t size)
{
    /* c10/core/DeviceType.h, in its order */
    static const char *const names[] = {"cpu", "cuda", "mkldnn",       "opengl", "opencl", "ideep",
                                        "hip", "fpga", "maia",         "xla",    "vulkan", "metal",
                                        "xpu", "mps",  "meta",         "hpu",    "ve",     "lazy",
                                        "ipu", "mtia", "privateuseone"};
    int64_t type, index;
    enum ebb_status status = take_number(r, args, "Device Type", &type);
    if (!status)
        status = take_number(r, args, "Device Id", &index);
    if (status)
        return status;
    if (type < 0 || type >= (int64_t)(sizeof names / sizeof names[0]))
        return fail_event(r, "Device Type", "is not known");
    if (index < 0)
        snprintf(out, size, "%s", names[type]);
    else
        snprintf(out, size, "%s:%" PRId64, names[type], index);
    return EBB_OK;
}

static enum ebb_status take_memory(struct reader *r, const json_t *event, struct ebb_sample *sample)
{
    const json_t *args = json_object_get(event, "args"), *total;
    char process[48], device[48];
    int64_t address, bytes;
    if (!args)
        return fail_event(r, "[memory]", "has no args");
    enum ebb_status status = take_number(r, args, "Addr", &address);
    if (!status)
        status = take_number(r, args, "Bytes", &bytes);
    if (!status)
        status = device_name(r, args, device, sizeof device);
    if (status || !bytes)
        return status;
    process_name(event, process, sizeof process);
    status = ebb__samples_device(&r->samples, process, device, &sample->device);
    if (status)
        return status;
    total = json_object_get(args, "Total Allocated");
    bool known = json_is_integer(total) && json_integer_value(total) >= 0;
    sample->kind = bytes < 0 ? EBB_SAMPLE_FREE : EBB_SAMPLE_ALLOC;
    sample->address = (uint64_t)address;
    sample->size_bytes = bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes;
    sample->counted_bytes = sample->size_bytes;
    sample->total_bytes = known ? (uint64_t)json_integer_value(total) : EBB_SAMPLE_TOTAL_UNKNOWN;
    return ebb__samples_add(&r->samples, sample);
}

static enum ebb_status read_event(struct reader *r, const json_t *event)
{
    const char *name = json_string_value(json_object_get(event, "name"));
    const char *category = json_string_value(json_object_get(event, "cat"));
    bool is_memory = name && strcmp(name, "[memory]") == 0;
    bool is_step = name && category && strcmp(category, "user_annotation") == 0 &&
                   strncmp(name, "ProfilerStep#", 13) == 0;
    if (!is_memory && !is_step)
        return EBB_OK;
    struct ebb_sample sample = {.place = r->place,
                                .kind = EBB_SAMPLE_ITERATION,
                                .thread =
                                    (uint32_t)json_integer_value(json_object_get(event, "tid"))};
    enum ebb_status status = take_time(r, event, &sample.time_ns);
    if (status)
        return status;
    if (is_memory)
        return take_memory(r, event, &sample);
    char process[48];
    process_name(event, process, sizeof process);
    status = ebb__samples_device(&r->samples, process, "", &sample.device);
    return status ? status : ebb__samples_add(&r->samples, &sample);
}

static enum ebb_status read_events(struct reader *r)
{
    enum ebb_status status = EBB_OK;
    r->has_events = true;
    r->at++; /* the bracket */
    if (peek(r) == ']') {
        r->at++;
        return EBB_OK;
    }
    while (!status) {
        json_t *event;
        r->place++;
        status = take_value(r, &event);
        if (status)
            return status;
        status = read_event(r, event);
        json_decref(event);
        char next = peek(r);
        if (!status && next != ',' && next != ']')
            status = fail_byte(r, r->at,
                               next ? "an event is followed by neither comma nor bracket"
                                    : "the file ends within its events");
        r->at++;
        if (!status && next == ']')
            break;
    }
    return status;
}

/* Reads one member of the outermost object. */
static enum ebb_status read_member(struct reader *r)
{
    json_t *key, *value;
    enum ebb_status status = take_value(r, &key);
    if (status)
        return status;
    const char *name = json_string_value(key);
    bool is_events = name && strcmp(name, "traceEvents") == 0;
    bool is_base = name && strcmp(name, "baseTimeNanoseconds") == 0;
    json_decref(key);
    if (peek(r) != ':' || !name)
        return fail_byte(r, r->at, "no valid JSON: a name and a colon are expected");
    r->at++;
    if (is_events && peek(r) == '[')
        return read_events(r);
    status = take_value(r, &value);
    if (status)
        return status;
    if (is_base && json_is_integer(value) && json_integer_value(value) > 0)
        r->base_ns = (uint64_t)json_integer_value(value);
    json_decref(value);
    return EBB_OK;
}

static enum ebb_status read_document(struct reader *r)
{
    char first = peek(r);
    if (first == '[')
        return read_events(r);
    if (first != '{')
        return fail_byte(r, r->at, "no Chrome trace: neither an object nor an array");
    char next;
    do {
        r->at++; /* the brace or comma */
        if (peek(r) == '}')
            return EBB_OK;
        enum ebb_status status = read_member(r);
        if (status)
            return status;
        next = peek(r);
    } while (next == ',');
    if (next == '}')
        return EBB_OK;
    return fail_byte(r, r->at,
                     next ? "no valid JSON: a comma or brace is expected"
                          : "the file ends within its JSON");
}

enum ebb_status ebb__torch_profile_read(const uint8_t *bytes, size_t size,
                                        struct ebb_import_request *request, struct ebb_trace *trace,
                                        struct ebb_error *error)
{
    struct reader r = {.bytes = (const char *)bytes, .size = size};
    ebb__samples_init(&r.samples, request, "event", error);
    enum ebb_status status = read_document(&r);
    if (!status && !r.has_events)
        status = ebb__fail(error, EBB_ERR_FORMAT, request->name,
                           "has no traceEvents, so it is no Chrome trace");
    if (!status)
        status = ebb__samples_finish(
            &r.samples, "has no memory events: PyTorch writes them with profile_memory=True",
            trace);
    if (!status && r.samples.begin_ns <= UINT64_MAX - r.base_ns)
        trace->info.start_unix_ns = r.base_ns + r.samples.begin_ns;
    ebb__samples_fini(&r.samples);
    return status;
}
