/* The transitions of a block. Each is one function. No other code sets block->state of a live
 * block.
 *
 * A block's bytes are at one place at any time: in the arena (resident), in staging (parked,
 * writing back, fetching), or in the store (evicted). During a write back the staging pages are
 * authoritative and cannot be written, so every copy is consistent. An access cancels the write
 * back. */
#include "runtime/transfer/transfer.h"

#include "base/tuning.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* One second in total, far longer than any delay seen: a limit. */
#define UNPARK_TRIES 20000
#define UNPARK_PAUSE_US 50

/* Moves the first `bytes` of the block's frames to `address`. It must not fail: all bytes must be
 * in the arena once the block counts as resident. */
static void bring_back(struct transfer *transfer, struct block *block, uint64_t bytes)
{
    uint64_t moved, done = 0;
    enum ebb_device_result result = EBB_DEVICE_BUSY;
    for (int tries = 0; result == EBB_DEVICE_BUSY && tries < UNPARK_TRIES; tries++) {
        /* The kernel may hold pages for a moment, after a direct read or while it splits a huge
         * page. */
        if (tries)
            usleep(UNPARK_PAUSE_US);
        result = ebb__pages_move(transfer->memory, block->address + done, block->frame + done,
                                 bytes - done, &moved);
        done += moved;
    }
    if (result != EBB_DEVICE_OK && transfer->core->config.lost) {
        char message[160];
        snprintf(message, sizeof message,
                 "block %llu could not be put back: %llu of %llu bytes done, errno %d",
                 (unsigned long long)block->serial, (unsigned long long)done,
                 (unsigned long long)bytes, errno);
        transfer->core->config.lost(transfer->core->config.context, message);
    }
}

static void give_frames(struct transfer *transfer, struct block *block)
{
    if (block->frame)
        ebb__frames_give(&transfer->memory->frames, block->frame, block->page_bytes);
    block->frame = 0;
}

/* Does this thread's stack lie in the block? Such a block must not be moved now. */
static bool is_stood_on(const struct block *block)
{
    return (uintptr_t)__builtin_frame_address(0) - block->address < block->page_bytes;
}

bool ebb__move_park(struct transfer *transfer, struct block *block)
{
    uint64_t moved = 0;
    bool stays = block->pins || block->kept || is_stood_on(block);
    block->frame = stays ? 0 : ebb__frames_take(&transfer->memory->frames, block->page_bytes);
    if (!block->frame || ebb__pages_move(transfer->memory, block->frame, block->address,
                                         block->page_bytes, &moved) != EBB_DEVICE_OK) {
        if (moved)
            bring_back(transfer, block, moved);
        give_frames(transfer, block);
        block->pinned_until = transfer->table->uses.event_number + ebb__tuning()->pinned_events;
        atomic_fetch_add(&transfer->core->counters->busy_blocks, 1);
        return false;
    }
    ebb__block_become(block, BLOCK_PARKED);
    block->pinned_until = 0;
    if (block->kind == BLOCK_SLAB)
        transfer->core->policy->slab_parked(transfer->core->policy_context, block);
    return true;
}

/* While accesses are observed: the block is resident, and will be parked at the next event.
 * Around a fork all blocks are resident, and are parked later (observe.c). */
static void open_block(struct transfer *transfer, struct block *block)
{
    struct uses *uses = &transfer->table->uses;
    if (!uses->trace || transfer->phase == LANES_FROZEN || block->use.open ||
        block->kind == BLOCK_SLAB || uses->open_count == uses->open_capacity)
        return;
    block->use.open = true;
    uses->opened_bytes += block->page_bytes;
    block->use.opened_at = uses->opened_bytes;
    uses->open_blocks[uses->open_count++] = ebb__block_index(transfer->table, block);
}

