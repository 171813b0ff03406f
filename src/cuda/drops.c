/* The steps of dead bytes that leave at once: their pages are unmapped, or host memory is released.
 * They wait for the work that used them, and for requests that concern the same units. */
#include "cuda/mover_internal.h"

#define MOST_TRIES 3u

/* The oldest request, if no earlier one that concerns its units is under way. */
static bool next(struct cuda_mover *mover, struct cuda_move *move)
{
    pthread_mutex_lock(&mover->lock);
    bool found = mover->queues.drop.first < mover->queues.drop.last;
    if (found)
        *move = *ebb__queue_at(&mover->queues.drop, mover->queues.drop.first);
    found = found && ebb__mover_may_begin(mover, move);
    pthread_mutex_unlock(&mover->lock);
    return found;
}

static void leave(struct cuda_mover *mover, uint8_t kind, uint32_t first, uint32_t count)
{
    struct ebb_cuda_backing *backing = mover->config.backing;
    CUdeviceptr address = ebb__table_address(mover->config.table, first);
    uint64_t bytes = ebb__unit_bytes(count);
    CUresult result = CUDA_ERROR_UNKNOWN;
    for (unsigned i = 0; i < MOST_TRIES && result != CUDA_SUCCESS; i++)
        result = kind == CUDA_MOVE_DROP
                     ? backing->ops->drop(backing, address, bytes, mover->lanes.out)
                     : backing->ops->forget(backing, address, bytes, mover->lanes.out);
    if (result == CUDA_SUCCESS)
        ebb__mover_has_left(mover, kind, first, count);
    else if (kind == CUDA_MOVE_DROP)
        ebb__mover_stays(mover, first, count);
}

static void leave_all(struct cuda_mover *mover, const struct cuda_move *move, enum cuda_real real,
                      uint8_t kind)
{
    uint32_t count, last = move->first + move->count;
    for (uint32_t first = move->first;; first += count) {
        first = ebb__mover_find_run(mover, first, last, real, true, &count);
        if (!count)
            return;
        if (kind == CUDA_MOVE_DROP)
            count = ebb__mover_piece(mover, first, count);
        leave(mover, kind, first, count);
    }
}

bool ebb__mover_step_drop(struct cuda_mover *mover)
{
    struct cuda_move move;
    if (!next(mover, &move) || !ebb__mover_are_over(mover, &move))
        return false;
    /* Of an absent block, too: some pages are still there if the driver refused to evict them. */
    leave_all(mover, &move, CUDA_REAL_DEVICE, CUDA_MOVE_DROP);
    leave_all(mover, &move, CUDA_REAL_HOST, CUDA_MOVE_FORGET);
    ebb__mover_out_is_over(mover, &mover->queues.drop, &move);
    return true;
}
