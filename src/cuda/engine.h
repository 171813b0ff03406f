/* The engine for one GPU: keeps the device memory of a process within the budget.
 *
 * The library behind which a program's driver calls arrive (shim/cuda) asks it for memory, and
 * announces all work:
 *
 *     ebb__cuda_alloc(engine, bytes, stream, &address);        instead of cuMemAlloc
 *     ebb__cuda_begin(engine, &work);                          before a launch or a copy
 *     result = the real call;
 *     ebb__cuda_end(engine, &work, result == CUDA_SUCCESS);    after it
 *     ebb__cuda_free(engine, address, stream);                 instead of cuMemFree
 *
 * Order is what the program queues: each call has a place in the *launch order*. Decisions are made
 * at that place, at once, without waiting for the device. What they need is queued. A prefetch runs
 * on streams of the engine's own, and the program's stream waits for it on the device. An eviction
 * runs behind an event on the stream that used the block last.
 *
 * A call waits on the host in these cases only (waits.c):
 * - ebb__cuda_begin(), for a transfer that cannot be queued yet, since the device still uses the
 *   memory for it: decision 41. On a device without waits on memory, for all that the work needs.
 * - ebb__cuda_begin(), for earlier work of a stream of which no event can be had, and at most for
 *   `cuda_patience_ns`. A work in one stream too many waits so for all that it comes after, and is
 *   over when ebb__cuda_end() returns.
 * - ebb__cuda_begin(), ebb__cuda_alloc(), with EBB_CUDA_VMM_HOST: while something moves.
 * - ebb__cuda_alloc(), if memory is short: in the last steps before CUDA_ERROR_OUT_OF_MEMORY. With
 *   EBB_CUDA_NATIVE, until the pages are there.
 * - ebb__cuda_reach(), with EBB_CUDA_VMM_TRUSTING, and ebb__cuda_keep(), with mapped backings:
 *   until the block is there.
 *
 * What a work uses steers the schedule only. With the managed backing an access that nobody
 * announced is served by the driver: it costs time, never correctness.
 *
 * All functions are thread-safe unless stated otherwise. None may be called with a driver lock of
 * the caller held. Addresses are those of the device. */
#ifndef EBB_CUDA_ENGINE_H
#define EBB_CUDA_ENGINE_H

#include "cuda/abi.h"
#include "cuda/driver.h"
#include "runtime/ledger.h"
#include "runtime/protocol.h"
#include "runtime/script.h"
#include "trace/ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ebb_cuda;

/* Where the bytes of absent blocks are, and how they move: backing.h. */
enum ebb_cuda_backing_kind {
    EBB_CUDA_MANAGED,  /* managed memory; the default */
    EBB_CUDA_VMM_HOST, /* an absent block is mapped to host memory; it moves while no kernel runs */
    /* The same, but blocks move beside kernels. Kernels must use only what their parameters name,
     * or a table that was copied to the device. */
    EBB_CUDA_VMM_TRUSTING,
    EBB_CUDA_NATIVE, /* nothing moves: recording alone, and what is excluded */
    EBB_CUDA_BACKING_COUNT
};

struct ebb_cuda_config {
    const struct ebb_cuda_driver *driver; /* the real driver's functions; must live as long */
    CUdevice device;
    CUcontext context; /* the primary context, in which the engine's streams are */
    enum ebb_cuda_backing_kind backing;
    struct ebb_ledger *ledger; /* the device's budget and what is held */
    struct ebb_ledger_slot *slot;
    /* The limit of host memory that all engines of the run share; NULL: none */
    struct ebb_ledger *store_ledger;
    struct ebb_ledger_slot *store_slot;
    struct ebb_ring *ring;        /* events and counters */
    uint64_t host_budget_bytes;   /* most bytes of absent blocks in host memory; UINT64_MAX: none */
    uint64_t pinned_budget_bytes; /* most pinned host bytes of the engine; UINT64_MAX: none */
    bool record;                  /* never evict */
    uint64_t
        chaos_seed; /* not 0: for tests, blocks are evicted at random although memory is left */
    void (*warn)(void *context, const char *message); /* for the person who runs the program */
    void *warn_context;
};

