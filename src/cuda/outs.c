/* The steps of *outs*: pieces leave, several at a time if the backing can. */
#include "cuda/mover_internal.h"

/* ---- a piece has left ------------------------------------------------------------------------ */

static void count_out(struct cuda_mover *mover, uint8_t kind, uint64_t bytes)
{
    struct ebb_cuda_backing *backing = mover->config.backing;
    uint64_t added = kind == CUDA_MOVE_EVICT    ? bytes
                     : kind == CUDA_MOVE_FORGET ? (uint64_t)0 - bytes
                                                : 0;
    if (kind == CUDA_MOVE_EVICT) {
        atomic_fetch_add(&mover->counters->moved_out_bytes, bytes);
        atomic_fetch_add(&mover->counters->out_lane_bytes, bytes);
    }
    if (kind == CUDA_MOVE_FORGET && !backing->ops->takes_parts)
        ebb__away_give(&backing->away, bytes);
    uint64_t host = atomic_fetch_add(&backing->host_bytes, added) + added;
    atomic_store(&mover->counters->store_bytes, host);
    ebb__ledger_raise(&mover->counters->store_peak_bytes, host);
}

void ebb__mover_has_left(struct cuda_mover *mover, uint8_t kind, uint32_t first, uint32_t count)
{
    bool is_kept = kind == CUDA_MOVE_EVICT, is_stray = false;
    for (uint32_t i = 0; i < count; i++) {
        is_stray |= mover->units[first + i].is_stray;
        mover->units[first + i].real = is_kept ? CUDA_REAL_HOST : CUDA_REAL_NOWHERE;
        ebb__mover_unstick(mover, first + i);
    }
    if (is_kept && is_stray) /* it is used although it leaves */
        ebb__mover_serve(mover, first, count, true);
    count_out(mover, kind, ebb__unit_bytes(count));
    if (kind != CUDA_MOVE_FORGET)
        ebb__mover_give_bytes(mover, ebb__unit_bytes(count));
    mover->patience.is_hasty = false;
    ebb__mover_progress(mover);
}

static void note_left(struct cuda_mover *mover, const struct cuda_flight *flight)
{
    pthread_mutex_lock(&mover->lock);
    struct cuda_move *move = ebb__queue_find(&mover->queues.out, flight->number);
    if (move && !move->is_dead) {
        move->left += flight->count;
        atomic_fetch_sub(&mover->leaving_units, flight->count);
    }
    pthread_mutex_unlock(&mover->lock);
}

/* Is the lane past it? */
static bool is_past(const struct cuda_mover *mover, struct cuda_flight *flight, bool *has_failed)
{
    if (!flight->is_fed)
        return mover->driver->cuEventQuery(flight->event) != CUDA_ERROR_NOT_READY;
    uint8_t state = atomic_load_explicit(&flight->feed.state, memory_order_acquire);
    *has_failed = state == CUDA_FEED_FAILED;
    return state != CUDA_FEED_WAITS;
}

