/* Calls of the driver, by groups: argv[1]. The door's engine writes down what it hears of them. The
 * program says what fails that should not. Host arrays are a few hundred bytes, so that copies are
 * quick; all sizes differ, so that operands cannot be exchanged unseen. */
#include "../fakecuda/fakecuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB 1024u

static CUmodule module;
static CUcontext context;

#define MUST(call)                                                                                 \
    do {                                                                                           \
        CUresult got = (call);                                                                     \
        if (got != CUDA_SUCCESS)                                                                   \
            printf("line %d: %s: %d\n", __LINE__, #call, (int)got);                                \
    } while (0)
#define GIVES(result, call)                                                                        \
    do {                                                                                           \
        CUresult got = (call);                                                                     \
        if (got != (result))                                                                       \
            printf("line %d: %s: %d\n", __LINE__, #call, (int)got);                                \
    } while (0)
#define TRUE(what)                                                                                 \
    do {                                                                                           \
        if (!(what))                                                                               \
            printf("line %d: not: %s\n", __LINE__, #what);                                         \
    } while (0)

static void nothing(struct fakecuda_kernel *k)
{
    (void)k;
}

static const unsigned short two_sizes[] = {8, 4, 8}, packed_sizes[] = {256}, no_sizes[] = {4};
static const struct fakecuda_entry kernels[] = {{"two", nothing, 3, two_sizes},
                                                {"packed", nothing, 1, packed_sizes},
                                                {"none", nothing, 1, no_sizes}};
static const struct fakecuda_image image = {FAKECUDA_MAGIC, 3, kernels, 0, NULL};

static void start(CUdevice device)
{
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, &image));
}

static CUfunction function(const char *name)
{
    CUfunction found = NULL;
    MUST(cuModuleGetFunction(&found, module, name));
    return found;
}

static CUdeviceptr block(size_t bytes)
{
    CUdeviceptr address = 0;
    MUST(cuMemAlloc_v2(&address, bytes));
    return address;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static void memory(void)
{
    CUdeviceptr a, b, c, d, e, f;
    size_t pitch, free_bytes, all_bytes;
    CUstream stream;
    CUmemoryPool usual, own;
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    MUST(cuStreamCreate(&stream, 1));
    MUST(cuMemAlloc_v2(&a, 1000));
    MUST(cuMemAllocPitch_v2(&b, &pitch, 1001, 3, 4));
    TRUE(pitch == 1024);
    MUST(cuMemAllocAsync(&c, 3000, 0));
    MUST(cuMemAllocAsync_ptsz(&d, 4000, 0));
    MUST(cuMemAllocAsync(&e, 5000, CU_STREAM_PER_THREAD));
    MUST(cuDeviceGetDefaultMemPool(&usual, 0));
    MUST(cuMemAllocFromPoolAsync(&f, 6000, usual, 0));
    MUST(cuMemGetInfo_v2(&free_bytes, &all_bytes));
    TRUE(all_bytes == 1 << 20 && free_bytes < all_bytes && free_bytes > 0);
    /* The driver's own: */
    CUdeviceptr own_block, managed, after;
    MUST(cuMemPoolCreate(&own, &properties));
    MUST(cuMemAllocFromPoolAsync(&own_block, 7000, own, stream));
    MUST(cuMemAllocManaged(&managed, 8000, 1));
    MUST(cuDeviceSetMemPool(0, own));
    MUST(cuMemAllocAsync(&after, 9000, stream));
    MUST(cuMemFreeAsync(after, stream));
    MUST(cuDeviceSetMemPool(0, usual));
    MUST(cuMemAllocAsync(&after, 9001, 0));
    MUST(cuMemFreeAsync(own_block, stream));
    MUST(cuMemFree_v2(managed));
    MUST(cuStreamSynchronize(stream));
    /* Errors are those of the driver: */
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&managed, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(NULL, 8));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch_v2(&managed, &pitch, 10, 10, 5));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&managed, 2 << 20));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(a + 512));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(a, 512, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(a, 512, CU_DEVICE_CPU, 0));
    MUST(cuMemFree_v2(a));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(a));
    MUST(cuMemFreeAsync(c, 0));
    MUST(cuMemFreeAsync_ptsz(d, 0));
    MUST(cuMemFreeAsync(e, CU_STREAM_PER_THREAD));
    MUST(cuMemFree_v2(0));
}

