/* Observation: blocks that were used are parked, so that their next use is seen as a fault.
 *
 * A block stays open, which is not observed, until others of some size have been used after it. No
 * plan lets a block leave for so short a time, and most uses follow another use of the same block
 * at once. What it costs to observe falls to a fifth. When it is parked, it may just have been
 * used, and an event says so. Without a budget, and if the parent asks for it, blocks are parked
 * at the next event, and each use is seen. */
#include "runtime/transfer/transfer.h"

#include "base/tuning.h"

#include <string.h>

/* How many bytes of other blocks are used before a block is observed again. */
static uint64_t held_open_bytes(const struct transfer *transfer)
{
    uint64_t budget =
        atomic_load_explicit(&transfer->core->ledger->budget_bytes, memory_order_relaxed);
    bool exactly = transfer->table->uses.exactly || budget == UINT64_MAX;
    return exactly ? 0 : budget / (uint64_t)ebb__tuning()->observe_divisor;
}

bool ebb__observe_is_coarse(const struct transfer *transfer)
{
    return transfer->table->uses.trace && held_open_bytes(transfer) > 0;
}

void ebb__observe_access(struct transfer *transfer, const struct block *block,
                         enum ebb_access_kind access, uint8_t flags)
{
    const struct block *head = &transfer->table->blocks[block->run.head];
    struct ebb_event event = {
        .block = block->serial,
        .size_bytes = head->size_bytes,
        .kind = EBB_EVENT_ACCESS,
        .access = (uint8_t)access,
        .flags = flags,
    };
    if (!ebb__part_is_large(transfer->table, ebb__whole_pages(head->size_bytes))) {
        ebb__core_event(transfer->core, &event);
        return;
    }
    /* One event per unit of the part. If the part was absent, one event for all of it. */
    uint64_t first = block->address - head->address;
    event.flags |= EBB_EVENT_PART;
    for (uint64_t unit = flags & EBB_EVENT_DEMAND ? block->run.units : 1; unit <= block->run.units;
         unit++) {
        uint64_t end = first + unit * EBB_HUGE_BYTES;
        event.size_bytes = end < head->size_bytes ? end : head->size_bytes;
        ebb__core_event(transfer->core, &event);
    }
}

void ebb__observe_last_use(struct transfer *transfer, const struct block *block)
{
    const struct uses *uses = &transfer->table->uses;
    if (uses->trace && block->use.open && block->use.last < uses->event_number)
        ebb__observe_access(transfer, block, EBB_ACCESS_READ, 0);
}

/* Observes the open blocks again behind which `held_bytes` have been opened. */
static void close_behind(struct transfer *transfer, uint64_t held_bytes)
{
    struct uses *uses = &transfer->table->uses;
    uint32_t kept = 0, at = 0;
    for (; at < uses->open_count; at++) {
        struct block *block = &transfer->table->blocks[uses->open_blocks[at]];
        if (uses->opened_bytes - block->use.opened_at < held_bytes)
            break;                            /* and the later ones, too */
        if (block->state == BLOCK_RESIDENT) { /* else a plan has let it leave */
            if (!ebb__move_park(transfer, block)) {
                /* pinned: its next use is not seen; try again at the next event */
                uses->open_blocks[kept++] = uses->open_blocks[at];
                continue;
            }
            ebb__observe_last_use(transfer, block);
        }
        block->use.open = false;
    }
    memmove(&uses->open_blocks[kept], &uses->open_blocks[at],
            (uses->open_count - at) * sizeof *uses->open_blocks);
    uses->open_count -= at - kept;
}

/* Observes the blocks again that a fork has made resident. */
static void park_again(struct transfer *transfer)
{
    bool is_due = transfer->observe_ns && transfer->table->uses.trace;
    transfer->observe_ns = 0;
    for (uint32_t i = 1; is_due && i <= transfer->table->count; i++) {
        struct block *block = &transfer->table->blocks[i];
        if (block->state == BLOCK_RESIDENT && !block->use.open &&
            block->transfer.queue != QUEUE_OUT && block->kind != BLOCK_STATIC &&
            block->kind != BLOCK_SLAB)
            ebb__move_park(transfer, block);
    }
}

void ebb__observe_close(struct transfer *transfer)
{
    uint64_t began_ns = ebb__now_ns();
    park_again(transfer); /* all workers are forked: the program works again */
    close_behind(transfer, held_open_bytes(transfer));
    ebb__progress_observed(transfer->core, ebb__now_ns() - began_ns, 0);
}

uint64_t ebb__observe_forked(struct transfer *transfer, uint64_t now_ns)
{
    if (now_ns < transfer->observe_ns)
        return transfer->observe_ns;
    park_again(transfer);
    return 0;
}

void ebb__observe_begin(struct transfer *transfer, uint64_t now_ns)
{
    transfer->table->uses.event_number++;
    transfer->table->uses.operation_ns = now_ns;
    transfer->table->uses.pause_faults = 0;
    if (transfer->table->uses.blind_until)
        ebb__observe_note(transfer);
    if (!ebb__store_may_write(&transfer->store))
        ebb__store_retry(transfer, now_ns);
}

bool ebb__observe_pause(struct transfer *transfer)
{
    uint64_t now = ebb__now_ns(), since = now - transfer->table->uses.operation_ns;
    transfer->table->uses.pause_faults += transfer->table->uses.trace;
    if (since < transfer->core->config.pause_ns ||
        since - transfer->core->config.pause_ns <
            transfer->table->uses.pause_faults * ebb__tuning()->pause_a_fault_ns)
        return false;
    /* First: what was used in the operation that ends was not used in the next one. */
    if (transfer->table->uses.trace)
        close_behind(transfer, 0);
    ebb__observe_begin(transfer, now);
    return true;
}

void ebb__observe_note(struct transfer *transfer)
{
    if (transfer->addresses->placement.load_bytes &&
        transfer->table->uses.event_number < transfer->table->uses.blind_until)
        return;
    transfer->table->uses.blind_until = 0;
    ebb__core_mark(transfer->core, EBB_MARK_TRACE_ON, 0);
}
