/* Kept blocks: they are never moved and keep their pages until they are freed.
 *
 * A program may change the mapping of a block, by mprotect, mlock or mmap over it. It may lend the
 * pages to the kernel beyond a system call (vmsplice). Neither survives a move. Such a block is
 * first fetched, then never moved, and counts as resident. When it is freed, its mapping is renewed
 * and its pages are released to the system. No other block may get a page that the kernel still
 * reads.
 *
 * Of a large block only the affected units of 2 MiB are kept; the rest may still be evicted. */
#include "runtime/internal.h"

struct block *ebb__keep_live_at(struct ebb_runtime *runtime, uintptr_t address)
{
    struct block *block = ebb__placement_owns(&runtime->addresses, address)
                              ? ebb__placement_covering(&runtime->addresses, address)
                              : ebb__space_find(&runtime->addresses, address);
    if (!block || address - block->address >= block->page_bytes)
        return NULL;
    bool is_slab = block->kind == BLOCK_SLAB && block->state != BLOCK_EMPTY;
    return is_slab || ebb__block_is_live(block) ? block : NULL;
}

/* The end of the range, or of the address space. */
static uintptr_t end_of(const void *pointer, uint64_t bytes)
{
    uintptr_t first = (uintptr_t)pointer;
    return bytes < UINTPTR_MAX - first ? first + bytes : UINTPTR_MAX;
}

/* The first address after the page of `at` that may belong to another block. */
static uintptr_t next_of(const struct block *block, uintptr_t at)
{
    return block ? block->address + block->page_bytes
                 : (at & ~(uintptr_t)(EBB_PAGE_BYTES - 1)) + EBB_PAGE_BYTES;
}

bool ebb__runtime_is_kept(struct ebb_runtime *runtime, const void *pointer, uint64_t bytes)
{
    bool kept = false;
    uintptr_t last = end_of(pointer, bytes);
    pthread_mutex_lock(&runtime->core.lock);
    for (uintptr_t at = (uintptr_t)pointer; at < last && !kept;) {
        const struct block *block = ebb__keep_live_at(runtime, at);
        kept = block && block->kept;
        at = next_of(block, at);
    }
    pthread_mutex_unlock(&runtime->core.lock);
    return kept;
}

/* The block is resident: from this point on its mapping is the program's. */
static void let_go(struct ebb_runtime *runtime, uintptr_t at)
{
    pthread_mutex_lock(&runtime->core.lock);
    const struct block *block = ebb__keep_live_at(runtime, at);
    if (block && block->kept && block->state == BLOCK_RESIDENT && runtime->core.device.ops->let)
        runtime->core.device.ops->let(runtime->core.device.state, block->address,
                                      block->page_bytes);
    pthread_mutex_unlock(&runtime->core.lock);
}

bool ebb__runtime_keep(struct ebb_runtime *runtime, const void *pointer, uint64_t bytes)
{
    uintptr_t first = (uintptr_t)pointer, last = end_of(pointer, bytes);
    bool found = false;
    for (uintptr_t at = first; at < last;) {
        pthread_mutex_lock(&runtime->core.lock);
        struct block *block = ebb__keep_live_at(runtime, at);
        if (block && block->kind != BLOCK_SLAB && block->kind != BLOCK_STATIC) {
            ebb__part_split(&runtime->table, &runtime->table.blocks[block->run.head]);
            block = ebb__keep_live_at(runtime, at);
        }
        if (block) {
            found = block->kept = true;
            if (block->transfer.queue == QUEUE_OUT)
                ebb__move_unqueue_out(&runtime->transfer, block);
        }
        uintptr_t next = next_of(block, at);
        bool is_here = !block || block->state == BLOCK_RESIDENT;
        pthread_mutex_unlock(&runtime->core.lock);
        if (!is_here)
            ebb__runtime_await(runtime, at, false);
        if (block)
            let_go(runtime, at);
        at = next;
    }
    return found;
}

void ebb__runtime_close_holes(struct ebb_runtime *runtime)
{
    const struct ebb_device *device = &runtime->core.device;
    for (uint32_t i = 1; device->ops->close_holes && i <= runtime->table.count; i++)
        if (runtime->table.blocks[i].kept)
            device->ops->close_holes(device->state, runtime->table.blocks[i].address,
                                     runtime->table.blocks[i].page_bytes);
}

/* The child's device has registered all memory again, kept memory included. */
void ebb__runtime_let_kept(struct ebb_runtime *runtime)
{
    const struct ebb_device *device = &runtime->core.device;
    if (!device->ops->let)
        return;
    if (runtime->retirement == RETIREMENT_OVER && runtime->all_back) {
        device->ops->let(device->state, device->layout.arena.base, device->layout.arena.bytes);
        return;
    }
    for (uint32_t i = 1; i <= runtime->table.count; i++) {
        const struct block *block = &runtime->table.blocks[i];
        if (block->kept && block->state == BLOCK_RESIDENT)
            device->ops->let(device->state, block->address, block->page_bytes);
    }
}
