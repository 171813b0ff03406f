/* Fuzzes each importer with every input, recognised or not. An accepted input must give a valid
 * trace. Times never decrease. A block begins and ends once, keeps its size, and is not used after
 * its end. The analysis and the emulated allocators must accept the trace. A refusal must have a
 * reason and leave the trace empty. */
#include "base/map.h"
#include "fuzz.h"
#include "lab/import/events.h"
#include "lab/import/import.h"
#include "lab/peers/peer.h"
#include "model/analyse.h"
#include "trace/codec.h"

#include <stdio.h>
#include <string.h>

static void require_trace(const struct ebb_trace *trace)
{
    struct ebb_map sizes = {0}, ended = {0};
    FUZZ_REQUIRE(trace->complete && trace->count && trace->events);
    for (size_t i = 0; i < trace->count; i++) {
        const struct ebb_event *event = &trace->events[i];
        uint64_t size_bytes;
        FUZZ_REQUIRE(ebb__trace_event_valid(event));
        FUZZ_REQUIRE(!i || event->time_ns >= event[-1].time_ns);
        if (event->kind == EBB_EVENT_MARK)
            continue;
        FUZZ_REQUIRE(event->block && event->size_bytes <= EBB_EVENT_SIZE_LIMIT);
        FUZZ_REQUIRE(!ebb__map_get(&ended, event->block, NULL));
        bool known = ebb__map_get(&sizes, event->block, &size_bytes);
        FUZZ_REQUIRE(!known || (event->kind != EBB_EVENT_ALLOC && size_bytes == event->size_bytes));
        FUZZ_REQUIRE(known || ebb__map_put(&sizes, event->block, event->size_bytes));
        if (event->kind == EBB_EVENT_FREE)
            FUZZ_REQUIRE(ebb__map_put(&ended, event->block, 1));
    }
    ebb__map_fini(&sizes);
    ebb__map_fini(&ended);
}

static void require_use(const struct ebb_trace *trace)
{
    struct ebb_event_span span = {trace->events, trace->count};
    struct ebb_analysis analysis;
    struct ebb_error error = {0};
    bool analysed = ebb__analyse(span, &analysis, &error) == EBB_OK;
    if (!analysed)
        fprintf(stderr, "%s: %s\n", error.what, error.why);
    FUZZ_REQUIRE(analysed);
    if (analysis.has_model) {
        FUZZ_REQUIRE(analysis.iterations && analysis.period_events == analysis.model.tick_count);
        FUZZ_REQUIRE(analysis.model.block_count <= analysis.blocks);
    }
    for (size_t i = 0; ebb__peer_name(i); i++) {
        struct ebb_footprint footprint;
        enum ebb_status status = ebb__peer_footprint(ebb__peer_name(i), span, &footprint, NULL);
        FUZZ_REQUIRE(status == EBB_OK || status == EBB_ERR_LIMIT);
        FUZZ_REQUIRE(status || footprint.peak_held_bytes >= footprint.peak_load_bytes);
        FUZZ_REQUIRE(status || footprint.peak_load_bytes == analysis.peak_bytes);
    }
    ebb__analysis_fini(&analysis);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t count;
    const struct ebb_importer *importers = ebb__importers(&count);
    for (size_t i = 0; i < count; i++) {
        struct ebb_trace trace;
        struct ebb_error error = {0};
        struct ebb_import_request request = {.name = "input"};
        importers[i].recognises(data, size);
        enum ebb_status status =
            ebb__import_memory(&importers[i], data, size, &request, &trace, &error);
        if (status == EBB_OK) {
            require_trace(&trace);
            require_use(&trace);
        } else {
            FUZZ_REQUIRE(status == EBB_ERR_FORMAT || status == EBB_ERR_UNSUPPORTED);
            FUZZ_REQUIRE(error.status == status && error.why[0] && !strcmp(error.what, "input"));
            FUZZ_REQUIRE(!trace.events && !trace.count);
        }
        ebb__trace_fini(&trace);
    }
    return 0;
}
