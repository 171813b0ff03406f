/* Graphs that own other graphs, which were captured. All of them come and go many times, with a
 * block that they write. The argument is what is owned:
 *
 *   body: the body of a conditional node
 *   moved: a child graph, which the graph takes over
 *   node: the same, and its node is destroyed before the graph */
#include "words.h"
#include <stdbool.h>

enum { WORDS = 1 << 18, ROUNDS = 24, MOST_LOST = 8 << 20 };

static unsigned host[WORDS];
static CUstream stream;

static CUgraphNode add_body(CUgraph graph, CUcontext context, CUdeviceptr at, unsigned value)
{
    CUgraphNode node;
    CUgraph body;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
                                .conditional = {.size = 1, .ctx = context}};
    CHECK(cuGraphAddNode(&node, graph, NULL, 0, &params));
    CHECK(cuStreamBeginCaptureToGraph(stream, params.conditional.phGraph_out[0], NULL, NULL, 0,
                                      CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(fill_words(at, WORDS, value, stream));
    CHECK(cuStreamEndCapture(stream, &body));
    return node;
}

static CUgraphNode add_moved(CUgraph graph, CUdeviceptr at, unsigned value)
{
    CUgraphNode node;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(fill_words(at, WORDS, value, stream));
    CHECK(cuStreamEndCapture(stream, &params.graph.graph));
    params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    CHECK(cuGraphAddNode(&node, graph, NULL, 0, &params));
    return node;
}

int main(int count, char **arguments)
{
    const char *kind = count > 1 ? arguments[1] : "body";
    CUcontext context = words_open(0);
    size_t first = 0, left, total;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned round = 1; round <= ROUNDS; round++) {
        CUdeviceptr at;
        CUgraph graph;
        CUgraphExec exec;
        CHECK(cuMemAlloc_v2(&at, sizeof(host)));
        CHECK(cuGraphCreate(&graph, 0));
        CUgraphNode node = !strcmp(kind, "body") ? add_body(graph, context, at, round)
                                                 : add_moved(graph, at, round);
        CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
        CHECK(cuGraphLaunch(exec, stream));
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuMemcpyDtoH_v2(host, at, sizeof(host)));
        for (unsigned i = 0; i < WORDS; i++)
            EXPECT(host[i] == round + i);
        CHECK(cuGraphExecDestroy(exec));
        if (!strcmp(kind, "node"))
            CHECK(cuGraphDestroyNode(node));
        CHECK(cuMemFree_v2(at));
        CHECK(cuGraphDestroy(graph));
        CHECK(cuMemGetInfo_v2(&left, &total));
        if (!first)
            first = left;
        EXPECT(left + MOST_LOST > first);
    }
    puts("good");
    return 0;
}
