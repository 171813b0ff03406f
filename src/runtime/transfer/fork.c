/* Before a fork, transfers end and all parked blocks are unparked. So none exist while memory is
 * copied. */
#include "runtime/transfer/transfer.h"

#include "base/tuning.h"

void ebb__transfer_init(struct transfer *transfer, struct memory *memory)
{
    transfer->core = memory->core;
    transfer->table = memory->table;
    transfer->addresses = memory->addresses;
    transfer->memory = memory;
    ebb__lanes_init(transfer);
}

bool ebb__transfer_before_fork(struct transfer *transfer)
{
    bool is_read = false;
    transfer->phase = LANES_FROZEN;
    ebb__lanes_wake(transfer);
    while (transfer->out.current != NO_BLOCK || transfer->in.current != NO_BLOCK ||
           transfer->transfers || transfer->store.state == STORE_OPENING)
        pthread_cond_wait(&transfer->core->changed, &transfer->core->lock);
    for (uint32_t i = 1; i <= transfer->table->count; i++) {
        struct block *block = &transfer->table->blocks[i];
        if (block->state == BLOCK_PARKED)
            ebb__move_unpark(transfer, block);
        /* A child would share the store's space, which is worth more than a copy of a resident
         * block. */
        if (block->state != BLOCK_EVICTED)
            ebb__copy_drop(transfer->table, block);
        is_read |= block->copy.is_there && ebb__relatives_wrote(&transfer->table->copies, block);
        block->copy.stays = block->copy.is_hashed = false;
    }
    return is_read;
}

void ebb__transfer_after_fork(struct transfer *transfer)
{
    transfer->phase = LANES_RUN;
    transfer->observe_ns = ebb__now_ns() + ebb__tuning()->fork_observe_ns;
    ebb__lanes_wake(transfer);
}

void ebb__transfer_forked(struct transfer *transfer)
{
    ebb__lanes_init(transfer);
    transfer->phase = LANES_RUN;
    transfer->observe_ns = 0;
    transfer->room_waits = 0;
    transfer->out_pending_bytes = 0;
    ebb__store_forked(transfer);
}
