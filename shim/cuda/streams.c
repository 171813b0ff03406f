/* Streams and captures. */
#include "door.h"
#include "engines.h"
#include "job.h"

/* Captures in progress. While there are none, no launch asks whether its stream is capturing. */
static atomic_uint captures;

static CUstreamCaptureStatus status_of(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (ebb__real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS)
        return CU_STREAM_CAPTURE_STATUS_NONE; /* the legacy stream beside a capture */
    return status;
}

bool ebb__stream_is_captured(CUstream stream)
{
    return __builtin_expect(atomic_load_explicit(&captures, memory_order_relaxed) > 0, 0) &&
           stream != EBB_CUDA_NO_STREAM && status_of(stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/* It counts before the real call, so that no thread misses the capture's first work. */
CUresult ebb__door_capture(__typeof__(cuStreamBeginCapture) *next, CUstream stream, CUstream a)
{
    (void)stream;
    atomic_fetch_add(&captures, 1);
    CUresult result = next(a);
    if (result != CUDA_SUCCESS)
        atomic_fetch_sub(&captures, 1);
    return result;
}

CUresult ebb__door_capture_2(__typeof__(cuStreamBeginCapture_v2) *next, CUstream stream, CUstream a,
                             CUstreamCaptureMode b)
{
    (void)stream;
    atomic_fetch_add(&captures, 1);
    CUresult result = next(a, b);
    if (result != CUDA_SUCCESS)
        atomic_fetch_sub(&captures, 1);
    return result;
}

CUresult ebb__door_capture_to_graph(__typeof__(cuStreamBeginCaptureToGraph) *next, CUstream stream,
                                    CUstream a, CUgraph b, const CUgraphNode *c,
                                    const CUgraphEdgeData *d, size_t e, CUstreamCaptureMode f)
{
    (void)stream;
    atomic_fetch_add(&captures, 1);
    CUresult result = next(a, b, c, d, e, f);
    if (result != CUDA_SUCCESS)
        atomic_fetch_sub(&captures, 1);
    return result;
}

/* A capture that was invalidated ends with an error. So what counts is the stream's state before
 * and after the call. */
CUresult ebb__door_end_capture(__typeof__(cuStreamEndCapture) *next, CUstream stream, CUstream a,
                               CUgraph *b)
{
    CUstream on = ebb__job_stream(stream, a);
    bool was = status_of(on) != CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = next(a, b);
    if (was && status_of(on) == CU_STREAM_CAPTURE_STATUS_NONE)
        atomic_fetch_sub(&captures, 1);
    return result;
}

/* A stream that is destroyed in the middle of its capture ends the capture. */
CUresult ebb__door_stream_destroy(__typeof__(cuStreamDestroy) *next, CUstream stream, CUstream a)
{
    (void)stream;
    bool was = atomic_load(&captures) > 0 && status_of(a) != CU_STREAM_CAPTURE_STATUS_NONE;
    for (int i = 0; i < EBB_DOOR_DEVICES; i++) {
        struct ebb_cuda *engine = ebb__engines_at(i);
        if (engine)
            ebb__cuda_stream_ends(engine, a);
    }
    CUresult result = next(a);
    if (was && result == CUDA_SUCCESS)
        atomic_fetch_sub(&captures, 1);
    return result;
}

static void synchronized(CUstream stream, int device, bool all)
{
    for (int i = 0; i < EBB_DOOR_DEVICES; i++) {
        struct ebb_cuda *engine = device < 0 || device == i ? ebb__engines_at(i) : NULL;
        if (engine)
            ebb__cuda_synchronized(engine, stream, all);
    }
}

/* cuStreamSynchronize, and cuStreamQuery, which succeeds if nothing is left to wait for. */
CUresult ebb__door_stream_wait(__typeof__(cuStreamSynchronize) *next, CUstream stream, CUstream a)
{
    CUresult result = next(a);
    if (result == CUDA_SUCCESS)
        synchronized(ebb__job_stream(stream, a), -1, false);
    return result;
}

CUresult ebb__door_context_wait(__typeof__(cuCtxSynchronize) *next, CUstream stream)
{
    (void)stream;
    CUresult result = next();
    CUcontext current = NULL;
    if (result == CUDA_SUCCESS && ebb__real.cuCtxGetCurrent(&current) == CUDA_SUCCESS) {
        int device = ebb__engines_of_context(current);
        if (device >= 0)
            synchronized(NULL, device, true);
    }
    return result;
}

CUresult ebb__door_context_wait_2(__typeof__(cuCtxSynchronize_v2) *next, CUstream stream,
                                  CUcontext a)
{
    (void)stream;
    CUresult result = next(a);
    int device = ebb__engines_of_context(a);
    if (result == CUDA_SUCCESS && device >= 0)
        synchronized(NULL, device, true);
    return result;
}
