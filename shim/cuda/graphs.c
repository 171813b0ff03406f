/* Graphs. A launch of a graph uses what its nodes use. That union is made when the graph is
 * instantiated or updated as a whole. If one node is updated, what it has used before is taken out.
 * The union is made again at the next launch only: JAX updates many nodes before one. Bodies
 * of conditional nodes count as parts of their graph, whether they run or not. */
#include "graphs.h"

#include "job.h"
#include "kept.h"
#include "owned.h"
#include "params.h"
#include "payload.h"
#include "unions.h"

#include <stdlib.h>
#include <string.h>

#define DEEPEST 32 /* graphs in graphs; more are left out */

/* ---- the nodes ------------------------------------------------------------------------------- */

static void add_name(uint64_t *name, uint64_t of)
{
    *name = (*name ^ of) * 0x100000001b3u;
}

static void use_set(struct door_job *job, const CUDA_MEMSET_NODE_PARAMS *set)
{
    uint64_t width = set->width * set->elementSize;
    if (width && set->height)
        ebb__job_use(job, set->dst, (set->height - 1) * set->pitch + width, EBB_ACCESS_WRITE);
}

/* Which nodes the uses of a job belong to. NULL: no memory, or nobody asks. */
struct nodes {
    CUgraphNode *items;
    size_t count, room;
    bool is_asked;
};

static void use_graph(struct door_job *job, CUgraph graph, uint64_t *name, int depth,
                      struct nodes *nodes);

static void use_node(struct door_job *job, CUgraphNode node, uint64_t *name, int depth)
{
    CUgraphNodeType type;
    if (ebb__real.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
        return;
    if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
        CUDA_KERNEL_NODE_PARAMS kernel;
        memset(&kernel, 0, sizeof kernel);
        if (ebb__real.cuGraphKernelNodeGetParams_v2(node, &kernel) == CUDA_SUCCESS)
            add_name(name, ebb__params_scan(
                               job, kernel.func ? kernel.func : (CUfunction)(uintptr_t)kernel.kern,
                               kernel.kernelParams, kernel.extra));
    } else if (type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        CUDA_MEMCPY3D copy;
        if (ebb__real.cuGraphMemcpyNodeGetParams(node, &copy) == CUDA_SUCCESS)
            ebb__copies_use_3d(job, &copy);
    } else if (type == CU_GRAPH_NODE_TYPE_MEMSET) {
        CUDA_MEMSET_NODE_PARAMS set;
        if (ebb__real.cuGraphMemsetNodeGetParams(node, &set) == CUDA_SUCCESS)
            use_set(job, &set);
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
        CUgraph child;
        if (ebb__real.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS)
            use_graph(job, child, name, depth + 1, NULL);
    }
}

/* The uses of the job from the last noted one on are the node's. */
static void note_node(struct nodes *nodes, CUgraphNode node, size_t count)
{
    if (nodes && nodes->is_asked && count > nodes->room) {
        size_t room = 2 * count;
        CUgraphNode *more = realloc(nodes->items, room * sizeof *more);
        if (!more) {
            free(nodes->items);
            nodes->is_asked = false;
        }
        nodes->items = more;
        nodes->room = room;
    }
    for (; nodes && nodes->is_asked && nodes->count < count; nodes->count++)
        nodes->items[nodes->count] = node;
}

static void use_graph(struct door_job *job, CUgraph graph, uint64_t *name, int depth,
                      struct nodes *noted)
{
    size_t count = 0;
    if (depth > DEEPEST || ebb__real.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || !count)
        return;
    CUgraphNode *nodes = malloc(count * sizeof *nodes);
    if (nodes && ebb__real.cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count; i++) {
            use_node(job, nodes[i], name, depth);
            note_node(noted, nodes[i], job->count);
        }
    free(nodes);
}

/* ---- unions ---------------------------------------------------------------------------------- */

/* What the former union alone had named may go. */
static void replace(uintptr_t key, struct door_union *set)
{
    ebb__unions_replace(key, set);
    ebb__kept_sweep();
}

