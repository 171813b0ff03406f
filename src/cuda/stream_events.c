/* Events that tell how far a stream has come, and how they are recorded. */
#include "cuda/streams.h"

#include <string.h>

struct cuda_visit ebb__streams_enter_context(const struct cuda_streams *streams, CUcontext context)
{
    const struct ebb_cuda_driver *driver = streams->driver;
    struct cuda_visit visit = {.mode = CU_STREAM_CAPTURE_MODE_RELAXED};
    visit.is_pushed = driver->cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
    visit.is_relaxed = driver->cuThreadExchangeStreamCaptureMode &&
                       driver->cuThreadExchangeStreamCaptureMode(&visit.mode) == CUDA_SUCCESS;
    return visit;
}

struct cuda_visit ebb__streams_enter(const struct cuda_streams *streams)
{
    return ebb__streams_enter_context(streams, streams->context);
}

void ebb__streams_leave(const struct cuda_streams *streams, struct cuda_visit visit)
{
    CUcontext popped;
    if (visit.is_relaxed)
        streams->driver->cuThreadExchangeStreamCaptureMode(&visit.mode);
    if (visit.is_pushed)
        streams->driver->cuCtxPopCurrent_v2(&popped);
}

void ebb__streams_await(const struct cuda_streams *streams, CUstream handle)
{
    const struct ebb_cuda_driver *driver = streams->driver;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool is_relaxed = driver->cuThreadExchangeStreamCaptureMode &&
                      driver->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    driver->cuStreamSynchronize(handle);
    if (is_relaxed)
        driver->cuThreadExchangeStreamCaptureMode(&mode);
}

/* An entry whose context has ended, or else the first one that was never used. */
static uint32_t find_dead(const struct cuda_streams *streams)
{
    for (uint32_t i = 0; streams->dead_count && i < streams->event_count; i++)
        if (!streams->events[i].context &&
            atomic_load_explicit(&streams->events[i].references, memory_order_acquire) == 0)
            return i;
    return streams->event_count;
}

