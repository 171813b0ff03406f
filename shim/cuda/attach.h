/* How this library takes part in a run: what the door needs of the parent's side.
 *
 * One hello for the process, when the library is loaded. One attachment for each device, when the
 * program first allocates on it. */
#ifndef EBB_SHIM_CUDA_ATTACH_H
#define EBB_SHIM_CUDA_ATTACH_H

#include "cuda/engine.h"

#include <stdbool.h>
#include <stdint.h>

/* What the engine of one device shares with the parent. The pointers live as long as the
 * process. */
struct ebb_cuda_attachment {
    struct ebb_ledger *ledger; /* of this device */
    struct ebb_ledger_slot *slot;
    struct ebb_ledger *store_ledger; /* of host memory, for all processes and devices; or NULL */
    struct ebb_ledger_slot *store_slot;
    struct ebb_ring *ring;
    enum ebb_cuda_backing_kind backing;
    uint64_t host_budget_bytes, pinned_budget_bytes;
    bool record;
    uint64_t chaos_seed;
};

/* Says hello to the parent of the run. False: this process belongs to no run, and the library does
 * nothing. Called by the library's constructor. Called again in the child of a fork if the process
 * had used no device: the child has its own hello. */
bool ebb__attach_hello(void);
/* Attaches `device`, which has `bytes` of memory and whose name is `name`, to the run. The budget
 * may exceed what the device has: say so, and use the device's size. False: no budget is in force
 * on this device; the reason has been told. Called once for each device in a process, without locks
 * that the functions above or below need. */
bool ebb__attach(CUdevice device, uint64_t bytes, const char *name,
                 struct ebb_cuda_attachment *attachment);
/* From now on, the parent's messages for `device` go to `engine`: scripts, names, trims. Called
 * once after a successful ebb__attach(). */
void ebb__attach_serve(CUdevice device, struct ebb_cuda *engine);
/* The engine makes no driver call any more: its device was reset. No more messages go to it. */
void ebb__attach_leave(CUdevice device);
/* One line for the person who runs the program. Thread-safe. `context` is unused. */
void ebb__attach_warn(void *context, const char *message);

#endif
