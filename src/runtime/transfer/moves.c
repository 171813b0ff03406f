/* The transitions of a block. Each is one function; nothing else sets block->state of a live one.
 *
 * A block's bytes are at one place at any time: in the arena (resident), in staging (parked,
 * leaving, coming), in the store (away). While it is leaving the staging pages are the truth and
 * nobody can write them, so nothing is ever torn; an access cancels. */
#include "runtime/internal.h"

#include "base/tuning.h"

#define XXH_INLINE_ALL
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wshadow"
#include <xxhash.h>
#pragma GCC diagnostic pop

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A second in all, far longer than any delay seen: a limit. */
#define UNPARK_TRIES 20000
#define UNPARK_PAUSE_US 50

/* Put the first `bytes` of the pages in its frames back to `address`; whatever happens, no byte may stay
 * behind while the block counts as resident. */
static void bring_back(struct ebb_runtime *runtime, struct block *block, uint64_t bytes)
{
    uint64_t moved, done = 0;
    enum ebb_device_result result = EBB_DEVICE_BUSY;
    for (int tries = 0; result == EBB_DEVICE_BUSY && tries < UNPARK_TRIES; tries++) {
        /* The kernel may hold on to pages for a moment: of a direct read that has returned, of a
         * huge page that is being split. */
        if (tries)
            usleep(UNPARK_PAUSE_US);
        result = ebb__pages_move(runtime, block->address + done, block->frame + done, bytes - done,
                                 &moved);
        done += moved;
    }
    if (result != EBB_DEVICE_OK && runtime->core.config.lost) {
        char message[160];
        snprintf(message, sizeof message,
                 "block %llu could not be put back: %llu of %llu bytes done, errno %d",
                 (unsigned long long)block->serial, (unsigned long long)done,
                 (unsigned long long)bytes, errno);
        runtime->core.config.lost(runtime->core.config.context, message);
    }
}

static void give_frames(struct ebb_runtime *runtime, struct block *block)
{
    if (block->frame)
        ebb__frames_give(&runtime->memory.frames, block->frame, block->page_bytes);
    block->frame = 0;
}

/* A thread may run on a stack in a block: what it stands on while it is here must stay. */
static bool is_stood_on(const struct block *block)
{
    return (uintptr_t)__builtin_frame_address(0) - block->address < block->page_bytes;
}

bool ebb__move_park(struct ebb_runtime *runtime, struct block *block)
{
    uint64_t moved = 0;
    bool stays = block->pins || block->kept || is_stood_on(block);
    block->frame = stays ? 0 : ebb__frames_take(&runtime->memory.frames, block->page_bytes);
    if (!block->frame || ebb__pages_move(runtime, block->frame, block->address, block->page_bytes,
                                         &moved) != EBB_DEVICE_OK) {
        if (moved)
            bring_back(runtime, block, moved);
        give_frames(runtime, block);
        block->pinned_until = runtime->uses.event_number + ebb__tuning()->pinned_events;
        atomic_fetch_add(&runtime->core.counters->busy_blocks, 1);
        return false;
    }
    ebb__block_become(block, BLOCK_PARKED);
    if (block->kind == BLOCK_SLAB)
        runtime->core.policy->slab_parked(runtime, block);
    return true;
}

void ebb__move_unpark(struct ebb_runtime *runtime, struct block *block)
{
    if (block->transfer.queue == QUEUE_OUT)
        ebb__move_unqueue_out(runtime, block);
    bring_back(runtime, block, block->page_bytes);
    give_frames(runtime, block);
    ebb__block_become(block, BLOCK_RESIDENT);
    block->transfer.urgent = false;
    if (block->kind == BLOCK_SLAB)
        runtime->core.policy->slab_back(runtime, block);
    uint64_t waited_ns = ebb__waits_fault_over(runtime, block);
    if (waited_ns)
        runtime->core.policy->was_late(runtime, block, waited_ns);
    pthread_cond_broadcast(&runtime->core.changed);
}

