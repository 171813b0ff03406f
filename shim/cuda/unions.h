/* What graphs use: a union of the blocks that the nodes of a graph name.
 *
 * Executable graphs have one, and graphs that came of a capture. A union is a counted, immutable
 * array. All functions are thread-safe; the lock inside is never held during a call. */
#ifndef EBB_SHIM_CUDA_UNIONS_H
#define EBB_SHIM_CUDA_UNIONS_H

#include "job.h"

struct door_node_use {
    CUgraphNode node; /* NULL: not known which one, so it never goes */
    struct ebb_cuda_use use;
};

struct door_union {
    unsigned references; /* private */
    bool is_loose;       /* a node has been changed since `uses` was made */
    uint32_t owners;
    uint64_t name; /* made of the names of its kernels */
    /* Which node uses what, in no order. A node of a graph within the graph counts as that one. */
    size_t node_count;
    struct door_node_use *nodes;
    size_t count; /* what a launch of the graph uses, sorted; 0 if it is loose */
    /* Behind these: blocks that were allocated or freed during the capture, sorted. Nobody knows
     * what the graph does with them, so launches do not name them. */
    size_t kept_count;
    struct ebb_cuda_use uses[];
};

/* A graph by its handle. Graphs and executable graphs are told apart. */
uintptr_t ebb__unions_key(CUgraph graph);
uintptr_t ebb__unions_exec_key(CUgraphExec exec);

/* The union of `key` with one more reference, or NULL: it has none. */
struct door_union *ebb__unions_hold(uintptr_t key);
/* Ends a reference. NULL is allowed. */
void ebb__unions_let_go(struct door_union *set);
/* Replaces the union of `key` by `set`, which it takes over. NULL: forgets it. */
void ebb__unions_replace(uintptr_t key, struct door_union *set);

/* A job's uses and the blocks at `kept`. Also the blocks of `kept_from` that launches do not name;
 * it may be NULL. nodes: of each use; NULL: not known. Ends the job. Returns NULL: no memory. */
struct door_union *ebb__unions_make(const struct door_union *kept_from, struct door_job *job,
                                    const CUgraphNode *nodes, uint64_t name,
                                    const CUdeviceptr *kept, size_t kept_count);
/* `before` (NULL: nothing), where this node uses what the job does, and nothing else. It is loose.
 * Ends the job. NULL: no memory. */
struct door_union *ebb__unions_change(const struct door_union *before, CUgraphNode node,
                                      struct door_job *job);
/* A loose union with its uses sorted. NULL: no memory. */
struct door_union *ebb__unions_settle(const struct door_union *loose);

/* Does any graph use an address in [address, + bytes)? */
bool ebb__unions_name(CUdeviceptr address, uint64_t bytes);
/* False: no graph has a union. No lock. */
bool ebb__unions_any(void);
/* Forgets the unions that may have blocks of `device`: its context is destroyed. */
void ebb__unions_forget(CUdevice device);

#endif
