/* A write back copies a block from its frames, where it cannot change, to the store. An access
 * cancels it until all is written. If the store already has these bytes, by their hash, they are
 * not written again. */
#include "runtime/transfer/transfer.h"

#define XXH_INLINE_ALL
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wshadow"
#include <xxhash.h>
#pragma GCC diagnostic pop

#include <errno.h>

void ebb__move_hash(const struct block *block, uint64_t hash[2])
{
    XXH128_hash_t value = XXH3_128bits((const void *)block->frame, (size_t)block->page_bytes);
    hash[0] = value.low64;
    hash[1] = value.high64;
}

/* PARKED -> EVICTED without a write, since the store has these bytes. */
static void evict_clean(struct transfer *transfer, struct block *block)
{
    transfer->out_pending_bytes -= block->page_bytes;
    ebb__move_give_pages(transfer, block);
    ebb__block_become(block, BLOCK_EVICTED);
    atomic_fetch_add(&transfer->core->counters->evicted_clean_bytes, block->page_bytes);
    ebb__move_pages_came_free(transfer);
}

/* Returns false if a limit of the store forbids it. */
static bool take_extent(struct transfer *transfer, uint64_t bytes, uint64_t *offset)
{
    struct ebb_extents *extents = &transfer->table->copies.extents;
    struct ebb_ledger *ledger = transfer->core->config.store_ledger;
    struct ebb_ledger_slot *slot = transfer->core->config.store_slot;
    bool counts = ledger && !ebb__extents_have(extents, bytes); /* the store never shrinks */
    if (counts && !ebb__ledger_reserve(ledger, slot, bytes))
        return false;
    if (ebb__extents_take(extents, bytes, offset))
        return true;
    if (counts)
        ebb__ledger_release(ledger, slot, bytes);
    return false;
}

bool ebb__move_start_out(struct transfer *transfer, struct block *block)
{
    ebb__list_remove(transfer->table, &transfer->out.queue,
                     ebb__block_index(transfer->table, block), LINK_QUEUE);
    block->transfer.queue = QUEUE_NONE;
    if (block->state == BLOCK_RESIDENT && !ebb__move_park(transfer, block)) {
        transfer->out_pending_bytes -= block->page_bytes;
        return false;
    }
    ebb__block_become(block, BLOCK_WRITING_BACK); /* an access cancels it from this point on */
    block->transfer.end = TRANSFER_GOES_ON;
    block->transfer.error = 0;
    block->transfer.chunk_bytes = 0;
    block->transfer.chunks_in_flight = 0;
    if (transfer->core->config.announced && block->copy.is_there) {
        evict_clean(transfer, block);
        return false;
    }
    bool clean_candidate = block->copy.is_there && block->copy.is_hashed;
    uint64_t hash[2] = {0, 0};
    if (clean_candidate || transfer->core->config.verify) {
        transfer->transfers++;
        block->transfer.chunks_in_flight = 1;
        pthread_mutex_unlock(&transfer->core->lock);
        ebb__move_hash(block, hash);
        pthread_mutex_lock(&transfer->core->lock);
        block->transfer.chunks_in_flight = 0;
        transfer->transfers--;
        if (block->state == BLOCK_DYING || block->transfer.end != TRANSFER_GOES_ON) {
            ebb__move_finish_out(transfer, block);
            return false;
        }
        if (clean_candidate && hash[0] == block->copy.hash[0] && hash[1] == block->copy.hash[1]) {
            evict_clean(transfer, block);
            return false;
        }
        if (clean_candidate)
            transfer->core->policy->changed(transfer->core->policy_context, block);
    }
    ebb__copy_drop(transfer->table, block);
    ebb__relatives_look(transfer->table, block->page_bytes);
    if (!take_extent(transfer, block->page_bytes, &block->copy.offset)) {
        block->transfer.error = EDQUOT;
        ebb__move_finish_out(transfer, block);
        return false;
    }
    block->copy.is_there = true;
    block->copy.hash[0] = hash[0];
    block->copy.hash[1] = hash[1];
    block->copy.is_hashed = transfer->core->config.verify;
    block->copy.store = (uint8_t)transfer->table->copies.current;
    block->copy.generation = transfer->table->copies.relatives.newest;
    atomic_store(&transfer->core->counters->store_bytes,
                 transfer->table->copies.extents.used_bytes);
    ebb__ledger_raise(&transfer->core->counters->store_peak_bytes,
                      transfer->table->copies.extents.peak_bytes);
    return true;
}

void ebb__move_finish_out(struct transfer *transfer, struct block *block)
{
    transfer->out_pending_bytes -= block->page_bytes;
    if (block->state == BLOCK_DYING) {
        ebb__move_bury(transfer, block);
        return;
    }
    if (block->transfer.error || block->transfer.end != TRANSFER_GOES_ON) {
        if (block->transfer.error)
            ebb__store_fail(transfer, block->transfer.error);
        ebb__copy_drop(transfer->table, block);
        ebb__move_unpark(transfer, block);
        return;
    }
    atomic_fetch_add(&transfer->core->counters->moved_out_bytes, block->page_bytes);
    ebb__move_give_pages(transfer, block);
    ebb__block_become(block, BLOCK_EVICTED);
    block->copy.stays = false;
    ebb__store_worked(transfer);
    ebb__move_pages_came_free(transfer);
}