static void launches(void)
{
    CUdeviceptr a = block(4096), b = block(8192), inside = b + 100, nowhere = 0x1234;
    CUfunction two = function("two"), packed = function("packed"), none = function("none");
    CUstream stream = CU_STREAM_PER_THREAD;
    int number = 5;
    void *parameters[] = {&a, &number, &inside};
    char image_of_all[24], many[256] = {0};
    size_t size = sizeof image_of_all;
    memcpy(image_of_all, &nowhere, 8);
    memcpy(image_of_all + 8, &number, 4);
    memcpy(image_of_all + 16, &a, 8);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, image_of_all, CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &size, CU_LAUNCH_PARAM_END};
    memcpy(many + 4, &b, 8); /* as in a packed struct */
    memcpy(many + 248, &a, 8);
    void *one[] = {many}, *single[] = {&number};
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, 0, NULL, 0};
    MUST(cuLaunchKernel(two, 1, 1, 1, 1, 1, 1, 0, 0, parameters, NULL));
    MUST(cuLaunchKernel_ptsz(two, 1, 1, 1, 1, 1, 1, 0, 0, parameters, NULL));
    MUST(cuLaunchKernel(two, 1, 1, 1, 1, 1, 1, 0, stream, NULL, extra));
    MUST(cuLaunchKernelEx(&config, packed, one, NULL));
    MUST(cuLaunchKernelEx_ptsz(&config, two, NULL, extra));
    MUST(cuLaunchCooperativeKernel(packed, 1, 1, 1, 1, 1, 1, 0, 0, one));
    MUST(cuLaunchKernel(none, 1, 1, 1, 1, 1, 1, 0, 0, single, NULL)); /* no block: not told */
    GIVES(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(two, 0, 1, 1, 1, 1, 1, 0, 0, parameters, NULL));
    /* After an unload the layout is asked anew. */
    MUST(cuCtxSynchronize());
    MUST(cuModuleUnload(module));
    MUST(cuModuleLoadData(&module, &image));
    MUST(cuLaunchKernel(function("two"), 1, 1, 1, 1, 1, 1, 0, 0, parameters, NULL));
    /* A kernel of a library in place of a function. */
    CUlibrary library;
    CUkernel kernel;
    MUST(cuLibraryLoadData(&library, &image, NULL, NULL, 0, NULL, NULL, 0));
    MUST(cuLibraryGetKernel(&kernel, library, "two"));
    MUST(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, 0, parameters, NULL));
    MUST(cuCtxSynchronize());
}

static void copies(void)
{
    CUdeviceptr a = block(64 * KIB), b = block(64 * KIB);
    static char host[64 * KIB];
    CUstream stream = CU_STREAM_PER_THREAD;
    MUST(cuMemcpy(a, b + 1, 101));
    MUST(cuMemcpyAsync(a, b + 2, 102, stream));
    MUST(cuMemcpyHtoD_v2(a + 3, host, 103));
    MUST(cuMemcpyHtoDAsync_v2(a + 4, host, 104, stream));
    MUST(cuMemcpyDtoH_v2(host, a + 5, 105));
    MUST(cuMemcpyDtoHAsync_v2(host, a + 6, 106, stream));
    MUST(cuMemcpyDtoD_v2(a, b + 7, 107));
    MUST(cuMemcpyDtoDAsync_v2(a, b + 8, 108, stream));
    MUST(cuMemcpyDtoD_v2_ptds(a, b + 9, 109));
    MUST(cuMemcpyDtoDAsync_v2_ptsz(a, b + 10, 110, 0));
    MUST(cuMemcpyPeer(a, context, b + 11, context, 111));
    MUST(cuMemcpyPeerAsync(a, context, b + 12, context, 112, stream));
    CUDA_MEMCPY2D flat = {.srcXInBytes = 10,
                          .srcY = 2,
                          .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = a,
                          .srcPitch = 512,
                          .dstXInBytes = 20,
                          .dstY = 3,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = host,
                          .dstPitch = 256,
                          .WidthInBytes = 100,
                          .Height = 4};
    MUST(cuMemcpy2D_v2(&flat));
    MUST(cuMemcpy2DAsync_v2(&flat, stream));
    flat.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    flat.dstDevice = b;
    MUST(cuMemcpy2DUnaligned_v2(&flat));
    CUDA_MEMCPY3D box = {.srcXInBytes = 1,
                         .srcY = 1,
                         .srcZ = 1,
                         .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = a,
                         .srcPitch = 100,
                         .srcHeight = 10,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = b,
                         .dstPitch = 64,
                         .dstHeight = 8,
                         .WidthInBytes = 50,
                         .Height = 5,
                         .Depth = 3};
    MUST(cuMemcpy3D_v2(&box));
    MUST(cuMemcpy3DAsync_v2(&box, stream));
    CUDA_MEMCPY3D_PEER peer = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                               .srcDevice = a,
                               .srcContext = context,
                               .srcPitch = 100,
                               .srcHeight = 10,
                               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                               .dstDevice = b,
                               .dstContext = context,
                               .dstPitch = 64,
                               .dstHeight = 8,
                               .WidthInBytes = 50,
                               .Height = 5,
                               .Depth = 3};
    MUST(cuMemcpy3DPeer(&peer));
    MUST(cuMemcpy3DPeerAsync(&peer, stream));
    CUdeviceptr to[] = {a, a + 1000}, from[] = {b, b + 2000};
    size_t sizes[] = {11, 12}, first = 0, failed;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    MUST(cuMemcpyBatchAsync(to, from, sizes, 2, &attributes, &first, 1, &failed, stream));
    MUST(cuMemcpyBatchAsync_v2(to, from, sizes, 2, &attributes, &first, 1, stream));
    CUDA_MEMCPY3D_BATCH_OP op = {
        .src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op = {.ptr = {a, 100, 10, {1, 0}}}},
        .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op = {.ptr = {b, 0, 0, {1, 0}}}},
        .extent = {50, 5, 3},
        .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    cuMemcpy3DBatchAsync(1, &op, &failed, 0, stream); /* the fake driver has neither */
    cuMemcpy3DBatchAsync_v2(1, &op, 0, stream);
    MUST(cuMemcpyHtoD_v2(a, host, 0));
    MUST(cuCtxSynchronize());
}

