/* Cached blocks: freed, with their pages still in place for the next allocation of their size. */
#include "runtime/memory/memory.h"

static uint32_t bucket_of(uint64_t page_bytes)
{
    return (uint32_t)((page_bytes / EBB_PAGE_BYTES * 0x9E3779B97F4A7C15ull) >> 54);
}

static void cached_remove(struct memory *memory, struct block *block)
{
    uint32_t index = ebb__block_index(memory->table, block);
    ebb__list_remove(memory->table, &memory->cached_by_size[bucket_of(block->page_bytes)], index,
                     LINK_LIST);
    ebb__list_remove(memory->table, &memory->cached_by_age, index, LINK_AGE);
    memory->cached_bytes -= block->page_bytes;
}

struct block *ebb__pages_take_cached(struct memory *memory, uint64_t page_bytes)
{
    uint32_t index = memory->cached_by_size[bucket_of(page_bytes)].first;
    while (index != NO_BLOCK && memory->table->blocks[index].page_bytes != page_bytes)
        index = memory->table->blocks[index].list.next;
    if (index == NO_BLOCK)
        return NULL;
    cached_remove(memory, &memory->table->blocks[index]);
    return &memory->table->blocks[index];
}

void ebb__pages_keep_cached(struct memory *memory, struct block *block)
{
    uint32_t index = ebb__block_index(memory->table, block);
    ebb__block_become(block, BLOCK_CACHED);
    ebb__list_push_front(memory->table, &memory->cached_by_size[bucket_of(block->page_bytes)],
                         index, LINK_LIST);
    ebb__list_push_back(memory->table, &memory->cached_by_age, index, LINK_AGE);
    memory->cached_bytes += block->page_bytes;
}

/* The cached block to take pages from. If a script is in force, it is the block whose size is
 * allocated latest from this point on. So most allocations find an address with its pages.
 * Otherwise it is the oldest block. NO_BLOCK: there is none. O(cached blocks * log allocations). */
uint32_t ebb__pages_choose_cached(const struct memory *memory)
{
    uint32_t best = memory->cached_by_age.first;
    if (!memory->core->policy->is_planned(memory->core->policy_context))
        return best;
    uint32_t farthest = 0;
    for (uint32_t i = best; i != NO_BLOCK; i = memory->table->blocks[i].age.next) {
        uint32_t distance = memory->core->policy->next_alloc(memory->core->policy_context,
                                                             memory->table->blocks[i].size_bytes);
        if (distance > farthest) {
            farthest = distance;
            best = i;
        }
    }
    return best;
}

bool ebb__pages_strip_block(struct memory *memory, uint32_t index)
{
    if (index == NO_BLOCK)
        return false;
    struct block *block = &memory->table->blocks[index];
    cached_remove(memory, block);
    ebb__pages_give(memory, block->address, block->page_bytes);
    ebb__space_give(memory->addresses, block);
    return true;
}

bool ebb__pages_strip_cached(struct memory *memory)
{
    return ebb__pages_strip_block(memory, ebb__pages_choose_cached(memory));
}

void ebb__pages_drop_cached(struct memory *memory)
{
    struct block *block = &memory->table->blocks[memory->cached_by_age.first];
    cached_remove(memory, block);
    memory->core->device.ops->release(memory->core->device.state, block->address,
                                      block->page_bytes);
    block->inherited = false;
    ebb__space_give(memory->addresses, block);
}
