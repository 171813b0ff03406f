/* Initialisation, contexts and the current context of each thread.
 *
 * A kernel's illegal access makes its context fail for good: every later call in it returns the
 * error, as the real driver does. A forked child has no driver.
 */
#include "fake.h"
#include <stdlib.h>

enum { DEEPEST = 32, MOST_THREAD_STREAMS = 16 };

struct device fake_devices[MOST_DEVICES];
pthread_mutex_t fake_control = PTHREAD_MUTEX_INITIALIZER;
_Thread_local bool fake_in_host_function;

static _Atomic bool initialised, forked;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static CUresult init_result;
static _Atomic uint64_t context_id;
static _Thread_local CUcontext stack[DEEPEST];
static _Thread_local int depth;
static _Thread_local struct {
    CUcontext context;
    struct CUstream_st *stream;
} thread_streams[MOST_THREAD_STREAMS];

static void in_child(void)
{
    if (atomic_load(&initialised))
        atomic_store(&forked, true);
}

static void initialise(void)
{
    if (fake_set.no_device) {
        init_result = CUDA_ERROR_NO_DEVICE;
        return;
    }
    if (!fake_arena_start()) {
        init_result = CUDA_ERROR_OUT_OF_MEMORY;
        return;
    }
    fake_managed_watch();
    for (int i = 0; i < fake_set.device_count; i++) {
        fake_devices[i].primary.device = i;
        fake_devices[i].primary.primary = true;
    }
    atomic_store(&initialised, true);
}

/* The environment is read when the library is loaded: a report is due even without cuInit. */
__attribute__((constructor)) static void start(void)
{
    fake_settings_read();
    fake_report_start();
    pthread_atfork(NULL, NULL, in_child);
}

API cuInit(unsigned flags)
{
    if (flags)
        DONE(CUDA_ERROR_INVALID_VALUE);
    if (atomic_load(&forked))
        DONE(CUDA_ERROR_NOT_INITIALIZED);
    pthread_once(&once, initialise);
    DONE(init_result);
}

API cuDriverGetVersion(int *version)
{
    if (!version)
        DONE(CUDA_ERROR_INVALID_VALUE);
    *version = fake_set.driver_version;
    return CUDA_SUCCESS;
}

CUresult fake_ready(void)
{
    if (!atomic_load_explicit(&initialised, memory_order_acquire) ||
        atomic_load_explicit(&forked, memory_order_relaxed))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (fake_in_host_function) {
        fake_violation("host-function", "a host function calls the driver");
        return CUDA_ERROR_NOT_PERMITTED;
    }
    return CUDA_SUCCESS;
}

CUresult fake_current(CUcontext *context)
{
    CUresult ready = fake_ready();
    if (ready)
        return ready;
    if (!depth || !stack[depth - 1])
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack[depth - 1];
    return (*context)->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult fake_usable(CUcontext *context)
{
    CUresult current = fake_current(context);
    return current ? current : atomic_load_explicit(&(*context)->error, memory_order_relaxed);
}

CUresult fake_device_valid(CUdevice device)
{
    CUresult ready = fake_ready();
    if (ready)
        return ready;
    return device >= 0 && device < fake_set.device_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

void fake_context_fail(CUcontext context, CUresult error)
{
    CUresult none = CUDA_SUCCESS;
    atomic_compare_exchange_strong(&context->error, &none, error);
}

struct CUstream_st *fake_thread_stream(CUcontext context)
{
    for (int i = 0; i < MOST_THREAD_STREAMS; i++) {
        struct CUstream_st *known = thread_streams[i].stream;
        if (known && known->alive && thread_streams[i].context == context)
            return known;
        if (!known || !known->alive) {
            struct CUstream_st *stream;
            if (fake_stream_new(context, 0, 0, &stream))
                return context->legacy;
            thread_streams[i].context = context;
            thread_streams[i].stream = stream;
            return stream;
        }
    }
    return context->legacy;
}

static CUresult context_start(CUcontext context)
{
    context->id = atomic_fetch_add(&context_id, 1) + 1;
    atomic_store(&context->error, CUDA_SUCCESS);
    context->alive = true;
    return fake_stream_new(context, 0, 0, &context->legacy);
}

/* --- contexts of the program's own ------------------------------------------------------------ */

static CUresult create(CUcontext *context, unsigned flags, CUdevice device)
{
    TRY(fake_device_valid(device));
    if (!context || depth == DEEPEST)
        DONE(CUDA_ERROR_INVALID_VALUE);
    CUcontext made = calloc(1, sizeof(*made));
    if (!made)
        DONE(CUDA_ERROR_OUT_OF_MEMORY);
    made->device = device;
    made->flags = flags;
    TRY(context_start(made));
    stack[depth++] = made;
    *context = made;
    return CUDA_SUCCESS;
}

API cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    return create(context, flags, device);
}

API cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int count, unsigned flags,
                   CUdevice device)
{
    if (affinity || count)
        DONE(CUDA_ERROR_NOT_SUPPORTED);
    return create(context, flags, device);
}

API cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *parameters, unsigned flags,
                   CUdevice device)
{
    if (parameters && (parameters->execAffinityParams || parameters->cigParams))
        DONE(CUDA_ERROR_NOT_SUPPORTED);
    return create(context, flags, device);
}

/* The memory of the context goes with it, after its work. */
static void context_end(CUcontext context)
{
    fake_wait_context(context);
    pthread_mutex_lock(&memory_lock);
    for (size_t i = 0; fake_range_at(i);) {
        struct range *range = fake_range_at(i);
        if (range->context == context && range->kind != RANGE_MAPPED &&
            range->kind != RANGE_RESERVED && fake_free_now(range) == CUDA_SUCCESS)
            continue;
        i++;
    }
    pthread_mutex_unlock(&memory_lock);
    for (struct CUstream_st *s = atomic_load(&context->streams); s; s = s->next)
        s->alive = false;
    atomic_store(&context->streams, NULL);
    context->legacy = NULL;
    context->alive = false;
}

API cuCtxDestroy_v2(CUcontext context)
{
    TRY(fake_ready());
    if (!context || !context->alive || context->primary)
        DONE(CUDA_ERROR_INVALID_CONTEXT);
    context_end(context);
    if (depth && stack[depth - 1] == context)
        depth--;
    return CUDA_SUCCESS;
}