/* Blocks that captures of the graph, and of those that belong to it, keep. */
struct keeps {
    CUdeviceptr *blocks;
    size_t count;
};

static void keep_all(struct keeps *keeps, const struct door_union *set)
{
    size_t more = set ? set->kept_count : 0;
    CUdeviceptr *blocks =
        more ? realloc(keeps->blocks, (keeps->count + more) * sizeof *blocks) : NULL;
    if (!blocks)
        return;
    keeps->blocks = blocks;
    for (size_t i = 0; i < more; i++)
        blocks[keeps->count++] = set->uses[set->count + i].address;
}

static void use_owned(struct door_job *job, CUgraph graph, uint64_t *name, int depth,
                      struct nodes *nodes, struct keeps *keeps)
{
    struct door_owned owned;
    for (size_t i = 0; depth <= DEEPEST && ebb__owned_find(graph, i, &owned); i++) {
        struct door_union *captured = ebb__unions_hold(ebb__unions_key(owned.graph));
        if (owned.is_body)
            use_graph(job, owned.graph, name, depth, nodes);
        keep_all(keeps, captured);
        ebb__unions_let_go(captured);
        use_owned(job, owned.graph, name, depth + 1, nodes, keeps);
    }
}

/* Also keeps what the capture of `graph` keeps. */
static void know(CUgraphExec handle, CUgraph graph)
{
    struct door_job job;
    uint64_t name = 0xcbf29ce484222325u;
    struct door_union *captured = ebb__unions_hold(ebb__unions_key(graph));
    struct nodes nodes = {.is_asked = true};
    struct keeps keeps = {0};
    ebb__job_init(&job);
    use_graph(&job, graph, &name, 0, &nodes);
    use_owned(&job, graph, &name, 1, &nodes, &keeps);
    replace(ebb__unions_exec_key(handle),
            ebb__unions_make(captured, &job, nodes.items, name, keeps.blocks, keeps.count));
    free(keeps.blocks);
    free(nodes.items);
    ebb__unions_let_go(captured);
}

void ebb__graphs_captured(CUgraph graph, const CUdeviceptr *blocks, size_t count)
{
    struct door_job job;
    uint64_t name = 0;
    struct door_union *before = ebb__unions_hold(ebb__unions_key(graph));
    ebb__job_init(&job);
    use_graph(&job, graph, &name, 0, NULL);
    ebb__unions_replace(ebb__unions_key(graph),
                        ebb__unions_make(before, &job, NULL, name, blocks, count));
    ebb__unions_let_go(before);
}

/* The node uses what the job does from now on. Blocks that nothing uses any more go at the next
 * launch. */
static void change(CUgraphExec handle, CUgraphNode node, struct door_job *job)
{
    uintptr_t key = ebb__unions_exec_key(handle);
    struct door_union *before = ebb__unions_hold(key);
    struct door_union *changed = ebb__unions_change(before, node, job);
    if (changed)
        ebb__unions_replace(key, changed);
    ebb__unions_let_go(before);
}

static struct door_union *hold_for_launch(CUgraphExec handle)
{
    uintptr_t key = ebb__unions_exec_key(handle);
    struct door_union *set = ebb__unions_hold(key);
    struct door_union *settled = set && set->is_loose ? ebb__unions_settle(set) : NULL;
    if (!settled)
        return set;
    ebb__unions_let_go(set);
    replace(key, settled);
    return ebb__unions_hold(key);
}

CUresult ebb__door_launch_graph(__typeof__(cuGraphLaunch) *next, CUstream stream, CUgraphExec a,
                                CUstream b)
{
    struct door_union *set = hold_for_launch(a);
    struct door_job job;
    ebb__job_init(&job);
    if (set) {
        job.uses = set->uses;
        job.count = set->count;
        job.is_borrowed = true;
        job.owners = set->owners;
    }
    ebb__job_begin(&job, EBB_CUDA_GRAPH, ebb__job_stream(stream, b), false, set ? set->name : 0);
    CUresult result = ebb__job_end(&job, next(a, b));
    ebb__unions_let_go(set);
    return result;
}

