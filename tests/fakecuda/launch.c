/* Launches: a kernel's parameters are packed when it is launched, and its function runs when its
 * turn comes in the stream.
 */
#include "fake.h"
#include <setjmp.h>
#include <stdlib.h>

struct kernel_op {
    struct op op;
    CUfunction function;
    unsigned grid[3], block[3], shared_bytes;
    bool stalls;
    unsigned char parameters[];
};

/* Of a kernel that runs. `seen` is first, so that the calls find the rest. */
struct running {
    struct fakecuda_kernel seen;
    struct kernel_op *op;
    struct CUstream_st *stream;
    jmp_buf end;
};

static void maybe_yield(struct running *running)
{
    if (!fake_set.fast && fake_random(3) == 0)
        fake_yield(running->stream);
}

static void *call_access(struct fakecuda_kernel *kernel, CUdeviceptr address, size_t bytes,
                         int mode)
{
    struct running *running = (struct running *)kernel;
    maybe_yield(running);
    void *at = fake_access(running->stream->context, &running->op->op, running->stream, address,
                           bytes, mode, running->op->function->entry->name);
    if (!at)
        longjmp(running->end, 1);
    return at;
}

static void call_yield(struct fakecuda_kernel *kernel)
{
    struct running *running = (struct running *)kernel;
    if (atomic_load(&running->stream->context->error))
        longjmp(running->end, 1);
    fake_yield_waiting(running->stream);
}

static unsigned call_atomic_add(struct fakecuda_kernel *kernel, CUdeviceptr address, unsigned value)
{
    _Atomic unsigned *at =
        call_access(kernel, address, 4, MODE_ATOMIC | MODE_ACQUIRE | MODE_RELEASE);
    return atomic_fetch_add(at, value);
}

static CUdeviceptr call_global(struct fakecuda_kernel *kernel, const char *name)
{
    struct running *running = (struct running *)kernel;
    size_t bytes;
    return fake_module_global(running->stream->context, running->op->function->module, name,
                              &bytes);
}

static const struct fakecuda_calls calls = {call_access, call_yield, call_atomic_add, call_global};

static void kernel_run(struct op *op, struct CUstream_st *stream)
{
    struct kernel_op *kernel = (struct kernel_op *)op;
    struct running running;
    running.seen.calls = &calls;
    running.seen.parameters = kernel->parameters;
    memcpy(running.seen.grid, kernel->grid, sizeof(kernel->grid));
    memcpy(running.seen.block, kernel->block, sizeof(kernel->block));
    running.seen.shared_bytes = kernel->shared_bytes;
    running.op = kernel;
    running.stream = stream;
    if (!_setjmp(running.end))
        kernel->function->entry->function(&running.seen);
    fake_take(fake_set.kernel_us);
    fake_clock_pass(2000);
}

/* A kernel that never ends and one that never starts look the same from outside. */
static bool kernel_ready(const struct op *op)
{
    return !((const struct kernel_op *)op)->stalls;
}

static const struct op_class kernel_class = {"kernel", CU_GRAPH_NODE_TYPE_KERNEL, kernel_run,
                                             kernel_ready, NULL};