void ebb__move_touch(struct ebb_runtime *runtime, struct block *block)
{
    block->use.last = runtime->uses.event_number;
    block->use.touch = ++runtime->uses.touches;
    if (block->use.evicted_at == runtime->uses.event_number + 1)
        block->use.needed_at = runtime->uses.event_number + 1;
    if (!runtime->uses.trace || block->use.open ||
        runtime->uses.open_count == runtime->uses.open_capacity)
        return;
    block->use.open = true;
    runtime->uses.open_blocks[runtime->uses.open_count++] =
        ebb__block_index(&runtime->table, block);
}

static void close_block(struct ebb_runtime *runtime, struct block *block)
{
    for (uint32_t i = 0; block->use.open && i < runtime->uses.open_count; i++) {
        if (runtime->uses.open_blocks[i] == ebb__block_index(&runtime->table, block)) {
            runtime->uses.open_blocks[i] = runtime->uses.open_blocks[--runtime->uses.open_count];
            block->use.open = false;
        }
    }
    block->use.open = false;
}

void ebb__move_evict(struct ebb_runtime *runtime, struct block *block)
{
    if (block->kind != BLOCK_SLAB)
        atomic_fetch_add(&runtime->core.counters->reactive_evictions, 1);
    close_block(runtime, block);
    runtime->core.policy->evicting(runtime, block);
    block->use.evicted_at = runtime->uses.event_number + 1; /* + 1: 0 is never */
    ebb__move_queue_out(runtime, block, true);
}

void ebb__move_queue_out(struct ebb_runtime *runtime, struct block *block, bool urgent)
{
    uint32_t index = ebb__block_index(&runtime->table, block);
    block->transfer.queue = QUEUE_OUT;
    runtime->transfer.out_pending_bytes += block->page_bytes;
    if (urgent)
        ebb__list_push_front(&runtime->table, &runtime->transfer.out_queue, index, LINK_QUEUE);
    else
        ebb__list_push_back(&runtime->table, &runtime->transfer.out_queue, index, LINK_QUEUE);
    pthread_cond_signal(&runtime->transfer.out_work);
}

void ebb__move_unqueue_out(struct ebb_runtime *runtime, struct block *block)
{
    block->transfer.queue = QUEUE_NONE;
    runtime->transfer.out_pending_bytes -= block->page_bytes;
    ebb__list_remove(&runtime->table, &runtime->transfer.out_queue,
                     ebb__block_index(&runtime->table, block), LINK_QUEUE);
    pthread_cond_broadcast(&runtime->core.changed);
}

void ebb__move_queue_in(struct ebb_runtime *runtime, struct block *block, bool urgent)
{
    uint32_t index = ebb__block_index(&runtime->table, block);
    if (block->transfer.queue == QUEUE_IN) {
        if (!urgent || block->transfer.urgent)
            return;
        ebb__list_remove(&runtime->table, &runtime->transfer.in_queue, index, LINK_QUEUE);
    } else {
        block->transfer.queued_ns = ebb__now_ns();
    }
    block->transfer.queue = QUEUE_IN;
    block->transfer.urgent = urgent;
    if (urgent)
        ebb__list_push_front(&runtime->table, &runtime->transfer.in_queue, index, LINK_QUEUE);
    else
        ebb__list_push_back(&runtime->table, &runtime->transfer.in_queue, index, LINK_QUEUE);
    pthread_cond_broadcast(&runtime->transfer.in_work);
}

void ebb__move_call_back(struct ebb_runtime *runtime, struct block *block)
{
    if (block->state == BLOCK_WRITING_BACK) {
        block->transfer.cancelled = true;
        pthread_cond_broadcast(&runtime->transfer.out_work);
    } else if (block->state == BLOCK_EVICTED) {
        ebb__move_queue_in(runtime, block, true);
    }
}

/* The next block that comes back may have room now. Where it surely has not, its worker is not woken: a
 * free costs a system call then, and each one that follows until there is room. */
