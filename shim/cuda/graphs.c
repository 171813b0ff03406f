/* Graphs. A launch of a graph uses what its nodes use. That union is made when the graph is
 * instantiated or updated as a whole. An update of one node adds to the union.
 * What a node no longer uses stays in it until the whole graph is updated: that costs memory, never
 * correctness. The bodies of conditional nodes are not seen.
 *
 * A union is a counted, immutable array. The lock below is held to find it, never during a call. */
#include "door.h"
#include "job.h"
#include "params.h"
#include "payload.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define DEEPEST 32 /* graphs in graphs; more are left out */

struct node_set {
    unsigned references; /* under the lock */
    uint32_t owners;
    uint64_t name; /* made of the names of its kernels */
    size_t count;
    struct ebb_cuda_use uses[];
};

struct exec {
    CUgraphExec handle;
    struct node_set *set;
    struct exec *next;
};

#define BUCKETS 256u
static struct exec *execs[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void start(void)
{
    pthread_atfork(before_fork, after_fork, after_fork);
}

static struct exec **find(CUgraphExec handle)
{
    struct exec **at = &execs[((uintptr_t)handle * 0x9e3779b97f4a7c15u) >> 56];
    while (*at && (*at)->handle != handle)
        at = &(*at)->next;
    return at;
}

static struct node_set *hold(CUgraphExec handle)
{
    pthread_mutex_lock(&lock);
    struct exec *exec = *find(handle);
    struct node_set *set = exec ? exec->set : NULL;
    if (set)
        set->references++;
    pthread_mutex_unlock(&lock);
    return set;
}

static void let_go(struct node_set *set)
{
    pthread_mutex_lock(&lock);
    bool is_last = set && --set->references == 0;
    pthread_mutex_unlock(&lock);
    if (is_last)
        free(set);
}

/* Replaces the union of an executable graph by `set`, which it takes over; NULL: forgets it. */
static void replace(CUgraphExec handle, struct node_set *set)
{
    struct exec *spare = set ? malloc(sizeof *spare) : NULL;
    struct node_set *before = NULL;
    pthread_mutex_lock(&lock);
    struct exec **at = find(handle);
    if (*at) {
        before = (*at)->set;
        (*at)->set = set;
        if (!set) {
            struct exec *gone = *at;
            *at = gone->next;
            free(gone);
        }
    } else if (spare) {
        *spare = (struct exec){handle, set, NULL};
        *at = spare;
        spare = NULL;
        set = NULL;
    }
    bool is_lost = *at == NULL && set; /* no memory for a new entry */
    pthread_mutex_unlock(&lock);
    free(spare);
    if (is_lost)
        free(set);
    let_go(before);
}

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

static void use_graph(struct door_job *job, CUgraph graph, uint64_t *name, int depth);

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
            use_graph(job, child, name, depth + 1);
    }
}

static void use_graph(struct door_job *job, CUgraph graph, uint64_t *name, int depth)
{
    size_t count = 0;
    if (depth > DEEPEST || ebb__real.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || !count)
        return;
    CUgraphNode *nodes = malloc(count * sizeof *nodes);
    if (nodes && ebb__real.cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count; i++)
            use_node(job, nodes[i], name, depth);
    free(nodes);
}

/* ---- unions ---------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const struct ebb_cuda_use *x = a, *y = b;
    if (x->address != y->address)
        return x->address < y->address ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Equal operands become one. */
static size_t unite(struct ebb_cuda_use *uses, size_t count)
{
    size_t kept = 0;
    if (count)
        qsort(uses, count, sizeof *uses, compare);
    for (size_t i = 0; i < count; i++)
        if (kept && compare(&uses[kept - 1], &uses[i]) == 0)
            uses[kept - 1].access |= uses[i].access;
        else
            uses[kept++] = uses[i];
    return kept;
}

/* The union of `before`, which may be NULL, and of a job's uses. Ends the job. NULL: no memory. */
static struct node_set *make_set(const struct node_set *before, struct door_job *job, uint64_t name)
{
    size_t old = before ? before->count : 0;
    struct node_set *set = malloc(sizeof *set + (old + job->count) * sizeof set->uses[0]);
    if (set) {
        set->references = 1;
        set->name = before ? before->name : name;
        set->owners = job->owners | (before ? before->owners : 0);
        if (old)
            memcpy(set->uses, before->uses, old * sizeof set->uses[0]);
        if (job->count)
            memcpy(set->uses + old, job->uses, job->count * sizeof set->uses[0]);
        set->count = unite(set->uses, old + job->count);
    }
    ebb__job_end(job, CUDA_SUCCESS);
    return set;
}

static void know(CUgraphExec handle, CUgraph graph)
{
    struct door_job job;
    uint64_t name = 0xcbf29ce484222325u;
    ebb__job_init(&job);
    use_graph(&job, graph, &name, 0);
    replace(handle, make_set(NULL, &job, name));
}

/* Adds a job's uses to the union. */
static void add(CUgraphExec handle, struct door_job *job)
{
    struct node_set *before = hold(handle);
    replace(handle, make_set(before, job, 0));
    let_go(before);
}

CUresult ebb__door_launch_graph(__typeof__(cuGraphLaunch) *next, CUstream stream, CUgraphExec a,
                                CUstream b)
{
    struct node_set *set = hold(a);
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
    if (set)
        let_go(set);
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
    replace(a, NULL); /* before the call: afterwards another graph may have this handle */
    return next(a);
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
        add(a, &job);
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
        add(a, &job);
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
        add(a, &job);
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
        add(a, &job);
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
        use_graph(&job, c, &name, 1);
        add(a, &job);
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
            use_graph(&job, c->graph.graph, &name, 1);
        add(a, &job);
    }
    return result;
}
