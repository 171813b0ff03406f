/* Streams and captures. */
#include "captures.h"
#include "door.h"
#include "engines.h"
#include "graphs.h"
#include "job.h"
#include "kept.h"
#include "unheard.h"
#include "ways.h"

#include <stdlib.h>

/* ---- captures -------------------------------------------------------------------------------- */

static void enter_capture(CUstream stream)
{
    ebb__captures_enter();
    for (int i = 0; i < EBB_DOOR_DEVICES; i++) {
        struct ebb_cuda *engine = ebb__engines_at(i);
        if (engine)
            ebb__cuda_capture_begins(engine, stream);
    }
}

CUresult ebb__door_capture(__typeof__(cuStreamBeginCapture) *next, CUstream stream, CUstream a)
{
    enter_capture(ebb__job_stream(stream, a));
    return ebb__captures_begin(next(a), ebb__job_stream(stream, a), CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult ebb__door_capture_2(__typeof__(cuStreamBeginCapture_v2) *next, CUstream stream, CUstream a,
                             CUstreamCaptureMode b)
{
    enter_capture(ebb__job_stream(stream, a));
    return ebb__captures_begin(next(a, b), ebb__job_stream(stream, a), b);
}

CUresult ebb__door_capture_to_graph(__typeof__(cuStreamBeginCaptureToGraph) *next, CUstream stream,
                                    CUstream a, CUgraph b, const CUgraphNode *c,
                                    const CUgraphEdgeData *d, size_t e, CUstreamCaptureMode f)
{
    enter_capture(ebb__job_stream(stream, a));
    return ebb__captures_begin(next(a, b, c, d, e, f), ebb__job_stream(stream, a), f);
}

/* The graph keeps the blocks that were allocated or freed during its capture. */
static void end_capture(CUstream stream, CUgraph graph)
{
    size_t count = 0;
    CUdeviceptr *blocks = graph ? ebb__captures_blocks(&count) : NULL;
    if (graph)
        ebb__graphs_captured(graph, blocks, count);
    free(blocks);
    ebb__captures_end(stream);
    ebb__kept_sweep();
}

/* A capture that was invalidated ends with an error. So what counts is the stream's state before
 * and after the call. */
CUresult ebb__door_end_capture(__typeof__(cuStreamEndCapture) *next, CUstream stream, CUstream a,
                               CUgraph *b)
{
    CUstream on = ebb__job_stream(stream, a);
    bool was = ebb__captures_has(on);
    CUresult result = next(a, b);
    if (was && !ebb__captures_has(on))
        end_capture(on, result == CUDA_SUCCESS && b ? *b : NULL);
    return result;
}

CUresult ebb__door_exchange_mode(__typeof__(cuThreadExchangeStreamCaptureMode) *next,
                                 CUstream stream, CUstreamCaptureMode *a)
{
    (void)stream;
    CUstreamCaptureMode given = a ? *a : CU_STREAM_CAPTURE_MODE_GLOBAL;
    CUresult result = next(a);
    if (result == CUDA_SUCCESS)
        ebb__captures_exchange(given);
    return result;
}

/* A stream that is destroyed in the middle of its capture ends the capture. */
CUresult ebb__door_stream_destroy(__typeof__(cuStreamDestroy) *next, CUstream stream, CUstream a)
{
    (void)stream;
    bool was = ebb__captures_has(a);
    for (int i = 0; i < EBB_DOOR_DEVICES; i++) {
        struct ebb_cuda *engine = ebb__engines_at(i);
        if (engine)
            ebb__cuda_stream_ends(engine, a);
    }
    CUresult result = next(a);
    if (was && result == CUDA_SUCCESS)
        end_capture(a, NULL);
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

/* cuStreamSynchronize, and cuStreamQuery, which succeeds if nothing is left to wait for. Of default
 * streams, only that of the thread's context is over. */
CUresult ebb__door_stream_wait(__typeof__(cuStreamSynchronize) *next, CUstream stream, CUstream a)
{
    CUresult result = next(a);
    CUstream on = ebb__job_stream(stream, a);
    bool is_default = ebb__stream_is_special(on);
    int device = is_default && result == CUDA_SUCCESS ? ebb__engines_current() : -1;
    if (result == CUDA_SUCCESS && (!is_default || device >= 0))
        synchronized(on, device, false);
    return result;
}

static void device_is_over(CUdevice device, uint64_t unheard)
{
    synchronized(NULL, device, true);
    ebb__unheard_over(device, unheard);
    ebb__kept_sweep_late();
}

CUresult ebb__door_context_wait(__typeof__(cuCtxSynchronize) *next, CUstream stream)
{
    (void)stream;
    uint64_t unheard = ebb__unheard_count();
    CUresult result = next();
    int device = ebb__engines_current();
    if (result == CUDA_SUCCESS && device >= 0)
        device_is_over(device, unheard);
    return result;
}

CUresult ebb__door_context_wait_2(__typeof__(cuCtxSynchronize_v2) *next, CUstream stream,
                                  CUcontext a)
{
    (void)stream;
    uint64_t unheard = ebb__unheard_count();
    CUresult result = next(a);
    int device = ebb__engines_of_context(a);
    if (result == CUDA_SUCCESS && device >= 0)
        device_is_over(device, unheard);
    return result;
}
