/* Allocations. Those in a device's primary context are the engine's. README.md lists what remains
 * the driver's. */
#include "attach.h"
#include "captures.h"
#include "door.h"
#include "engines.h"
#include "job.h"
#include "kept.h"
#include "ways.h"

#include <stdlib.h>

#define PITCH_BYTES 512 /* as the driver's own pitches on all devices of the last ten years */

/* PyTorch without its caching allocator asks the driver during captures, and is refused. */
static void tell_refusal(void)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") && !atomic_flag_test_and_set(&told))
        ebb__attach_warn(NULL, "the program allocates while it captures a CUDA graph, which the "
                               "driver refuses: PyTorch can with its own allocator "
                               "(ebb run --no-env)");
}

/* During a capture the driver refuses to allocate, and the capture is void. Only the driver can do
 * that, so it gets the call. True: it has refused. */
static bool is_refused(__typeof__(cuMemAlloc_v2) *next, size_t bytes, CUresult *result)
{
    CUdeviceptr unwanted;
    if (!ebb__captures_forbid())
        return false;
    *result = next(&unwanted, bytes);
    if (*result != CUDA_SUCCESS)
        tell_refusal();
    else
        ebb__real.cuMemFree_v2(unwanted);
    return *result != CUDA_SUCCESS;
}

/* In no stream. Only such memory can be opened by other processes, not that of a pool. */
static CUresult alloc_unordered(struct ebb_cuda *engine, size_t bytes, CUdeviceptr *address)
{
    return ebb__cuda_is_shared(bytes) ? ebb__cuda_alloc_shared(engine, bytes, address)
                                      : ebb__kept_alloc(engine, bytes, EBB_CUDA_NO_STREAM, address);
}

/* The device accesses this memory by itself, at any time. */
CUresult ebb__door_host_register(__typeof__(cuMemHostRegister) *next, CUstream stream, void *a,
                                 size_t b, unsigned c)
{
    (void)stream;
    ebb__door_use_device();
    return next(a, b, c);
}

CUresult ebb__door_alloc(__typeof__(cuMemAlloc_v2) *next, CUstream stream, CUdeviceptr *a, size_t b)
{
    (void)stream;
    struct ebb_cuda *engine = a && b ? ebb__engines_here() : NULL;
    CUresult result;
    if (!engine)
        return next(a, b);
    return is_refused(next, b, &result) ? result : alloc_unordered(engine, b, a);
}

CUresult ebb__door_alloc_pitch(__typeof__(cuMemAllocPitch_v2) *next, CUstream stream,
                               CUdeviceptr *a, size_t *b, size_t c, size_t d, unsigned e)
{
    (void)stream;
    bool is_valid = a && b && c && d && c < SIZE_MAX - PITCH_BYTES && (e == 4 || e == 8 || e == 16);
    size_t pitch = (c + PITCH_BYTES - 1) / PITCH_BYTES * PITCH_BYTES, bytes;
    struct ebb_cuda *engine =
        is_valid && !__builtin_mul_overflow(pitch, d, &bytes) ? ebb__engines_here() : NULL;
    if (!engine)
        return next(a, b, c, d, e);
    CUresult result;
    if (is_refused(ebb__real.cuMemAlloc_v2, bytes, &result))
        return result;
    result = alloc_unordered(engine, bytes, a);
    if (result == CUDA_SUCCESS)
        *b = pitch;
    return result;
}

static struct ebb_cuda *engine_for_async(void)
{
    return ebb__engines_pool_is_foreign() ? NULL : ebb__engines_here();
}

/* Memory comes from the stream's device, whatever context is the thread's. */
static struct ebb_cuda *engine_of_stream(CUstream stream)
{
    struct way way;
    CUdevice here;
    if (ebb__stream_is_special(stream) || !ebb__way_find(stream, &way) ||
        ebb__real.cuCtxGetDevice(&here) != CUDA_SUCCESS || way.device == here ||
        ebb__way_enter(&way) != CUDA_SUCCESS)
        return engine_for_async();
    struct ebb_cuda *engine = engine_for_async();
    ebb__way_leave();
    return engine;
}

