/* Events: a point in a stream, named by the stream and the number of its operation. */
#include "fake.h"
#include <stdlib.h>

struct record_op {
    struct op op;
    CUevent event;
    uint64_t seq;
};

static void record_run(struct op *op, struct CUstream_st *stream)
{
    struct record_op *record = (struct record_op *)op;
    pthread_mutex_lock(&record->event->lock);
    record->event->time_ns = fake_clock_ns();
    fake_clock_join(record->event->acquired, stream->acquired);
    pthread_mutex_unlock(&record->event->lock);
}

static const struct op_class record_class = {"event record", CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                                             record_run, NULL, NULL};

struct wait_op {
    struct op op;
    CUevent event;
};

static void wait_run(struct op *op, struct CUstream_st *stream)
{
    CUevent event = ((struct wait_op *)op)->event;
    pthread_mutex_lock(&event->lock);
    fake_clock_join(stream->acquired, event->acquired);
    pthread_mutex_unlock(&event->lock);
}

static const struct op_class wait_class = {"event wait", CU_GRAPH_NODE_TYPE_WAIT_EVENT, wait_run,
                                           NULL, NULL};

API cuEventCreate(CUevent *event, unsigned flags)
{
    CUcontext context;
    TRY(fake_usable(&context));
    if (!event || flags > 7 ||
        ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)))
        DONE(CUDA_ERROR_INVALID_VALUE);
    CUevent made = calloc(1, sizeof(*made));
    if (!made || fake_fault(FAULT_EVENT)) {
        free(made);
        DONE(CUDA_ERROR_OUT_OF_MEMORY);
    }
    made->flags = flags;
    made->context = context;
    made->alive = true;
    if (fake_set.races)
        made->acquired = calloc(MOST_SLOTS, sizeof(*made->acquired));
    pthread_mutex_init(&made->lock, NULL);
    *event = made;
    return CUDA_SUCCESS;
}

/* Operations in streams may still hold the event, so its memory stays. */
API cuEventDestroy_v2(CUevent event)
{
    TRY(fake_ready());
    if (!event || !event->alive)
        DONE(CUDA_ERROR_INVALID_HANDLE);
    event->alive = false;
    return CUDA_SUCCESS;
}

static CUresult check(CUevent event)
{
    CUcontext context;
    CUresult ready = fake_current(&context);
    if (ready && ready != CUDA_ERROR_INVALID_CONTEXT)
        return ready;
    if (!event || !event->alive)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!event->context->alive)
        fake_violation("dead", "use of an event whose context has ended");
    return atomic_load(&event->context->error);
}

static CUresult record(CUevent event, CUstream handle, unsigned flags)
{
    CUcontext context;
    TRY(fake_current(&context));
    TRY(check(event));
    struct CUstream_st *stream;
    TRY(fake_stream_of(handle, context, &stream));
    if (stream->context != event->context)
        DONE(CUDA_ERROR_INVALID_HANDLE);
    if (stream->capture && !(flags & CU_EVENT_RECORD_EXTERNAL))
        DONE(fake_capture_record(stream, event));
    struct record_op *op = fake_op_new(&record_class, sizeof(*op));
    if (!op)
        DONE(CUDA_ERROR_OUT_OF_MEMORY);
    op->event = event;
    uint64_t seq = 0;
    op->op.seq_to = &seq;
    pthread_mutex_lock(&event->lock);
    event->capture = NULL;
    fake_nodes_clear(&event->nodes);
    pthread_mutex_unlock(&event->lock);
    bool captured = stream->capture != NULL;
    TRY(fake_enqueue(stream, &op->op));
    if (captured)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&event->lock);
    event->stream = stream;
    event->seq = seq;
    if (fake_set.races && stream->clock) {
        if (!event->clock)
            event->clock = calloc(MOST_SLOTS, sizeof(*event->clock));
        if (event->clock)
            memcpy(event->clock, stream->clock, MOST_SLOTS * sizeof(*event->clock));
    }
    pthread_mutex_unlock(&event->lock);
    return CUDA_SUCCESS;
}

