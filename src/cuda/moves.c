/* The steps of the mover's thread: a piece of an *out*, a piece of an *in*, arrivals. */
#include "cuda/mover_internal.h"

#include "base/clock.h"
#include "base/tuning.h"

static uint64_t unit_bytes(uint32_t count)
{
    return count * EBB_CUDA_UNIT_BYTES;
}

/* The first run of units of [first, last) for which `real` is, or is not, the device. */
static uint32_t find_run(const struct cuda_mover *mover, uint32_t first, uint32_t last,
                         enum cuda_real real, bool is, uint32_t *count)
{
    while (first < last && (mover->units[first].real == real) != is)
        first++;
    for (*count = 0; *count < CUDA_PIECE_UNITS && first + *count < last &&
                     (mover->units[first + *count].real == real) == is;)
        ++*count;
    return first;
}

static void start_side(struct cuda_side *side, uint64_t number)
{
    if (side->number != number)
        *side = (struct cuda_side){.number = number};
}

static void progress(struct cuda_mover *mover)
{
    mover->patience.idle_since_ns = 0;
}

/* ---- out ------------------------------------------------------------------------------------- */

static void count_out(struct cuda_mover *mover, const struct cuda_move *move, uint64_t bytes)
{
    uint64_t added = move->kind == CUDA_MOVE_EVICT    ? bytes
                     : move->kind == CUDA_MOVE_FORGET ? (uint64_t)0 - bytes
                                                      : 0;
    if (move->kind == CUDA_MOVE_EVICT) {
        atomic_fetch_add(&mover->counters->moved_out_bytes, bytes);
        atomic_fetch_add(&mover->counters->out_lane_bytes, bytes);
    }
    uint64_t host = atomic_fetch_add(&mover->config.backing->host_bytes, added) + added;
    atomic_store(&mover->counters->store_bytes, host);
    ebb__ledger_raise(&mover->counters->store_peak_bytes, host);
}

static void release(struct cuda_mover *mover, uint64_t bytes)
{
    uint64_t held = atomic_fetch_sub(&mover->held_bytes, bytes) - bytes;
    ebb__ledger_release(mover->config.engine->ledger, mover->config.engine->slot, bytes);
    atomic_store(&mover->counters->held_bytes, held);
}

static void unstick(struct cuda_mover *mover, uint32_t unit)
{
    if (mover->units[unit].is_stuck) {
        mover->units[unit].is_stuck = 0;
        atomic_fetch_sub(&mover->stuck_bytes, EBB_CUDA_UNIT_BYTES);
    }
}

static void finish_piece(struct cuda_mover *mover, const struct cuda_move *move)
{
    struct cuda_side *side = &mover->going_out;
    bool is_kept = move->kind == CUDA_MOVE_EVICT;
    for (uint32_t i = 0; i < side->piece_count; i++) {
        mover->units[side->piece_first + i].real = is_kept ? CUDA_REAL_HOST : CUDA_REAL_NOWHERE;
        unstick(mover, side->piece_first + i);
    }
    count_out(mover, move, unit_bytes(side->piece_count));
    if (move->kind != CUDA_MOVE_FORGET)
        release(mover, unit_bytes(side->piece_count));
    side->done = side->piece_first + side->piece_count - move->first;
    side->is_moving = false;
    mover->patience.is_hasty = false;
    progress(mover);
}

/* The driver refuses: the piece stays on the device, and the budget is smaller by it. */
static void give_up_piece(struct cuda_mover *mover, const struct cuda_move *move)
{
    struct cuda_side *side = &mover->going_out;
    for (uint32_t i = 0; i < side->piece_count && move->kind != CUDA_MOVE_FORGET; i++) {
        struct cuda_unit_real *unit = &mover->units[side->piece_first + i];
        if (!unit->is_stuck)
            atomic_fetch_add(&mover->stuck_bytes, EBB_CUDA_UNIT_BYTES);
        unit->is_stuck = 1;
    }
    side->done = side->piece_first + side->piece_count - move->first;
    side->failures = 0;
}

/* The counter of arrivals has told so already, but the driver does not know what it means. */
static void order_lanes(struct cuda_mover *mover)
{
    const struct ebb_cuda_driver *driver = mover->driver;
    if (driver->cuEventRecord(mover->lanes.between, mover->lanes.in) == CUDA_SUCCESS)
        driver->cuStreamWaitEvent(mover->lanes.out, mover->lanes.between, 0);
}

