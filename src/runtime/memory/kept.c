/* The end of a block whose mapping the program has changed (keep.c). */
#include "runtime/internal.h"

void ebb__keep_end(struct ebb_runtime *runtime, struct block *block)
{
    const struct ebb_device_ops *ops = runtime->core.device.ops;
    void *device = runtime->core.device.state;
    block->kept = false;
    if (!ops->renew(device, block->address, block->page_bytes))
        ops->release(device, block->address, block->page_bytes);
    if (block->kind == BLOCK_STATIC) { /* its units keep all their pages */
        ops->fresh(device, block->address, block->page_bytes);
        uintptr_t last = block->address + block->page_bytes - 1;
        for (uintptr_t at = block->address; at <= last; at += EBB_HUGE_BYTES)
            *ebb__pages_fragmented(runtime, at) = 1;
        *ebb__pages_fragmented(runtime, last) = 1;
    } else if (!block->inherited) {
        ebb__pages_gone(runtime, block->page_bytes);
    }
    block->inherited = false;
}
