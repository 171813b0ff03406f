/* Pins: blocks that must be there and stay, while a system call has their addresses.
 *
 * On devices where a system call cannot wait for an absent page, or where a page that the kernel is
 * writing cannot be told from another (device->calls_need_pins), the shim pins the buffers of a
 * call before it is made. A pinned block is not parked; that is all. It is fetched by touching it,
 * as the program itself would, so that everything that follows an access follows this one too. */
#include "runtime/internal.h"

/* Count `change` in for all parts of the one allocation at `address` that [address, + bytes) meets;
 * returns where its pages end, or the range: a call may be told of far more room than there is.
 * Parts neither split nor join while they are pinned, so that unpinning finds the same ones. */
static uintptr_t count_pins(struct ebb_runtime *runtime, uintptr_t address, uint64_t bytes,
                            int32_t change)
{
    uintptr_t last = bytes < UINTPTR_MAX - address ? address + bytes : UINTPTR_MAX;
    uint32_t head = NO_BLOCK;
    while (address < last) {
        struct block *block = ebb__space_find(&runtime->addresses, address);
        if (!block || !ebb__block_is_live(block) || address - block->address >= block->page_bytes ||
            (head && block->run.head != head))
            break;
        head = block->run.head;
        if (change > 0 || block->pins)
            block->pins += (uint32_t)change;
        address = block->address + block->page_bytes;
        if (head ==
            NO_BLOCK) /* in the static placement: it has no parts, and its neighbours are others' */
            break;
    }
    return address < last ? address : last;
}

bool ebb__runtime_pin(struct ebb_runtime *runtime, const void *pointer, uint64_t bytes)
{
    uintptr_t address = (uintptr_t)pointer;
    pthread_mutex_lock(&runtime->core.lock);
    uintptr_t last = count_pins(runtime, address, bytes, 1);
    pthread_mutex_unlock(&runtime->core.lock);
    /* What is kept is resident, and the program may have made it inaccessible: then the call says
     * so. */
    bool is_kept = last > address && ebb__runtime_is_kept(runtime, pointer, last - address);
    for (uintptr_t at = address; at < last;
         at = (at & ~(uintptr_t)(EBB_PAGE_BYTES - 1)) + EBB_PAGE_BYTES)
        if (!is_kept || !ebb__runtime_is_kept(runtime, (const void *)at, 1))
            (void)*(volatile const char *)at;
    return last > address;
}

void ebb__runtime_unpin(struct ebb_runtime *runtime, const void *pointer, uint64_t bytes)
{
    pthread_mutex_lock(&runtime->core.lock);
    count_pins(runtime, (uintptr_t)pointer, bytes, -1);
    pthread_mutex_unlock(&runtime->core.lock);
}
