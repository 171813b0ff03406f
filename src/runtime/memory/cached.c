/* Spare blocks: freed, with their pages still in place for the next allocation of their size. */
#include "runtime/internal.h"

static uint32_t bucket_of(uint64_t page_bytes)
{
    return (uint32_t)((page_bytes / EBB_PAGE_BYTES * 0x9E3779B97F4A7C15ull) >> 54);
}

static void cached_remove(struct ebb_runtime *runtime, struct block *block)
{
    uint32_t index = ebb__block_index(&runtime->table, block);
    ebb__list_remove(&runtime->table, &runtime->memory.cached_by_size[bucket_of(block->page_bytes)],
                     index, LINK_LIST);
    ebb__list_remove(&runtime->table, &runtime->memory.cached_by_age, index, LINK_AGE);
    runtime->memory.cached_bytes -= block->page_bytes;
}

struct block *ebb__pages_take_cached(struct ebb_runtime *runtime, uint64_t page_bytes)
{
    uint32_t index = runtime->memory.cached_by_size[bucket_of(page_bytes)].first;
    while (index != NO_BLOCK && runtime->table.blocks[index].page_bytes != page_bytes)
        index = runtime->table.blocks[index].list.next;
    if (index == NO_BLOCK)
        return NULL;
    cached_remove(runtime, &runtime->table.blocks[index]);
    return &runtime->table.blocks[index];
}

void ebb__pages_keep_cached(struct ebb_runtime *runtime, struct block *block)
{
    uint32_t index = ebb__block_index(&runtime->table, block);
    ebb__block_become(block, BLOCK_CACHED);
    ebb__list_push_front(&runtime->table,
                         &runtime->memory.cached_by_size[bucket_of(block->page_bytes)], index,
                         LINK_LIST);
    ebb__list_push_back(&runtime->table, &runtime->memory.cached_by_age, index, LINK_AGE);
    runtime->memory.cached_bytes += block->page_bytes;
}

/* The spare block to take pages from: where the template is known, the one whose size is asked for
 * last from now on, so that most requests find address and pages as they left them; else the oldest.
 * NO_BLOCK: there is none. O(spare blocks * log allocations). */
uint32_t ebb__pages_choose_cached(const struct ebb_runtime *runtime)
{
    uint32_t best = runtime->memory.cached_by_age.first;
    if (!runtime->core.policy->is_planned(runtime))
        return best;
    uint32_t farthest = 0;
    for (uint32_t i = best; i != NO_BLOCK; i = runtime->table.blocks[i].age.next) {
        uint32_t distance =
            runtime->core.policy->next_alloc(runtime, runtime->table.blocks[i].size_bytes);
        if (distance > farthest) {
            farthest = distance;
            best = i;
        }
    }
    return best;
}

bool ebb__pages_strip_block(struct ebb_runtime *runtime, uint32_t index)
{
    if (index == NO_BLOCK)
        return false;
    struct block *block = &runtime->table.blocks[index];
    cached_remove(runtime, block);
    ebb__pages_give(runtime, block->address, block->page_bytes);
    ebb__space_give(runtime, block);
    return true;
}

bool ebb__pages_strip_cached(struct ebb_runtime *runtime)
{
    return ebb__pages_strip_block(runtime, ebb__pages_choose_cached(runtime));
}

void ebb__pages_drop_cached(struct ebb_runtime *runtime)
{
    struct block *block = &runtime->table.blocks[runtime->memory.cached_by_age.first];
    cached_remove(runtime, block);
    runtime->core.device.ops->release(runtime->core.device.state, block->address,
                                      block->page_bytes);
    block->inherited = false;
    ebb__space_give(runtime, block);
}
