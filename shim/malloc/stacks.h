/* Stacks that lie in blocks: what the guard and stacks.c need of keeper.c. */
#ifndef EBB_SHIM_STACKS_H
#define EBB_SHIM_STACKS_H

#include "device/device.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ebb_runtime;

/* The bounds of the arena, once it exists. */
extern _Atomic uintptr_t ebb__stacks_first, ebb__stacks_last;

static inline bool ebb__stacks_own(uintptr_t address)
{
    return address < atomic_load_explicit(&ebb__stacks_last, memory_order_relaxed) &&
           address >= atomic_load_explicit(&ebb__stacks_first, memory_order_relaxed);
}

static inline bool ebb__stacks_has(const void *address)
{
    return ebb__stacks_own((uintptr_t)address);
}

/* True if the address is in no block, or in a block that does not move. */
bool ebb__stacks_stay(const struct ebb_runtime *runtime, const void *address);
/* Starts the thread that keeps stacks resident. Call once per process, before a thread of the
 * program enters the runtime. Returns false on failure. */
bool ebb__stacks_start(struct ebb_runtime *runtime, struct ebb_device_range arena);
/* Keeps the blocks under this thread's stack at `frame` resident until they are freed. Returns true
 * if it had to wait. Then it has blocked the signals `blocked`, and *signals is the mask before. */
bool ebb__stacks_keep(const void *frame, const uint64_t *blocked, uint64_t *signals);

#endif