static bool start_piece(struct cuda_mover *mover, const struct cuda_move *move)
{
    struct cuda_side *side = &mover->going_out;
    struct ebb_cuda_backing *backing = mover->config.backing;
    CUdeviceptr first = ebb__table_address(mover->config.table, side->piece_first);
    uint64_t bytes = unit_bytes(side->piece_count);
    CUresult result;
    if (move->kind != CUDA_MOVE_EVICT)
        order_lanes(mover);
    if (move->kind == CUDA_MOVE_DROP)
        result = backing->ops->drop(backing, first, bytes, mover->lanes.out);
    else if (move->kind == CUDA_MOVE_FORGET)
        result = backing->ops->forget(backing, first, bytes, mover->lanes.out);
    else
        result = backing->ops->evict(backing, first, bytes, move->is_clean, mover->lanes.out);
    if (result != CUDA_SUCCESS) {
        if (++side->failures == 3)
            give_up_piece(mover, move);
        return side->failures == 0;
    }
    if (mover->driver->cuEventRecord(mover->lanes.out_event, mover->lanes.out) != CUDA_SUCCESS)
        mover->driver->cuStreamSynchronize(mover->lanes.out);
    side->is_moving = true;
    return true;
}

static bool are_over(struct cuda_mover *mover, const struct cuda_move *move)
{
    for (uint32_t i = 0; i < move->event_count; i++)
        if (!ebb__streams_event_is_over(mover->config.streams, move->events[i]))
            return false;
    return true;
}

static void finish_out(struct cuda_mover *mover, const struct cuda_move *move)
{
    for (uint32_t i = 0; i < move->event_count; i++)
        ebb__streams_release(mover->config.streams, move->events[i]);
    atomic_store_explicit(&mover->outs_over, move->number, memory_order_release);
    pthread_mutex_lock(&mover->lock);
    mover->out.issued = ++mover->out.first;
    pthread_mutex_unlock(&mover->lock);
}

/* The first request that waits, if the other queue has none before it with its units. */
static bool next_out(struct cuda_mover *mover, struct cuda_move *move)
{
    pthread_mutex_lock(&mover->lock);
    bool found = mover->out.first < mover->out.last;
    if (found)
        *move = *ebb__queue_at(&mover->out, mover->out.first);
    if (found && mover->in.first < mover->in.last)
        found = ebb__queue_at(&mover->in, mover->in.first)->number > move->after;
    pthread_mutex_unlock(&mover->lock);
    return found;
}

bool ebb__mover_step_out(struct cuda_mover *mover)
{
    struct cuda_side *side = &mover->going_out;
    struct cuda_move move;
    if (!next_out(mover, &move))
        return false;
    start_side(side, move.number);
    if (side->is_moving) {
        if (mover->driver->cuEventQuery(mover->lanes.out_event) == CUDA_ERROR_NOT_READY)
            return false;
        finish_piece(mover, &move);
    }
    uint32_t last = move.first + move.count;
    side->piece_first = find_run(mover, move.first + side->done, last,
                                 move.kind == CUDA_MOVE_FORGET ? CUDA_REAL_HOST : CUDA_REAL_DEVICE,
                                 true, &side->piece_count);
    if (!side->piece_count) {
        finish_out(mover, &move);
        return true;
    }
    return are_over(mover, &move) && start_piece(mover, &move);
}

/* ---- in -------------------------------------------------------------------------------------- */

static void stray(struct cuda_mover *mover, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!mover->units[first + i].is_stray)
            atomic_fetch_add(&mover->stray_units, 1);
        atomic_store_explicit(&mover->units[first + i].is_stray, 1, memory_order_relaxed);
    }
}

static void arrive(struct cuda_mover *mover, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct cuda_unit_real *unit = &mover->units[first + i];
        unstick(mover, first + i);
        unit->real = CUDA_REAL_DEVICE;
        if (unit->is_stray) {
            atomic_store_explicit(&unit->is_stray, 0, memory_order_relaxed);
            atomic_fetch_sub(&mover->stray_units, 1);
        }
    }
}

static void count_in(struct cuda_mover *mover, uint32_t first, uint32_t count, bool is_dead)
{
    uint64_t host = 0, bytes = unit_bytes(count);
    for (uint32_t i = 0; i < count; i++)
        host += mover->units[first + i].real == CUDA_REAL_HOST ? EBB_CUDA_UNIT_BYTES : 0;
    host = atomic_fetch_sub(&mover->config.backing->host_bytes, host) - host;
    atomic_store(&mover->counters->store_bytes, host);
    if (!is_dead) {
        atomic_fetch_add(&mover->counters->moved_in_bytes, bytes);
        atomic_fetch_add(&mover->counters->in_lane_bytes, bytes);
    }
}

