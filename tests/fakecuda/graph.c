/* Graphs: nodes with operations, and what must come before each. graph_exec.c runs them. */
#include "fake.h"
#include <stdlib.h>

void fake_nodes_add(struct node_set *set, const struct node_set *more)
{
    for (unsigned i = 0; i < more->count; i++) {
        unsigned known = 0;
        while (known < set->count && set->nodes[known] != more->nodes[i])
            known++;
        if (known < set->count)
            continue;
        CUgraphNode *grown = realloc(set->nodes, (set->count + 1) * sizeof(*grown));
        if (!grown)
            abort();
        set->nodes = grown;
        set->nodes[set->count++] = more->nodes[i];
    }
}

void fake_nodes_clear(struct node_set *set)
{
    free(set->nodes);
    *set = (struct node_set){NULL, 0};
}

CUgraph fake_graph_new(void)
{
    CUgraph graph = calloc(1, sizeof(*graph));
    if (!graph)
        abort();
    return graph;
}

CUgraphNode fake_graph_add(CUgraph graph, CUgraphNodeType type, struct op *op,
                           const struct node_set *deps)
{
    CUgraphNode node = calloc(1, sizeof(*node));
    CUgraphNode *grown = realloc(graph->nodes, (graph->count + 1) * sizeof(*grown));
    if (!node || !grown)
        abort();
    node->graph = graph;
    node->type = type;
    node->op = op;
    node->index = graph->count;
    fake_nodes_add(&node->deps, deps);
    graph->nodes = grown;
    graph->nodes[graph->count++] = node;
    return node;
}

API cuGraphCreate(CUgraph *graph, unsigned flags)
{
    TRY(fake_ready());
    if (!graph || flags)
        DONE(CUDA_ERROR_INVALID_VALUE);
    *graph = fake_graph_new();
    return CUDA_SUCCESS;
}

static void free_node(CUgraphNode node)
{
    if (node->op)
        fake_op_free(node->op);
    if (node->owns_child)
        cuGraphDestroy(node->child);
    fake_nodes_clear(&node->deps);
    free(node);
}

/* For a node on which no other one depends. */
API cuGraphDestroyNode(CUgraphNode node)
{
    TRY(fake_ready());
    if (!node)
        DONE(CUDA_ERROR_INVALID_VALUE);
    CUgraph graph = node->graph;
    for (size_t i = 0; i < graph->count; i++)
        for (unsigned k = 0; k < graph->nodes[i]->deps.count; k++)
            if (graph->nodes[i]->deps.nodes[k] == node)
                DONE(CUDA_ERROR_NOT_SUPPORTED);
    for (size_t i = 0, kept = 0; i < graph->count; i++)
        if (graph->nodes[i] != node) {
            graph->nodes[i]->index = kept;
            graph->nodes[kept++] = graph->nodes[i];
        }
    graph->count--;
    free_node(node);
    return CUDA_SUCCESS;
}

API cuGraphDestroy(CUgraph graph)
{
    TRY(fake_ready());
    if (!graph)
        DONE(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < graph->count; i++)
        free_node(graph->nodes[i]);
    free(graph->nodes);
    free(graph);
    return CUDA_SUCCESS;
}

API cuGraphClone(CUgraph *to, CUgraph from)
{
    TRY(fake_ready());
    if (!to || !from)
        DONE(CUDA_ERROR_INVALID_VALUE);
    CUgraph graph = fake_graph_new();
    for (size_t i = 0; i < from->count; i++) {
        CUgraphNode node = from->nodes[i];
        struct op *op = node->op ? fake_op_clone(node->op) : NULL;
        CUgraphNode copy = fake_graph_add(graph, node->type, op, &(struct node_set){NULL, 0});
        copy->child = node->child;
        if (node->owns_child) {
            TRY(cuGraphClone(&copy->child, node->child));
            copy->owns_child = true;
        }
    }
    for (size_t i = 0; i < from->count; i++)
        for (unsigned k = 0; k < from->nodes[i]->deps.count; k++) {
            CUgraphNode dep = graph->nodes[from->nodes[i]->deps.nodes[k]->index];
            fake_nodes_add(&graph->nodes[i]->deps, &(struct node_set){&dep, 1});
        }
    *to = graph;
    return CUDA_SUCCESS;
}

