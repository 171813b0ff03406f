/* A backing: how the pages of a range of the engine's addresses come to the device and leave it.
 *
 * The mover's thread alone calls `evict`, `fetch`, `populate`, `drop` and `poll`, in launch order,
 * with the engine's context current and without the engine's lock. They may hold their caller as
 * long as the transfer takes (cuMemPrefetchAsync to the host does). Ranges are whole units. */
#ifndef EBB_CUDA_BACKING_H
#define EBB_CUDA_BACKING_H

#include "cuda/away.h"
#include "cuda/engine.h"

#define EBB_CUDA_UNIT_BYTES ((uint64_t)2 << 20)
static inline uint64_t ebb__cuda_units(uint64_t bytes) /* that hold so many bytes */
{
    return (bytes + EBB_CUDA_UNIT_BYTES - 1) / EBB_CUDA_UNIT_BYTES;
}

struct ebb_cuda_backing;

struct ebb_cuda_backing_ops {
    const char *name;
    bool can_evict; /* false: evict and fetch are never called */
    /* Each access finds the right bytes at any time, even during a transfer. Otherwise: accesses to
     * live bytes are served before and after a transfer. */
    bool is_coherent;
    bool needs_quiet;   /* it moves live bytes only while the device is idle (gate.h) */
    bool hides_absent;  /* an access to absent bytes fails, unless `serve` was called for them */
    bool drops_at_once; /* `drop` and `forget` end when they return, and use no lane */
    bool populates_at_once; /* `populate` where nothing is ends when it returns, and uses no lane */
    bool moves_whole; /* what came at once leaves at once: free ranges are reused as they were */
    bool takes_parts; /* its host memory is pinned, in parts that it enters in `away` itself */
    uint32_t most_flights; /* pieces on the way to the host at a time; 0: one */
    /* Mappings wait for copies to the host: these are queued in chunks of so many bytes (feeder.h),
     * and `evict_to` is called in place of `evict`. 0: they do not. */
    uint64_t out_bytes;
    /* Address space for the pool: *first .. + bytes, unit-aligned. It costs no device memory.
     * Threads of the program call it, with the engine's context current. */
    CUresult (*reserve)(struct ebb_cuda_backing *backing, uint64_t bytes, CUdeviceptr *first);
    void (*release)(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes);
    /* How many bytes from `first` on come or leave at once, `bytes` at most. NULL: all. */
    uint64_t (*piece)(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes);
    /* Pages with undefined contents on the device. But where accesses to absent bytes are served,
     * bytes that were written since `drop` and `forget` stay: only those two destroy contents. */
    CUresult (*populate)(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                         CUstream lane);
    /* The contents leave for host memory. Afterwards, an access that nobody announced is served
     * from there without taking device memory, unless the backing hides absent bytes. */
    CUresult (*evict)(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                      CUstream lane);
    /* Takes host memory for the contents. The caller copies them to *to, and calls `evicted`. */
    CUresult (*evict_to)(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                         CUdeviceptr *to);
    /* The lane is past the eviction. NULL: nothing is left to do. An error, or not is_copied: the
     * bytes are on the device as before. */
    CUresult (*evicted)(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                        bool is_copied);
    CUresult (*fetch)(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                      CUstream lane);
    /* The contents are dead: the pages leave the device, without a copy where the driver can. */
    CUresult (*drop)(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                     CUstream lane);
    /* The contents are dead, and absent: host memory is released where possible. */
    CUresult (*forget)(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                       CUstream lane);
    /* Accesses to these bytes are served without pages of the device. NULL: so they are. is_urgent:
     * kernels are about to access them, so host memory beyond the budget is taken. A range as
     * piece() gives it, or any if there is none. */
    CUresult (*serve)(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                      bool is_urgent);
    /* Returns pages that have left their addresses to the driver. NULL: they are not recycled. What
     * is recycled counts as held until then. */
    void (*trim)(struct ebb_cuda_backing *backing);
    /* Makes no driver call: all regions have been released, or the context is gone. */
    void (*destroy)(struct ebb_cuda_backing *backing);
};

struct ebb_cuda_backing {
    const struct ebb_cuda_backing_ops *ops;
    const struct ebb_cuda_driver *driver;
    CUdevice device;
    uint32_t chunk_units; /* no page is larger; the pool's chunks of the static placement */
    _Atomic uint64_t host_bytes, pinned_bytes; /* taken at present */
    struct cuda_away away;
};

/* Fills in the base of a new backing, which is zeroed. */
static inline void ebb__backing_init(struct ebb_cuda_backing *backing,
                                     const struct ebb_cuda_backing_ops *ops,
                                     const struct ebb_cuda_config *config)
{
    backing->ops = ops;
    backing->driver = config->driver;
    backing->device = config->device;
    backing->chunk_units = 1;
    backing->away.ledger = config->store_ledger;
    backing->away.slot = config->store_slot;
}

/* EBB_ERR_UNSUPPORTED with a remedy if the device cannot. managed.c, vmm_host.c, native.c */
EBB_NODISCARD enum ebb_status ebb__managed_create(const struct ebb_cuda_config *config,
                                                  struct ebb_cuda_backing **backing,
                                                  struct ebb_error *error);
EBB_NODISCARD enum ebb_status ebb__vmm_host_create(const struct ebb_cuda_config *config,
                                                   struct ebb_cuda_backing **backing,
                                                   struct ebb_error *error);
EBB_NODISCARD enum ebb_status ebb__native_create(const struct ebb_cuda_config *config,
                                                 struct ebb_cuda_backing **backing,
                                                 struct ebb_error *error);

#endif
