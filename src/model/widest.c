/* Method: the events are copied, and each allocation of an iteration gets the largest size that any
 * iteration has at its place. Then all iterations agree, and the model is built as if sizes never
 * changed. */
#include "widest.h"

#include <stdlib.h>
#include <string.h>

/* What the iterations of a template have at each of its allocations. */
struct widest {
    struct ebb_event *events; /* a copy of the stream's */
    uint64_t *bytes;          /* the largest size; 0: none was seen yet */
    bool *varies;             /* sizes differ */
    bool *of_alloc;           /* of the stream's allocations: its size varies */
};

static bool reserve(struct widest *widest, const struct ebb_stream *stream, size_t period)
{
    size_t count = stream->events.count;
    *widest = (struct widest){
        .events = malloc((count + 1) * sizeof *widest->events),
        .bytes = calloc(period + 1, sizeof *widest->bytes),
        .varies = calloc(period + 1, sizeof *widest->varies),
        .of_alloc = calloc(stream->allocs.count + 1, sizeof *widest->of_alloc),
    };
    if (!widest->events || !widest->bytes || !widest->varies || !widest->of_alloc)
        return false;
    if (count)
        memcpy(widest->events, stream->events.items, count * sizeof *widest->events);
    return true;
}

static void release(struct widest *widest)
{
    free(widest->events);
    free(widest->bytes);
    free(widest->varies);
    free(widest->of_alloc);
}

/* Finds the largest sizes, or with `set` gives them to all iterations. */
static void visit(struct widest *widest, const struct ebb_stream *stream,
                  const struct ebb_template *template, bool set)
{
    struct ebb_window window;
    size_t symbol = 0;
    while (ebb__stream_next_window(stream, template, &symbol, &window))
        for (size_t i = 0; i < template->period_symbols; i++) {
            size_t alloc = window.first_symbol + i;
            struct ebb_event *event = &widest->events[stream->allocs.items[alloc].event];
            if (set) {
                event->size_bytes = widest->bytes[i];
                widest->of_alloc[alloc] = widest->varies[i];
                continue;
            }
            uint64_t seen = widest->bytes[i], bytes = event->size_bytes;
            widest->varies[i] |= seen && seen != bytes;
            widest->bytes[i] = bytes > seen ? bytes : seen;
        }
}

static bool varies(const struct widest *widest, const struct ebb_stream *stream, uint64_t serial)
{
    size_t alloc;
    return ebb__stream_find(stream, serial, &alloc) && widest->of_alloc[alloc];
}

enum ebb_status ebb__widest_model(const struct ebb_stream *stream,
                                  const struct ebb_template *template,
                                  const struct ebb_window *window, struct ebb_model *model,
                                  struct ebb_error *error)
{
    struct widest widest;
    struct ebb_model made;
    enum ebb_status status = EBB_ERR_MEMORY;
    if (!reserve(&widest, stream, template->period_symbols)) {
        release(&widest);
        return ebb__fail(error, status, "iteration", "no memory for its sizes");
    }
    visit(&widest, stream, template, false);
    visit(&widest, stream, template, true);
    for (size_t i = 0; i < stream->events.count; i++) {
        struct ebb_event *event = &widest.events[i];
        if (event->kind == EBB_EVENT_ACCESS && event->flags & EBB_EVENT_PART &&
            varies(&widest, stream, event->block)) {
            event->flags &= (uint8_t)~EBB_EVENT_PART; /* parts of another size are others */
            event->size_bytes = 0;
        }
    }
    struct ebb_event_span trace = {widest.events, stream->events.count};
    status = ebb__model_build(trace, window->first, window->last - window->first, &made, error);
    if (!status) {
        for (uint32_t i = 0; i < made.block_count; i++)
            made.blocks[i].varies = made.blocks[i].alloc_tick != EBB_TICK_NONE &&
                                    varies(&widest, stream, made.blocks[i].serial);
        made.varies = true;
        *model = made;
    }
    release(&widest);
    return status;
}
