/* What the graphs of captures use. */
#ifndef EBB_SHIM_CUDA_GRAPHS_H
#define EBB_SHIM_CUDA_GRAPHS_H

#include "door.h"

/* A capture has made `graph`, or added to it. Meanwhile the `count` blocks at `blocks` were
 * allocated or freed. They stay as long as the graph can be launched. */
void ebb__graphs_captured(CUgraph graph, const CUdeviceptr *blocks, size_t count);

#endif