static void sets(void)
{
    CUdeviceptr a = block(64 * KIB);
    CUstream stream = CU_STREAM_PER_THREAD;
    MUST(cuMemsetD8_v2(a, 1, 100));
    MUST(cuMemsetD16_v2(a + 2, 1, 100));
    MUST(cuMemsetD32_v2(a + 4, 1, 100));
    MUST(cuMemsetD8Async(a, 1, 101, stream));
    MUST(cuMemsetD16Async(a, 1, 101, stream));
    MUST(cuMemsetD32Async(a, 1, 101, stream));
    MUST(cuMemsetD2D8_v2(a, 512, 1, 10, 3));
    MUST(cuMemsetD2D16_v2(a, 512, 1, 10, 3));
    MUST(cuMemsetD2D32_v2(a, 512, 1, 10, 3));
    MUST(cuMemsetD2D8Async(a, 512, 1, 11, 3, stream));
    MUST(cuMemsetD2D16Async(a, 512, 1, 11, 3, stream));
    MUST(cuMemsetD2D32Async_ptsz(a, 512, 1, 11, 3, 0));
    MUST(cuMemsetD8_v2_ptds(a, 1, 0));
    MUST(cuCtxSynchronize());
}

/* Each waits for what is there already. */
static void words(void)
{
    CUdeviceptr a = block(4096), b = block(5000);
    CUstreamBatchMemOpParams both[3] = {{.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, b, {5}}},
                                        {.operation = CU_STREAM_MEM_OP_BARRIER},
                                        {.waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_64, a, {7}}}};
    MUST(cuMemsetD8_v2(a, 0, 4096));
    MUST(cuMemsetD8_v2(b, 0, 5000));
    MUST(cuStreamWriteValue32_v2(0, a + 4, 1, 0));
    MUST(cuStreamWaitValue32_v2(CU_STREAM_PER_THREAD, a + 8, 0, CU_STREAM_WAIT_VALUE_EQ));
    MUST(cuStreamWriteValue64_v2(0, a, 7, 0));
    MUST(cuStreamWaitValue64_v2_ptsz(0, a + 16, 0, CU_STREAM_WAIT_VALUE_EQ));
    MUST(cuStreamBatchMemOp_v2(0, 3, both, 0));
    MUST(cuCtxSynchronize());
}

