/* Stacks that lie in blocks: what the guard and stacks.c need of keeper.c. */
#ifndef EBB_SHIM_STACKS_H
#define EBB_SHIM_STACKS_H

#include "device/device.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ebb_runtime;

/* The arena, once it is there. */
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

/* It is in no block, or in one that stays where it is. */
bool ebb__stacks_stay(const struct ebb_runtime *runtime, const void *address);
/* Start the thread that keeps them: once a process, before a thread of the program enters the
 * runtime; false where it cannot be had. */
bool ebb__stacks_start(struct ebb_runtime *runtime, struct ebb_device_range arena);
/* The blocks that this thread stands on, at `frame`, are kept from here on. True: it had to be
 * waited for, and the signals `blocked` are blocked now, *signals is what was before. */
bool ebb__stacks_keep(const void *frame, const uint64_t *blocked, uint64_t *signals);

#endif