/* EBB_ERR_UNSUPPORTED if the device lacks what the backing needs, with a remedy. EBB_ERR_MEMORY.
 * Nothing remains after a failure. Starts the mover's thread. */
EBB_NODISCARD enum ebb_status ebb__cuda_create(const struct ebb_cuda_config *config,
                                               struct ebb_cuda **engine, struct ebb_error *error);
/* Waits for its own transfers. No block may be in use. */
void ebb__cuda_destroy(struct ebb_cuda *engine);
/* The process is the child of a fork, or the context is being destroyed: the engine makes no driver
 * call any more. Its calls fail as those of a driver in a forked child do. */
void ebb__cuda_abandon(struct ebb_cuda *engine);
/* The driver has taken the memory of an abandoned engine: nothing of it counts any more. When a
 * process ends, the parent sees that. */
void ebb__cuda_is_gone(struct ebb_cuda *engine);

/* A stream is named by its handle. Handle 0 means the legacy stream, as 1 does; 2 is the stream of
 * the calling thread. The caller translates 0 if its entry point means the latter. */
#define EBB_CUDA_NO_STREAM ((CUstream)(uintptr_t)-1) /* not ordered by a stream: cuMemAlloc */

/* A block of `bytes` (> 0), aligned to 512 bytes at least. If memory is short, others leave, or the
 * call waits for them, at most for a quarter of `cuda_patience_ns`. Then the block begins in host
 * memory, if the backing moves blocks at all, and is used over the bus. CUDA_ERROR_OUT_OF_MEMORY
 * when all steps have failed: nothing is changed then. O(log blocks), no driver call if a free
 * range fits. */
CUresult ebb__cuda_alloc(struct ebb_cuda *engine, size_t bytes, CUstream stream,
                         CUdeviceptr *address);
/* Frees the block that starts at `address`. Its range is reused at once by `stream`, by others when
 * all work that used it is over. EBB_CUDA_NO_STREAM: the driver would wait here for the device
 * (cuMemFree); the engine does not, and takes the range when its work is over. False: no block
 * starts there. */
bool ebb__cuda_free(struct ebb_cuda *engine, CUdeviceptr address, CUstream stream);
/* Do blocks of this size stay the driver's (`cuda_shared_bytes`)? Thread-safe. */
bool ebb__cuda_is_shared(uint64_t bytes);
/* A block of `bytes` that is the driver's own memory until it is freed (cuMemAlloc), in the context
 * of the caller. It counts in the budget. Others leave for it, and the call waits for them, at most
 * for a quarter of `cuda_patience_ns`. CUDA_ERROR_OUT_OF_MEMORY: the budget has no room. */
CUresult ebb__cuda_alloc_shared(struct ebb_cuda *engine, uint64_t bytes, CUdeviceptr *address);
/* Frees such a block; *result is the driver's answer. False: no such block starts there. */
bool ebb__cuda_free_shared(struct ebb_cuda *engine, CUdeviceptr address, CUresult *result);
/* Is `address` in the engine's address space? No lock, a few ns. */
bool ebb__cuda_owns(const struct ebb_cuda *engine, CUdeviceptr address);
/* The block that contains `address`. False: none. */
bool ebb__cuda_range(struct ebb_cuda *engine, CUdeviceptr address, CUdeviceptr *base,
                     size_t *bytes);
/* A number of the block at `address` that no other block of the process ever has. 0: no block. */
uint64_t ebb__cuda_id(struct ebb_cuda *engine, CUdeviceptr address);
/* Was the block at `address` allocated in the order of a stream? */
bool ebb__cuda_is_of_stream(struct ebb_cuda *engine, CUdeviceptr address);
/* What cuMemGetInfo tells: the budget, and what of it is not taken by live blocks. */
void ebb__cuda_memory(struct ebb_cuda *engine, size_t *free_bytes, size_t *total_bytes);

/* One operand of a work. */
struct ebb_cuda_use {
    CUdeviceptr address; /* anywhere in a block */
    uint64_t bytes;      /* used from there on; 0: unknown, the whole block */
    uint8_t access;      /* enum ebb_access_kind */
};

