/* Pins: blocks that must be there and stay, while a system call has their addresses.
 *
 * On devices where a system call cannot wait for an absent page, or where a page that the kernel is
 * writing cannot be told from another (device->calls_need_pins), the shim pins the buffers of a call
 * before it is made. A pinned block is not parked; that is all. It is brought back by touching it,
 * as the program itself would, so that everything that follows an access follows this one too. */
#include "engine/internal.h"

/* The live block whose pages hold `address`; NULL: none. */
static struct block *holder(struct ebb_engine *engine, uintptr_t address)
{
    struct block *block = ebb__space_find(engine, address);
    return block && ebb__block_is_live(block) && address - block->address < block->page_bytes
               ? block
               : NULL;
}

bool ebb__engine_pin(struct ebb_engine *engine, const void *pointer, uint64_t bytes)
{
    uintptr_t address = (uintptr_t)pointer;
    pthread_mutex_lock(&engine->lock);
    struct block *block = bytes ? holder(engine, address) : NULL;
    uintptr_t last = 0;
    if (block) {
        block->pins++;
        /* A call may be told of far more room than it will use. */
        uint64_t behind = block->address + block->page_bytes - address;
        last = address + (bytes < behind ? bytes : behind);
    }
    pthread_mutex_unlock(&engine->lock);
    for (uintptr_t at = address; at < last;
         at = (at & ~(uintptr_t)(EBB_PAGE_BYTES - 1)) + EBB_PAGE_BYTES)
        (void)*(volatile const char *)at;
    return block != NULL;
}

void ebb__engine_unpin(struct ebb_engine *engine, const void *pointer)
{
    pthread_mutex_lock(&engine->lock);
    struct block *block = holder(engine, (uintptr_t)pointer);
    if (block && block->pins)
        block->pins--;
    pthread_mutex_unlock(&engine->lock);
}