/* ---- hooks ----------------------------------------------------------------------------------- */

CUresult ebb__door_instantiate(__typeof__(cuGraphInstantiate) *next, CUstream stream,
                               CUgraphExec *a, CUgraph b, CUgraphNode *c, char *d, size_t e)
{
    (void)stream;
    CUresult result = next(a, b, c, d, e);
    if (result == CUDA_SUCCESS)
        know(*a, b);
    return result;
}

CUresult ebb__door_instantiate_flags(__typeof__(cuGraphInstantiateWithFlags) *next, CUstream stream,
                                     CUgraphExec *a, CUgraph b, unsigned long long c)
{
    (void)stream;
    CUresult result = next(a, b, c);
    if (result == CUDA_SUCCESS)
        know(*a, b);
    return result;
}

CUresult ebb__door_instantiate_params(__typeof__(cuGraphInstantiateWithParams) *next,
                                      CUstream stream, CUgraphExec *a, CUgraph b,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *c)
{
    (void)stream;
    CUresult result = next(a, b, c);
    if (result == CUDA_SUCCESS)
        know(*a, b);
    return result;
}

CUresult ebb__door_exec_destroy(__typeof__(cuGraphExecDestroy) *next, CUstream stream,
                                CUgraphExec a)
{
    (void)stream;
    /* Before the call: afterwards another graph may have this handle. */
    replace(ebb__unions_exec_key(a), NULL);
    return next(a);
}

CUresult ebb__door_graph_destroy(__typeof__(cuGraphDestroy) *next, CUstream stream, CUgraph a)
{
    (void)stream;
    ebb__owned_end_graph(a);
    replace(ebb__unions_key(a), NULL);
    return next(a);
}

CUresult ebb__door_destroy_node(__typeof__(cuGraphDestroyNode) *next, CUstream stream,
                                CUgraphNode a)
{
    (void)stream;
    ebb__owned_end_node(a);
    ebb__kept_sweep();
    return next(a);
}

CUresult ebb__door_add_node(__typeof__(cuGraphAddNode) *next, CUstream stream, CUgraphNode *a,
                            CUgraph b, const CUgraphNode *c, size_t d, CUgraphNodeParams *e)
{
    (void)stream;
    CUresult result = next(a, b, c, d, e);
    if (result == CUDA_SUCCESS)
        ebb__owned_note(*a, b, e);
    return result;
}

CUresult ebb__door_add_node_2(__typeof__(cuGraphAddNode_v2) *next, CUstream stream, CUgraphNode *a,
                              CUgraph b, const CUgraphNode *c, const CUgraphEdgeData *d, size_t e,
                              CUgraphNodeParams *f)
{
    (void)stream;
    CUresult result = next(a, b, c, d, e, f);
    if (result == CUDA_SUCCESS)
        ebb__owned_note(*a, b, f);
    return result;
}

CUresult ebb__door_exec_update(__typeof__(cuGraphExecUpdate) *next, CUstream stream, CUgraphExec a,
                               CUgraph b, CUgraphNode *c, CUgraphExecUpdateResult *d)
{
    (void)stream;
    CUresult result = next(a, b, c, d);
    if (result == CUDA_SUCCESS)
        know(a, b);
    return result;
}

CUresult ebb__door_exec_update_2(__typeof__(cuGraphExecUpdate_v2) *next, CUstream stream,
                                 CUgraphExec a, CUgraph b, CUgraphExecUpdateResultInfo *c)
{
    (void)stream;
    CUresult result = next(a, b, c);
    if (result == CUDA_SUCCESS)
        know(a, b);
    return result;
}

