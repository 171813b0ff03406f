/* One engine for each device. The launch path only reads: pointers that are set once. */
#include "engines.h"

#include "attach.h"
#include "door.h"

#include <pthread.h>
#include <stdio.h>

enum device_state {
    DEVICE_UNUSED,
    DEVICE_MANAGED,
    DEVICE_REFUSED, /* no budget, or it lacks what the engine needs: told once */
    DEVICE_STATE_COUNT
};

static struct door_device {
    _Atomic(struct ebb_cuda *) engine;
    _Atomic(CUcontext) context; /* the primary one, while there is an engine */
    _Atomic(CUmemoryPool) default_pool;
    atomic_bool has_foreign_pool;
    atomic_uint retained;    /* by the program, as far as seen */
    atomic_bool is_held;     /* somebody has a reference that was not seen, as cudart may */
    enum device_state state; /* under `making` */
    bool is_attached;        /* under `making` */
    struct ebb_cuda_attachment attachment;
} devices[EBB_DOOR_DEVICES];

static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static struct ebb_cuda_driver driver;
static atomic_bool is_frozen;
static atomic_int device_end; /* devices from here on have had no engine */

_Atomic CUdeviceptr ebb__blocks_first;
_Atomic uint64_t ebb__blocks_bytes;
atomic_int ebb__engines_only = -1;
static atomic_bool hears_any; /* some engine hears of each kernel */

static void *find(void *context, const char *symbol)
{
    (void)context;
    return ebb__real_find(symbol);
}

static void tell(CUdevice device, const struct ebb_error *error)
{
    char text[900];
    snprintf(text, sizeof text, "GPU %d: %s%s%s: the budget is NOT enforced%s%s", (int)device,
             error->what, error->what[0] ? ": " : "", error->why, error->remedy[0] ? "; " : "",
             error->remedy);
    ebb__attach_warn(NULL, text);
}

/* The attachment lives as long as the process: a device that was reset keeps it. */
static bool attach(CUdevice device)
{
    struct door_device *known = &devices[device];
    char name[128] = "";
    size_t bytes = 0;
    if (known->is_attached)
        return true;
    ebb__real.cuDeviceGetName(name, (int)sizeof name, device);
    if (ebb__real.cuDeviceTotalMem_v2(&bytes, device) != CUDA_SUCCESS)
        return false;
    known->is_attached = ebb__attach(device, bytes, name, &known->attachment);
    return known->is_attached;
}

static struct ebb_cuda *make(CUdevice device, CUcontext context)
{
    const struct ebb_cuda_attachment *attachment = &devices[device].attachment;
    struct ebb_error error = {0};
    struct ebb_cuda *engine = NULL;
    if (!attach(device))
        return NULL;
    const struct ebb_cuda_config config = {
        .driver = &driver,
        .device = device,
        .context = context,
        .backing = attachment->backing,
        .ledger = attachment->ledger,
        .slot = attachment->slot,
        .store_ledger = attachment->store_ledger,
        .store_slot = attachment->store_slot,
        .ring = attachment->ring,
        .host_budget_bytes = attachment->host_budget_bytes,
        .pinned_budget_bytes = attachment->pinned_budget_bytes,
        .record = attachment->record,
        .chaos_seed = attachment->chaos_seed,
        .warn = ebb__attach_warn,
    };
    if (ebb__cuda_driver_load(&driver, find, NULL, &error) != EBB_OK ||
        ebb__cuda_create(&config, &engine, &error) != EBB_OK) {
        tell(device, &error);
        return NULL;
    }
    return engine;
}

/* The engine that `device` gets in its primary context, of which the caller has a reference. False:
 * the reference is not needed. */
static bool establish(CUdevice device, CUcontext context)
{
    struct door_device *known = &devices[device];
    CUmemoryPool pool = NULL;
    bool made = false;
    pthread_mutex_lock(&making);
    if (known->state == DEVICE_UNUSED) {
        struct ebb_cuda *engine = make(device, context);
        known->state = engine ? DEVICE_MANAGED : DEVICE_REFUSED;
        if (engine) {
            if (ebb__real.cuDeviceGetDefaultMemPool(&pool, device) == CUDA_SUCCESS)
                atomic_store(&known->default_pool, pool);
            atomic_store(&known->engine, engine);
            atomic_store(&known->context, context);
            int only = atomic_load(&ebb__engines_only);
            atomic_store(&ebb__engines_only,
                         !atomic_load(&device_end) || only == device ? device : -1);
            if (device >= atomic_load(&device_end))
                atomic_store(&device_end, device + 1);
            if (ebb__cuda_hears_all(engine))
                atomic_store(&hears_any, true);
            ebb__attach_serve(device, engine);
            made = true;
        }
    }
    pthread_mutex_unlock(&making);
    return made;
}

