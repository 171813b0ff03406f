#include "owned.h"

#include "fork_lock.h"
#include "unions.h"

#include <pthread.h>
#include <stdlib.h>

struct owned {
    struct door_owned what;
    CUgraph owner;
    CUgraphNode node;
    struct owned *next;
};

static struct owned *all_owned;
EBB_FORK_LOCK(203)

static void note(CUgraph graph, bool is_body, CUgraph owner, CUgraphNode node)
{
    struct owned *owned = graph ? malloc(sizeof *owned) : NULL;
    if (!owned)
        return;
    pthread_mutex_lock(&lock);
    *owned = (struct owned){{graph, is_body}, owner, node, all_owned};
    all_owned = owned;
    pthread_mutex_unlock(&lock);
}

void ebb__owned_note(CUgraphNode node, CUgraph owner, const CUgraphNodeParams *params)
{
    if (params->type == CU_GRAPH_NODE_TYPE_GRAPH &&
        params->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
        note(params->graph.graph, false, owner, node);
    if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && params->conditional.phGraph_out)
        for (unsigned i = 0; i < params->conditional.size; i++)
            note(params->conditional.phGraph_out[i], true, owner, node);
}

bool ebb__owned_find(CUgraph owner, size_t n, struct door_owned *found)
{
    pthread_mutex_lock(&lock);
    const struct owned *owned = all_owned;
    while (owned && (owned->owner != owner || n-- > 0))
        owned = owned->next;
    if (owned)
        *found = owned->what;
    pthread_mutex_unlock(&lock);
    return owned != NULL;
}

/* Takes those of a node, or else of a graph, out of the list. The caller frees them. */
static struct owned *take(CUgraph owner, CUgraphNode node)
{
    struct owned *taken = NULL;
    pthread_mutex_lock(&lock);
    for (struct owned **at = &all_owned; *at;) {
        struct owned *owned = *at;
        if (node ? owned->node != node : owned->owner != owner) {
            at = &owned->next;
            continue;
        }
        *at = owned->next;
        owned->next = taken;
        taken = owned;
    }
    pthread_mutex_unlock(&lock);
    return taken;
}

static void end_all(struct owned *taken)
{
    while (taken) {
        struct owned *next = taken->next;
        ebb__unions_replace(ebb__unions_key(taken->what.graph), NULL);
        end_all(take(taken->what.graph, NULL));
        free(taken);
        taken = next;
    }
}

void ebb__owned_end_graph(CUgraph owner)
{
    end_all(take(owner, NULL));
}

void ebb__owned_end_node(CUgraphNode node)
{
    end_all(take(NULL, node));
}
