/* Blocks that a graph uses are freed: in a relaxed capture, after it, and beside another capture.
 * The driver would let such a graph access memory that is gone. With Ebb, that memory must not be
 * that of other blocks while the graph can be launched, and must come back afterwards.
 *
 * Not for the driver alone: there it is an error. Options: --words=N of each block, --others=N
 * blocks that come afterwards.
 */
#include "words.h"

#include <unistd.h>

enum { MOST_OTHERS = 24 };

static unsigned words, other_count;
static size_t bytes;
static CUstream stream;

static CUdeviceptr block(void)
{
    CUdeviceptr address;
    CHECK(cuMemAlloc_v2(&address, bytes));
    return address;
}

static size_t free_bytes(void)
{
    size_t available, total;
    CHECK(cuMemGetInfo_v2(&available, &total));
    return available;
}

/* A transfer that begins or ends is counted in two places, one after the other. In between less may
 * seem to be free. */
static void expect_free(size_t least)
{
    for (int ms = 0; free_bytes() < least; ms++) {
        EXPECT(ms < 1000);
        usleep(1000);
    }
}

static void expect_filled(CUdeviceptr address, unsigned value)
{
    unsigned *now = malloc(bytes);
    CHECK(cuMemcpyDtoHAsync_v2(now, address, bytes, stream));
    CHECK(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < words; i++)
        EXPECT(now[i] == value + i);
    free(now);
}

/* Blocks that come after the frees are as they were filled, although the graph runs. */
static void launch_beside_others(CUgraphExec exec)
{
    CUdeviceptr others[MOST_OTHERS];
    for (unsigned i = 0; i < other_count; i++) {
        others[i] = block();
        CHECK(fill_words(others[i], words, 1000 * i, stream));
    }
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuGraphLaunch(exec, stream));
    for (unsigned i = 0; i < other_count; i++) {
        expect_filled(others[i], 1000 * i);
        CHECK(cuMemFree_v2(others[i]));
    }
}

/* As PyTorch's allocator: the thread permits itself what the capture forbids. */
static CUdeviceptr block_in_capture(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    CUdeviceptr address = block();
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
    return address;
}

static void permitted(CUdeviceptr x)
{
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUdeviceptr during = block_in_capture();
    CHECK(fill_words(during, words, 7, stream));
    CHECK(mix_words(x, during, words, 1, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFree_v2(during));
    launch_beside_others(exec);
    CHECK(cuGraphExecDestroy(exec));
}

int main(int count, char **arguments)
{
    words = (unsigned)option(count, arguments, "words", 2000);
    other_count = (unsigned)option(count, arguments, "others", MOST_OTHERS);
    EXPECT(other_count <= MOST_OTHERS);
    bytes = words * sizeof(unsigned);
    words_open(0);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr x = block(), before = block(), after = block(), during;
    CHECK(fill_words(x, words, 5, stream));
    CHECK(fill_words(before, words, 6, stream));
    CHECK(cuStreamSynchronize(stream));
    size_t available = free_bytes();

    CUgraph graph;
    CUgraphExec exec, second;
    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    during = block();
    CHECK(fill_words(during, words, 7, stream));
    CHECK(mix_words(during, x, words, 1, stream));
    CHECK(mix_words(before, during, words, 2, stream));
    CHECK(fill_words(after, words, 3, stream));
    CHECK(cuMemFree_v2(during));
    EXPECT(cuMemFree_v2(during) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFreeAsync(before, CU_STREAM_PER_THREAD));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cuMemFree_v2(after));
    launch_beside_others(exec);

    /* Another graph from the same capture may still be launched, then none. */
    CHECK(cuGraphInstantiateWithFlags(&second, graph, 0));
    CHECK(cuGraphExecDestroy(exec));
    launch_beside_others(second);
    CHECK(cuGraphDestroy(graph));
    launch_beside_others(second);
    CHECK(cuGraphExecDestroy(second));
    CHECK(cuStreamSynchronize(stream));
    expect_free(available + 2 * bytes); /* `before` and `after` are free */
    permitted(x);
    expect_free(available + 2 * bytes);
    CHECK(cuMemFree_v2(x));
    return 0;
}
