/* Observation: blocks used since the last event are parked at each event, so that their next use is
 * seen as a fault. */
#include "runtime/transfer/transfer.h"

#include "base/tuning.h"

void ebb__observe_close(struct transfer *transfer)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < transfer->table->uses.open_count; i++) {
        struct block *block = &transfer->table->blocks[transfer->table->uses.open_blocks[i]];
        block->use.open = false;
        if (block->state == BLOCK_RESIDENT && !ebb__move_park(transfer, block)) {
            block->use.open =
                true; /* pinned: its next use is not seen; try again at the next event */
            transfer->table->uses.open_blocks[kept++] = transfer->table->uses.open_blocks[i];
        }
    }
    transfer->table->uses.open_count = kept;
}

uint64_t ebb__observe_forked(struct transfer *transfer, uint64_t now_ns)
{
    if (now_ns < transfer->observe_ns)
        return transfer->observe_ns;
    bool is_due = transfer->observe_ns && transfer->table->uses.trace;
    transfer->observe_ns = 0;
    for (uint32_t i = 1; is_due && i <= transfer->table->count; i++) {
        struct block *block = &transfer->table->blocks[i];
        if (block->state == BLOCK_RESIDENT && !block->use.open &&
            block->transfer.queue != QUEUE_OUT && block->kind != BLOCK_STATIC &&
            block->kind != BLOCK_SLAB)
            ebb__move_park(transfer, block);
    }
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
    ebb__observe_begin(transfer, now);
    if (transfer->table->uses.trace)
        ebb__observe_close(transfer);
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