void ebb__move_unpark(struct transfer *transfer, struct block *block)
{
    if (block->transfer.queue == QUEUE_OUT)
        ebb__move_unqueue_out(transfer, block);
    bring_back(transfer, block, block->page_bytes);
    give_frames(transfer, block);
    ebb__block_become(block, BLOCK_RESIDENT);
    open_block(transfer, block);
    block->transfer.urgent = false;
    if (block->kind == BLOCK_SLAB)
        transfer->core->policy->slab_back(transfer->core->policy_context, block);
    uint64_t waited_ns = ebb__waits_fault_over(transfer->table, block);
    if (waited_ns)
        transfer->core->policy->was_late(transfer->core->policy_context, block, waited_ns);
    pthread_cond_broadcast(&transfer->core->changed);
}

void ebb__move_touch(struct transfer *transfer, struct block *block)
{
    block->use.last = transfer->table->uses.event_number;
    block->use.touch = ++transfer->table->uses.touches;
    if (block->use.evicted_at == transfer->table->uses.event_number + 1)
        block->use.needed_at = transfer->table->uses.event_number + 1;
    open_block(transfer, block);
}

static void close_block(struct transfer *transfer, struct block *block)
{
    struct uses *uses = &transfer->table->uses;
    uint32_t index = ebb__block_index(transfer->table, block), at = 0;
    if (!block->use.open)
        return;
    block->use.open = false;
    while (at < uses->open_count && uses->open_blocks[at] != index)
        at++;
    if (at == uses->open_count)
        return;
    uses->open_count--;
    memmove(&uses->open_blocks[at], &uses->open_blocks[at + 1],
            (uses->open_count - at) * sizeof *uses->open_blocks);
}

void ebb__move_evict(struct transfer *transfer, struct block *block)
{
    if (block->kind != BLOCK_SLAB)
        atomic_fetch_add(&transfer->core->counters->reactive_evictions, 1);
    ebb__observe_last_use(transfer, block);
    close_block(transfer, block);
    transfer->core->policy->evicting(transfer->core->policy_context, block);
    block->use.evicted_at = transfer->table->uses.event_number + 1; /* + 1 since 0 means never */
    ebb__move_queue_out(transfer, block, true);
}

void ebb__move_queue_out(struct transfer *transfer, struct block *block, bool urgent)
{
    uint32_t index = ebb__block_index(transfer->table, block);
    block->transfer.queue = QUEUE_OUT;
    transfer->out_pending_bytes += block->page_bytes;
    if (urgent)
        ebb__list_push_front(transfer->table, &transfer->out.queue, index, LINK_QUEUE);
    else
        ebb__list_push_back(transfer->table, &transfer->out.queue, index, LINK_QUEUE);
    pthread_cond_signal(&transfer->out.work);
}

void ebb__move_unqueue_out(struct transfer *transfer, struct block *block)
{
    block->transfer.queue = QUEUE_NONE;
    transfer->out_pending_bytes -= block->page_bytes;
    ebb__list_remove(transfer->table, &transfer->out.queue,
                     ebb__block_index(transfer->table, block), LINK_QUEUE);
    pthread_cond_broadcast(&transfer->core->changed);
}

void ebb__move_queue_in(struct transfer *transfer, struct block *block, bool urgent)
{
    uint32_t index = ebb__block_index(transfer->table, block);
    if (block->transfer.queue == QUEUE_IN) {
        if (!urgent || block->transfer.urgent)
            return;
        ebb__list_remove(transfer->table, &transfer->in.queue, index, LINK_QUEUE);
    } else {
        block->transfer.queued_ns = ebb__now_ns();
    }
    block->transfer.queue = QUEUE_IN;
    block->transfer.urgent = urgent;
    if (urgent)
        ebb__list_push_front(transfer->table, &transfer->in.queue, index, LINK_QUEUE);
    else
        ebb__list_push_back(transfer->table, &transfer->in.queue, index, LINK_QUEUE);
    pthread_cond_broadcast(&transfer->in.work);
}

