#include "cuda/streams.h"

#include "cuda/memory.h"

#include <string.h>

#define CUDA_FRESH 0  /* no work since the stream was last known to have passed all of it */
#define CUDA_SHARED 1 /* work of several threads since then */

/* A number names the thread: a new one may have the thread-local addresses of one that ended. */
static uint64_t own_thread(void)
{
    static _Atomic uint64_t newest = CUDA_SHARED;
    static _Thread_local uint64_t own;
    if (!own)
        own = atomic_fetch_add(&newest, 1) + 1;
    return own;
}

bool ebb__streams_init(struct cuda_streams *streams, const struct ebb_cuda_driver *driver,
                       CUcontext context)
{
    memset(streams, 0, sizeof *streams);
    streams->driver = driver;
    streams->context = context;
    streams->newest = CUDA_NO_STREAM;
    streams->streams = ebb__cuda_reserve(CUDA_MOST_STREAMS * sizeof *streams->streams);
    streams->events = ebb__cuda_reserve(CUDA_MOST_EVENTS * sizeof *streams->events);
    streams->waits =
        ebb__cuda_reserve(CUDA_MOST_STREAMS * CUDA_MOST_STREAMS * sizeof *streams->waits);
    return streams->streams && streams->events && streams->waits;
}

void ebb__streams_fini(struct cuda_streams *streams, bool is_abandoned)
{
    for (uint32_t i = 0; !is_abandoned && i < streams->event_count; i++)
        streams->driver->cuEventDestroy_v2(streams->events[i].handle);
    ebb__cuda_unreserve(streams->streams, CUDA_MOST_STREAMS * sizeof *streams->streams);
    ebb__cuda_unreserve(streams->events, CUDA_MOST_EVENTS * sizeof *streams->events);
    ebb__cuda_unreserve(streams->waits,
                        CUDA_MOST_STREAMS * CUDA_MOST_STREAMS * sizeof *streams->waits);
}

static struct cuda_visit enter(const struct cuda_streams *streams, CUcontext context)
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
    return enter(streams, streams->context);
}

void ebb__streams_leave(const struct cuda_streams *streams, struct cuda_visit visit)
{
    CUcontext popped;
    if (visit.is_relaxed)
        streams->driver->cuThreadExchangeStreamCaptureMode(&visit.mode);
    if (visit.is_pushed)
        streams->driver->cuCtxPopCurrent_v2(&popped);
}

/* ---- events ---------------------------------------------------------------------------------- */

static uint32_t take_event(struct cuda_streams *streams, CUcontext context)
{
    for (uint32_t tries = 0; tries < 64 && tries < streams->event_count; tries++) {
        uint32_t event = streams->event_cursor++ % streams->event_count;
        if (streams->events[event].context == context &&
            atomic_load_explicit(&streams->events[event].references, memory_order_acquire) == 0)
            return event;
    }
    if (streams->event_count == CUDA_MOST_EVENTS)
        return CUDA_NO_EVENT;
    struct cuda_event_entry *entry = &streams->events[streams->event_count];
    if (streams->driver->cuEventCreate(&entry->handle, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return CUDA_NO_EVENT;
    entry->context = context;
    return streams->event_count++;
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

static bool record(struct cuda_streams *streams, struct cuda_stream *stream, uint32_t *event)
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
    /* For the legacy stream the answer is an error if a stream is captured that it would join. */
    return !streams->driver->cuStreamIsCapturing ||
           (streams->driver->cuStreamIsCapturing(stream->handle, &status) == CUDA_SUCCESS &&
            status == CU_STREAM_CAPTURE_STATUS_NONE);
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
    struct cuda_visit visit = enter(streams, stream->context);
    bool done = record(streams, stream, event);
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

void ebb__streams_mark_all(struct cuda_streams *streams)
{
    for (uint32_t i = 0; i < streams->used; i++) {
        struct cuda_stream *stream = &streams->streams[i];
        uint32_t event;
        struct cuda_passage all = {i, queued_order(stream)};
        if (stream->is_used && stream->passed < all.order &&
            ebb__streams_cover(streams, &all, &event))
            ebb__streams_release(streams, event);
    }
}

static void retire(struct cuda_streams *streams, struct cuda_stream *stream)
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
            retire(streams, stream);
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
        struct cuda_visit visit = enter(streams, stream->context);
        done = record(streams, stream, event);
        ebb__streams_leave(streams, visit);
    } else if ((stream->is_ended || stream->is_eager) && stream->recent_count) {
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
        } else if (!stream->is_ended && !stream->is_eager) {
            while (*count)
                ebb__streams_release(streams, events[--*count]);
            return false;
        }
    }
    return true;
}

/* ---- streams --------------------------------------------------------------------------------- */

static CUstream usual_handle(CUstream handle)
{
    return handle ? handle : CU_STREAM_LEGACY;
}

static bool is_it(const struct cuda_stream *stream, CUstream handle, uint64_t thread)
{
    return stream->is_used && !stream->is_ended && stream->handle == handle &&
           stream->thread == thread;
}

static void look_at(const struct cuda_streams *streams, struct cuda_stream *stream)
{
    const struct ebb_cuda_driver *driver = streams->driver;
    unsigned flags = 0;
    stream->context = streams->context;
    stream->is_legacy = stream->handle == CU_STREAM_LEGACY;
    if (stream->is_legacy || stream->thread)
        return;
    if (driver->cuStreamGetFlags)
        driver->cuStreamGetFlags(stream->handle, &flags);
    if (driver->cuStreamGetCtx)
        driver->cuStreamGetCtx(stream->handle, &stream->context);
    stream->is_blocking = !(flags & CU_STREAM_NON_BLOCKING);
}

