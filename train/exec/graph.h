/* The operations of a network: one for each layer but the input. */
#ifndef EBB_TRAIN_EXEC_GRAPH_H
#define EBB_TRAIN_EXEC_GRAPH_H

#include "train/net/net.h"
#include "train/op/op.h"

struct ebb_graph {
    const struct ebb_net *net; /* the caller's; it must outlive the graph */
    struct ebb_op_engine *engine;
    struct ebb_op **ops; /* [layer]; NULL: the input */
    struct ebb_op_desc input, labels;
};

/* EBB_ERR_ARGUMENT, EBB_ERR_UNSUPPORTED: an operation cannot be made. EBB_ERR_INTERNAL: it has
 * another shape than its layer. EBB_ERR_MEMORY. Destroy *graph also after a failure. */
EBB_NODISCARD enum ebb_status ebb__graph_create(const struct ebb_net *net, struct ebb_graph *graph,
                                                struct ebb_error *error);
void ebb__graph_destroy(struct ebb_graph *graph);

#endif