API cuCtxPushCurrent_v2(CUcontext context)
{
    TRY(fake_ready());
    if (!context || depth == DEEPEST)
        DONE(CUDA_ERROR_INVALID_VALUE);
    if (!context->alive)
        DONE(CUDA_ERROR_INVALID_CONTEXT);
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

API cuCtxPopCurrent_v2(CUcontext *context)
{
    TRY(fake_ready());
    if (!depth)
        DONE(CUDA_ERROR_INVALID_CONTEXT);
    depth--;
    if (context)
        *context = stack[depth];
    return CUDA_SUCCESS;
}

API cuCtxSetCurrent(CUcontext context)
{
    TRY(fake_ready());
    if (context && !context->alive)
        DONE(CUDA_ERROR_INVALID_CONTEXT);
    if (!context) {
        if (depth)
            depth--;
    } else if (depth) {
        stack[depth - 1] = context;
    } else {
        stack[depth++] = context;
    }
    return CUDA_SUCCESS;
}

API cuCtxGetCurrent(CUcontext *context)
{
    TRY(fake_ready());
    if (!context)
        DONE(CUDA_ERROR_INVALID_VALUE);
    *context = depth ? stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

API cuCtxGetDevice(CUdevice *device)
{
    CUcontext context;
    TRY(fake_current(&context));
    if (!device)
        DONE(CUDA_ERROR_INVALID_VALUE);
    *device = context->device;
    return CUDA_SUCCESS;
}

API cuCtxGetDevice_v2(CUdevice *device, CUcontext context)
{
    if (!context)
        return cuCtxGetDevice(device);
    TRY(fake_ready());
    *device = context->device;
    return CUDA_SUCCESS;
}

API cuCtxGetFlags(unsigned *flags)
{
    CUcontext context;
    TRY(fake_current(&context));
    *flags = context->flags;
    return CUDA_SUCCESS;
}

API cuCtxSetFlags(unsigned flags)
{
    CUcontext context;
    TRY(fake_current(&context));
    context->flags = flags;
    return CUDA_SUCCESS;
}

API cuCtxGetId(CUcontext context, unsigned long long *id)
{
    TRY(fake_ready());
    if (!context && fake_current(&context))
        DONE(CUDA_ERROR_INVALID_CONTEXT);
    *id = context->id;
    return CUDA_SUCCESS;
}

API cuCtxGetApiVersion(CUcontext context, unsigned *version)
{
    (void)context;
    TRY(fake_ready());
    *version = 3020;
    return CUDA_SUCCESS;
}

API cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    CUcontext context;
    TRY(fake_current(&context));
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

API cuCtxGetLimit(size_t *value, CUlimit limit)
{
    CUcontext context;
    TRY(fake_current(&context));
    if ((unsigned)limit >= 16)
        DONE(CUDA_ERROR_UNSUPPORTED_LIMIT);
    *value = context->limits[limit] ? context->limits[limit] : 1024;
    return CUDA_SUCCESS;
}

API cuCtxSetLimit(CUlimit limit, size_t value)
{
    CUcontext context;
    TRY(fake_current(&context));
    if ((unsigned)limit >= 16)
        DONE(CUDA_ERROR_UNSUPPORTED_LIMIT);
    context->limits[limit] = value;
    return CUDA_SUCCESS;
}

API cuCtxGetCacheConfig(CUfunc_cache *config)
{
    *config = CU_FUNC_CACHE_PREFER_NONE;
    DONE(fake_ready());
}

API cuCtxSetCacheConfig(CUfunc_cache config)
{
    (void)config;
    DONE(fake_ready());
}

API cuCtxResetPersistingL2Cache(void)
{
    DONE(fake_ready());
}

/* --- primary contexts ------------------------------------------------------------------------- */

API cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    TRY(fake_device_valid(device));
    if (!context)
        DONE(CUDA_ERROR_INVALID_VALUE);
    struct CUctx_st *primary = &fake_devices[device].primary;
    pthread_mutex_lock(&fake_control);
    CUresult result = primary->alive ? CUDA_SUCCESS : context_start(primary);
    primary->retained += result == CUDA_SUCCESS;
    pthread_mutex_unlock(&fake_control);
    *context = primary;
    DONE(result);
}

static CUresult primary_end(CUdevice device, bool reset)
{
    TRY(fake_device_valid(device));
    struct CUctx_st *primary = &fake_devices[device].primary;
    pthread_mutex_lock(&fake_control);
    bool held = primary->retained > 0;
    bool last = reset || (held && --primary->retained == 0);
    if (last && primary->alive)
        context_end(primary);
    pthread_mutex_unlock(&fake_control);
    DONE(held || reset ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
}

/* It is the primary context, of which it has a reference. Resources are not divided here. */
API cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice device,
                     unsigned flags)
{
    CUcontext primary;
    if (!green || !resources || flags != 1) /* CU_GREEN_CTX_DEFAULT_STREAM */
        DONE(CUDA_ERROR_INVALID_VALUE);
    TRY(cuDevicePrimaryCtxRetain(&primary, device));
    *green = (CUgreenCtx)primary;
    DONE(CUDA_SUCCESS);
}

API cuGreenCtxDestroy(CUgreenCtx green)
{
    for (CUdevice i = 0; i < fake_set.device_count; i++)
        if ((CUgreenCtx)&fake_devices[i].primary == green)
            return primary_end(i, false);
    DONE(CUDA_ERROR_INVALID_VALUE);
}

API cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return primary_end(device, false);
}

API cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    return primary_end(device, true);
}

API cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags)
{
    TRY(fake_device_valid(device));
    fake_devices[device].primary.flags = flags;
    return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    TRY(fake_device_valid(device));
    if (flags)
        *flags = fake_devices[device].primary.flags;
    if (active)
        *active = fake_devices[device].primary.alive;
    return CUDA_SUCCESS;
}