static bool is_refused(CUdevice device)
{
    pthread_mutex_lock(&making);
    bool refused = devices[device].state == DEVICE_REFUSED;
    pthread_mutex_unlock(&making);
    return refused;
}

static void tell_foreign_context(void)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&told))
        ebb__attach_warn(NULL, "the program allocates in a context of its own (cuCtxCreate): these "
                               "blocks are not managed");
}

/* Slow: the context is not that of an engine. */
static struct ebb_cuda *look(CUcontext current)
{
    CUdevice device;
    CUcontext primary;
    unsigned flags;
    int active = 0;
    ebb__door_use_device();
    if (ebb__real.cuCtxGetDevice(&device) != CUDA_SUCCESS || device < 0 ||
        device >= EBB_DOOR_DEVICES || is_refused(device))
        return NULL;
    if (ebb__real.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || !active) {
        tell_foreign_context();
        return NULL;
    }
    if (ebb__real.cuDevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS)
        return NULL;
    if (primary != current)
        tell_foreign_context();
    if (!atomic_load(&devices[device].retained))
        atomic_store(&devices[device].is_held, true);
    if (primary != current || !establish(device, primary))
        ebb__real.cuDevicePrimaryCtxRelease_v2(device);
    return primary == current ? atomic_load(&devices[device].engine) : NULL;
}

int ebb__engines_of_context(CUcontext context)
{
    for (int i = 0; context && i < EBB_DOOR_DEVICES; i++)
        if (atomic_load_explicit(&devices[i].context, memory_order_acquire) == context)
            return i;
    return -1;
}

int ebb__engines_current(void)
{
    CUcontext current = NULL;
    return ebb__real.cuCtxGetCurrent(&current) == CUDA_SUCCESS ? ebb__engines_of_context(current)
                                                               : -1;
}

struct ebb_cuda *ebb__engines_here(void)
{
    CUcontext current = NULL;
    if (atomic_load(&is_frozen) || ebb__real.cuCtxGetCurrent(&current) != CUDA_SUCCESS || !current)
        return NULL;
    int device = ebb__engines_of_context(current);
    return device >= 0 ? ebb__engines_at(device) : look(current);
}

struct ebb_cuda *ebb__engines_at(CUdevice device)
{
    return device >= 0 && device < EBB_DOOR_DEVICES
               ? atomic_load_explicit(&devices[device].engine, memory_order_acquire)
               : NULL;
}

CUcontext ebb__engines_context(CUdevice device)
{
    return device >= 0 && device < EBB_DOOR_DEVICES ? atomic_load(&devices[device].context) : NULL;
}

int ebb__engines_owner(CUdeviceptr address)
{
    int end = atomic_load_explicit(&device_end, memory_order_relaxed);
    for (int i = 0; i < end; i++) {
        const struct ebb_cuda *engine = ebb__engines_at(i);
        if (engine && ebb__cuda_owns(engine, address))
            return i;
    }
    return -1;
}

int ebb__engines_hearing(void)
{
    if (!atomic_load_explicit(&hears_any, memory_order_relaxed))
        return -1;
    int device = ebb__engines_current();
    const struct ebb_cuda *engine = ebb__engines_at(device);
    return engine && ebb__cuda_hears_all(engine) ? device : -1;
}

/* ---- pools ----------------------------------------------------------------------------------- */

CUdevice ebb__engines_of_pool(CUmemoryPool pool)
{
    struct ebb_cuda *here = ebb__engines_here(); /* it may be made now */
    for (int i = 0; here && pool && i < EBB_DOOR_DEVICES; i++)
        if (atomic_load(&devices[i].default_pool) == pool)
            return i;
    return -1;
}

CUmemoryPool ebb__engines_default_pool(CUdevice device)
{
    return device >= 0 && device < EBB_DOOR_DEVICES ? atomic_load(&devices[device].default_pool)
                                                    : NULL;
}

void ebb__engines_set_pool(CUdevice device, CUmemoryPool pool)
{
    CUmemoryPool own = NULL;
    if (device >= 0 && device < EBB_DOOR_DEVICES &&
        ebb__real.cuDeviceGetDefaultMemPool(&own, device) == CUDA_SUCCESS)
        atomic_store(&devices[device].has_foreign_pool, own != pool);
}

void ebb__engines_look_at_pools(void)
{
    CUmemoryPool pool;
    for (CUdevice i = 0; i < EBB_DOOR_DEVICES; i++)
        if (atomic_load(&devices[i].has_foreign_pool) &&
            ebb__real.cuDeviceGetMemPool(&pool, i) == CUDA_SUCCESS)
            ebb__engines_set_pool(i, pool);
}

