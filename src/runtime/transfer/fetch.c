/* A fetch reads a block from the store into frames, and moves it from there into the arena. A
 * prefetch is cancelled if the program needs its memory first. The store's copy is still valid
 * then. */
#include "runtime/transfer/transfer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

bool ebb__move_start_in(struct transfer *transfer, struct block *block)
{
    ebb__list_remove(transfer->table, &transfer->in.queue, ebb__block_index(transfer->table, block),
                     LINK_QUEUE);
    block->transfer.queue = QUEUE_NONE;
    block->transfer.lacked_room =
        block->transfer.gave_way || transfer->no_room_ns > block->transfer.queued_ns;
    block->transfer.gave_way = false;
    block->wait.asking.since_ns = 0;
    if (block->state == BLOCK_BARE) {
        ebb__block_become(block, BLOCK_RESIDENT);
        block->transfer.urgent = false;
        ebb__waits_fault_over(transfer->table, block);
        pthread_cond_broadcast(&transfer->core->changed);
        return false;
    }
    ebb__block_become(block, BLOCK_FETCHING);
    block->transfer.end = TRANSFER_GOES_ON;
    block->transfer.error = 0;
    block->transfer.chunk_bytes = 0;
    block->transfer.chunks_in_flight = 0;
    return true;
}

/* The only copy of a block cannot be read, or its hash is wrong. If no access waits for it, a later
 * read may succeed, or never be needed. */
static void read_failed(struct transfer *transfer, struct block *block)
{
    const char *why = block->transfer.error == EILSEQ ? "it is not what was written"
                                                      : strerrordesc_np(block->transfer.error);
    char message[200];
    snprintf(message, sizeof message,
             "block %llu (%llu bytes) cannot be read back from the store: %s (%d); its only copy "
             "is lost",
             (unsigned long long)block->serial, (unsigned long long)block->size_bytes,
             why ? why : "error", block->transfer.error);
    atomic_store(&transfer->core->counters->store_error, (uint32_t)block->transfer.error);
    /* Frees the pages; the block stays absent. The program never sees these bytes. */
    ebb__move_give_pages(transfer, block);
    ebb__block_become(block, BLOCK_EVICTED);
    pthread_cond_broadcast(&transfer->core->changed);
    if (ebb__waits_fault_over(transfer->table, block) && transfer->core->config.lost)
        transfer->core->config.lost(transfer->core->config.context, message);
}

void ebb__move_give_up(struct transfer *transfer, struct block *block)
{
    block->transfer.end = TRANSFER_GIVEN_UP;
    transfer->out_pending_bytes += block->page_bytes;
}

/* The block was freed during its fetch, or its fetch was given up. In the second case the store's
 * copy is still valid: the block is evicted again, and can be fetched again. */
static void end_early(struct transfer *transfer, struct block *block)
{
    if (block->transfer.end == TRANSFER_GIVEN_UP)
        transfer->out_pending_bytes -= block->page_bytes;
    block->transfer.end = TRANSFER_GOES_ON;
    if (block->state == BLOCK_DYING) {
        ebb__move_bury(transfer, block);
        return;
    }
    ebb__move_give_pages(transfer, block);
    ebb__block_become(block, BLOCK_EVICTED);
    ebb__move_queue_in(transfer, block, block->transfer.urgent || block->wait.fault_ns);
    ebb__move_pages_came_free(transfer);
}

void ebb__move_finish_in(struct transfer *transfer, struct block *block)
{
    if (block->state == BLOCK_DYING || block->transfer.end == TRANSFER_GIVEN_UP) {
        end_early(transfer, block);
        return;
    }
    if (block->transfer.error) {
        read_failed(transfer, block);
        return;
    }
    atomic_fetch_add(&transfer->core->counters->moved_in_bytes, block->page_bytes);
    bool announced = transfer->core->config.announced;
    bool keeps =
        (announced || block->copy.stays) && ebb__relatives_wrote(&transfer->table->copies, block);
    if (transfer->core->config.verify || (keeps && !announced)) {
        /* Hashes before the program can write to the block or see it. */
        transfer->transfers++;
        pthread_mutex_unlock(&transfer->core->lock);
        uint64_t hash[2];
        ebb__move_hash(block, hash);
        pthread_mutex_lock(&transfer->core->lock);
        transfer->transfers--;
        if (block->state == BLOCK_DYING || block->transfer.end == TRANSFER_GIVEN_UP) {
            end_early(transfer, block);
            return;
        }
        if (transfer->core->config.verify && block->copy.is_hashed &&
            (hash[0] != block->copy.hash[0] || hash[1] != block->copy.hash[1])) {
            block->transfer.error = EILSEQ;
            read_failed(transfer, block);
            return;
        }
        block->copy.hash[0] = hash[0];
        block->copy.hash[1] = hash[1];
        block->copy.is_hashed = true;
    }
    if (!keeps)
        ebb__copy_drop(transfer->table, block);
    if (block->transfer.urgent || block->wait.fault_ns ||
        !transfer->core->policy->is_awaited(transfer->core->policy_context, block)) {
        ebb__move_unpark(transfer, block);
        return;
    }
    ebb__block_become(block, BLOCK_PARKED); /* its next use is a clock event of the script */
    pthread_cond_broadcast(&transfer->core->changed);
}
