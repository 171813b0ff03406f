/* Fuzzes the reader of trace files with each input in three forms. The unchanged input tests the
 * checksums. Correct checksums let it reach the parser. As the columns of one block it reaches the
 * decoder. An accepted trace must be as trace/file.h says. */
#include "fuzz.h"
#include "trace/codec.h"
#include "trace/file.h"
#include "trace_repair.h"

#include <string.h>

static void require_events(const struct ebb_event *events, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        FUZZ_REQUIRE(ebb__trace_event_valid(&events[i]));
        FUZZ_REQUIRE(!i || events[i].time_ns >= events[i - 1].time_ns);
    }
}

static void read_as_file(const uint8_t *data, size_t size)
{
    struct ebb_trace trace;
    struct ebb_error error = {0};
    enum ebb_status status = ebb__trace_read_memory(data, size, "input", &trace, &error);
    if (status == EBB_OK) {
        FUZZ_REQUIRE(!trace.count == !trace.events);
        FUZZ_REQUIRE(!trace.complete || !trace.damaged_bytes);
        FUZZ_REQUIRE(trace.damaged_bytes < size);
        FUZZ_REQUIRE(memchr(trace.info.command, 0, sizeof trace.info.command));
        require_events(trace.events, trace.count);
    } else {
        FUZZ_REQUIRE(error.status == status && error.why[0] && !strcmp(error.what, "input"));
        FUZZ_REQUIRE(!trace.events && !trace.count);
    }
    ebb__trace_fini(&trace);
}

static void decode_columns(const uint8_t *data, size_t size)
{
    if (!size)
        return;
    size_t count = data[0];
    struct ebb_event *events = calloc(count + 1, sizeof *events);
    uint8_t *again = malloc(count * EBB_TRACE_EVENT_MAX_BYTES + 1);
    FUZZ_REQUIRE(events && again);
    if (ebb__trace_decode(data + 1, size - 1, count, events) == EBB_TRACE_DECODE_OK) {
        require_events(events, count);
        FUZZ_REQUIRE(ebb__trace_encode(events, count, again) == size - 1);
        FUZZ_REQUIRE(!memcmp(again, data + 1, size - 1));
    }
    free(again);
    free(events);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_as_file(data, size);
    uint8_t *repaired = malloc(size + 1);
    FUZZ_REQUIRE(repaired);
    if (size)
        memcpy(repaired, data, size);
    trace_repair(repaired, size);
    read_as_file(repaired, size);
    free(repaired);
    decode_columns(data, size);
    return 0;
}
