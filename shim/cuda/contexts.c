/* The life of contexts. An engine lives in the primary context of its device, of which it has a
 * reference. It ends when the program resets the context, or releases its own last reference. */
#include "door.h"
#include "engines.h"
#include "kept.h"
#include "lanes.h"
#include "params.h"

CUresult ebb__door_context_create(__typeof__(cuCtxCreate) *next, CUstream stream, CUcontext *a,
                                  unsigned b, CUdevice c)
{
    (void)stream;
    ebb__door_use_device();
    return next(a, b, c);
}

CUresult ebb__door_context_create_bound(__typeof__(cuCtxCreate_v3) *next, CUstream stream,
                                        CUcontext *a, CUexecAffinityParam *b, int c, unsigned d,
                                        CUdevice e)
{
    (void)stream;
    ebb__door_use_device();
    return next(a, b, c, d, e);
}

CUresult ebb__door_context_create_with(__typeof__(cuCtxCreate_v4) *next, CUstream stream,
                                       CUcontext *a, CUctxCreateParams *b, unsigned c, CUdevice d)
{
    (void)stream;
    ebb__door_use_device();
    return next(a, b, c, d);
}

/* The driver itself makes the primary context, of which this is a part. */
CUresult ebb__door_green_context_create(__typeof__(cuGreenCtxCreate) *next, CUstream stream,
                                        CUgreenCtx *a, CUdevResourceDesc b, CUdevice c, unsigned d)
{
    (void)stream;
    ebb__door_use_device();
    return next(a, b, c, d);
}

/* A context of the program's own has no engine. A primary one is not destroyed this way. */
CUresult ebb__door_context_destroy(__typeof__(cuCtxDestroy) *next, CUstream stream, CUcontext a)
{
    (void)stream;
    ebb__params_forget(); /* its modules end with it */
    ebb__lanes_drop(-1);
    return next(a);
}

CUresult ebb__door_retain(__typeof__(cuDevicePrimaryCtxRetain) *next, CUstream stream, CUcontext *a,
                          CUdevice b)
{
    (void)stream;
    ebb__door_use_device();
    CUresult result = next(a, b);
    if (result == CUDA_SUCCESS)
        ebb__engines_retained(b);
    return result;
}

CUresult ebb__door_release(__typeof__(cuDevicePrimaryCtxRelease) *next, CUstream stream, CUdevice a)
{
    (void)stream;
    if (ebb__engines_released(a)) {
        ebb__params_forget();
        ebb__kept_forget(a);
        ebb__lanes_drop(a);
        ebb__engines_drop(a, true);
    }
    return next(a);
}

CUresult ebb__door_reset(__typeof__(cuDevicePrimaryCtxReset) *next, CUstream stream, CUdevice a)
{
    (void)stream;
    ebb__params_forget();
    ebb__kept_forget(a);
    ebb__lanes_drop(a);
    ebb__engines_drop(a, false); /* the reset ends all references */
    return next(a);
}
