/* The engines of this process: one for each device, made at the program's first allocation in the
 * device's primary context. */
#ifndef EBB_SHIM_CUDA_ENGINES_H
#define EBB_SHIM_CUDA_ENGINES_H

#include "cuda/engine.h"

#include <stdatomic.h>
#include <stdbool.h>

#define EBB_DOOR_DEVICES 16 /* most devices; blocks on others are the driver's */

/* The addresses of all blocks so far lie in [first, first + bytes). Outside, no engine is asked. */
extern _Atomic CUdeviceptr ebb__blocks_first;
extern _Atomic uint64_t ebb__blocks_bytes;

static inline bool ebb__engines_may_own(CUdeviceptr address)
{
    return address - atomic_load_explicit(&ebb__blocks_first, memory_order_relaxed) <
           atomic_load_explicit(&ebb__blocks_bytes, memory_order_relaxed);
}

/* The device with an engine, while it is the only one that ever had any; else -1. Then an address
 * among its blocks' addresses is taken for one of them: the engine looks it up anyway. */
extern atomic_int ebb__engines_only;

/* The engine of the calling thread's context. Made if necessary. NULL: no context, one of the
 * program's own, or a device without a budget: the driver allocates. */
struct ebb_cuda *ebb__engines_here(void);
/* The engine of a device, or NULL: there is none so far. */
struct ebb_cuda *ebb__engines_at(CUdevice device);
/* The primary context of a device while it has an engine, else NULL. */
CUcontext ebb__engines_context(CUdevice device);
/* The device in whose address space `address` is, or -1. */
int ebb__engines_owner(CUdeviceptr address);
/* The device of the calling thread's context if its engine must hear of each kernel, also of one
 * that names no block; else -1. */
int ebb__engines_hearing(void);

/* The same for the pool from which cuMemAllocFromPoolAsync takes: a default pool, else NULL. */
CUdevice ebb__engines_of_pool(CUmemoryPool pool);
/* The default pool of a device while it has an engine, else NULL. */
CUmemoryPool ebb__engines_default_pool(CUdevice device);
/* The program has set another pool than the default one for cuMemAllocAsync on a device. */
void ebb__engines_set_pool(CUdevice device, CUmemoryPool pool);
/* A pool is destroyed: it may have been such a one. */
void ebb__engines_look_at_pools(void);
/* True if it has, for the device of the calling thread's context. */
bool ebb__engines_pool_is_foreign(void);

/* A block on the engine. EBB_CUDA_NO_STREAM: not ordered by a stream. */
CUresult ebb__engines_alloc(struct ebb_cuda *engine, size_t bytes, CUstream stream,
                            CUdeviceptr *address);

/* The program is about to retain the primary context of a device. Is it active already? */
void ebb__engines_retaining(CUdevice device);
/* The program retains the primary context of a device, or releases it. True: it was the last. */
void ebb__engines_retained(CUdevice device);
bool ebb__engines_released(CUdevice device);
/* The device's primary context is about to end. Releases the engine's own reference, and returns
 * the engine, which makes no calls any more. NULL: there is none. */
struct ebb_cuda *ebb__engines_drop(CUdevice device);
/* The device whose primary context this is, or -1. */
int ebb__engines_of_context(CUcontext context);
/* The same for the calling thread's context. */
int ebb__engines_current(void);
/* Waits for all work of a context, whatever is captured elsewhere. *result: of the driver's
 * cuCtxSynchronize. False: there is no such context. */
bool ebb__engines_await_context(CUcontext context, CUresult *result);
/* New blocks are the driver's, and those of the engines stay where they are. False: no engine. */
bool ebb__engines_freeze(void);
/* In the child of a fork: no engine calls the driver. False: there was none. */
bool ebb__engines_abandon(void);

#endif