static bool room_for_next(const struct ebb_runtime *runtime)
{
    if (runtime->transfer.in_queue.first == NO_BLOCK || runtime->transfer.in_current != NO_BLOCK)
        return false;
    const struct block *next = &runtime->table.blocks[runtime->transfer.in_queue.first];
    return next->transfer.urgent || ebb__pages_available(runtime) >= next->page_bytes;
}

static void pages_came_free(struct ebb_runtime *runtime)
{
    ebb__pages_trim(runtime);
    pthread_cond_broadcast(&runtime->core.changed);
    if (room_for_next(runtime))
        pthread_cond_signal(&runtime->transfer.in_work);
}

/* The pages of a block, in its frames or else at its address, are not its own any more. Pages that
 * came with a fork were never entered in the ledger: they just go. */
static void give_pages(struct ebb_runtime *runtime, struct block *block)
{
    if (block->inherited) {
        uintptr_t where = block->frame ? block->frame : block->address;
        runtime->core.device.ops->release(runtime->core.device.state, where, block->page_bytes);
        give_frames(runtime, block);
    } else if (block->frame) {
        ebb__pages_give_frame(runtime, block->frame, block->page_bytes);
        block->frame = 0;
    } else {
        ebb__pages_give(runtime, block->address, block->page_bytes);
    }
    block->inherited = false;
}

static void hash_frames(const struct block *block, uint64_t hash[2])
{
    XXH128_hash_t value = XXH3_128bits((const void *)block->frame, (size_t)block->page_bytes);
    hash[0] = value.low64;
    hash[1] = value.high64;
}

/* PARKED -> EVICTED without a write: the store holds exactly these bytes. */
static void evict_clean(struct ebb_runtime *runtime, struct block *block)
{
    runtime->transfer.out_pending_bytes -= block->page_bytes;
    give_pages(runtime, block);
    ebb__block_become(block, BLOCK_EVICTED);
    atomic_fetch_add(&runtime->core.counters->dropped_bytes, block->page_bytes);
    pages_came_free(runtime);
}

bool ebb__move_start_out(struct ebb_runtime *runtime, struct block *block)
{
    ebb__list_remove(&runtime->table, &runtime->transfer.out_queue,
                     ebb__block_index(&runtime->table, block), LINK_QUEUE);
    block->transfer.queue = QUEUE_NONE;
    if (block->state == BLOCK_RESIDENT && !ebb__move_park(runtime, block)) {
        runtime->transfer.out_pending_bytes -= block->page_bytes;
        return false;
    }
    ebb__block_become(block, BLOCK_WRITING_BACK); /* from here an access cancels */
    block->transfer.cancelled = false;
    block->transfer.error = 0;
    block->transfer.chunk_bytes = 0;
    block->transfer.chunks_in_flight = 0;
    bool clean_candidate = block->copy.is_there && block->copy.is_hashed;
    uint64_t hash[2] = {0, 0};
    if (clean_candidate || runtime->core.config.verify) {
        runtime->transfer.transfers++;
        block->transfer.chunks_in_flight = 1;
        pthread_mutex_unlock(&runtime->core.lock);
        hash_frames(block, hash);
        pthread_mutex_lock(&runtime->core.lock);
        block->transfer.chunks_in_flight = 0;
        runtime->transfer.transfers--;
        if (block->state == BLOCK_DYING || block->transfer.cancelled) {
            ebb__move_finish_out(runtime, block);
            return false;
        }
        if (clean_candidate && hash[0] == block->copy.hash[0] && hash[1] == block->copy.hash[1]) {
            evict_clean(runtime, block);
            return false;
        }
        if (clean_candidate)
            runtime->core.policy->changed(runtime, block);
    }
    ebb__copy_drop(runtime, block);
    ebb__relatives_look(runtime, block->page_bytes);
    if (!ebb__extents_take(&runtime->copies.extents, block->page_bytes, &block->copy.offset)) {
        block->transfer.error = ENOSPC;
        ebb__move_finish_out(runtime, block);
        return false;
    }
    block->copy.is_there = true;
    block->copy.hash[0] = hash[0];
    block->copy.hash[1] = hash[1];
    block->copy.is_hashed = runtime->core.config.verify;
    block->copy.store = (uint8_t)runtime->copies.current;
    block->copy.generation = runtime->copies.relatives.newest;
    atomic_store(&runtime->core.counters->store_bytes, runtime->copies.extents.used_bytes);
    ebb__ledger_raise(&runtime->core.counters->store_peak_bytes,
                      runtime->copies.extents.peak_bytes);
    return true;
}

