/* Graphs: a capture over two streams, launched again and again, updated, and built by hand. Calls
 * that a capture forbids get the driver's errors, and the capture is void.
 *
 * Options: --launches=N. To plant an error: --alloc-in-capture.
 */
#include "words.h"

enum { WORDS = 2000 };

static CUstream one, two;
static CUdeviceptr x, y;
static unsigned host_x[WORDS], host_y[WORDS];
static unsigned hosted;

static void on_host(void *data)
{
    (*(unsigned *)data)++;
}

static CUgraph capture(unsigned value)
{
    CUgraph graph;
    CUevent forked, joined;
    CHECK(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    CHECK(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuEventRecord(forked, one));
    CHECK(cuStreamWaitEvent(two, forked, 0));
    CHECK(mix_words(x, x, WORDS, value, one));
    CHECK(mix_words(y, y, WORDS, value + 1, two));
    CHECK(cuEventRecord(joined, two));
    CHECK(cuStreamWaitEvent(one, joined, 0));
    CHECK(mix_words(x, y, WORDS, value + 2, one));
    CHECK(cuLaunchHostFunc(one, on_host, &hosted));
    CUstreamCaptureStatus status;
    CHECK(cuStreamIsCapturing(two, &status));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT(cuEventQuery(joined) == CUDA_ERROR_CAPTURED_EVENT);
    CHECK(cuStreamEndCapture(one, &graph));
    CHECK(cuStreamIsCapturing(two, &status));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_NONE);
    return graph;
}

static void shadow(unsigned value)
{
    for (int i = 0; i < WORDS; i++) {
        host_x[i] = words_mixed(host_x[i], host_x[i], value);
        host_y[i] = words_mixed(host_y[i], host_y[i], value + 1);
        host_x[i] = words_mixed(host_x[i], host_y[i], value + 2);
    }
}

static void compare(void)
{
    unsigned now[WORDS];
    CHECK(cuMemcpyDtoHAsync_v2(now, x, sizeof(now), one));
    CHECK(cuStreamSynchronize(one));
    EXPECT(!memcmp(now, host_x, sizeof(now)));
}

/* A call that a capture refuses, and what is left of the capture then. */
static void refusals(void)
{
    CUgraph graph;
    CUdeviceptr unused;
    size_t pitch;
    CHECK(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(mix_words(x, y, WORDS, 1, one));
    EXPECT(cuMemAlloc_v2(&unused, 64) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT(cuMemAllocPitch_v2(&unused, &pitch, 64, 2, 4) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT(mix_words(x, y, WORDS, 1, one) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT(cuStreamEndCapture(one, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED && !graph);
    CHECK(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemAlloc_v2(&unused, 64));
    EXPECT(cuStreamSynchronize(one) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT(cuStreamEndCapture(one, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(cuMemFree_v2(unused));
    CHECK(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT(mix_words(x, y, WORDS, 1, NULL) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT(cuStreamEndCapture(one, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL) ==
           CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

static void set_values(CUgraphExec exec, CUgraph graph, unsigned value)
{
    CUgraphNode nodes[16];
    size_t count = 16;
    unsigned kernel = 0;
    CHECK(cuGraphGetNodes(graph, nodes, &count));
    EXPECT(count == 4);
    for (size_t i = 0; i < count; i++) {
        CUgraphNodeType type;
        CUDA_KERNEL_NODE_PARAMS params;
        CHECK(cuGraphNodeGetType(nodes[i], &type));
        if (type != CU_GRAPH_NODE_TYPE_KERNEL)
            continue;
        CHECK(cuGraphKernelNodeGetParams_v2(nodes[i], &params));
        unsigned now = value + kernel++;
        void *parameters[4] = {params.kernelParams[0], params.kernelParams[1],
                               params.kernelParams[2], &now};
        params.kernelParams = parameters;
        CHECK(cuGraphExecKernelNodeSetParams_v2(exec, nodes[i], &params));
    }
}

static void by_hand(void)
{
    CUgraph graph;
    CUgraphNode first, second;
    CUgraphExec exec;
    unsigned words = WORDS, value = 9;
    CHECK(cuGraphCreate(&graph, 0));
    CUDA_MEMSET_NODE_PARAMS fill = {y, 0, 7, 4, WORDS, 1};
    CHECK(cuGraphAddMemsetNode(&first, graph, NULL, 0, &fill, NULL));
    void *parameters[] = {&x, &y, &words, &value};
    CUDA_KERNEL_NODE_PARAMS params = {
        words_functions[WORDS_MIX], 1, 1, 1, 32, 1, 1, 0, parameters, NULL, NULL, NULL};
    CHECK(cuGraphAddKernelNode_v2(&second, graph, &first, 1, &params));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cuGraphLaunch(exec, one));
    for (int i = 0; i < WORDS; i++)
        host_x[i] = words_mixed(host_x[i], host_y[i] = 7, value);
    compare();
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
}

int main(int count, char **arguments)
{
    long launches = option(count, arguments, "launches", 5);
    words_open(0);
    CHECK(cuStreamCreate(&one, 0));
    CHECK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc_v2(&x, sizeof(host_x)));
    CHECK(cuMemAlloc_v2(&y, sizeof(host_y)));
    CHECK(fill_words(x, WORDS, 5, one));
    CHECK(fill_words(y, WORDS, 6, one));
    CHECK(cuStreamSynchronize(one));
    for (unsigned i = 0; i < WORDS; i++) {
        host_x[i] = 5 + i;
        host_y[i] = 6 + i;
    }
    if (option(count, arguments, "alloc-in-capture", 0)) {
        CHECK(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
        CHECK(cuMemAlloc_v2(&x, 64));
    }
    CUgraph graph = capture(10);
    CUgraphExec exec;
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (unsigned i = 0; i < launches; i++) {
        CHECK(cuGraphLaunch(exec, i % 2 ? two : one));
        CHECK(cuStreamSynchronize(i % 2 ? two : one));
        shadow(10);
    }
    compare();
    set_values(exec, graph, 50);
    CHECK(cuGraphLaunch(exec, one));
    shadow(50);
    compare();
    CUgraph other = capture(90);
    CUgraphExecUpdateResultInfo info;
    CHECK(cuGraphExecUpdate_v2(exec, other, &info));
    CHECK(cuGraphLaunch(exec, one));
    shadow(90);
    compare();
    EXPECT(hosted == launches + 2);
    refusals();
    by_hand();
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuGraphDestroy(other));
    CHECK(cuMemFree_v2(x));
    CHECK(cuMemFree_v2(y));
    return 0;
}
