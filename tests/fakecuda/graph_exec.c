/* Executable graphs. A launch is one operation of its stream. It takes a copy of the nodes, so
 * later updates are for later launches. The nodes run one after another, in a random order that
 * the dependencies permit.
 */
#include "fake.h"
#include <stdlib.h>

struct CUgraphExec_st {
    CUgraph graph; /* its own copy; the nodes have the index of the original's */
    unsigned long long flags;
    bool alive;
};

struct graph_op {
    struct op op;
    CUgraph graph; /* the launch's own */
};

static void run_node(CUgraphNode node, struct graph_op *launch, struct CUstream_st *stream);

static bool is_due(CUgraphNode node)
{
    for (unsigned i = 0; i < node->deps.count; i++)
        if (!node->deps.nodes[i]->mark)
            return false;
    return !node->mark;
}

static void run_graph(CUgraph graph, struct graph_op *launch, struct CUstream_st *stream)
{
    for (size_t i = 0; i < graph->count; i++)
        graph->nodes[i]->mark = false;
    for (size_t done = 0; done < graph->count; done++) {
        CUgraphNode drawn = NULL;
        unsigned due = 0;
        for (size_t i = 0; i < graph->count; i++)
            if (is_due(graph->nodes[i]) && fake_random(++due) == 0)
                drawn = graph->nodes[i];
        if (!drawn || atomic_load(&stream->context->error))
            return; /* a circle was refused at instantiation */
        run_node(drawn, launch, stream);
        drawn->mark = true;
        if (!fake_set.fast)
            fake_yield(stream);
    }
}

static void run_node(CUgraphNode node, struct graph_op *launch, struct CUstream_st *stream)
{
    struct op *op = node->op;
    if (node->child)
        run_graph(node->child, launch, stream);
    if (!op)
        return;
    while (op->class->ready && !op->class->ready(op) && !atomic_load(&stream->context->error))
        fake_yield_waiting(stream);
    op->seq = launch->op.seq;
    op->clock = launch->op.clock; /* lent */
    op->class->run(op, stream);
    op->clock = NULL;
}

static void graph_run(struct op *op, struct CUstream_st *stream)
{
    struct graph_op *launch = (struct graph_op *)op;
    run_graph(launch->graph, launch, stream);
}

static void graph_destroy(struct op *op)
{
    cuGraphDestroy(((struct graph_op *)op)->graph);
}

static const struct op_class graph_class = {"graph", CU_GRAPH_NODE_TYPE_GRAPH, graph_run, NULL,
                                            graph_destroy};

static bool has_circle(CUgraph graph)
{
    for (size_t i = 0; i < graph->count; i++)
        graph->nodes[i]->mark = false;
    for (size_t done = 0; done < graph->count; done++) {
        size_t i = 0;
        while (i < graph->count && !is_due(graph->nodes[i]))
            i++;
        if (i == graph->count)
            return true;
        graph->nodes[i]->mark = true;
    }
    return false;
}

static CUresult instantiate(CUgraphExec *to, CUgraph graph, unsigned long long flags)
{
    CUcontext context;
    TRY(fake_usable(&context));
    if (!to || !graph || has_circle(graph))
        DONE(CUDA_ERROR_INVALID_VALUE);
    CUgraphExec exec = calloc(1, sizeof(*exec));
    if (!exec)
        DONE(CUDA_ERROR_OUT_OF_MEMORY);
    exec->flags = flags;
    exec->alive = true;
    TRY(cuGraphClone(&exec->graph, graph));
    *to = exec;
    return CUDA_SUCCESS;
}

API cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    return instantiate(exec, graph, flags);
}

API cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *bad, char *log,
                          size_t bytes)
{
    (void)bad;
    if (log && bytes)
        *log = 0;
    return instantiate(exec, graph, 0);
}

API cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                 CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    CUresult result = instantiate(exec, graph, params->flags);
    params->hErrNode_out = NULL;
    params->result_out =
        result ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE : CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return result;
}

API cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags)
{
    TRY(fake_ready());
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

API cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
    CUcontext context;
    TRY(fake_usable(&context));
    struct CUstream_st *stream;
    TRY(fake_stream_of(handle, context, &stream));
    if (!exec || !exec->alive)
        DONE(CUDA_ERROR_INVALID_HANDLE);
    struct graph_op *op = fake_op_new(&graph_class, sizeof(*op));
    if (!op)
        DONE(CUDA_ERROR_OUT_OF_MEMORY);
    TRY(cuGraphClone(&op->graph, exec->graph));
    fake_count(COUNT_GRAPHS, 1);
    DONE(fake_enqueue(stream, &op->op));
}

API cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    (void)stream;
    DONE(exec && exec->alive ? fake_ready() : CUDA_ERROR_INVALID_HANDLE);
}

API cuGraphExecDestroy(CUgraphExec exec)
{
    TRY(fake_ready());
    if (!exec || !exec->alive)
        DONE(CUDA_ERROR_INVALID_HANDLE);
    exec->alive = false; /* launches have their own copy */
    CUgraph graph = exec->graph;
    exec->graph = NULL;
    return cuGraphDestroy(graph);
}

/* --- updates ---------------------------------------------------------------------------------- */

static CUgraphNode node_of(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type)
{
    if (!exec || !exec->alive || !node || node->index >= exec->graph->count)
        return NULL;
    CUgraphNode mine = exec->graph->nodes[node->index];
    return mine->type == type ? mine : NULL;
}

static CUresult replace(CUgraphNode node, CUresult made, struct op *op)
{
    if (made || !node) {
        if (!made)
            fake_op_free(op);
        DONE(made ? made : CUDA_ERROR_INVALID_VALUE);
    }
    fake_op_free(node->op);
    node->op = op;
    return CUDA_SUCCESS;
}

API cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                      const CUDA_KERNEL_NODE_PARAMS *params)
{
    CUgraphNode mine = node_of(exec, node, CU_GRAPH_NODE_TYPE_KERNEL);
    if (!mine)
        DONE(CUDA_ERROR_INVALID_VALUE);
    return cuGraphKernelNodeSetParams_v2(mine, params);
}

API cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                   const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    CUDA_KERNEL_NODE_PARAMS all = {0};
    memcpy(&all, params, sizeof(*params));
    return cuGraphExecKernelNodeSetParams_v2(exec, node, &all);
}

API cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy,
                                   CUcontext context)
{
    struct op *op = NULL;
    CUresult made = fake_copy_op(copy, context, &op);
    return replace(node_of(exec, node, CU_GRAPH_NODE_TYPE_MEMCPY), made, op);
}

API cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                   const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context)
{
    struct op *op = NULL;
    CUresult made = fake_fill_op(fill, context, &op);
    return replace(node_of(exec, node, CU_GRAPH_NODE_TYPE_MEMSET), made, op);
}

API cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                 const CUDA_HOST_NODE_PARAMS *params)
{
    struct op *op = NULL;
    CUresult made = fake_host_op(params->fn, params->userData, NULL, &op);
    return replace(node_of(exec, node, CU_GRAPH_NODE_TYPE_HOST), made, op);
}

static CUgraphExecUpdateResult compare(CUgraph a, CUgraph b)
{
    if (a->count != b->count)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; i < a->count; i++) {
        if (a->nodes[i]->type != b->nodes[i]->type)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        if (a->nodes[i]->deps.count != b->nodes[i]->deps.count)
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        for (unsigned k = 0; k < a->nodes[i]->deps.count; k++)
            if (a->nodes[i]->deps.nodes[k]->index != b->nodes[i]->deps.nodes[k]->index)
                return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    }
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

API cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *result)
{
    TRY(fake_ready());
    if (!exec || !exec->alive || !graph || !result)
        DONE(CUDA_ERROR_INVALID_VALUE);
    memset(result, 0, sizeof(*result));
    result->result = compare(exec->graph, graph);
    if (result->result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
        DONE(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CUgraph before = exec->graph;
    TRY(cuGraphClone(&exec->graph, graph));
    return cuGraphDestroy(before);
}

API cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *bad,
                      CUgraphExecUpdateResult *result)
{
    CUgraphExecUpdateResultInfo all;
    CUresult code = cuGraphExecUpdate_v2(exec, graph, &all);
    if (bad)
        *bad = all.errorNode;
    if (result)
        *result = all.result;
    return code;
}