static CUresult pack(CUfunction function, const struct launch *launch, unsigned char *to)
{
    const struct fakecuda_entry *entry = function->entry;
    if (launch->parameters) {
        for (unsigned i = 0; i < entry->parameter_count; i++) {
            if (!launch->parameters[i])
                return CUDA_ERROR_INVALID_VALUE;
            if (entry->parameter_bytes[i] == 8) /* most are pointers */
                memcpy(to + function->offsets[i], launch->parameters[i], 8);
            else
                memcpy(to + function->offsets[i], launch->parameters[i], entry->parameter_bytes[i]);
        }
        return CUDA_SUCCESS;
    }
    void *buffer = NULL;
    size_t bytes = 0;
    for (void **extra = launch->extra; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = *(size_t *)extra[1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (entry->parameter_count && (!buffer || bytes < function->parameter_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (function->parameter_bytes)
        memcpy(to, buffer, function->parameter_bytes);
    return CUDA_SUCCESS;
}

CUresult fake_kernel_op(CUfunction function, const struct launch *launch, CUcontext context,
                        struct op **op)
{
    (void)context;
    const unsigned *g = launch->grid, *b = launch->block;
    if (!function || (launch->parameters && launch->extra) || !g[0] || !g[1] || !g[2] || !b[0] ||
        !b[1] || !b[2] || b[0] * b[1] * b[2] > 1024 || launch->shared_bytes > 232448)
        return function ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    struct kernel_op *kernel =
        fake_op_new(&kernel_class, sizeof(*kernel) + function->parameter_bytes);
    if (!kernel)
        return CUDA_ERROR_OUT_OF_MEMORY;
    kernel->function = function;
    memcpy(kernel->grid, g, sizeof(kernel->grid));
    memcpy(kernel->block, b, sizeof(kernel->block));
    kernel->shared_bytes = launch->shared_bytes;
    kernel->stalls = fake_fault(FAULT_STALL);
    CUresult result = pack(function, launch, kernel->parameters);
    if (result)
        fake_op_free(&kernel->op);
    else
        *op = &kernel->op;
    return result;
}

void fake_kernel_params(const struct op *op, CUDA_KERNEL_NODE_PARAMS *params, void **pointers)
{
    const struct kernel_op *kernel = (const struct kernel_op *)op;
    *params = (CUDA_KERNEL_NODE_PARAMS){.func = kernel->function,
                                        .gridDimX = kernel->grid[0],
                                        .gridDimY = kernel->grid[1],
                                        .gridDimZ = kernel->grid[2],
                                        .blockDimX = kernel->block[0],
                                        .blockDimY = kernel->block[1],
                                        .blockDimZ = kernel->block[2],
                                        .sharedMemBytes = kernel->shared_bytes,
                                        .kernelParams = pointers};
    for (unsigned i = 0; i < kernel->function->entry->parameter_count; i++)
        pointers[i] = (void *)(uintptr_t)(kernel->parameters + kernel->function->offsets[i]);
}

/* What a real driver's launch takes of its thread, if a benchmark asks for it. */
static void spend(uint64_t ns)
{
    uint64_t began = fake_clock_ns();
    while (fake_clock_ns() - began < ns)
        ;
}

static CUresult start(const void *handle, const struct launch *launch, CUstream handle_stream)
{
    CUcontext context;
    if (fake_set.launch_ns)
        spend(fake_set.launch_ns);
    TRY(fake_usable(&context));
    struct CUstream_st *stream;
    TRY(fake_stream_of(handle_stream, context, &stream));
    if (fake_fault(FAULT_LAUNCH))
        DONE(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    if (stream->context != context && (handle_stream == NULL || stream->context->error))
        DONE(CUDA_ERROR_INVALID_HANDLE);
    struct op *op;
    TRY(fake_kernel_op(fake_function_of(handle), launch, context, &op));
    fake_count(COUNT_LAUNCHES, 1);
    DONE(fake_enqueue(stream, op));
}

API cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                   unsigned by, unsigned bz, unsigned shared, CUstream stream, void **parameters,
                   void **extra)
{
    struct launch launch = {{gx, gy, gz}, {bx, by, bz}, shared, parameters, extra, false};
    return start(function, &launch, stream);
}

API cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz,
                              unsigned bx, unsigned by, unsigned bz, unsigned shared,
                              CUstream stream, void **parameters)
{
    struct launch launch = {{gx, gy, gz}, {bx, by, bz}, shared, parameters, NULL, true};
    return start(function, &launch, stream);
}

API cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters,
                     void **extra)
{
    if (!config)
        DONE(CUDA_ERROR_INVALID_VALUE);
    struct launch launch = {{config->gridDimX, config->gridDimY, config->gridDimZ},
                            {config->blockDimX, config->blockDimY, config->blockDimZ},
                            config->sharedMemBytes,
                            parameters,
                            extra,
                            false};
    for (unsigned i = 0; i < config->numAttrs; i++)
        launch.cooperative |= config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    return start(function, &launch, config->hStream);
}

API cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned count,
                                         unsigned flags)
{
    (void)flags;
    for (unsigned i = 0; i < count; i++) {
        const CUDA_LAUNCH_PARAMS *one = &launches[i];
        TRY(cuCtxPushCurrent_v2(one->hStream->context));
        CUresult result = cuLaunchCooperativeKernel(
            one->function, one->gridDimX, one->gridDimY, one->gridDimZ, one->blockDimX,
            one->blockDimY, one->blockDimZ, one->sharedMemBytes, one->hStream, one->kernelParams);
        CUcontext popped;
        cuCtxPopCurrent_v2(&popped);
        TRY(result);
    }
    return CUDA_SUCCESS;
}

/* --- host functions --------------------------------------------------------------------------- */

struct host_op {
    struct op op;
    CUhostFn function;
    CUstreamCallback callback;
    CUstream handle;
    void *data;
};

static void host_run(struct op *op, struct CUstream_st *stream)
{
    struct host_op *host = (struct host_op *)op;
    fake_in_host_function = true;
    if (host->function)
        host->function(host->data);
    else
        host->callback(host->handle, atomic_load(&stream->context->error), host->data);
    fake_in_host_function = false;
}

static const struct op_class host_class = {"host function", CU_GRAPH_NODE_TYPE_HOST, host_run, NULL,
                                           NULL};

CUresult fake_host_op(CUhostFn function, void *data, CUcontext context, struct op **op)
{
    (void)context;
    struct host_op *host = fake_op_new(&host_class, sizeof(*host));
    if (!host || !function) {
        free(host);
        return function ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    }
    host->function = function;
    host->data = data;
    *op = &host->op;
    return CUDA_SUCCESS;
}

API cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *params)
{
    TRY(fake_ready());
    if (!node || !params || node->type != CU_GRAPH_NODE_TYPE_HOST)
        DONE(CUDA_ERROR_INVALID_VALUE);
    const struct host_op *host = (const struct host_op *)node->op;
    *params = (CUDA_HOST_NODE_PARAMS){host->function, host->data};
    return CUDA_SUCCESS;
}

API cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data)
{
    CUcontext context;
    TRY(fake_usable(&context));
    struct CUstream_st *stream;
    TRY(fake_stream_of(handle, context, &stream));
    struct op *op;
    TRY(fake_host_op(function, data, context, &op));
    DONE(fake_enqueue(stream, op));
}

API cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void *data, unsigned flags)
{
    CUcontext context;
    TRY(fake_usable(&context));
    struct CUstream_st *stream;
    TRY(fake_stream_of(handle, context, &stream));
    if (flags || !callback)
        DONE(CUDA_ERROR_INVALID_VALUE);
    if (stream->capture) {
        fake_capture_spoil(stream);
        DONE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    struct host_op *host = fake_op_new(&host_class, sizeof(*host));
    if (!host)
        DONE(CUDA_ERROR_OUT_OF_MEMORY);
    host->callback = callback;
    host->handle = handle;
    host->data = data;
    DONE(fake_enqueue(stream, &host->op));
}