bool ebb__engines_pool_is_foreign(void)
{
    CUdevice device;
    return ebb__real.cuCtxGetDevice(&device) == CUDA_SUCCESS && device >= 0 &&
           device < EBB_DOOR_DEVICES && atomic_load(&devices[device].has_foreign_pool);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Widens the range of addresses to [first, end). The start is lowered and the size grows in an
 * order in which no reader sees less than before. */
static void widen(CUdeviceptr first, CUdeviceptr end)
{
    pthread_mutex_lock(&making);
    CUdeviceptr start = atomic_load(&ebb__blocks_first);
    CUdeviceptr stop = start + atomic_load(&ebb__blocks_bytes);
    bool is_empty = stop == start;
    CUdeviceptr lowest = is_empty || first < start ? first : start;
    CUdeviceptr highest = is_empty || end > stop ? end : stop;
    if (lowest != start || highest != stop) {
        atomic_store(&ebb__blocks_bytes, highest - (is_empty ? first : lowest));
        atomic_store(&ebb__blocks_first, lowest);
    }
    pthread_mutex_unlock(&making);
}

CUresult ebb__engines_alloc(struct ebb_cuda *engine, size_t bytes, CUstream stream,
                            CUdeviceptr *address)
{
    CUresult result = ebb__cuda_alloc(engine, bytes, stream, address);
    if (result == CUDA_SUCCESS &&
        (!ebb__engines_may_own(*address) || !ebb__engines_may_own(*address + bytes - 1)))
        widen(*address, *address + bytes);
    return result;
}

/* ---- ends ------------------------------------------------------------------------------------ */

bool ebb__engines_await_context(CUcontext context, CUresult *result)
{
    CUcontext popped;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (!context || ebb__real.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return false;
    bool is_relaxed = ebb__real.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    *result = ebb__real.cuCtxSynchronize();
    if (is_relaxed)
        ebb__real.cuThreadExchangeStreamCaptureMode(&mode);
    ebb__real.cuCtxPopCurrent_v2(&popped);
    return true;
}

void ebb__engines_retaining(CUdevice device)
{
    unsigned flags;
    int active = 0;
    if (device >= 0 && device < EBB_DOOR_DEVICES && !atomic_load(&devices[device].retained) &&
        !ebb__engines_at(device) &&
        ebb__real.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active)
        atomic_store(&devices[device].is_held, true);
}

void ebb__engines_retained(CUdevice device)
{
    if (device >= 0 && device < EBB_DOOR_DEVICES)
        atomic_fetch_add(&devices[device].retained, 1);
}

bool ebb__engines_released(CUdevice device)
{
    if (device < 0 || device >= EBB_DOOR_DEVICES)
        return false;
    unsigned retained = atomic_load(&devices[device].retained);
    while (retained > 0 &&
           !atomic_compare_exchange_weak(&devices[device].retained, &retained, retained - 1))
        ;
    return retained == 1 && !atomic_load(&devices[device].is_held);
}

struct ebb_cuda *ebb__engines_drop(CUdevice device)
{
    if (device < 0 || device >= EBB_DOOR_DEVICES)
        return NULL;
    pthread_mutex_lock(&making);
    struct door_device *known = &devices[device];
    struct ebb_cuda *engine = atomic_exchange(&known->engine, NULL);
    atomic_store(&known->context, NULL);
    atomic_store(&known->default_pool, NULL);
    if (known->state == DEVICE_MANAGED)
        known->state = DEVICE_UNUSED;
    pthread_mutex_unlock(&making);
    if (!engine)
        return NULL;
    ebb__attach_leave(device);
    ebb__cuda_abandon(engine); /* it stays allocated: another thread may be in one of its calls */
    ebb__real.cuDevicePrimaryCtxRelease_v2(device);
    return engine;
}

bool ebb__engines_freeze(void)
{
    bool any = false;
    atomic_store(&is_frozen, true);
    for (int i = 0; i < EBB_DOOR_DEVICES; i++) {
        struct ebb_cuda *engine = ebb__engines_at(i);
        any |= engine != NULL;
        if (engine)
            ebb__cuda_keep(engine, 0, SIZE_MAX);
    }
    return any;
}

bool ebb__engines_abandon(void)
{
    bool any = false;
    pthread_mutex_init(&making, NULL); /* a thread that no longer exists may hold it */
    for (int i = 0; i < EBB_DOOR_DEVICES; i++) {
        struct ebb_cuda *engine = ebb__engines_at(i);
        any |= engine != NULL;
        if (engine)
            ebb__cuda_abandon(engine);
        devices[i].is_attached = false;
    }
    return any;
}