CUresult ebb__door_exec_kernel(__typeof__(cuGraphExecKernelNodeSetParams) *next, CUstream stream,
                               CUgraphExec a, CUgraphNode b, const CUDA_KERNEL_NODE_PARAMS_v1 *c)
{
    (void)stream;
    CUresult result = next(a, b, c);
    if (result == CUDA_SUCCESS) {
        struct door_job job;
        ebb__job_init(&job);
        ebb__params_scan(&job, c->func, c->kernelParams, c->extra);
        change(a, b, &job);
    }
    return result;
}

static void use_kernel(struct door_job *job, const CUDA_KERNEL_NODE_PARAMS *kernel)
{
    ebb__params_scan(job, kernel->func ? kernel->func : (CUfunction)(uintptr_t)kernel->kern,
                     kernel->kernelParams, kernel->extra);
}

CUresult ebb__door_exec_kernel_2(__typeof__(cuGraphExecKernelNodeSetParams_v2) *next,
                                 CUstream stream, CUgraphExec a, CUgraphNode b,
                                 const CUDA_KERNEL_NODE_PARAMS *c)
{
    (void)stream;
    CUresult result = next(a, b, c);
    if (result == CUDA_SUCCESS) {
        struct door_job job;
        ebb__job_init(&job);
        use_kernel(&job, c);
        change(a, b, &job);
    }
    return result;
}

CUresult ebb__door_exec_copy(__typeof__(cuGraphExecMemcpyNodeSetParams) *next, CUstream stream,
                             CUgraphExec a, CUgraphNode b, const CUDA_MEMCPY3D *c, CUcontext d)
{
    (void)stream;
    CUresult result = next(a, b, c, d);
    if (result == CUDA_SUCCESS) {
        struct door_job job;
        ebb__job_init(&job);
        ebb__copies_use_3d(&job, c);
        change(a, b, &job);
    }
    return result;
}

CUresult ebb__door_exec_set(__typeof__(cuGraphExecMemsetNodeSetParams) *next, CUstream stream,
                            CUgraphExec a, CUgraphNode b, const CUDA_MEMSET_NODE_PARAMS *c,
                            CUcontext d)
{
    (void)stream;
    CUresult result = next(a, b, c, d);
    if (result == CUDA_SUCCESS) {
        struct door_job job;
        ebb__job_init(&job);
        use_set(&job, c);
        change(a, b, &job);
    }
    return result;
}

CUresult ebb__door_exec_child(__typeof__(cuGraphExecChildGraphNodeSetParams) *next, CUstream stream,
                              CUgraphExec a, CUgraphNode b, CUgraph c)
{
    (void)stream;
    CUresult result = next(a, b, c);
    if (result == CUDA_SUCCESS) {
        struct door_job job;
        uint64_t name = 0;
        ebb__job_init(&job);
        use_graph(&job, c, &name, 1, NULL);
        change(a, b, &job);
    }
    return result;
}

CUresult ebb__door_exec_node(__typeof__(cuGraphExecNodeSetParams) *next, CUstream stream,
                             CUgraphExec a, CUgraphNode b, CUgraphNodeParams *c)
{
    (void)stream;
    CUresult result = next(a, b, c);
    if (result == CUDA_SUCCESS) {
        struct door_job job;
        uint64_t name = 0;
        ebb__job_init(&job);
        if (c->type == CU_GRAPH_NODE_TYPE_KERNEL)
            use_kernel(&job, &c->kernel);
        else if (c->type == CU_GRAPH_NODE_TYPE_MEMCPY)
            ebb__copies_use_3d(&job, &c->memcpy.copyParams);
        else if (c->type == CU_GRAPH_NODE_TYPE_MEMSET)
            use_set(&job, &(CUDA_MEMSET_NODE_PARAMS){c->memset.dst, c->memset.pitch,
                                                     c->memset.value, c->memset.elementSize,
                                                     c->memset.width, c->memset.height});
        else if (c->type == CU_GRAPH_NODE_TYPE_GRAPH)
            use_graph(&job, c->graph.graph, &name, 1, NULL);
        change(a, b, &job);
    }
    return result;
}
