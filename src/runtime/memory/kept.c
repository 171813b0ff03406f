/* Ends keep.c's hold on a block whose mapping the program may have changed. */
#include "runtime/memory/memory.h"

void ebb__keep_end(struct memory *memory, struct block *block)
{
    const struct ebb_device_ops *ops = memory->core->device.ops;
    void *device = memory->core->device.state;
    block->kept = false;
    /* The addresses of a retired process are not used again. */
    if (memory->core->retired || !ops->renew(device, block->address, block->page_bytes))
        ops->release(device, block->address, block->page_bytes);
    if (block->kind == BLOCK_STATIC) { /* the units of the static placement keep their pages */
        ops->fresh(device, block->address, block->page_bytes);
        uintptr_t last = block->address + block->page_bytes - 1;
        for (uintptr_t at = block->address; at <= last; at += EBB_HUGE_BYTES)
            *ebb__pages_fragmented(memory, at) = 1;
        *ebb__pages_fragmented(memory, last) = 1;
    } else if (!block->inherited) {
        ebb__pages_gone(memory, block->page_bytes);
    }
    block->inherited = false;
}