static uint32_t take_event(struct cuda_streams *streams, CUcontext context)
{
    for (uint32_t tries = 0; tries < 64 && tries < streams->event_count; tries++) {
        uint32_t event = streams->event_cursor++ % streams->event_count;
        if (streams->events[event].context == context &&
            atomic_load_explicit(&streams->events[event].references, memory_order_acquire) == 0)
            return event;
    }
    uint32_t event = find_dead(streams);
    if (event == CUDA_MOST_EVENTS)
        return CUDA_NO_EVENT;
    struct cuda_event_entry *entry = &streams->events[event];
    if (streams->driver->cuEventCreate(&entry->handle, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return CUDA_NO_EVENT;
    entry->context = context;
    if (event == streams->event_count)
        streams->event_count++;
    else
        streams->dead_count--;
    return event;
}

void ebb__streams_release(struct cuda_streams *streams, uint32_t event)
{
    atomic_fetch_sub_explicit(&streams->events[event].references, 1, memory_order_release);
}

bool ebb__streams_event_is_over(struct cuda_streams *streams, uint32_t event)
{
    struct cuda_event_entry *entry = &streams->events[event];
    if (!atomic_load_explicit(&entry->is_over, memory_order_acquire)) {
        /* Any error means that no work will run any more. */
        if (streams->driver->cuEventQuery(entry->handle) == CUDA_ERROR_NOT_READY)
            return false;
        atomic_store_explicit(&entry->is_over, 1, memory_order_release);
    }
    return true;
}

/* The list of recent events has room for one more: the one before the newest goes. The newest
 * covers its work, and the older ones are over sooner. */
static void note_event(struct cuda_streams *streams, struct cuda_stream *stream, uint32_t event)
{
    if (stream->recent_count == CUDA_RECENT_EVENTS) {
        ebb__streams_release(streams, stream->recent[CUDA_RECENT_EVENTS - 2]);
        stream->recent[CUDA_RECENT_EVENTS - 2] = stream->recent[CUDA_RECENT_EVENTS - 1];
        stream->recent_count--;
    }
    atomic_fetch_add_explicit(&streams->events[event].references, 1, memory_order_relaxed);
    stream->recent[stream->recent_count++] = event;
}

/* Order up to which all work of the stream is queued. */
static uint64_t queued_order(const struct cuda_stream *stream)
{
    return stream->open_count ? stream->open_since - 1 : stream->last_order;
}

bool ebb__streams_record(struct cuda_streams *streams, struct cuda_stream *stream, uint32_t *event)
{
    uint32_t taken = take_event(streams, stream->context);
    if (taken == CUDA_NO_EVENT)
        return false;
    struct cuda_event_entry *entry = &streams->events[taken];
    if (streams->driver->cuEventRecord(entry->handle, stream->handle) != CUDA_SUCCESS)
        return false;
    entry->order = queued_order(stream);
    streams->has_news = true;
    atomic_store_explicit(&entry->is_over, 0, memory_order_relaxed);
    note_event(streams, stream, taken);
    *event = taken;
    return true;
}

bool ebb__streams_can_record(const struct cuda_streams *streams, uint32_t index)
{
    const struct cuda_stream *stream = &streams->streams[index];
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (stream->is_ended || stream->thread)
        return false;
    if (!streams->driver->cuStreamIsCapturing)
        return true;
    /* For the legacy stream the answer is an error if a stream is captured that it would join. The
     * parent's messages come on a thread without a context. */
    struct cuda_visit visit = ebb__streams_enter_context(streams, stream->context);
    CUresult result = streams->driver->cuStreamIsCapturing(stream->handle, &status);
    ebb__streams_leave(streams, visit);
    return result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE;
}

bool ebb__streams_cover(struct cuda_streams *streams, const struct cuda_passage *passage,
                        uint32_t *event)
{
    struct cuda_stream *stream = &streams->streams[passage->stream];
    for (uint32_t i = 0; i < stream->recent_count; i++) {
        *event = stream->recent[i];
        if (streams->events[*event].order >= passage->order) {
            atomic_fetch_add_explicit(&streams->events[*event].references, 1, memory_order_relaxed);
            return true;
        }
    }
    /* A new event is behind all that has been queued. Work that is still between begin and end was
     * so when the passage was noted: whatever must be waited for has ended before. */
    if (!ebb__streams_can_record(streams, passage->stream))
        return false;
    struct cuda_visit visit = ebb__streams_enter_context(streams, stream->context);
    bool done = ebb__streams_record(streams, stream, event);
    ebb__streams_leave(streams, visit);
    if (done)
        atomic_fetch_add_explicit(&streams->events[*event].references, 1, memory_order_relaxed);
    return done;
}

bool ebb__streams_can_cover(const struct cuda_streams *streams, const struct cuda_passage *passage)
{
    const struct cuda_stream *stream = &streams->streams[passage->stream];
    for (uint32_t i = stream->recent_count; i-- > 0;)
        if (streams->events[stream->recent[i]].order >= passage->order)
            return true;
    return ebb__streams_can_record(streams, passage->stream);
}

void ebb__streams_mark_until(struct cuda_streams *streams, uint32_t index, uint64_t order)
{
    struct cuda_passage all = {index, order};
    uint32_t event;
    if (streams->streams[index].passed < order && ebb__streams_cover(streams, &all, &event))
        ebb__streams_release(streams, event);
}

void ebb__streams_mark_all(struct cuda_streams *streams)
{
    for (uint32_t i = 0; i < streams->used; i++)
        if (streams->streams[i].is_used)
            ebb__streams_mark_until(streams, i, queued_order(&streams->streams[i]));
}

void ebb__streams_retire(struct cuda_streams *streams, struct cuda_stream *stream)
{
    uint32_t index = (uint32_t)(stream - streams->streams);
    for (uint32_t i = 0; i < streams->used; i++) {
        streams->waits[i * CUDA_MOST_STREAMS + index] = 0;
        streams->waits[index * CUDA_MOST_STREAMS + i] = 0;
    }
    *stream = (struct cuda_stream){0};
}

bool ebb__streams_poll(struct cuda_streams *streams)
{
    bool pending = false;
    for (uint32_t i = 0; i < streams->used; i++) {
        struct cuda_stream *stream = &streams->streams[i];
        while (stream->recent_count && ebb__streams_event_is_over(streams, stream->recent[0])) {
            uint64_t order = streams->events[stream->recent[0]].order;
            if (order > stream->passed) {
                stream->passed = order;
                streams->news_count++;
            }
            ebb__streams_release(streams, stream->recent[0]);
            memmove(stream->recent, stream->recent + 1,
                    --stream->recent_count * sizeof *stream->recent);
        }
        pending |= stream->recent_count > 0;
        if (stream->is_ended && stream->passed >= stream->last_order && !stream->recent_count)
            ebb__streams_retire(streams, stream);
    }
    return pending;
}

/* Of an ended stream and of one that records at the end of each work, the newest event is behind
 * all that has been queued. */
static bool fence_one(struct cuda_streams *streams, uint32_t index, uint32_t *event)
{
    struct cuda_stream *stream = &streams->streams[index];
    bool done = ebb__streams_can_record(streams, index);
    if (done) {
        struct cuda_visit visit = ebb__streams_enter_context(streams, stream->context);
        done = ebb__streams_record(streams, stream, event);
        ebb__streams_leave(streams, visit);
    } else if ((stream->is_ended || stream->is_eager) && stream->recent_count &&
               streams->events[stream->recent[stream->recent_count - 1]].order >=
                   queued_order(stream)) {
        *event = stream->recent[stream->recent_count - 1];
        done = true;
    }
    if (done)
        atomic_fetch_add_explicit(&streams->events[*event].references, 1, memory_order_relaxed);
    return done;
}

bool ebb__streams_fence(struct cuda_streams *streams, uint32_t *events, uint32_t *count)
{
    *count = 0;
    for (uint32_t i = 0; i < streams->used; i++) {
        struct cuda_stream *stream = &streams->streams[i];
        if (!stream->is_used || (!stream->open_count && stream->passed >= stream->last_order))
            continue;
        if (fence_one(streams, i, &events[*count])) {
            ++*count;
        } else if ((!stream->is_ended && !stream->is_eager) ||
                   stream->passed < queued_order(stream)) { /* it may still run */
            while (*count)
                ebb__streams_release(streams, events[--*count]);
            return false;
        }
    }
    return true;
}