static void streams(void)
{
    CUdeviceptr a = block(4096), in_capture = 0;
    CUstream stream, other;
    CUgraph graph;
    CUgraphExec exec;
    MUST(cuStreamCreate(&stream, 1));
    MUST(cuStreamCreate(&other, 1));
    MUST(cuMemsetD8Async(a, 1, 10, CU_STREAM_PER_THREAD));
    MUST(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    MUST(cuStreamSynchronize(0));
    MUST(cuStreamSynchronize_ptsz(0));
    MUST(cuStreamQuery(stream));
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    MUST(cuMemsetD8Async(a, 1, 20, stream));
    MUST(cuMemsetD8Async(a, 1, 30, other)); /* not captured */
    MUST(cuMemAllocAsync(&in_capture, 100, stream));
    MUST(cuMemFreeAsync(in_capture, stream));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuMemsetD8Async(a, 1, 40, stream));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuStreamDestroy_v2(other));
    MUST(cuCtxSynchronize());
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
}

static CUgraphNode kernel_node(CUgraph graph, CUgraphNode after, CUDA_KERNEL_NODE_PARAMS *launch,
                               void **parameters)
{
    CUgraphNode node = NULL;
    *launch = (CUDA_KERNEL_NODE_PARAMS){.func = function("two"),
                                        .gridDimX = 1,
                                        .gridDimY = 1,
                                        .gridDimZ = 1,
                                        .blockDimX = 1,
                                        .blockDimY = 1,
                                        .blockDimZ = 1,
                                        .kernelParams = parameters};
    MUST(cuGraphAddKernelNode_v2(&node, graph, &after, after != NULL, launch));
    return node;
}

static void graphs(void)
{
    CUdeviceptr a = block(4096), b = block(4096), c = block(4096), d = block(4096);
    int number = 5;
    void *parameters[] = {&a, &number, &b}, *others[] = {&a, &number, &d};
    void *inner[] = {&c, &number, &a};
    CUgraph graph, child;
    CUgraphNode kernel, whole;
    CUgraphExec exec;
    CUDA_KERNEL_NODE_PARAMS launch, unused;
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphCreate(&child, 0));
    kernel = kernel_node(graph, NULL, &launch, parameters);
    kernel_node(child, NULL, &unused, inner);
    MUST(cuGraphAddChildGraphNode(&whole, graph, &kernel, 1, child));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, 0));
    MUST(cuGraphLaunch_ptsz(exec, 0));
    launch.kernelParams = others;
    MUST(cuGraphExecKernelNodeSetParams_v2(exec, kernel, &launch));
    MUST(cuGraphLaunch(exec, CU_STREAM_PER_THREAD));
    MUST(cuMemFree_v2(d)); /* it stays until no graph uses it */
    MUST(cuCtxSynchronize());
    CUdeviceptr e = block(5000);
    others[2] = &e;
    MUST(cuGraphExecKernelNodeSetParams_v2(exec, kernel, &launch));
    MUST(cuGraphLaunch(exec, 0));
    CUgraphExecUpdateResultInfo info;
    MUST(cuGraphExecUpdate_v2(exec, graph, &info)); /* as it was at first */
    MUST(cuGraphLaunch(exec, 0));
    MUST(cuCtxSynchronize());
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
    MUST(cuGraphDestroy(child));
}

static void addresses(void)
{
    CUdeviceptr a = block(5000), base = 0, native;
    size_t bytes = 0, range = 0;
    unsigned type = 0, managed = 7;
    int device = -1;
    void *host = &host;
    MUST(cuMemAllocManaged(&native, 4096, 1));
    MUST(cuMemGetAddressRange_v2(&base, &bytes, a + 4999));
    TRUE(base == a && bytes == 5000);
    GIVES(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&base, &bytes, a + 10000)); /* no block */
    MUST(cuMemGetAddressRange_v2(NULL, &bytes, a));
    MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a + 10));
    TRUE(type == CU_MEMORYTYPE_DEVICE);
    managed = 0x07070707;
    MUST(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, a));
    TRUE((managed & 0xff) == 0);
    MUST(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, a));
    TRUE(device == 0);
    MUST(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, a + 10));
    MUST(cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, a + 10));
    TRUE(base == a && range == 5000);
    GIVES(CUDA_ERROR_INVALID_VALUE,
          cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, a));
    CUcontext of = NULL;
    MUST(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, a));
    TRUE(of == context);
    CUpointer_attribute which[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_HOST_POINTER,
        CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *what[] = {&type, &host, &managed, &range};
    MUST(cuPointerGetAttributes(4, which, what, a));
    TRUE(type == CU_MEMORYTYPE_DEVICE && !host && !(managed & 0xff) && range == 5000);
    MUST(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, a + 10));
    MUST(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_MAPPED, a));
    MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, a));
    TRUE(base == a + 10 && (managed & 0xff) == 1 && type == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    MUST(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, native));
    TRUE((managed & 0xff) == 1);
}