API cuEventRecord(CUevent event, CUstream stream)
{
    return record(event, stream, 0);
}

API cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
    if (flags > CU_EVENT_RECORD_EXTERNAL)
        DONE(CUDA_ERROR_INVALID_VALUE);
    return record(event, stream, flags);
}

API cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags)
{
    CUcontext context;
    (void)flags;
    TRY(fake_current(&context));
    TRY(check(event));
    struct CUstream_st *stream;
    TRY(fake_stream_of(handle, context, &stream));
    if (event->capture)
        DONE(fake_capture_wait(stream, event));
    if (stream->capture && !(flags & CU_EVENT_WAIT_EXTERNAL)) {
        fake_capture_spoil(stream);
        DONE(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    }
    pthread_mutex_lock(&event->lock);
    struct CUstream_st *on = event->stream;
    uint64_t seq = event->seq;
    uint64_t *clock = NULL;
    if (on && event->clock && (clock = malloc(MOST_SLOTS * sizeof(*clock))))
        memcpy(clock, event->clock, MOST_SLOTS * sizeof(*clock));
    pthread_mutex_unlock(&event->lock);
    if (!on || (!fake_set.races && fake_stream_done(on, seq)))
        return CUDA_SUCCESS; /* never recorded, or long past */
    struct wait_op *op = fake_op_new(&wait_class, sizeof(*op));
    if (!op)
        DONE(CUDA_ERROR_OUT_OF_MEMORY);
    op->op.clock = clock;
    op->event = event;
    fake_op_after(&op->op, on, seq);
    DONE(fake_enqueue(stream, &op->op));
}

/* What a host call on an event of a capture gets. */
static CUresult captured(CUevent event)
{
    if (!event->capture)
        return CUDA_SUCCESS;
    return CUDA_ERROR_CAPTURED_EVENT;
}

API cuEventQuery(CUevent event)
{
    TRY(check(event));
    TRY(captured(event));
    TRY(fake_capture_unsafe());
    fake_sched_poll();
    pthread_mutex_lock(&event->lock);
    struct CUstream_st *on = event->stream;
    uint64_t seq = event->seq;
    pthread_mutex_unlock(&event->lock);
    if (on && !fake_stream_done(on, seq))
        return CUDA_ERROR_NOT_READY;
    if (on)
        fake_observe(on, seq);
    DONE(atomic_load(&event->context->error));
}

API cuEventSynchronize(CUevent event)
{
    TRY(check(event));
    TRY(captured(event));
    TRY(fake_capture_unsafe());
    pthread_mutex_lock(&event->lock);
    struct CUstream_st *on = event->stream;
    uint64_t seq = event->seq;
    pthread_mutex_unlock(&event->lock);
    fake_count(COUNT_SYNCS, 1);
    if (on)
        fake_wait(on, seq);
    DONE(atomic_load(&event->context->error));
}

static CUresult elapsed(float *milliseconds, CUevent first, CUevent last)
{
    TRY(check(first));
    TRY(check(last));
    if ((first->flags | last->flags) & CU_EVENT_DISABLE_TIMING || !first->stream || !last->stream)
        DONE(CUDA_ERROR_INVALID_HANDLE);
    if (!fake_stream_done(first->stream, first->seq) || !fake_stream_done(last->stream, last->seq))
        return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)((double)last->time_ns - (double)first->time_ns) / 1e6f;
    return CUDA_SUCCESS;
}

API cuEventElapsedTime(float *milliseconds, CUevent first, CUevent last)
{
    return elapsed(milliseconds, first, last);
}

API cuEventElapsedTime_v2(float *milliseconds, CUevent first, CUevent last)
{
    return elapsed(milliseconds, first, last);
}

API cuCtxRecordEvent(CUcontext context, CUevent event)
{
    (void)context;
    (void)event;
    return fake_missing("cuCtxRecordEvent");
}
