/* The life of contexts. An engine lives in the primary context of its device, of which it has a
 * reference. It ends when the program resets the context, or releases its own last reference. */
#include "captures.h"
#include "door.h"
#include "engines.h"
#include "kept.h"
#include "lanes.h"
#include "params.h"

#include <pthread.h>
#include <stdlib.h>

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

/* Parts of primary contexts. Each has a reference of its own to that one. */
static struct green {
    CUgreenCtx handle;
    CUdevice device;
    struct green *next;
} * greens;
static pthread_mutex_t greens_lock = PTHREAD_MUTEX_INITIALIZER;

/* The driver itself makes the primary context, of which this is a part. */
CUresult ebb__door_green_context_create(__typeof__(cuGreenCtxCreate) *next, CUstream stream,
                                        CUgreenCtx *a, CUdevResourceDesc b, CUdevice c, unsigned d)
{
    (void)stream;
    ebb__door_use_device();
    ebb__engines_retaining(c);
    CUresult result = next(a, b, c, d);
    struct green *green = result == CUDA_SUCCESS ? malloc(sizeof *green) : NULL;
    if (result == CUDA_SUCCESS)
        ebb__engines_retained(c);
    if (green) {
        pthread_mutex_lock(&greens_lock);
        *green = (struct green){*a, c, greens};
        greens = green;
        pthread_mutex_unlock(&greens_lock);
    }
    return result;
}

static CUdevice take_green(CUgreenCtx handle)
{
    CUdevice device = -1;
    pthread_mutex_lock(&greens_lock);
    struct green **at = &greens, *gone;
    while (*at && (*at)->handle != handle)
        at = &(*at)->next;
    gone = *at;
    if (gone) {
        device = gone->device;
        *at = gone->next;
    }
    pthread_mutex_unlock(&greens_lock);
    free(gone);
    return device;
}

/* Work of it is over. Engines of other contexts use its streams and events no more. */
static void end_elsewhere(CUcontext context)
{
    CUresult result;
    if (!ebb__engines_await_context(context, &result))
        return;
    for (int i = 0; i < EBB_DOOR_DEVICES; i++) {
        struct ebb_cuda *engine = ebb__engines_at(i);
        if (engine)
            ebb__cuda_context_ends(engine, context);
    }
}

/* Its work is over, and so are its captures. Its streams and events are used no more. */
static void end_context(CUcontext context)
{
    if (ebb__engines_of_context(context) >= 0)
        return;
    bool is_ended = ebb__captures_lose(context);
    end_elsewhere(context);
    if (is_ended)
        ebb__kept_sweep();
}

/* A context of the program's own has no engine. A primary one is not destroyed this way. */
CUresult ebb__door_context_destroy(__typeof__(cuCtxDestroy) *next, CUstream stream, CUcontext a)
{
    (void)stream;
    end_context(a);
    ebb__lanes_drop(-1);
    CUresult result = next(a);
    ebb__params_forget(); /* its modules ended with it */
    return result;
}

CUresult ebb__door_retain(__typeof__(cuDevicePrimaryCtxRetain) *next, CUstream stream, CUcontext *a,
                          CUdevice b)
{
    (void)stream;
    ebb__door_use_device();
    ebb__engines_retaining(b);
    CUresult result = next(a, b);
    if (result == CUDA_SUCCESS)
        ebb__engines_retained(b);
    return result;
}

/* Before the context ends. Returns the engine that ends with it, or NULL. */
static struct ebb_cuda *end_engine(CUdevice device)
{
    ebb__params_forget();
    end_elsewhere(ebb__engines_context(device));
    ebb__captures_lose(ebb__engines_context(device));
    ebb__kept_forget(device);
    ebb__lanes_drop(device);
    return ebb__engines_drop(device);
}

/* After it: the driver has taken the memory of the engine. */
static CUresult end_memory(CUresult result, struct ebb_cuda *ended)
{
    if (ended)
        ebb__cuda_is_gone(ended);
    return result;
}

static struct ebb_cuda *end_reference(CUdevice device)
{
    return ebb__engines_released(device) ? end_engine(device) : NULL;
}

CUresult ebb__door_release(__typeof__(cuDevicePrimaryCtxRelease) *next, CUstream stream, CUdevice a)
{
    (void)stream;
    struct ebb_cuda *ended = end_reference(a);
    return end_memory(next(a), ended);
}

CUresult ebb__door_green_context_destroy(__typeof__(cuGreenCtxDestroy) *next, CUstream stream,
                                         CUgreenCtx a)
{
    (void)stream;
    struct ebb_cuda *ended = end_reference(take_green(a));
    return end_memory(next(a), ended);
}

/* A reset ends no references. */
CUresult ebb__door_reset(__typeof__(cuDevicePrimaryCtxReset) *next, CUstream stream, CUdevice a)
{
    (void)stream;
    struct ebb_cuda *ended = end_engine(a);
    return end_memory(next(a), ended);
}