static void exclusions(void)
{
    CUdeviceptr a = block(5000);
    CUipcMemHandle handle;
    int can = 7;
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuIpcGetMemHandle(&handle, a));
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuIpcGetMemHandle(&handle, a));
    MUST(cuDeviceCanAccessPeer(&can, 0, 1));
    TRUE(can == 0);
    GIVES(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuCtxEnablePeerAccess(context, 0));
    CUmemGenericAllocationHandle kept;
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(&kept, (void *)(size_t)a));
}

/* What only managed memory can. Once with a block, once with memory that is managed. */
static void placement(void)
{
    CUdeviceptr a = block(5000), native;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    MUST(cuMemAllocManaged(&native, 4096, 1));
    for (int i = 0; i < 2; i++) {
        CUresult expected = i ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        CUdeviceptr both[] = {native, i ? native : a};
        size_t sizes[] = {4096, 4096}, bytes = 4, first = 0;
        CUstream t = CU_STREAM_PER_THREAD;
        int value = 0;
        void *to = &value;
        CUmem_range_attribute which = CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
        GIVES(expected, cuMemAdvise(both[1], 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
        GIVES(expected, cuMemAdvise_v2(both[1], 4096, CU_MEM_ADVISE_UNSET_READ_MOSTLY, here));
        GIVES(expected, cuMemPrefetchAsync(both[1], 4096, 0, t));
        GIVES(expected, cuMemPrefetchAsync_ptsz(both[1], 4096, 0, 0));
        GIVES(expected, cuMemPrefetchAsync_v2(both[1], 4096, here, 0, t));
        GIVES(expected, cuMemPrefetchBatchAsync(both, sizes, 2, &here, &first, 1, 0, t));
        GIVES(expected, cuMemPrefetchBatchAsync_ptsz(both, sizes, 2, &here, &first, 1, 0, t));
        GIVES(expected, cuMemDiscardAndPrefetchBatchAsync(both, sizes, 2, &here, &first, 1, 0, t));
        GIVES(expected,
              cuMemDiscardAndPrefetchBatchAsync_ptsz(both, sizes, 2, &here, &first, 1, 0, t));
        GIVES(expected, cuMemDiscardBatchAsync(both, sizes, 2, 0, t));
        GIVES(expected, cuMemDiscardBatchAsync_ptsz(both, sizes, 2, 0, t));
        GIVES(expected, cuStreamAttachMemAsync(t, both[1], 0, CU_MEM_ATTACH_GLOBAL));
        GIVES(expected, cuStreamAttachMemAsync_ptsz(t, both[1], 0, CU_MEM_ATTACH_GLOBAL));
        GIVES(expected, cuMemRangeGetAttribute(&value, 4, which, both[1], 4096));
        GIVES(expected, cuMemRangeGetAttributes(&to, &bytes, &which, 1, both[1], 4096));
    }
    MUST(cuCtxSynchronize());
}

/* Tables of pointers: to b from a, to a itself, and not aligned. */
static void payload(void)
{
    CUdeviceptr a = block(128 * KIB), b = block(4096), c = block(4096), *pinned;
    CUdeviceptr table[] = {0, b + 8, a + 16, 0x1234};
    char odd[20] = {0};
    static CUdeviceptr large[16 * KIB];
    MUST(cuMemcpyHtoD_v2(a, table, sizeof table));
    memcpy(odd + 4, &c, 8);
    MUST(cuMemcpyHtoD_v2(a, odd, sizeof odd));
    MUST(cuMemHostAlloc((void **)&pinned, 4096, 0));
    memset(pinned, 0, 4096);
    pinned[511] = c;
    MUST(cuMemcpyHtoDAsync_v2(a, pinned, 4096, 0));
    MUST(cuMemcpyAsync(a, (CUdeviceptr)(size_t)pinned, 4096, 0));
    MUST(cuMemcpyHtoD_v2(a, (void *)(size_t)b, 64)); /* an address of the device */
    large[0] = b;
    MUST(cuMemcpyHtoD_v2(a, large, sizeof large)); /* too long to be a table */
    CUdeviceptr native;
    MUST(cuMemAllocManaged(&native, 4096, 1));
    MUST(cuMemcpyHtoD_v2(native, table, sizeof table)); /* as to a variable of a module */
    MUST(cuMemFree_v2(native));
    MUST(cuCtxSynchronize());
}

/* Tables in copies of boxes, in batches, and in nodes of graphs. A row has two words; what lies
 * between rows is no part of the table. */
static void payload_boxes(void)
{
    CUdeviceptr a = block(128 * KIB), b = block(4096), c = block(4096), *pinned;
    CUdeviceptr rows[3][4] = {{0, 1, b, b}, {0, c + 8, b, b}, {5, 6, b, b}};
    CUdeviceptr to[] = {a, a + 100}, from[] = {(CUdeviceptr)(size_t)rows[1], b};
    size_t bytes[] = {16, 10}, first = 0;
    CUmemcpyAttributes how = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUDA_MEMCPY2D flat = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = rows,
                          .srcPitch = sizeof rows[0],
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = a,
                          .dstPitch = 16,
                          .WidthInBytes = 16,
                          .Height = 3};
    MUST(cuMemcpy2D_v2(&flat));
    CUDA_MEMCPY3D deep = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .srcDevice = (CUdeviceptr)(size_t)rows,
                          .srcPitch = sizeof rows[0],
                          .srcHeight = 1,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = a,
                          .dstPitch = 16,
                          .dstHeight = 1,
                          .WidthInBytes = 16,
                          .Height = 1,
                          .Depth = 3};
    MUST(cuMemcpy3DAsync_v2(&deep, CU_STREAM_PER_THREAD));
    MUST(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    MUST(cuMemcpyBatchAsync_v2(to, from, bytes, 2, &how, &first, 1, CU_STREAM_PER_THREAD));
    MUST(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    /* A node's source may be gone until the graph is launched, unless it is page-locked. */
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &deep, context));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuMemHostAlloc((void **)&pinned, sizeof rows, 0));
    memcpy(pinned, rows, sizeof rows);
    deep.srcDevice = (CUdeviceptr)(size_t)pinned;
    MUST(cuGraphExecMemcpyNodeSetParams(exec, node, &deep, context));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &deep, context));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
    MUST(cuCtxSynchronize());
}