/* False: the ledger has no room for the piece. */
static bool bring_piece(struct cuda_mover *mover, const struct cuda_move *move, uint32_t first,
                        uint32_t count)
{
    const struct ebb_cuda_config *engine = mover->config.engine;
    struct ebb_cuda_backing *backing = mover->config.backing;
    CUdeviceptr address = ebb__table_address(mover->config.table, first);
    uint64_t bytes = unit_bytes(count);
    bool is_dead = move->kind == CUDA_MOVE_POPULATE || move->is_dead;
    if (!ebb__ledger_reserve(engine->ledger, engine->slot, bytes))
        return false;
    atomic_store(&mover->counters->held_bytes, atomic_fetch_add(&mover->held_bytes, bytes) + bytes);
    CUresult result =
        is_dead ? backing->ops->populate(backing, address, bytes, mover->lanes.in)
                : backing->ops->fetch(backing, address, bytes, move->keep_copy, mover->lanes.in);
    if (result == CUDA_SUCCESS) {
        count_in(mover, first, count, is_dead);
        arrive(mover, first, count);
    } else {
        release(mover, bytes);
        stray(mover, first, count);
    }
    progress(mover);
    return true;
}

static bool next_in(struct cuda_mover *mover, struct cuda_move *move, bool *is_free)
{
    pthread_mutex_lock(&mover->lock);
    bool found = mover->in.issued < mover->in.last;
    if (found)
        *move = *ebb__queue_at(&mover->in, mover->in.issued);
    *is_free = found && (mover->out.first == mover->out.last ||
                         ebb__queue_at(&mover->out, mover->out.first)->number > move->after);
    pthread_mutex_unlock(&mover->lock);
    return found;
}

static void announce(struct cuda_mover *mover, const struct cuda_move *move)
{
    const struct ebb_cuda_driver *driver = mover->driver;
    if (mover->lanes.can_write &&
        driver->cuStreamWriteValue32_v2(mover->lanes.in, mover->lanes.flag_on_device, move->arrival,
                                        0) != CUDA_SUCCESS)
        mover->lanes.can_write = false;
    if (!mover->lanes.can_write)
        mover->lanes.is_in_event_recorded =
            driver->cuEventRecord(mover->lanes.in_event, mover->lanes.in) == CUDA_SUCCESS;
    pthread_mutex_lock(&mover->lock);
    mover->in.issued++;
    pthread_mutex_unlock(&mover->lock);
    progress(mover);
}

static bool is_impatient(struct cuda_mover *mover)
{
    uint64_t now = ebb__now_ns();
    if (!mover->patience.idle_since_ns)
        mover->patience.idle_since_ns = now;
    return now - mover->patience.idle_since_ns > ebb__tuning()->cuda_patience_ns;
}

bool ebb__mover_step_in(struct cuda_mover *mover)
{
    struct cuda_side *side = &mover->coming_in;
    struct cuda_move move;
    bool is_free, is_moved = false;
    if (!mover->lanes.can_write && mover->in.first < mover->in.issued)
        return false; /* one at a time: there is one event */
    if (!next_in(mover, &move, &is_free))
        return false;
    start_side(side, move.number);
    uint32_t count, last = move.first + move.count;
    uint32_t first =
        find_run(mover, move.first + side->done, last, CUDA_REAL_DEVICE, false, &count);
    if (is_free && count)
        is_moved = bring_piece(mover, &move, first, count);
    if (is_moved) {
        arrive(mover, move.first + side->done, first - move.first - side->done);
        side->done = first + count - move.first;
        return true;
    }
    if (is_free && !count) {
        arrive(mover, move.first + side->done, move.count - side->done);
        announce(mover, &move);
        return true;
    }
    if (!mover->config.backing->ops->can_evict ||
        !(mover->patience.is_hasty || is_impatient(mover)))
        return false;
    stray(mover, move.first + side->done, move.count - side->done);
    mover->patience.is_hasty = true;
    announce(mover, &move);
    return true;
}

/* ---- arrivals -------------------------------------------------------------------------------- */

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
    bool pending = mover->in.first < mover->in.issued;
    uint32_t oldest = pending ? ebb__queue_at(&mover->in, mover->in.first)->arrival : 0;
    uint32_t newest = pending ? ebb__queue_at(&mover->in, mover->in.issued - 1)->arrival : 0;
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
        /* The lane may stand behind a stream that waits for it. Bytes are right where they are. */
        if (mover->config.backing->ops->can_evict && is_impatient(mover)) {
            mover->patience.has_given_up = true;
            mover->patience.given_up = newest;
            atomic_store(mover->lanes.flag, newest);
        }
        return false;
    }
    pthread_mutex_lock(&mover->lock);
    while (mover->in.first < mover->in.issued &&
           ebb__arrival_reached(atomic_load(mover->lanes.flag),
                                ebb__queue_at(&mover->in, mover->in.first)->arrival))
        mover->in.first++;
    pthread_mutex_unlock(&mover->lock);
    progress(mover);
    return true;
}
