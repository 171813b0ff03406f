/* Parts: a large block is traced, planned and moved in runs of 2 MiB units. Each run has its own
 * state, pages and place in the store.
 *
 * The table has an entry for each unit of a large block's address space, in order. The entry of a
 * part's first unit stands for the part; the others are asleep. So all transitions of
 * transfer/moves.c apply to parts as to blocks. Splitting a part wakes an entry; joining two puts
 * one to sleep. The first entry is the *head*, which the program allocates and frees. */
#include "runtime/block/block.h"

bool ebb__part_is_large(const struct table *table, uint64_t page_bytes)
{
    return page_bytes >= table->core->config.part_from_bytes;
}

uint32_t ebb__part_next(const struct table *table, uint32_t index)
{
    const struct block *block = &table->blocks[index];
    const struct block *head = &table->blocks[block->run.head];
    /* Only large blocks have one entry per unit. */
    uint32_t next = head->run.parts > 1 && block->run.units ? index + block->run.units : NO_BLOCK;
    return next < block->run.head + head->run.total_units ? next : NO_BLOCK;
}

bool ebb__part_is_whole(const struct table *table, const struct block *block)
{
    return block->run.head == ebb__block_index(table, block) && block->run.parts == 1 &&
           block->run.units == block->run.total_units;
}

/* No pin, transfer or wait concerns it, and all its bytes are at one place. */
static bool is_at_rest(const struct block *block)
{
    if (block->pins || block->kept || block->wait.fault_ns)
        return false;
    switch (block->state) {
    case BLOCK_BARE:
    case BLOCK_EVICTED:
        return block->transfer.queue != QUEUE_IN && !block->transfer.error;
    case BLOCK_RESIDENT:
    case BLOCK_PARKED:
        return block->transfer.queue != QUEUE_OUT;
    default:
        return false;
    }
}

static void own_units(struct table *table, const struct block *block)
{
    uint64_t first = (block->address - table->core->device.layout.arena.base) / EBB_HUGE_BYTES;
    for (uint32_t unit = 0; unit < block->run.units; unit++)
        table->unit_block[first + unit] = ebb__block_index(table, block);
}

/* Ends part `index` after its first `units`. The rest becomes a part of its own. */
static bool split(struct table *table, uint32_t index, uint32_t units)
{
    struct block *block = &table->blocks[index], *rest = &table->blocks[index + units];
    uint64_t bytes = units * EBB_HUGE_BYTES;
    if (!is_at_rest(block) || block->page_bytes <= bytes)
        return false;
    uint32_t head = block->run.head;
    bool has_orphans = rest->has_orphans || block->has_orphans;
    *rest = *block;
    rest->run.head = head;
    rest->has_orphans = has_orphans;
    rest->address += bytes;
    if (block->frame)
        rest->frame += bytes;
    rest->size_bytes = 0;
    rest->page_bytes -= bytes;
    rest->run.units -= units;
    rest->run.total_units = 0;
    rest->run.parts = 0;
    rest->use.open = false;
    if (block->copy.is_there) {
        rest->copy.offset += bytes;
        ebb__relatives_count(table, rest);
    }
    block->copy.is_hashed = rest->copy.is_hashed = false;
    block->page_bytes = bytes;
    block->run.units = units;
    own_units(table, rest);
    table->blocks[head].run.parts++;
    return true;
}

/* Joins part `next` to part `index` in front of it. */
static bool join(struct table *table, uint32_t index, uint32_t next)
{
    struct block *block = &table->blocks[index], *rest = &table->blocks[next];
    if (block->state != rest->state || block->state == BLOCK_EVICTED || !is_at_rest(block) ||
        !is_at_rest(rest) || block->inherited != rest->inherited || block->use.open ||
        rest->use.open || block->script_block != rest->script_block ||
        (block->frame && block->frame + block->page_bytes != rest->frame))
        return false;
    ebb__copy_drop(table, block);
    ebb__copy_drop(table, rest);
    block->page_bytes += rest->page_bytes;
    block->run.units += rest->run.units;
    block->has_orphans |= rest->has_orphans;
    if (rest->use.touch > block->use.touch)
        block->use.touch = rest->use.touch;
    if (rest->use.last > block->use.last)
        block->use.last = rest->use.last;
    ebb__block_become(rest, BLOCK_ASLEEP);
    rest->frame = 0;
    rest->has_orphans = false;
    rest->run.units = 0;
    own_units(table, block);
    table->blocks[block->run.head].run.parts--;
    return true;
}

bool ebb__part_has_units(const struct table *table, const struct block *head)
{
    return head->kind != BLOCK_STATIC &&
           (head->run.parts > 1 || ebb__part_is_large(table, head->page_bytes));
}

void ebb__part_split(struct table *table, struct block *head)
{
    if (!ebb__part_has_units(table, head))
        return;
    for (uint32_t i = ebb__block_index(table, head); i != NO_BLOCK; i = ebb__part_next(table, i))
        split(table, i, 1);
}

bool ebb__part_join(struct table *table, struct block *head)
{
    uint32_t index = ebb__block_index(table, head), next;
    while ((next = ebb__part_next(table, index)) != NO_BLOCK)
        if (!join(table, index, next))
            index = next;
    return head->run.parts == 1;
}

uint32_t ebb__part_shape(struct table *table, struct block *head, uint32_t first, uint32_t count)
{
    uint32_t begin = ebb__block_index(table, head) + first, end = begin + count;
    if (first >= head->run.total_units || count > head->run.total_units - first)
        return NO_BLOCK;
    uint32_t index = ebb__block_index(table, head);
    for (uint32_t next; (next = ebb__part_next(table, index)) != NO_BLOCK && next <= begin;)
        index = next;
    if (index < begin)
        index = split(table, index, begin - index) ? begin : ebb__part_next(table, index);
    uint32_t shaped = index;
    while (index != NO_BLOCK && index < end) {
        if (index + table->blocks[index].run.units > end)
            split(table, index, end - index);
        uint32_t next = ebb__part_next(table, index);
        if (next == NO_BLOCK || next >= end)
            break;
        if (table->blocks[next].run.units > end - next)
            split(table, next, end - next);
        if (!join(table, index, next))
            index = next;
    }
    return shaped != NO_BLOCK && shaped < end ? shaped : NO_BLOCK;
}

bool ebb__part_bury(struct table *table, struct block *block)
{
    struct block *head = &table->blocks[block->run.head];
    if (--head->run.parts)
        return false;
    if (!ebb__part_is_large(table, head->run.total_units * EBB_HUGE_BYTES))
        return true;
    for (uint32_t i = 1; i < head->run.total_units; i++) {
        struct block *entry = head + i;
        head->has_orphans |= entry->has_orphans;
        ebb__block_become(entry, BLOCK_ASLEEP);
        entry->has_orphans = false;
        entry->run.units = 0;
    }
    head->run.units = head->run.total_units;
    own_units(table, head);
    return true;
}
