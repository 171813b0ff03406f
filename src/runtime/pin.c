/* Pins: blocks that must be resident and stay so while a system call has their addresses.
 *
 * On some devices a system call cannot wait for an absent page, or a page that the kernel is
 * writing looks like any other (device->calls_need_pins). There the shim pins the buffers of a call
 * before making it. Pinning only prevents parking. The block is fetched by touching it, as the
 * program would, so the access has the usual effects. */
#include "runtime/internal.h"

/* Adds `change` to the pins of all parts of one allocation, as far as [address, + bytes) overlaps
 * it. Returns the end of its pages or of the range: a call may be given a range far beyond the
 * block. Parts neither split nor join while pinned, so unpinning finds the same ones. */
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
        if (head == NO_BLOCK) /* in the static placement: no parts, and the next block is another
                         allocation */
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
    /* A kept block is resident, and the program may have made it inaccessible. The system call then
     * reports that. */
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