/* The oldest piece on its way, if the lane is past it. */
bool ebb__mover_land(struct cuda_mover *mover)
{
    const struct ebb_cuda_backing_ops *ops = mover->config.backing->ops;
    struct cuda_flights *flights = &mover->moving.flights;
    struct cuda_flight *flight = &flights->items[flights->first];
    CUdeviceptr address;
    bool has_failed = false;
    if (!flights->count || !is_past(mover, flight, &has_failed))
        return false;
    address = ebb__table_address(mover->config.table, flight->first);
    if (flight->kind == CUDA_MOVE_EVICT && ops->evicted &&
        ops->evicted(mover->config.backing, address, ebb__unit_bytes(flight->count), !has_failed) !=
            CUDA_SUCCESS)
        ebb__mover_stays(mover, flight->first, flight->count);
    else
        ebb__mover_has_left(mover, flight->kind, flight->first, flight->count);
    if (flight->kind == CUDA_MOVE_EVICT)
        note_left(mover, flight);
    flights->first = ebb__flight_at(flights, 1);
    flights->count--;
    return true;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* All *outs* before the oldest one that waits are over. */
static uint64_t outs_over(const struct cuda_mover *mover)
{
    uint64_t out = ebb__queue_oldest(&mover->queues.out);
    uint64_t drop = ebb__queue_oldest(&mover->queues.drop);
    uint64_t oldest = out < drop ? out : drop, newest = mover->moving.newest_out_over;
    return oldest <= newest ? oldest - 1 : newest;
}

void ebb__mover_out_is_over(struct cuda_mover *mover, struct cuda_queue *queue,
                            const struct cuda_move *move)
{
    ebb__mover_release_events(mover, move);
    if (move->kind == CUDA_MOVE_EVICT)
        atomic_fetch_sub(&mover->leaving_units, move->count - move->left);
    pthread_mutex_lock(&mover->lock);
    queue->first++;
    if (move->number > mover->moving.newest_out_over)
        mover->moving.newest_out_over = move->number;
    atomic_store_explicit(&mover->outs_over, outs_over(mover), memory_order_release);
    pthread_mutex_unlock(&mover->lock);
}

/* The oldest request, if all of its pieces have left. */
static bool finish(struct cuda_mover *mover)
{
    const struct cuda_flights *flights = &mover->moving.flights;
    struct cuda_move move;
    pthread_mutex_lock(&mover->lock);
    bool found = mover->queues.out.first < mover->queues.out.issued;
    if (found)
        move = *ebb__queue_at(&mover->queues.out, mover->queues.out.first);
    pthread_mutex_unlock(&mover->lock);
    if (!found || (flights->count && flights->items[flights->first].number == move.number))
        return false;
    ebb__mover_out_is_over(mover, &mover->queues.out, &move);
    return true;
}

/* The first request that waits, if none before it with its units is under way. */
static bool next(struct cuda_mover *mover, struct cuda_move *move)
{
    pthread_mutex_lock(&mover->lock);
    bool found = mover->queues.out.issued < mover->queues.out.last;
    if (found)
        *move = *ebb__queue_at(&mover->queues.out, mover->queues.out.issued);
    found = found && ebb__mover_may_begin(mover, move);
    pthread_mutex_unlock(&mover->lock);
    return found;
}

static void issue(struct cuda_mover *mover)
{
    pthread_mutex_lock(&mover->lock);
    mover->queues.out.issued++;
    pthread_mutex_unlock(&mover->lock);
}

/* ---- a piece leaves -------------------------------------------------------------------------- */

/* The counter of arrivals has told so already, but the driver does not know what it means. */
static void order_lanes(struct cuda_mover *mover)
{
    const struct ebb_cuda_driver *driver = mover->driver;
    if (driver->cuEventRecord(mover->lanes.between, mover->lanes.in) == CUDA_SUCCESS)
        driver->cuStreamWaitEvent(mover->lanes.out, mover->lanes.between, 0);
}

static CUresult move_out(struct cuda_mover *mover, const struct cuda_move *move,
                         struct cuda_flight *flight)
{
    const struct cuda_side *side = &mover->moving.out;
    struct ebb_cuda_backing *backing = mover->config.backing;
    CUdeviceptr first = ebb__table_address(mover->config.table, side->piece_first);
    uint64_t bytes = ebb__unit_bytes(side->piece_count);
    flight->is_fed = move->kind == CUDA_MOVE_EVICT && backing->ops->out_bytes;
    if (flight->is_fed) {
        flight->feed.from = first;
        flight->feed.bytes = bytes;
        return backing->ops->evict_to(backing, first, bytes, &flight->feed.to);
    }
    if (move->kind != CUDA_MOVE_EVICT)
        order_lanes(mover);
    if (move->kind == CUDA_MOVE_DROP)
        return backing->ops->drop(backing, first, bytes, mover->lanes.out);
    if (move->kind == CUDA_MOVE_FORGET)
        return backing->ops->forget(backing, first, bytes, mover->lanes.out);
    if (backing->ops->is_coherent)
        ebb__mover_busy(mover, &mover->lanes.busy.out);
    return backing->ops->evict(backing, first, bytes, mover->lanes.out);
}

static void skip_piece(struct cuda_side *side, const struct cuda_move *move)
{
    side->done = side->piece_first + side->piece_count - move->first;
    side->failures = 0;
}

/* Is there host memory for the piece, beside what is on its way there? */
static bool has_host(const struct cuda_mover *mover, uint32_t count)
{
    const struct cuda_flights *flights = &mover->moving.flights;
    uint64_t budget = mover->config.engine->host_budget_bytes;
    uint64_t bytes = atomic_load(&mover->config.backing->host_bytes) + ebb__unit_bytes(count);
    for (uint32_t i = 0; i < flights->count; i++) {
        const struct cuda_flight *flight = &flights->items[ebb__flight_at(flights, i)];
        if (flight->kind == CUDA_MOVE_EVICT)
            bytes += ebb__unit_bytes(flight->count);
    }
    return bytes <= budget;
}

/* Does the mover enter what the request takes of host memory? */
static bool is_entered(const struct cuda_mover *mover, const struct cuda_move *move)
{
    return move->kind == CUDA_MOVE_EVICT && !mover->config.backing->ops->takes_parts;
}

static bool take_host(struct cuda_mover *mover, const struct cuda_move *move, uint32_t count)
{
    if (move->kind == CUDA_MOVE_EVICT && !has_host(mover, count))
        return false;
    return !is_entered(mover, move) ||
           ebb__away_take(&mover->config.backing->away, ebb__unit_bytes(count));
}

static bool start(struct cuda_mover *mover, const struct cuda_move *move)
{
    struct cuda_side *side = &mover->moving.out;
    struct cuda_flights *flights = &mover->moving.flights;
    struct cuda_flight *flight = &flights->items[ebb__flight_at(flights, flights->count)];
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (take_host(mover, move, side->piece_count)) {
        result = move_out(mover, move, flight);
        if (result != CUDA_SUCCESS && is_entered(mover, move))
            ebb__away_give(&mover->config.backing->away, ebb__unit_bytes(side->piece_count));
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY && move->kind == CUDA_MOVE_EVICT &&
        !ebb__mover_is_settled(mover, move->number))
        return false;
    if (result != CUDA_SUCCESS) {
        if (++side->failures < 3)
            return false;
        if (move->kind != CUDA_MOVE_FORGET)
            ebb__mover_stays(mover, side->piece_first, side->piece_count);
        skip_piece(side, move);
        return true;
    }
    if (move->kind == CUDA_MOVE_EVICT)
        ebb__mover_busy(mover, &mover->lanes.busy.out);
    flight->number = move->number;
    flight->first = side->piece_first;
    flight->count = side->piece_count;
    flight->kind = move->kind;
    flights->count++;
    if (flight->is_fed)
        ebb__feeder_add(&mover->lanes.feeder, &flight->feed);
    else if (mover->driver->cuEventRecord(flight->event, mover->lanes.out) != CUDA_SUCCESS)
        mover->driver->cuStreamSynchronize(mover->lanes.out);
    skip_piece(side, move);
    return true;
}

/* The next units of the request that have something to leave. False: none. */
static bool find_piece(struct cuda_mover *mover, const struct cuda_move *move)
{
    struct cuda_side *side = &mover->moving.out;
    uint32_t first = move->first + side->done, last = move->first + move->count;
    bool is_forget = move->kind == CUDA_MOVE_FORGET;
    if (move->is_dead)
        return false;
    side->piece_first =
        ebb__mover_find_run(mover, first, last, is_forget ? CUDA_REAL_HOST : CUDA_REAL_DEVICE, true,
                            &side->piece_count);
    if (!is_forget && side->piece_count)
        side->piece_count = ebb__mover_piece(mover, side->piece_first, side->piece_count);
    return side->piece_count > 0;
}

/* Is the next piece on its way already? So it is if an earlier EVICT leaves late, since the FETCH
 * between them has given up. */
static bool is_leaving(const struct cuda_mover *mover)
{
    const struct cuda_side *side = &mover->moving.out;
    const struct cuda_flights *flights = &mover->moving.flights;
    for (uint32_t i = 0; i < flights->count; i++) {
        const struct cuda_flight *flight = &flights->items[ebb__flight_at(flights, i)];
        if (flight->first < side->piece_first + side->piece_count &&
            side->piece_first < flight->first + flight->count)
            return true;
    }
    return false;
}

/* Is a transfer still queued that was given up? It would bring back what leaves now. The lanes are
 * not ordered instead: a prefetch to the host may hold the mover until it runs. */
static bool is_lane_behind(struct cuda_mover *mover)
{
    struct cuda_patience *patience = &mover->patience;
    if (patience->is_lane_behind)
        patience->is_lane_behind =
            mover->driver->cuEventQuery(mover->lanes.in_event) == CUDA_ERROR_NOT_READY;
    return patience->is_lane_behind;
}

bool ebb__mover_step_out(struct cuda_mover *mover)
{
    struct cuda_side *side = &mover->moving.out;
    struct cuda_move move;
    bool did = ebb__mover_land(mover);
    did |= finish(mover);
    if (mover->moving.flights.count == mover->moving.flights.most || !next(mover, &move))
        return did;
    if (side->number != move.number)
        *side = (struct cuda_side){.number = move.number};
    if (!find_piece(mover, &move)) {
        issue(mover);
        return true;
    }
    if (move.kind == CUDA_MOVE_EVICT && (!ebb__mover_may_move(mover) || is_lane_behind(mover)))
        return did;
    if (is_leaving(mover))
        return did;
    return (ebb__mover_are_over(mover, &move) && start(mover, &move)) || did;
}