enum ebb_cuda_work_kind { EBB_CUDA_KERNEL, EBB_CUDA_COPY, EBB_CUDA_SET, EBB_CUDA_GRAPH };

#define EBB_CUDA_MOST_HELD 32u

/* Work that the program is about to queue. The caller keeps it from begin to end. */
struct ebb_cuda_work {
    enum ebb_cuda_work_kind kind;
    CUstream stream;
    bool is_synchronous; /* the call returns when the work is over (cuMemcpyHtoD) */
    CUcontext elsewhere; /* its default stream is that of this other context. NULL: it is not */
    bool is_captured;    /* it becomes a node of a graph: its blocks stay resident for life */
    uint64_t name;       /* of the function: the same value for the same kernel in all iterations */
    const struct ebb_cuda_use *uses; /* duplicates and addresses of others are allowed */
    size_t use_count;
    /* Private to the engine. */
    uint32_t held[EBB_CUDA_MOST_HELD];
    bool is_counted;     /* by the gate */
    bool is_unlisted;    /* in one stream too many: no passage can be noted for it */
    uint32_t held_count; /* more than EBB_CUDA_MOST_HELD: the engine notes them elsewhere */
    uint64_t order;
};

/* Does it use nothing but its uses? A kernel may find blocks by pointers. */
static inline bool ebb__cuda_names_all(const struct ebb_cuda_work *work)
{
    return work->kind == EBB_CUDA_COPY || work->kind == EBB_CUDA_SET;
}

/* Must the engine hear of all kernels and graphs in its context, also of those whose uses name none
 * of its blocks? Its blocks only move while none of them runs. Constant. */
bool ebb__cuda_hears_all(const struct ebb_cuda *engine);

/* All blocks that the work uses will be resident when it runs. CUDA_ERROR_OUT_OF_MEMORY: they do
 * not fit even with everything else evicted. The caller goes on all the same, since the driver
 * serves what is absent. Waits as said above. Within 300 ns if nothing is due. */
CUresult ebb__cuda_begin(struct ebb_cuda *engine, struct ebb_cuda_work *work);
void ebb__cuda_end(struct ebb_cuda *engine, struct ebb_cuda_work *work, bool is_queued);

/* `pointer` was seen in the payload of a copy to the device: kernels may reach its block without
 * naming it. The block stays resident until it is freed, unless it is the destination's own. */
void ebb__cuda_reach(struct ebb_cuda *engine, CUdeviceptr pointer);
/* The blocks in [address, + bytes) are exported, registered, mapped by a peer, or part of a graph.
 * They stay resident, at the same pages, until they are freed. */
void ebb__cuda_keep(struct ebb_cuda *engine, CUdeviceptr address, size_t bytes);

/* The program destroys `stream`, or has waited for it: `all`: for all streams of the context. */
void ebb__cuda_stream_ends(struct ebb_cuda *engine, CUstream stream);
/* It is about to be captured. No event can be had of it then. */
void ebb__cuda_capture_begins(struct ebb_cuda *engine, CUstream stream);
void ebb__cuda_synchronized(struct ebb_cuda *engine, CUstream stream, bool all);
/* The program destroys a context of its own, whose work is over. */
void ebb__cuda_context_ends(struct ebb_cuda *engine, CUcontext context);

/* The program tells where it is. */
void ebb__cuda_mark(struct ebb_cuda *engine, enum ebb_mark mark, uint64_t value);

/* The parent's messages. See src/runtime/runtime.h for the same functions of the host's runtime. */
EBB_NODISCARD enum ebb_status ebb__cuda_set_script(struct ebb_cuda *engine,
                                                   const struct ebb_script *script, uint64_t bytes);
void ebb__cuda_forget_scripts(struct ebb_cuda *engine);
void ebb__cuda_rename(struct ebb_cuda *engine, const struct ebb_renaming *renamings, size_t count);
void ebb__cuda_set_trace(struct ebb_cuda *engine, enum ebb_observe observe, uint64_t allocations);
void ebb__cuda_trim(struct ebb_cuda *engine);
void ebb__cuda_shrink(struct ebb_cuda *engine, uint64_t bytes);

#endif
