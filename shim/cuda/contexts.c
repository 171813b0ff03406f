/* The life of contexts. An engine lives in the primary context of its device, of which it has a
 * reference. It ends when the program resets the context, or releases its own last reference. */
#include "door.h"
#include "engines.h"
#include "kept.h"
#include "lanes.h"
#include "params.h"

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