/* Work on the legacy stream and on blocking ones waits for each other. An event that is recorded
 * late on the legacy stream would add such waits. So it is recorded early if there are others. */
static void update_legacy(struct cuda_streams *streams)
{
    for (uint32_t i = 0; i < streams->used; i++)
        if (streams->streams[i].is_used && streams->streams[i].is_legacy)
            streams->streams[i].is_eager = streams->blocking_count > 0;
}

/* Nobody tells when a thread ends. If there are too many streams, one of a thread goes that is past
 * all of its work. A thread that still lives gets another. CUDA_NO_STREAM: there is none. */
static uint32_t retire_thread(struct cuda_streams *streams)
{
    for (uint32_t i = 0; i < streams->used; i++) {
        struct cuda_stream *stream = &streams->streams[i];
        if (!stream->thread || stream->open_count || stream->recent_count ||
            stream->passed < stream->last_order)
            continue;
        streams->live_count--;
        streams->blocking_count -= stream->is_blocking;
        retire(streams, stream);
        update_legacy(streams);
        return i;
    }
    return CUDA_NO_STREAM;
}

static uint32_t add_stream(struct cuda_streams *streams, CUstream handle, uint64_t thread,
                           uint64_t order)
{
    uint32_t index = 0;
    while (index < streams->used && streams->streams[index].is_used)
        index++;
    if (index == CUDA_MOST_STREAMS)
        index = retire_thread(streams);
    if (index == CUDA_NO_STREAM)
        return CUDA_NO_STREAM;
    ebb__streams_mark_all(streams); /* what is queued already is known apart from what follows */
    struct cuda_stream *stream = &streams->streams[index];
    *stream = (struct cuda_stream){
        .handle = handle, .thread = thread, .is_used = true, .is_eager = thread != 0};
    stream->is_blocking = thread != 0;
    stream->last_order = stream->passed = order;
    look_at(streams, stream);
    if (index == streams->used)
        streams->used++;
    streams->live_count++;
    streams->blocking_count += stream->is_blocking;
    update_legacy(streams);
    return index;
}

uint32_t ebb__streams_find(struct cuda_streams *streams, CUstream handle, uint64_t order)
{
    uint64_t thread = handle == CU_STREAM_PER_THREAD ? own_thread() : 0;
    handle = usual_handle(handle);
    if (streams->newest != CUDA_NO_STREAM &&
        is_it(&streams->streams[streams->newest], handle, thread))
        return streams->newest;
    for (uint32_t i = 0; i < streams->used; i++)
        if (is_it(&streams->streams[i], handle, thread))
            return streams->newest = i;
    return streams->newest = add_stream(streams, handle, thread, order);
}

void ebb__streams_begin(struct cuda_streams *streams, uint32_t index, uint64_t order)
{
    struct cuda_stream *stream = &streams->streams[index];
    if (stream->open_count++ == 0)
        stream->open_since = order;
    stream->last_order = order;
    uint64_t thread = own_thread();
    if (stream->worker != thread)
        stream->worker = stream->worker == CUDA_FRESH ? thread : CUDA_SHARED;
}

void ebb__streams_end(struct cuda_streams *streams, uint32_t index)
{
    struct cuda_stream *stream = &streams->streams[index];
    uint32_t event;
    if (stream->open_count)
        stream->open_count--;
    if (!stream->is_eager || stream->is_ended)
        return;
    struct cuda_visit visit = enter(streams, stream->context);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!streams->driver->cuStreamIsCapturing ||
        (streams->driver->cuStreamIsCapturing(stream->handle, &status) == CUDA_SUCCESS &&
         status == CU_STREAM_CAPTURE_STATUS_NONE))
        record(streams, stream, &event);
    ebb__streams_leave(streams, visit);
}

/* Work that another thread queued meanwhile may not be over. */
static void pass_all(struct cuda_streams *streams, struct cuda_stream *stream)
{
    if (!stream->is_used || stream->open_count || stream->worker != own_thread())
        return;
    stream->passed = stream->last_order;
    stream->worker = CUDA_FRESH;
    while (stream->recent_count)
        ebb__streams_release(streams, stream->recent[--stream->recent_count]);
}

void ebb__streams_synchronized(struct cuda_streams *streams, CUstream handle, bool all)
{
    uint64_t thread = handle == CU_STREAM_PER_THREAD ? own_thread() : 0;
    for (uint32_t i = 0; i < streams->used; i++)
        if (all || is_it(&streams->streams[i], usual_handle(handle), thread))
            pass_all(streams, &streams->streams[i]);
}

void ebb__streams_forget(struct cuda_streams *streams, CUstream handle)
{
    handle = usual_handle(handle);
    for (uint32_t i = 0; i < streams->used; i++) {
        struct cuda_stream *stream = &streams->streams[i];
        if (!is_it(stream, handle, 0) || stream->is_legacy)
            continue;
        uint32_t event;
        struct cuda_passage all = {i, stream->last_order};
        if (stream->passed < all.order && ebb__streams_cover(streams, &all, &event))
            ebb__streams_release(streams, event);
        stream->is_ended = true;
        streams->live_count--;
        streams->blocking_count -= stream->is_blocking;
        update_legacy(streams);
        return;
    }
}

bool ebb__streams_is_over(const struct cuda_streams *streams, const struct cuda_passage *passage)
{
    const struct cuda_stream *stream = &streams->streams[passage->stream];
    return !stream->is_used || stream->passed >= passage->order;
}

bool ebb__streams_is_ordered(const struct cuda_streams *streams, uint32_t index,
                             const struct cuda_passage *passage)
{
    const struct cuda_stream *a = &streams->streams[index];
    const struct cuda_stream *b = &streams->streams[passage->stream];
    return index == passage->stream || (a->is_legacy && b->is_blocking) ||
           (a->is_blocking && b->is_legacy);
}