CUresult ebb__door_alloc_async(__typeof__(cuMemAllocAsync) *next, CUstream stream, CUdeviceptr *a,
                               size_t b, CUstream c)
{
    CUstream on = ebb__job_stream(stream, c);
    struct ebb_cuda *engine = NULL;
    if (a && b && !ebb__stream_is_captured(on))
        engine = engine_of_stream(on);
    return engine ? ebb__kept_alloc(engine, b, on, a) : next(a, b, c);
}

/* The engine knows the default streams of its primary context only. */
static CUstream order_of(CUstream stream, CUdevice device)
{
    return ebb__stream_is_elsewhere(stream, device) ? EBB_CUDA_NO_STREAM : stream;
}

CUresult ebb__door_alloc_from_pool(__typeof__(cuMemAllocFromPoolAsync) *next, CUstream stream,
                                   CUdeviceptr *a, size_t b, CUmemoryPool c, CUstream d)
{
    CUstream on = ebb__job_stream(stream, d);
    CUdevice owner = -1;
    if (a && b && !ebb__stream_is_captured(on))
        owner = ebb__engines_of_pool(c);
    struct ebb_cuda *engine = ebb__engines_at(owner);
    return engine ? ebb__kept_alloc(engine, b, order_of(on, owner), a) : next(a, b, c, d);
}

/* Is it a block that other processes may open? Then it is freed now. A capture is the driver's
 * matter. */
static bool free_shared(CUdeviceptr address, CUresult *result)
{
    bool is_freed = false;
    for (CUdevice i = 0; !is_freed && i < EBB_DOOR_DEVICES; i++) {
        struct ebb_cuda *engine = ebb__engines_at(i);
        is_freed = engine && ebb__cuda_free_shared(engine, address, result);
    }
    return is_freed;
}

/* During a capture the driver refuses this as well. The library does not: PyTorch frees tensors at
 * any time. The block stays instead (kept.h). */
CUresult ebb__door_free(__typeof__(cuMemFree_v2) *next, CUstream stream, CUdeviceptr a)
{
    (void)stream;
    int owner = ebb__engines_owner(a);
    CUresult result;
    if (owner >= 0)
        return ebb__kept_free(owner, a, EBB_CUDA_NO_STREAM);
    return free_shared(a, &result) ? result : next(a);
}

CUresult ebb__door_free_async(__typeof__(cuMemFreeAsync) *next, CUstream stream, CUdeviceptr a,
                              CUstream b)
{
    CUstream on = ebb__job_stream(stream, b);
    int owner = ebb__engines_owner(a);
    CUresult result;
    if (ebb__stream_is_captured(on))
        return next(a, b);
    if (owner >= 0)
        return ebb__kept_free(owner, a, order_of(on, owner));
    return free_shared(a, &result) ? result : next(a, b);
}

CUresult ebb__door_memory_info(__typeof__(cuMemGetInfo_v2) *next, CUstream stream, size_t *a,
                               size_t *b)
{
    (void)stream;
    struct ebb_cuda *engine = a && b ? ebb__engines_here() : NULL;
    if (!engine)
        return next(a, b);
    ebb__cuda_memory(engine, a, b);
    return CUDA_SUCCESS;
}

CUresult ebb__door_set_device_pool(__typeof__(cuDeviceSetMemPool) *next, CUstream stream,
                                   CUdevice a, CUmemoryPool b)
{
    (void)stream;
    CUresult result = next(a, b);
    if (result == CUDA_SUCCESS)
        ebb__engines_set_pool(a, b);
    return result;
}

/* The current pool of a device is the default one then. */
CUresult ebb__door_destroy_pool(__typeof__(cuMemPoolDestroy) *next, CUstream stream, CUmemoryPool a)
{
    (void)stream;
    CUresult result = next(a);
    if (result == CUDA_SUCCESS)
        ebb__engines_look_at_pools();
    return result;
}

CUresult ebb__door_set_pool(__typeof__(cuMemSetMemPool) *next, CUstream stream, CUmemLocation *a,
                            CUmemAllocationType b, CUmemoryPool c)
{
    (void)stream;
    CUresult result = next(a, b, c);
    if (result == CUDA_SUCCESS && a->type == CU_MEM_LOCATION_TYPE_DEVICE &&
        b == CU_MEM_ALLOCATION_TYPE_PINNED)
        ebb__engines_set_pool(a->id, c);
    return result;
}
