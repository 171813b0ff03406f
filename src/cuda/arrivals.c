/* Arrivals: the lane tells how far it is, by a counter that it writes, or by an event. */
#include "cuda/mover_internal.h"

/* On a device that has failed, what is queued never runs. Each call there says so. */
static bool has_failed(const struct cuda_mover *mover)
{
    CUresult result = mover->driver->cuStreamQuery(mover->lanes.in);
    return result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
}

/* The lane may stand behind a stream that waits for it, if bytes are right where they are. */
static bool may_give_up_lane(const struct cuda_mover *mover)
{
    const struct ebb_cuda_backing_ops *ops = mover->config.backing->ops;
    return (ops->can_evict && ops->is_coherent) || has_failed(mover);
}

static void give_up_lane(struct cuda_mover *mover, uint32_t newest)
{
    mover->patience.has_given_up = true;
    mover->patience.is_lane_behind =
        !mover->lanes.can_write ||
        mover->driver->cuEventRecord(mover->lanes.in_event, mover->lanes.in) == CUDA_SUCCESS;
    mover->patience.given_up = newest;
    atomic_fetch_add(&mover->patience.ends, 1);
    atomic_store(mover->lanes.flag, newest);
}

/* Without writes on the lane, an event tells that its transfers are over. */
static void write_from_host(struct cuda_mover *mover, uint32_t arrival)
{
    if (mover->lanes.is_in_event_recorded) {
        if (mover->driver->cuEventQuery(mover->lanes.in_event) == CUDA_ERROR_NOT_READY)
            return;
        mover->lanes.is_in_event_recorded = false;
    } else {
        mover->driver->cuStreamSynchronize(mover->lanes.in);
    }
    if (!ebb__arrival_reached(atomic_load(mover->lanes.flag), arrival))
        atomic_store(mover->lanes.flag, arrival);
}

bool ebb__mover_step_arrivals(struct cuda_mover *mover)
{
    pthread_mutex_lock(&mover->lock);
    bool pending = mover->queues.in.first < mover->queues.in.issued;
    uint32_t oldest =
        pending ? ebb__queue_at(&mover->queues.in, mover->queues.in.first)->arrival : 0;
    uint32_t newest =
        pending ? ebb__queue_at(&mover->queues.in, mover->queues.in.issued - 1)->arrival : 0;
    pthread_mutex_unlock(&mover->lock);
    if (mover->patience.has_given_up &&
        !ebb__arrival_reached(atomic_load(mover->lanes.flag), mover->patience.given_up))
        atomic_store(mover->lanes.flag,
                     mover->patience.given_up); /* the lane has written an older one */
    if (!pending)
        return false;
    if (!mover->lanes.can_write)
        write_from_host(mover, oldest);
    if (!ebb__arrival_reached(atomic_load(mover->lanes.flag), oldest)) {
        if (ebb__mover_is_impatient(mover) && may_give_up_lane(mover))
            give_up_lane(mover, newest);
        return false;
    }
    pthread_mutex_lock(&mover->lock);
    while (mover->queues.in.first < mover->queues.in.issued &&
           ebb__arrival_reached(atomic_load(mover->lanes.flag),
                                ebb__queue_at(&mover->queues.in, mover->queues.in.first)->arrival))
        mover->queues.in.first++;
    pthread_mutex_unlock(&mover->lock);
    ebb__mover_progress(mover);
    return true;
}