static void bury(struct ebb_runtime *runtime, struct block *block)
{
    give_pages(runtime, block);
    ebb__copy_drop(runtime, block);
    ebb__space_give(runtime, block);
    pages_came_free(runtime);
}

void ebb__move_finish_out(struct ebb_runtime *runtime, struct block *block)
{
    runtime->transfer.out_pending_bytes -= block->page_bytes;
    if (block->state == BLOCK_DYING) {
        bury(runtime, block);
        return;
    }
    if (block->transfer.error || block->transfer.cancelled) {
        if (block->transfer.error)
            ebb__store_fail(runtime, block->transfer.error);
        ebb__copy_drop(runtime, block);
        ebb__move_unpark(runtime, block);
        return;
    }
    atomic_fetch_add(&runtime->core.counters->moved_out_bytes, block->page_bytes);
    give_pages(runtime, block);
    ebb__block_become(block, BLOCK_EVICTED);
    block->copy.stays = false;
    ebb__store_worked(runtime);
    pages_came_free(runtime);
}

bool ebb__move_start_in(struct ebb_runtime *runtime, struct block *block)
{
    ebb__list_remove(&runtime->table, &runtime->transfer.in_queue,
                     ebb__block_index(&runtime->table, block), LINK_QUEUE);
    block->transfer.queue = QUEUE_NONE;
    block->transfer.lacked_room =
        block->transfer.gave_way || runtime->transfer.no_room_ns > block->transfer.queued_ns;
    block->transfer.gave_way = false;
    block->wait.asking.since_ns = 0;
    if (block->state == BLOCK_BARE) {
        ebb__block_become(block, BLOCK_RESIDENT);
        block->transfer.urgent = false;
        ebb__waits_fault_over(runtime, block);
        pthread_cond_broadcast(&runtime->core.changed);
        return false;
    }
    ebb__block_become(block, BLOCK_FETCHING);
    block->transfer.cancelled = false;
    block->transfer.error = 0;
    block->transfer.chunk_bytes = 0;
    block->transfer.chunks_in_flight = 0;
    return true;
}

/* The only copy of a block cannot be had, or is not what was written. Where no access waits for it yet
 * that is not the end: it may be had later, or never be asked for. */
static void read_failed(struct ebb_runtime *runtime, struct block *block)
{
    const char *why = block->transfer.error == EILSEQ ? "it is not what was written"
                                                      : strerrordesc_np(block->transfer.error);
    char message[200];
    snprintf(message, sizeof message,
             "block %llu (%llu bytes) cannot be read back from the store: %s (%d); its only copy "
             "is lost",
             (unsigned long long)block->serial, (unsigned long long)block->size_bytes,
             why ? why : "error", block->transfer.error);
    atomic_store(&runtime->core.counters->store_error, (uint32_t)block->transfer.error);
    /* The pages go, the block stays away: no byte of it is ever shown. */
    give_pages(runtime, block);
    ebb__block_become(block, BLOCK_EVICTED);
    pthread_cond_broadcast(&runtime->core.changed);
    if (ebb__waits_fault_over(runtime, block) && runtime->core.config.lost)
        runtime->core.config.lost(runtime->core.config.context, message);
}

void ebb__move_give_up(struct ebb_runtime *runtime, struct block *block)
{
    block->transfer.given_up = block->transfer.cancelled = true;
    runtime->transfer.out_pending_bytes += block->page_bytes;
}

/* Freed while it came; or given up: the store's copy is what it was, so it is away as if it had never
 * been sent for, and is sent for again. */
