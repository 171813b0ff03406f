#include "ways.h"

#include "engines.h"

bool ebb__stream_is_special(CUstream stream)
{
    return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

bool ebb__stream_is_elsewhere(CUstream stream, CUdevice device)
{
    return ebb__stream_is_special(stream) && ebb__engines_current() != device;
}

bool ebb__way_find(CUstream stream, struct way *way)
{
    CUcontext popped;
    way->stream = stream;
    way->context = NULL;
    if ((ebb__stream_is_special(stream)
             ? ebb__real.cuCtxGetCurrent(&way->context)
             : ebb__real.cuStreamGetCtx(stream, &way->context)) != CUDA_SUCCESS ||
        !way->context)
        return false;
    way->device = ebb__engines_of_context(way->context);
    if (way->device >= 0)
        return true;
    if (ebb__real.cuCtxPushCurrent_v2(way->context) != CUDA_SUCCESS)
        return false;
    CUresult result = ebb__real.cuCtxGetDevice(&way->device);
    ebb__real.cuCtxPopCurrent_v2(&popped);
    return result == CUDA_SUCCESS;
}

void ebb__way_leave(void)
{
    CUcontext popped;
    ebb__real.cuCtxPopCurrent_v2(&popped);
}

CUresult ebb__way_enter(const struct way *way)
{
    return ebb__real.cuCtxPushCurrent_v2(way->context);
}

CUresult ebb__way_record(const struct way *way, CUevent *event)
{
    *event = NULL;
    CUresult result = ebb__way_enter(way);
    if (result != CUDA_SUCCESS)
        return result;
    result = ebb__real.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        *event = NULL;
    else
        result = ebb__real.cuEventRecord(*event, way->stream);
    if (result != CUDA_SUCCESS && *event) {
        ebb__real.cuEventDestroy_v2(*event);
        *event = NULL;
    }
    ebb__way_leave();
    return result;
}

CUresult ebb__way_await(const struct way *way, CUevent event)
{
    CUresult result = ebb__way_enter(way);
    if (result != CUDA_SUCCESS)
        return result;
    result = ebb__real.cuStreamWaitEvent(way->stream, event, 0);
    ebb__way_leave();
    return result;
}

static bool is_same(const struct way *a, const struct way *b)
{
    return a->context == b->context && a->stream == b->stream;
}

CUresult ebb__way_follow(const struct way *way, const struct way *other)
{
    CUevent event;
    if (is_same(way, other))
        return CUDA_SUCCESS;
    CUresult result = ebb__way_record(other, &event);
    if (result != CUDA_SUCCESS)
        return result;
    result = ebb__way_await(way, event);
    ebb__real.cuEventDestroy_v2(event); /* the driver keeps it as long as a stream waits for it */
    return result;
}

CUresult ebb__way_synchronize(const struct way *way)
{
    CUresult result = ebb__way_enter(way);
    if (result != CUDA_SUCCESS)
        return result;
    result = ebb__real.cuStreamSynchronize(way->stream);
    ebb__way_leave();
    return result;
}