static void contexts(void)
{
    CUcontext own, second;
    CUdeviceptr a = block(4096), b, c;
    MUST(cuCtxCreate_v2(&own, 0, 0));
    MUST(cuMemAlloc_v2(&b, 4096)); /* the driver's */
    MUST(cuMemsetD8_v2(a, 1, 10)); /* a block, from another context of its device */
    MUST(cuMemsetD8_v2(b, 1, 10));
    MUST(cuCtxSynchronize());
    MUST(cuCtxDestroy_v2(own));
    MUST(cuCtxSetCurrent(context));
    MUST(cuDevicePrimaryCtxReset_v2(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    c = block(5000);
    MUST(cuDevicePrimaryCtxRetain(&second, 0));
    MUST(cuDevicePrimaryCtxRelease_v2(0)); /* not the last */
    MUST(cuMemsetD8_v2(c, 1, 10));
    MUST(cuCtxSynchronize());
    MUST(cuMemFree_v2(c));
}

static void devices(void)
{
    CUcontext first = context, second;
    CUdeviceptr a = block(4096), b;
    MUST(cuDevicePrimaryCtxRetain(&second, 1));
    MUST(cuCtxSetCurrent(second));
    b = block(8192);
    MUST(cuMemsetD8_v2(b, 1, 10));
    MUST(cuMemcpyPeer(b, second, a, first, 100));
    /* One kernel on each of two devices; the first uses a block of the other one as well. */
    CUmodule modules[2];
    CUfunction two[2];
    CUstream streams[2];
    int number = 1;
    void *parameters[2][3] = {{&a, &number, &b}, {&b, &number, &b}};
    CUDA_LAUNCH_PARAMS both[2];
    for (int i = 0; i < 2; i++) {
        MUST(cuCtxSetCurrent(i ? second : first));
        MUST(cuModuleLoadData(&modules[i], &image));
        MUST(cuModuleGetFunction(&two[i], modules[i], "two"));
        MUST(cuStreamCreate(&streams[i], 1));
        both[i] = (CUDA_LAUNCH_PARAMS){two[i], 1, 1, 1, 1, 1, 1, 0, streams[i], parameters[i]};
    }
    cuLaunchCooperativeKernelMultiDevice(both, 2, 0); /* newer drivers refuse it */
    MUST(cuCtxSynchronize());
    /* A default stream is of the thread's context, memory of the stream's device. */
    CUdeviceptr c;
    MUST(cuStreamSynchronize(0));
    MUST(cuCtxSetCurrent(first));
    MUST(cuStreamSynchronize(0));
    MUST(cuMemAllocAsync(&c, 6000, streams[1]));
    MUST(cuMemFreeAsync(c, streams[1]));
    MUST(cuMemFree_v2(a));
    MUST(cuMemFree_v2(b));
}

/* Copies in a stream of the first device. Each device copies its own block, in its own stream. */
static void peers(void)
{
    static char host[100];
    CUcontext first = context, second;
    CUdeviceptr a = block(4096), b, to[2], from[2];
    size_t sizes[] = {21, 22}, none = 0;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUstream stream;
    CUgraph graph;
    MUST(cuStreamCreate(&stream, 1));
    for (int i = 0; i < 2; i++) { /* with the second context, and with one that came after it */
        MUST(cuDevicePrimaryCtxRetain(&second, 1));
        MUST(cuCtxSetCurrent(second));
        b = block(8192);
        MUST(cuMemcpyPeerAsync(b + 1, second, a + 2, first, 11, stream));
        MUST(cuMemcpyAsync(a + 3, b + 4, 12, stream));
        MUST(cuMemcpyHtoDAsync_v2(b + 5, host, 13, stream));
        MUST(cuMemcpyDtoH_v2(host, a + 6, 14)); /* in the default stream of the second */
        to[0] = b, from[0] = a, to[1] = b + 100, from[1] = b + 200;
        MUST(cuMemcpyBatchAsync_v2(to, from, sizes, 2, &attributes, &none, 1, stream));
        MUST(cuStreamSynchronize(stream));
        if (i == 0)
            MUST(cuDevicePrimaryCtxReset_v2(1));
    }
    MUST(cuCtxSetCurrent(first));
    MUST(cuMemcpyDtoDAsync_v2(a, a + 200, 15, stream)); /* of one device */
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemcpyDtoDAsync_v2(b, a, 16, stream));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuCtxSynchronize());
}

