/* Capture: operations of a stream become nodes of a graph. A wait for a captured event brings
 * another stream into the capture. Calls that a capture forbids are refused, and the capture is
 * void from then on.
 */
#include "fake.h"
#include <stdlib.h>

struct capture {
    CUgraph graph;
    CUstreamCaptureMode mode;
    struct CUstream_st *origin;
    pthread_t thread;
    bool invalid;
    uint64_t id;
    struct capture *next;
};

_Atomic int fake_capturing;
static struct capture *captures; /* under fake_control */
static _Atomic uint64_t capture_id;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

void fake_capture_spoil(struct CUstream_st *stream)
{
    if (stream->capture)
        stream->capture->invalid = true;
}

static bool forbids(const struct capture *capture)
{
    bool mine = pthread_equal(capture->thread, pthread_self());
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    if (mine)
        return capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
           capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult fake_capture_unsafe(void)
{
    CUresult result = CUDA_SUCCESS;
    if (!atomic_load_explicit(&fake_capturing, memory_order_relaxed))
        return result;
    pthread_mutex_lock(&fake_control);
    for (struct capture *c = captures; c; c = c->next)
        if (forbids(c)) {
            c->invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    pthread_mutex_unlock(&fake_control);
    return result;
}

/* The legacy stream would wait for a blocking stream that is captured. */
CUresult fake_capture_implicit(CUcontext context, const struct CUstream_st *stream)
{
    if (stream != context->legacy || !atomic_load(&fake_capturing))
        return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    for (struct CUstream_st *s = atomic_load(&context->streams); s; s = s->next)
        if (s->capture && !(s->flags & CU_STREAM_NON_BLOCKING)) {
            s->capture->invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    return result;
}

CUresult fake_capture_add(struct CUstream_st *stream, struct op *op)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&fake_control);
    struct capture *capture = stream->capture;
    if (capture->invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if ((int)op->class->node_type < 0) {
        capture->invalid = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (result) {
        fake_op_free(op);
    } else {
        op->seq_to = NULL;
        op->context = stream->context;
        CUgraphNode node = fake_graph_add(capture->graph, op->class->node_type, op, &stream->tails);
        fake_nodes_clear(&stream->tails);
        fake_nodes_add(&stream->tails, &(struct node_set){&node, 1});
    }
    pthread_mutex_unlock(&fake_control);
    return result;
}

CUresult fake_capture_record(struct CUstream_st *stream, struct CUevent_st *event)
{
    pthread_mutex_lock(&fake_control);
    bool invalid = stream->capture->invalid;
    event->capture = stream->capture;
    fake_nodes_clear(&event->nodes);
    fake_nodes_add(&event->nodes, &stream->tails);
    pthread_mutex_unlock(&fake_control);
    return invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult fake_capture_wait(struct CUstream_st *stream, struct CUevent_st *event)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&fake_control);
    if (stream == stream->context->legacy) {
        event->capture->invalid = true;
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    } else if (stream->capture && stream->capture != event->capture) {
        stream->capture->invalid = event->capture->invalid = true;
        result = CUDA_ERROR_STREAM_CAPTURE_MERGE;
    } else {
        stream->capture = event->capture;
        fake_nodes_add(&stream->tails, &event->nodes);
    }
    pthread_mutex_unlock(&fake_control);
    return result;
}

/* --- the interface ---------------------------------------------------------------------------- */

static CUresult stream_of(CUstream handle, struct CUstream_st **stream)
{
    CUcontext context;
    CUresult result = fake_usable(&context);
    return result ? result : fake_stream_of(handle, context, stream);
}

API cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
    struct CUstream_st *stream;
    TRY(stream_of(handle, &stream));
    if (stream == stream->context->legacy)
        DONE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (stream->capture || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        DONE(CUDA_ERROR_ILLEGAL_STATE);
    struct capture *capture = calloc(1, sizeof(*capture));
    if (!capture)
        DONE(CUDA_ERROR_OUT_OF_MEMORY);
    capture->graph = fake_graph_new();
    capture->mode = mode;
    capture->origin = stream;
    capture->thread = pthread_self();
    capture->id = atomic_fetch_add(&capture_id, 1) + 1;
    pthread_mutex_lock(&fake_control);
    capture->next = captures;
    captures = capture;
    stream->capture = capture;
    pthread_mutex_unlock(&fake_control);
    atomic_fetch_add(&fake_capturing, 1);
    return CUDA_SUCCESS;
}

API cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph, const CUgraphNode *deps,
                                const CUgraphEdgeData *edges, size_t count,
                                CUstreamCaptureMode mode)
{
    struct CUstream_st *stream;
    (void)edges;
    TRY(cuStreamBeginCapture_v2(handle, mode));
    TRY(stream_of(handle, &stream));
    pthread_mutex_lock(&fake_control);
    cuGraphDestroy(stream->capture->graph);
    stream->capture->graph = graph;
    fake_nodes_add(&stream->tails,
                   &(struct node_set){(CUgraphNode *)(uintptr_t)deps, (unsigned)count});
    pthread_mutex_unlock(&fake_control);
    return CUDA_SUCCESS;
}

API cuStreamBeginCapture(CUstream stream)
{
    return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static void mark(CUgraphNode node)
{
    if (node->mark)
        return;
    node->mark = true;
    for (unsigned i = 0; i < node->deps.count; i++)
        mark(node->deps.nodes[i]);
}

/* True if the work of all streams comes before the end of the first one. */
static bool is_joined(struct capture *capture)
{
    bool joined = true;
    for (size_t i = 0; i < capture->graph->count; i++)
        capture->graph->nodes[i]->mark = false;
    for (unsigned i = 0; i < capture->origin->tails.count; i++)
        mark(capture->origin->tails.nodes[i]);
    struct CUstream_st *s = atomic_load(&capture->origin->context->streams);
    for (; s; s = s->next)
        for (unsigned i = 0; s->capture == capture && i < s->tails.count; i++)
            joined &= s->tails.nodes[i]->mark;
    return joined;
}

static void end(struct capture *capture)
{
    struct CUstream_st *s = atomic_load(&capture->origin->context->streams);
    for (; s; s = s->next)
        if (s->capture == capture) {
            s->capture = NULL;
            fake_nodes_clear(&s->tails);
        }
    struct capture **link = &captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    atomic_fetch_sub(&fake_capturing, 1);
}

API cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
    struct CUstream_st *stream;
    TRY(stream_of(handle, &stream));
    struct capture *capture = stream->capture;
    if (graph)
        *graph = NULL;
    if (!capture)
        DONE(CUDA_ERROR_ILLEGAL_STATE);
    if (capture->origin != stream)
        DONE(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        !pthread_equal(capture->thread, pthread_self()))
        DONE(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    pthread_mutex_lock(&fake_control);
    CUresult result = capture->invalid      ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                      : !is_joined(capture) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                            : CUDA_SUCCESS;
    end(capture); /* events may still name it, so its memory stays */
    pthread_mutex_unlock(&fake_control);
    if (!result && graph)
        *graph = capture->graph;
    DONE(result);
}

static CUstreamCaptureStatus status_of(const struct CUstream_st *stream)
{
    return !stream->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
           : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                      : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

API cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
    struct CUstream_st *stream;
    TRY(stream_of(handle, &stream));
    TRY(fake_capture_implicit(stream->context, stream));
    *status = status_of(stream);
    return CUDA_SUCCESS;
}

API cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
                              CUgraph *graph, const CUgraphNode **nodes, size_t *count)
{
    struct CUstream_st *stream;
    TRY(stream_of(handle, &stream));
    TRY(fake_capture_implicit(stream->context, stream));
    *status = status_of(stream);
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_SUCCESS;
    if (id)
        *id = stream->capture->id;
    if (graph)
        *graph = stream->capture->graph;
    if (nodes)
        *nodes = stream->tails.nodes;
    if (count)
        *count = stream->tails.count;
    return CUDA_SUCCESS;
}

API cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                              CUgraph *graph, const CUgraphNode **nodes,
                              const CUgraphEdgeData **edges, size_t *count)
{
    if (edges)
        *edges = NULL;
    return cuStreamGetCaptureInfo_v2(stream, status, id, graph, nodes, count);
}

API cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return cuStreamGetCaptureInfo_v2(stream, status, id, NULL, NULL, NULL);
}

API cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode *nodes, size_t count,
                                      unsigned flags)
{
    struct CUstream_st *stream;
    TRY(stream_of(handle, &stream));
    if (!stream->capture)
        DONE(CUDA_ERROR_ILLEGAL_STATE);
    pthread_mutex_lock(&fake_control);
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        fake_nodes_clear(&stream->tails);
    fake_nodes_add(&stream->tails, &(struct node_set){nodes, (unsigned)count});
    pthread_mutex_unlock(&fake_control);
    return CUDA_SUCCESS;
}

API cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *nodes,
                                         const CUgraphEdgeData *edges, size_t count, unsigned flags)
{
    (void)edges;
    return cuStreamUpdateCaptureDependencies(stream, nodes, count, flags);
}

API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        DONE(CUDA_ERROR_INVALID_VALUE);
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