/* --- nodes ------------------------------------------------------------------------------------ */

struct at {
    CUgraphNode *node;
    CUgraph graph;
    const CUgraphNode *deps;
    size_t count;
};

static CUresult add(const struct at *at, CUgraphNodeType type, struct op *op)
{
    if (!at->node || !at->graph || (at->count && !at->deps)) {
        if (op)
            fake_op_free(op);
        DONE(CUDA_ERROR_INVALID_VALUE);
    }
    struct node_set deps = {(CUgraphNode *)(uintptr_t)at->deps, (unsigned)at->count};
    *at->node = fake_graph_add(at->graph, type, op, &deps);
    return CUDA_SUCCESS;
}

static CUresult kernel_op(const CUDA_KERNEL_NODE_PARAMS *p, struct op **op)
{
    CUcontext context = NULL;
    CUresult result = fake_current(&context);
    struct launch launch = {{p->gridDimX, p->gridDimY, p->gridDimZ},
                            {p->blockDimX, p->blockDimY, p->blockDimZ},
                            p->sharedMemBytes,
                            p->kernelParams,
                            p->extra,
                            false};
    const void *handle = p->func ? (const void *)p->func : (const void *)p->kern;
    return result ? result : fake_kernel_op(fake_function_of(handle), &launch, context, op);
}

API cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count,
                            const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct op *op;
    TRY(kernel_op(params, &op));
    return add(&(struct at){node, graph, deps, count}, CU_GRAPH_NODE_TYPE_KERNEL, op);
}

static CUDA_KERNEL_NODE_PARAMS of_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    CUDA_KERNEL_NODE_PARAMS all = {0};
    memcpy(&all, params, sizeof(*params));
    return all;
}

API cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count,
                         const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    CUDA_KERNEL_NODE_PARAMS all = of_v1(params);
    return cuGraphAddKernelNode_v2(node, graph, deps, count, &all);
}

API cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count,
                         const CUDA_MEMCPY3D *copy, CUcontext context)
{
    struct op *op;
    TRY(fake_copy_op(copy, context, &op));
    return add(&(struct at){node, graph, deps, count}, CU_GRAPH_NODE_TYPE_MEMCPY, op);
}

API cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count,
                         const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context)
{
    struct op *op;
    TRY(fake_fill_op(fill, context, &op));
    return add(&(struct at){node, graph, deps, count}, CU_GRAPH_NODE_TYPE_MEMSET, op);
}

API cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count,
                       const CUDA_HOST_NODE_PARAMS *params)
{
    struct op *op;
    TRY(fake_host_op(params->fn, params->userData, NULL, &op));
    return add(&(struct at){node, graph, deps, count}, CU_GRAPH_NODE_TYPE_HOST, op);
}

API cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count)
{
    return add(&(struct at){node, graph, deps, count}, CU_GRAPH_NODE_TYPE_EMPTY, NULL);
}

API cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
                             size_t count, CUgraph child)
{
    CUgraph copy;
    TRY(cuGraphClone(&copy, child));
    TRY(add(&(struct at){node, graph, deps, count}, CU_GRAPH_NODE_TYPE_GRAPH, NULL));
    (*node)->child = copy;
    return CUDA_SUCCESS;
}

API cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph)
{
    TRY(fake_ready());
    *graph = node->child;
    return CUDA_SUCCESS;
}

