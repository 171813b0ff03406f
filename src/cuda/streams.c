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
        if (streams->events[i].context)
            streams->driver->cuEventDestroy_v2(streams->events[i].handle);
    ebb__cuda_unreserve(streams->streams, CUDA_MOST_STREAMS * sizeof *streams->streams);
    ebb__cuda_unreserve(streams->events, CUDA_MOST_EVENTS * sizeof *streams->events);
    ebb__cuda_unreserve(streams->waits,
                        CUDA_MOST_STREAMS * CUDA_MOST_STREAMS * sizeof *streams->waits);
}

static CUstream usual_handle(CUstream handle)
{
    return handle ? handle : CU_STREAM_LEGACY;
}

/* A default stream is that of a context; other handles name one stream. */
static bool is_it(const struct cuda_stream *stream, CUstream handle, uint64_t thread,
                  CUcontext context)
{
    return stream->is_used && !stream->is_ended && stream->handle == handle &&
           stream->thread == thread &&
           (stream->context == context || !(thread || handle == CU_STREAM_LEGACY));
}

static void look_at(const struct cuda_streams *streams, struct cuda_stream *stream,
                    CUcontext context)
{
    const struct ebb_cuda_driver *driver = streams->driver;
    unsigned flags = 0;
    stream->context = context;
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
        ebb__streams_retire(streams, stream);
        update_legacy(streams);
        return i;
    }
    return CUDA_NO_STREAM;
}

static uint32_t add_stream(struct cuda_streams *streams, CUstream handle, uint64_t thread,
                           uint64_t order, CUcontext context)
{
    uint32_t index = 0;
    while (index < streams->used && streams->streams[index].is_used)
        index++;
    if (index == CUDA_MOST_STREAMS) { /* ended ones may be over */
        struct cuda_visit visit = ebb__streams_enter(streams);
        ebb__streams_poll(streams);
        ebb__streams_leave(streams, visit);
        for (index = 0; index < streams->used && streams->streams[index].is_used;)
            index++;
    }
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
    look_at(streams, stream, context);
    if (index == streams->used)
        streams->used++;
    streams->live_count++;
    streams->blocking_count += stream->is_blocking;
    update_legacy(streams);
    return index;
}

uint32_t ebb__streams_find_in(struct cuda_streams *streams, CUcontext context, CUstream handle,
                              uint64_t order)
{
    uint64_t thread = handle == CU_STREAM_PER_THREAD ? own_thread() : 0;
    handle = usual_handle(handle);
    if (!context)
        context = streams->context;
    if (streams->newest != CUDA_NO_STREAM &&
        is_it(&streams->streams[streams->newest], handle, thread, context))
        return streams->newest;
    for (uint32_t i = 0; i < streams->used; i++)
        if (is_it(&streams->streams[i], handle, thread, context))
            return streams->newest = i;
    return streams->newest = add_stream(streams, handle, thread, order, context);
}

uint32_t ebb__streams_find(struct cuda_streams *streams, CUstream handle, uint64_t order)
{
    return ebb__streams_find_in(streams, NULL, handle, order);
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
    struct cuda_visit visit = ebb__streams_enter_context(streams, stream->context);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!streams->driver->cuStreamIsCapturing ||
        (streams->driver->cuStreamIsCapturing(stream->handle, &status) == CUDA_SUCCESS &&
         status == CU_STREAM_CAPTURE_STATUS_NONE))
        ebb__streams_record(streams, stream, &event);
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
        if (all ? streams->streams[i].context == streams->context
                : is_it(&streams->streams[i], usual_handle(handle), thread, streams->context))
            pass_all(streams, &streams->streams[i]);
}

void ebb__streams_mark(struct cuda_streams *streams, CUstream handle)
{
    uint64_t thread = handle == CU_STREAM_PER_THREAD ? own_thread() : 0;
    for (uint32_t i = 0; i < streams->used; i++)
        if (is_it(&streams->streams[i], usual_handle(handle), thread, streams->context))
            ebb__streams_mark_until(streams, i, streams->streams[i].last_order);
}

void ebb__streams_forget(struct cuda_streams *streams, CUstream handle)
{
    handle = usual_handle(handle);
    for (uint32_t i = 0; i < streams->used; i++) {
        struct cuda_stream *stream = &streams->streams[i];
        if (!is_it(stream, handle, 0, streams->context) || stream->is_legacy)
            continue;
        ebb__streams_mark_until(streams, i, stream->last_order);
        stream->is_ended = true;
        streams->live_count--;
        streams->blocking_count -= stream->is_blocking;
        update_legacy(streams);
        return;
    }
}

void ebb__streams_lose(struct cuda_streams *streams, CUcontext context)
{
    for (uint32_t i = 0; context != streams->context && i < streams->used; i++) {
        struct cuda_stream *stream = &streams->streams[i];
        if (!stream->is_used || stream->context != context)
            continue;
        while (stream->recent_count)
            ebb__streams_release(streams, stream->recent[--stream->recent_count]);
        streams->live_count -= !stream->is_ended;
        streams->blocking_count -= !stream->is_ended && stream->is_blocking;
        ebb__streams_retire(streams, stream);
    }
    for (uint32_t i = 0; context != streams->context && i < streams->event_count; i++) {
        struct cuda_event_entry *entry = &streams->events[i];
        if (entry->context != context)
            continue;
        atomic_store_explicit(&entry->is_over, 1, memory_order_release);
        streams->dead_count++;
        entry->context = NULL; /* the handle ends with the context */
    }
    update_legacy(streams);
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
    bool is_default = (a->is_legacy && b->is_blocking) || (a->is_blocking && b->is_legacy);
    return index == passage->stream || (is_default && a->context == b->context);
}