static void end_early(struct ebb_runtime *runtime, struct block *block)
{
    if (block->transfer.given_up)
        runtime->transfer.out_pending_bytes -= block->page_bytes;
    block->transfer.given_up = false;
    if (block->state == BLOCK_DYING) {
        bury(runtime, block);
        return;
    }
    give_pages(runtime, block);
    ebb__block_become(block, BLOCK_EVICTED);
    block->transfer.cancelled = false;
    ebb__move_queue_in(runtime, block, block->transfer.urgent || block->wait.fault_ns);
    pages_came_free(runtime);
}

void ebb__move_finish_in(struct ebb_runtime *runtime, struct block *block)
{
    if (block->state == BLOCK_DYING || block->transfer.given_up) {
        end_early(runtime, block);
        return;
    }
    if (block->transfer.error) {
        read_failed(runtime, block);
        return;
    }
    atomic_fetch_add(&runtime->core.counters->moved_in_bytes, block->page_bytes);
    bool keeps = block->copy.stays && ebb__relatives_wrote(&runtime->copies, block);
    if (runtime->core.config.verify || keeps) {
        /* Now, while nobody can write it, and before the program sees it. */
        runtime->transfer.transfers++;
        pthread_mutex_unlock(&runtime->core.lock);
        uint64_t hash[2];
        hash_frames(block, hash);
        pthread_mutex_lock(&runtime->core.lock);
        runtime->transfer.transfers--;
        if (block->state == BLOCK_DYING || block->transfer.given_up) {
            end_early(runtime, block);
            return;
        }
        if (runtime->core.config.verify && block->copy.is_hashed &&
            (hash[0] != block->copy.hash[0] || hash[1] != block->copy.hash[1])) {
            block->transfer.error = EILSEQ;
            read_failed(runtime, block);
            return;
        }
        block->copy.hash[0] = hash[0];
        block->copy.hash[1] = hash[1];
        block->copy.is_hashed = true;
    }
    if (!keeps)
        ebb__copy_drop(runtime, block);
    if (block->transfer.urgent || block->wait.fault_ns ||
        !runtime->core.policy->is_awaited(runtime, block)) {
        ebb__move_unpark(runtime, block);
        return;
    }
    ebb__block_become(block, BLOCK_PARKED); /* its next use is the clock */
    pthread_cond_broadcast(&runtime->core.changed);
}

void ebb__move_discard(struct ebb_runtime *runtime, struct block *block)
{
    close_block(runtime, block);
    ebb__waits_fault_over(runtime, block);
    if (block->transfer.queue == QUEUE_OUT)
        ebb__move_unqueue_out(runtime, block);
    if (block->transfer.queue == QUEUE_IN) {
        ebb__list_remove(&runtime->table, &runtime->transfer.in_queue,
                         ebb__block_index(&runtime->table, block), LINK_QUEUE);
        block->transfer.queue = QUEUE_NONE;
    }
    switch (block->state) {
    case BLOCK_RESIDENT:
        ebb__copy_drop(runtime, block);
        if (block->kept) {
            ebb__keep_end(runtime, block);
            ebb__space_give(runtime, block);
        } else if (block->kind == BLOCK_STATIC) {
            ebb__space_give(runtime, block);
        } else if (!block->inherited && block->kind != BLOCK_SLAB &&
                   ebb__part_is_whole(runtime, block)) {
            ebb__pages_keep_cached(runtime, block);
        } else { /* of a part nothing is kept: what began there would be no block of its own */
            give_pages(runtime, block);
            ebb__space_give(runtime, block);
        }
        break;
    case BLOCK_PARKED:
        bury(runtime, block);
        break;
    case BLOCK_WRITING_BACK:
    case BLOCK_FETCHING:
        ebb__block_become(block, BLOCK_DYING); /* the transfer ends, then it is buried */
        block->transfer.cancelled = true;
        pthread_cond_broadcast(&runtime->transfer.out_work);
        pthread_cond_broadcast(&runtime->transfer.in_work);
        break;
    default: /* EVICTED, BARE */
        ebb__copy_drop(runtime, block);
        ebb__space_give(runtime, block);
        break;
    }
    pages_came_free(runtime);
}