static CUresult add_any(const struct at *at, CUgraphNodeParams *params)
{
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return cuGraphAddKernelNode_v2(at->node, at->graph, at->deps, at->count, &params->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cuGraphAddMemcpyNode(at->node, at->graph, at->deps, at->count,
                                    &params->memcpy.copyParams, params->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS fill;
        memcpy(&fill, &params->memset, sizeof(fill));
        return cuGraphAddMemsetNode(at->node, at->graph, at->deps, at->count, &fill,
                                    params->memset.ctx);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
        return cuGraphAddHostNode(at->node, at->graph, at->deps, at->count, &params->host);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return cuGraphAddEmptyNode(at->node, at->graph, at->deps, at->count);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        if (params->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) {
            TRY(add(at, CU_GRAPH_NODE_TYPE_GRAPH, NULL));
            (*at->node)->child = params->graph.graph;
            (*at->node)->owns_child = true;
            return CUDA_SUCCESS;
        }
        return cuGraphAddChildGraphNode(at->node, at->graph, at->deps, at->count,
                                        params->graph.graph);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: /* one body, which always runs */
        if (params->conditional.size != 1)
            DONE(CUDA_ERROR_NOT_SUPPORTED);
        TRY(add(at, CU_GRAPH_NODE_TYPE_CONDITIONAL, NULL));
        (*at->node)->child = fake_graph_new();
        (*at->node)->owns_child = true;
        params->conditional.phGraph_out = &(*at->node)->child;
        return CUDA_SUCCESS;
    default:
        DONE(CUDA_ERROR_NOT_SUPPORTED);
    }
}

API cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count,
                   CUgraphNodeParams *params)
{
    return add_any(&(struct at){node, graph, deps, count}, params);
}

API cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
                      const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
    (void)edges;
    return add_any(&(struct at){node, graph, deps, count}, params);
}

API cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                           size_t count)
{
    TRY(fake_ready());
    for (size_t i = 0; i < count; i++) {
        if (from[i]->graph != graph || to[i]->graph != graph)
            DONE(CUDA_ERROR_INVALID_VALUE);
        CUgraphNode node = from[i];
        fake_nodes_add(&to[i]->deps, &(struct node_set){&node, 1});
    }
    return CUDA_SUCCESS;
}

API cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                              const CUgraphEdgeData *edges, size_t count)
{
    (void)edges;
    return cuGraphAddDependencies(graph, from, to, count);
}

/* --- questions -------------------------------------------------------------------------------- */

API cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    TRY(fake_ready());
    if (!graph || !count)
        DONE(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; nodes && i < *count; i++)
        nodes[i] = i < graph->count ? graph->nodes[i] : NULL;
    *count = nodes && *count < graph->count ? *count : graph->count;
    return CUDA_SUCCESS;
}

API cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    TRY(fake_ready());
    size_t found = 0;
    for (size_t i = 0; i < graph->count; i++)
        if (!graph->nodes[i]->deps.count) {
            if (nodes && found < *count)
                nodes[found] = graph->nodes[i];
            found++;
        }
    *count = found;
    return CUDA_SUCCESS;
}

API cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
    TRY(fake_ready());
    if (!node || !type)
        DONE(CUDA_ERROR_INVALID_VALUE);
    *type = node->type;
    return CUDA_SUCCESS;
}

API cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *deps, size_t *count)
{
    TRY(fake_ready());
    for (size_t i = 0; deps && i < *count && i < node->deps.count; i++)
        deps[i] = node->deps.nodes[i];
    *count = node->deps.count;
    return CUDA_SUCCESS;
}

API cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *deps, CUgraphEdgeData *edges,
                                  size_t *count)
{
    for (size_t i = 0; edges && i < *count; i++)
        memset(&edges[i], 0, sizeof(edges[i]));
    return cuGraphNodeGetDependencies(node, deps, count);
}

API cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params)
{
    TRY(fake_ready());
    if (!node || node->type != CU_GRAPH_NODE_TYPE_KERNEL)
        DONE(CUDA_ERROR_INVALID_VALUE);
    fake_kernel_params(node->op, params, node->pointers);
    return CUDA_SUCCESS;
}

API cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    CUDA_KERNEL_NODE_PARAMS all;
    TRY(cuGraphKernelNodeGetParams_v2(node, &all));
    memcpy(params, &all, sizeof(*params));
    return CUDA_SUCCESS;
}

API cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct op *op;
    if (!node || node->type != CU_GRAPH_NODE_TYPE_KERNEL)
        DONE(CUDA_ERROR_INVALID_VALUE);
    TRY(kernel_op(params, &op));
    fake_op_free(node->op);
    node->op = op;
    return CUDA_SUCCESS;
}

API cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    CUDA_KERNEL_NODE_PARAMS all = of_v1(params);
    return cuGraphKernelNodeSetParams_v2(node, &all);
}
