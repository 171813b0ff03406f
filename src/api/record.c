/* Records: the events of an iteration, as a trace would have them. */
#include "api/internal.h"

#include "base/geometry.h"
#include "base/map.h"

#include <stdatomic.h>

#define MOST_EVENTS ((size_t)1 << 24) /* a limit: an iteration with more is not planned */

uint64_t ebb__api_small_bytes(const struct ebb_context *context)
{
    uint64_t now = atomic_load(&context->ring->counters.slab_peak_bytes);
    /* Classes are at most an eighth apart, and slabs are not full. */
    uint64_t expected = context->small_bytes + context->small_bytes / 4;
    expected = (expected + EBB_SLAB_BYTES - 1) & ~(uint64_t)(EBB_SLAB_BYTES - 1);
    return now > expected ? now : expected;
}

static void push(struct ebb_context *context, struct record *record, const struct ebb_event *event)
{
    if (context->recording.writer && context->phase != API_DRY_RUN &&
        context->recording.status == EBB_OK)
        context->recording.status =
            ebb__trace_writer_append(context->recording.writer, event, 1, NULL);
    if (!record)
        return;
    if (record->events.count >= MOST_EVENTS || !ebb_vec_push(&record->events, *event))
        record->is_whole = false;
}

static struct record *present(struct ebb_context *context)
{
    return context->is_recorded ? &context->plans[context->kind].newest : NULL;
}

/* FNV-1a over words. Ends of lives are left out: a program may end one early or late. */
static void digest(struct record *record, uint64_t word)
{
    record->digest = (record->digest ^ word) * 0x100000001b3u;
}

void ebb__api_record_event(struct ebb_context *context, enum ebb_event_kind kind,
                           const struct tensor *tensor, enum ebb_access_kind access, bool held)
{
    struct record *record = present(context);
    if (tensor->is_small || (!record && !context->recording.writer))
        return;
    uint32_t index = (uint32_t)(tensor - context->tensors.items);
    struct ebb_event event = {
        .time_ns = context->time_ns,
        .block = ebb__api_life(context, tensor),
        .size_bytes = tensor->bytes,
        .kind = (uint8_t)kind,
        .access = (uint8_t)access,
        .flags = kind == EBB_EVENT_ACCESS ? EBB_EVENT_ANNOUNCED | (held ? EBB_EVENT_HELD : 0) : 0,
    };
    if (record && kind != EBB_EVENT_FREE)
        digest(record, (uint64_t)index << 8 | (uint64_t)kind << 4 | (uint64_t)access << 1 | held);
    push(context, record, &event);
}

void ebb__api_record_mark(struct ebb_context *context, enum ebb_mark mark, uint64_t value)
{
    push(context, present(context),
         &(struct ebb_event){.time_ns = context->time_ns,
                             .size_bytes = value,
                             .kind = EBB_EVENT_MARK,
                             .mark = (uint8_t)mark});
}

bool ebb__api_record_begin(struct ebb_context *context, struct record *record)
{
    record->events.count = 0;
    record->digest = 0xcbf29ce484222325u;
    record->is_whole = true;
    struct ebb_event event = {.kind = EBB_EVENT_MARK, .mark = EBB_MARK_TRACE_ON};
    bool good = ebb_vec_push(&record->events, event);
    for (size_t i = 1; good && i < context->tensors.count; i++) {
        const struct tensor *tensor = &context->tensors.items[i];
        if (tensor->is_alive && tensor->is_declared && !tensor->is_small && tensor->of == i)
            good = ebb_vec_push(&record->events,
                                ((struct ebb_event){.block = ebb__api_life(context, tensor),
                                                    .size_bytes = tensor->bytes,
                                                    .kind = EBB_EVENT_ALLOC}));
    }
    for (size_t i = 0; i < record->events.count; i++)
        record->events.items[i].time_ns = context->time_ns;
    record->first = record->events.count;
    return good;
}

void ebb__api_record_fini(struct record *record)
{
    ebb_vec_free(&record->events);
}

/* Ends, at the end of the iteration, the lives that begin in it and do not end in it: no more is
 * known of them. */
static bool end_lives(const struct record *record, struct record *whole)
{
    struct ebb_map ended = {0};
    bool good = true;
    uint64_t last_ns = record->events.items[record->events.count - 1].time_ns, unused;
    for (size_t i = record->events.count; good && i-- > record->first;) {
        const struct ebb_event *event = &record->events.items[i];
        if (event->kind == EBB_EVENT_FREE)
            good = ebb__map_put(&ended, event->block, 1);
        else if (event->kind == EBB_EVENT_ALLOC && !ebb__map_get(&ended, event->block, &unused))
            good = ebb_vec_push(&whole->events, ((struct ebb_event){.time_ns = last_ns,
                                                                    .block = event->block,
                                                                    .size_bytes = event->size_bytes,
                                                                    .kind = EBB_EVENT_FREE}));
    }
    ebb__map_fini(&ended);
    return good;
}

static bool append(struct record *whole, const struct ebb_event *events, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!ebb_vec_push(&whole->events, events[i]))
            return false;
    return true;
}

enum ebb_status ebb__api_model(const struct plan_of_kind *plan, struct ebb_model *model,
                               struct ebb_error *error)
{
    const struct record *newest = &plan->newest, *before = &plan->before;
    const struct record *window = before->events.count ? before : newest;
    struct record whole = {0};
    size_t last = window->events.count - 1; /* the mark at its end, which is the next event */
    bool good = append(&whole, window->events.items, last);
    if (good && window == newest)
        good = end_lives(newest, &whole);
    size_t period = whole.events.count - window->first;
    good = good && append(&whole, window->events.items + last, 1);
    if (good && window == before)
        good = append(&whole, newest->events.items + newest->first,
                      newest->events.count - newest->first);
    enum ebb_status status =
        good ? ebb__model_build((struct ebb_event_span){whole.events.items, whole.events.count},
                                window->first, period, model, error)
             : ebb__fail(error, EBB_ERR_MEMORY, "iteration", "no memory for its record");
    ebb_vec_free(&whole.events);
    return status;
}