void ebb__move_call_back(struct transfer *transfer, struct block *block)
{
    if (block->state == BLOCK_WRITING_BACK) {
        ebb__block_cancel(block);
        pthread_cond_broadcast(&transfer->out.work);
    } else if (block->state == BLOCK_EVICTED) {
        ebb__move_queue_in(transfer, block, true);
    }
}

/* May the next queued fetch have memory now? If certainly not, its worker is not woken. Otherwise
 * each free would cost a system call until there is memory. */
static bool room_for_next(const struct transfer *transfer)
{
    if (transfer->in.queue.first == NO_BLOCK || transfer->in.current != NO_BLOCK)
        return false;
    const struct block *next = &transfer->table->blocks[transfer->in.queue.first];
    return next->transfer.urgent || ebb__pages_available(transfer->memory) >= next->page_bytes;
}

void ebb__move_pages_came_free(struct transfer *transfer)
{
    ebb__pages_trim(transfer->memory);
    pthread_cond_broadcast(&transfer->core->changed);
    if (room_for_next(transfer))
        pthread_cond_signal(&transfer->in.work);
}

/* Takes the pages from a block, in its frames or else at its address. Pages inherited by fork are
 * released, as they were never entered in the ledger. */
void ebb__move_give_pages(struct transfer *transfer, struct block *block)
{
    if (block->inherited) {
        uintptr_t where = block->frame ? block->frame : block->address;
        transfer->core->device.ops->release(transfer->core->device.state, where, block->page_bytes);
        give_frames(transfer, block);
    } else if (block->frame) {
        ebb__pages_give_frame(transfer->memory, block->frame, block->page_bytes);
        block->frame = 0;
    } else {
        ebb__pages_give(transfer->memory, block->address, block->page_bytes);
    }
    block->inherited = false;
}

void ebb__move_bury(struct transfer *transfer, struct block *block)
{
    ebb__move_give_pages(transfer, block);
    ebb__copy_drop(transfer->table, block);
    ebb__space_give(transfer->addresses, block);
    ebb__move_pages_came_free(transfer);
}

void ebb__move_discard(struct transfer *transfer, struct block *block)
{
    close_block(transfer, block);
    ebb__waits_fault_over(transfer->table, block);
    if (block->transfer.queue == QUEUE_OUT)
        ebb__move_unqueue_out(transfer, block);
    if (block->transfer.queue == QUEUE_IN) {
        ebb__list_remove(transfer->table, &transfer->in.queue,
                         ebb__block_index(transfer->table, block), LINK_QUEUE);
        block->transfer.queue = QUEUE_NONE;
    }
    switch (block->state) {
    case BLOCK_RESIDENT:
        ebb__copy_drop(transfer->table, block);
        if (block->kept) {
            ebb__keep_end(transfer->memory, block);
            ebb__space_give(transfer->addresses, block);
        } else if (block->kind == BLOCK_STATIC) {
            ebb__space_give(transfer->addresses, block);
        } else if (!block->inherited && block->kind != BLOCK_SLAB &&
                   ebb__part_is_whole(transfer->table, block)) {
            ebb__pages_keep_cached(transfer->memory, block);
        } else { /* parts are not cached: their addresses belong to a larger block */
            ebb__move_give_pages(transfer, block);
            ebb__space_give(transfer->addresses, block);
        }
        break;
    case BLOCK_PARKED:
        ebb__move_bury(transfer, block);
        break;
    case BLOCK_WRITING_BACK:
    case BLOCK_FETCHING:
        ebb__block_become(block, BLOCK_DYING); /* it is buried when the transfer ends */
        ebb__block_cancel(block);
        pthread_cond_broadcast(&transfer->out.work);
        pthread_cond_broadcast(&transfer->in.work);
        break;
    default: /* EVICTED, BARE */
        ebb__copy_drop(transfer->table, block);
        ebb__space_give(transfer->addresses, block);
        break;
    }
    ebb__move_pages_came_free(transfer);
}