static void forked(void)
{
    CUdeviceptr a = block(4096), b;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) { /* the engine hears nothing of it */
        cuMemFree_v2(a);
        cuMemAlloc_v2(&b, 100);
        cuMemsetD8_v2(a, 1, 10);
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    TRUE(status == 0);
    MUST(cuMemFree_v2(a));
}

/* The parent has asked for functions only. The child is a process like any other. */
static void forked_early(void)
{
    int version;
    cuDriverGetVersion(&version);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        start(0);
        MUST(cuMemFree_v2(block(4096)));
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void *thread(void *argument)
{
    CUdeviceptr *a = argument;
    MUST(cuCtxSetCurrent(context));
    for (int i = 0; i < 300; i++) {
        CUdeviceptr mine;
        MUST(cuMemAllocAsync(&mine, 512, CU_STREAM_PER_THREAD));
        MUST(cuMemsetD8Async(*a, 1, 100, CU_STREAM_PER_THREAD));
        MUST(cuMemFreeAsync(mine, CU_STREAM_PER_THREAD));
    }
    return NULL;
}

static void threads(void)
{
    CUdeviceptr a = block(4096);
    pthread_t all[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&all[i], NULL, thread, &a);
    for (int i = 0; i < 4; i++)
        pthread_join(all[i], NULL);
    MUST(cuCtxSynchronize());
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } groups[] = {
        {"memory", memory},       {"launches", launches},   {"copies", copies},
        {"sets", sets},           {"streams", streams},     {"words", words},
        {"graphs", graphs},       {"addresses", addresses}, {"exclusions", exclusions},
        {"placement", placement}, {"payload", payload},     {"payload_boxes", payload_boxes},
        {"contexts", contexts},   {"devices", devices},     {"peers", peers},
        {"forked", forked},       {"threads", threads}};
    if (argc == 2 && strcmp(argv[1], "forked_early") == 0) {
        forked_early();
        return 0;
    }
    for (size_t i = 0; argc == 2 && i < sizeof groups / sizeof groups[0]; i++)
        if (strcmp(argv[1], groups[i].name) == 0) {
            start(0);
            groups[i].function();
            printf("over\n");
            return 0;
        }
    return 2;
}
