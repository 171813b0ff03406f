/* Graphs that belong to a node of another graph: bodies of conditional nodes, and child graphs that
 * were moved. They end with the node. Programs may capture both, and never destroy them. */
#ifndef EBB_SHIM_CUDA_OWNED_H
#define EBB_SHIM_CUDA_OWNED_H

#include "door.h"

#include <stdbool.h>
#include <stddef.h>

struct door_owned {
    CUgraph graph;
    bool is_body; /* the driver does not tell what is in it */
};

/* A node was added to `owner`. All functions are thread-safe. */
void ebb__owned_note(CUgraphNode node, CUgraph owner, const CUgraphNodeParams *params);
/* The n-th graph that belongs to nodes of `owner`. False: there are not so many. */
bool ebb__owned_find(CUgraph owner, size_t n, struct door_owned *found);
/* The graph or the node ends. Forgets what belongs to it, at any depth, with the unions. */
void ebb__owned_end_graph(CUgraph owner);
void ebb__owned_end_node(CUgraphNode node);

#endif
