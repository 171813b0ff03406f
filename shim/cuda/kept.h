/* Blocks that come and go, and those that a graph keeps from going.
 *
 * A graph names addresses, and each launch of it writes there. If a block gave such an address to
 * another block, the launch would write into that one. So a block that the program frees stays if a
 * graph uses it, or if it was allocated or freed during the capture. It goes with the last such
 * graph. All functions are thread-safe. */
#ifndef EBB_SHIM_CUDA_KEPT_H
#define EBB_SHIM_CUDA_KEPT_H

#include "engines.h"

/* As ebb__engines_alloc(). */
CUresult ebb__kept_alloc(struct ebb_cuda *engine, size_t bytes, CUstream stream,
                         CUdeviceptr *address);
/* Frees the block at `address` of that device's engine, now or with the last graph that may use it.
 * CUDA_ERROR_INVALID_VALUE: no block starts there, or it was freed before. */
CUresult ebb__kept_free(CUdevice device, CUdeviceptr address, CUstream stream);
/* A graph or a capture is gone: blocks that it kept are freed. */
void ebb__kept_sweep(void);
/* The same, if an earlier sweep has left blocks to unheard work. Costs nothing else. */
void ebb__kept_sweep_late(void);
/* The context of `device` is destroyed, and its blocks with it. */
void ebb__kept_forget(CUdevice device);

#endif
