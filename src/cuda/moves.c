/* The steps of *ins*: a piece comes. Steps of *outs*: outs.c. */
#include "cuda/mover_internal.h"

#include "base/clock.h"
#include "base/tuning.h"

/* ---- for both sides -------------------------------------------------------------------------- */

/* The first run of units of [first, last) for which `real` is, or is not, the state. */
uint32_t ebb__mover_find_run(const struct cuda_mover *mover, uint32_t first, uint32_t last,
                             enum cuda_real real, bool is, uint32_t *count)
{
    while (first < last && (mover->units[first].real == real) != is)
        first++;
    for (*count = 0; *count < CUDA_PIECE_UNITS && first + *count < last &&
                     (mover->units[first + *count].real == real) == is;)
        ++*count;
    return first;
}

uint32_t ebb__mover_piece(struct cuda_mover *mover, uint32_t first, uint32_t count)
{
    struct ebb_cuda_backing *backing = mover->config.backing;
    CUdeviceptr address = ebb__table_address(mover->config.table, first);
    if (!backing->ops->piece)
        return count;
    return (uint32_t)(backing->ops->piece(backing, address, ebb__unit_bytes(count)) /
                      EBB_CUDA_UNIT_BYTES);
}

void ebb__mover_progress(struct cuda_mover *mover)
{
    mover->patience.idle_since_ns = 0;
}

void ebb__mover_unstick(struct cuda_mover *mover, uint32_t unit)
{
    if (mover->units[unit].is_stuck) {
        mover->units[unit].is_stuck = 0;
        atomic_fetch_sub(&mover->stuck_bytes, EBB_CUDA_UNIT_BYTES);
    }
}

void ebb__mover_stays(struct cuda_mover *mover, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct cuda_unit_real *unit = &mover->units[first + i];
        if (!unit->is_stuck)
            atomic_fetch_add(&mover->stuck_bytes, EBB_CUDA_UNIT_BYTES);
        unit->is_stuck = 1;
    }
}

bool ebb__mover_are_over(struct cuda_mover *mover, const struct cuda_move *move)
{
    for (uint32_t i = 0; i < move->event_count; i++)
        if (!ebb__streams_event_is_over(mover->config.streams, move->events[i]))
            return false;
    return true;
}

void ebb__mover_release_events(struct cuda_mover *mover, const struct cuda_move *move)
{
    for (uint32_t i = 0; i < move->event_count; i++)
        ebb__streams_release(mover->config.streams, move->events[i]);
}

/* Has a piece of this EVICT left, or is one on its way? */
static bool has_begun(const struct cuda_mover *mover, const struct cuda_move *out)
{
    const struct cuda_flights *flights = &mover->moving.flights;
    for (uint32_t i = 0; i < flights->count; i++)
        if (flights->items[ebb__flight_at(flights, i)].number == out->number)
            return true;
    return mover->moving.out.number == out->number && mover->moving.out.done > 0;
}

/* Is nothing on its way to these units any more? */
static bool is_in_over(const struct cuda_mover *mover, uint64_t number)
{
    const struct cuda_move *in = ebb__queue_find(&mover->queues.in, number);
    return !in || (ebb__mover_is_light(mover, in) &&
                   ebb__arrival_reached(atomic_load(&mover->issued_arrival), in->arrival));
}

static bool is_called_off(const struct cuda_mover *mover, const struct cuda_move *out)
{
    return out->kind == CUDA_MOVE_EVICT && out->is_dead && !has_begun(mover, out);
}

static bool overlap(const struct cuda_move *a, const struct cuda_move *b)
{
    return a->first < b->first + b->count && b->first < a->first + a->count;
}

/* Has everything left that leaves before the request? If a FETCH has given up, the EVICT before it
 * may still wait, whatever came between that FETCH and this request. */
static bool is_out_over(const struct cuda_mover *mover, const struct cuda_move *move)
{
    const struct cuda_queue *outs = &mover->queues.out;
    const struct cuda_move *newest = ebb__queue_find(outs, move->after[CUDA_QUEUE_OUT]), *older;
    if (newest && !is_called_off(mover, newest))
        return false;
    if (!newest && ebb__queue_oldest(outs) > mover->patience.newest_number)
        return true;
    for (uint64_t i = outs->first; i < outs->last; i++) {
        older = ebb__queue_at(outs, i);
        if (older->number >= move->number)
            break;
        if (overlap(older, move) && !is_called_off(mover, older))
            return false;
    }
    return true;
}

bool ebb__mover_may_begin(const struct cuda_mover *mover, const struct cuda_move *move)
{
    const struct cuda_queues *queues = &mover->queues;
    return is_out_over(mover, move) &&
           !ebb__queue_find(&queues->drop, move->after[CUDA_QUEUE_DROP]) &&
           (move->arrival || is_in_over(mover, move->after[CUDA_QUEUE_IN]));
}

void ebb__mover_end_eviction(struct cuda_mover *mover, uint64_t number)
{
    struct cuda_move *out = ebb__queue_find(&mover->queues.out, number);
    if (!out || out->kind != CUDA_MOVE_EVICT || out->is_dead)
        return;
    out->is_dead = true;
    atomic_fetch_sub(&mover->leaving_units, out->count - out->left);
    out->left = out->count;
}

bool ebb__mover_is_settled(struct cuda_mover *mover, uint64_t number)
{
    pthread_mutex_lock(&mover->lock);
    bool is_settled = ebb__queue_oldest(&mover->queues.in) >= number &&
                      ebb__queue_oldest(&mover->queues.drop) >= number;
    pthread_mutex_unlock(&mover->lock);
    return is_settled;
}

/* ---- in -------------------------------------------------------------------------------------- */

/* A piece that was nowhere has host memory now. */
static void note_served(struct cuda_mover *mover, uint32_t first, uint32_t count)
{
    struct ebb_cuda_backing *backing = mover->config.backing;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (mover->units[first + i].real != CUDA_REAL_NOWHERE)
            continue;
        mover->units[first + i].real = CUDA_REAL_HOST;
        bytes += EBB_CUDA_UNIT_BYTES;
    }
    uint64_t host = atomic_fetch_add(&backing->host_bytes, bytes) + bytes;
    atomic_store(&mover->counters->store_bytes, host);
    ebb__ledger_raise(&mover->counters->store_peak_bytes, host);
}

bool ebb__mover_serve(struct cuda_mover *mover, uint32_t first, uint32_t count, bool is_urgent)
{
    struct ebb_cuda_backing *backing = mover->config.backing;
    uint32_t last = first + count;
    for (uint32_t piece; backing->ops->serve && first < last; first += piece) {
        piece = ebb__mover_piece(mover, first, last - first);
        if (backing->ops->serve(backing, ebb__table_address(mover->config.table, first),
                                ebb__unit_bytes(piece), is_urgent) != CUDA_SUCCESS)
            return false;
        note_served(mover, first, piece);
    }
    return true;
}

static void set_stray(struct cuda_mover *mover, uint32_t first, uint32_t count, bool is_stray)
{
    for (uint32_t i = 0; i < count; i++) {
        struct cuda_unit_real *unit = &mover->units[first + i];
        if (is_stray && !unit->is_stray)
            atomic_fetch_add(&mover->stray_units, 1);
        if (!is_stray && unit->is_stray)
            atomic_fetch_sub(&mover->stray_units, 1);
        atomic_store_explicit(&unit->is_stray, is_stray, memory_order_relaxed);
    }
}

static void stray(struct cuda_mover *mover, uint32_t first, uint32_t count)
{
    set_stray(mover, first, count, true);
    ebb__mover_serve(mover, first, count, true);
}

static bool is_exposed(const struct cuda_mover *mover)
{
    const struct ebb_cuda_backing_ops *ops = mover->config.backing->ops;
    return !ops->is_coherent && !ops->needs_quiet;
}

/* Kernels will use the units of an *in* where they are. What they write during a move could be
 * lost. So an eviction that has not begun does not happen. Call it without pieces on their way. */
static void call_off_eviction(struct cuda_mover *mover, const struct cuda_move *in)
{
    pthread_mutex_lock(&mover->lock);
    ebb__mover_end_eviction(mover, in->after[CUDA_QUEUE_OUT]);
    pthread_mutex_unlock(&mover->lock);
}

static void arrive(struct cuda_mover *mover, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ebb__mover_unstick(mover, first + i);
        mover->units[first + i].real = CUDA_REAL_DEVICE;
    }
    set_stray(mover, first, count, false);
}

static void count_in(struct cuda_mover *mover, uint32_t first, uint32_t count, bool is_dead)
{
    uint64_t host = 0, bytes = ebb__unit_bytes(count);
    for (uint32_t i = 0; i < count; i++)
        host += mover->units[first + i].real == CUDA_REAL_HOST ? EBB_CUDA_UNIT_BYTES : 0;
    if (!mover->config.backing->ops->takes_parts)
        ebb__away_give(&mover->config.backing->away, host);
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
    struct ebb_cuda_backing *backing = mover->config.backing;
    CUdeviceptr address = ebb__table_address(mover->config.table, first);
    uint64_t bytes = ebb__unit_bytes(count);
    bool is_dead = move->kind == CUDA_MOVE_POPULATE || move->is_dead;
    if (!ebb__mover_take_bytes(mover, bytes))
        return false;
    if (!is_dead && backing->ops->is_coherent)
        ebb__mover_busy(mover, &mover->lanes.busy.in);
    CUresult result = is_dead ? backing->ops->populate(backing, address, bytes, mover->lanes.in)
                              : backing->ops->fetch(backing, address, bytes, mover->lanes.in);
    if (result == CUDA_SUCCESS && !is_dead)
        ebb__mover_busy(mover, &mover->lanes.busy.in);
    if (ebb__mover_is_light(mover, move) && mover->units[first].real == CUDA_REAL_HOST)
        mover->driver->cuStreamSynchronize(mover->lanes.in); /* served bytes stay: a copy */
    if (result == CUDA_SUCCESS) {
        count_in(mover, first, count, is_dead);
        arrive(mover, first, count);
    } else {
        ebb__mover_give_bytes(mover, bytes);
        ebb__mover_trim(mover, true);
        stray(mover, first, count);
    }
    ebb__mover_progress(mover);
    return true;
}

static bool next_in(struct cuda_mover *mover, struct cuda_move *move, bool *is_free)
{
    pthread_mutex_lock(&mover->lock);
    bool found = mover->queues.in.issued < mover->queues.in.last;
    if (found)
        *move = *ebb__queue_at(&mover->queues.in, mover->queues.in.issued);
    *is_free = found && ebb__mover_may_begin(mover, move);
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
    ebb__mover_release_events(mover, move);
    pthread_mutex_lock(&mover->lock);
    mover->queues.in.issued++;
    atomic_store_explicit(&mover->issued_arrival, move->arrival, memory_order_release);
    pthread_mutex_unlock(&mover->lock);
    ebb__mover_progress(mover);
}

bool ebb__mover_is_impatient(struct cuda_mover *mover)
{
    uint64_t now = ebb__now_ns();
    if (!mover->patience.idle_since_ns)
        mover->patience.idle_since_ns = now;
    return now - mover->patience.idle_since_ns > ebb__tuning()->cuda_patience_ns;
}

/* May these units come now? *count becomes as many as come at once. */
static bool may_come(struct cuda_mover *mover, const struct cuda_move *move, uint32_t first,
                     uint32_t *count)
{
    if (mover->units[first].real == CUDA_REAL_HOST && !ebb__mover_may_move(mover))
        return false;
    *count = ebb__mover_piece(mover, first, *count);
    return ebb__mover_are_over(mover, move);
}

/* A block that begins in host memory. It strays if there is none, and the caller sees that. False:
 * what comes or dies before it returns some first. */
static bool step_serve(struct cuda_mover *mover, const struct cuda_move *move)
{
    bool is_served = ebb__mover_serve(mover, move->first, move->count, false);
    if (!is_served && !ebb__mover_is_settled(mover, move->number))
        return false;
    set_stray(mover, move->first, move->count, !is_served);
    announce(mover, move);
    return true;
}

/* Units that are used where they are, all of them on the device or none. */
static void use_in_place(struct cuda_mover *mover, const struct cuda_move *in, uint32_t first,
                         uint32_t count)
{
    bool is_here = mover->units[first].real == CUDA_REAL_DEVICE;
    if (!is_here || !is_exposed(mover))
        stray(mover, first, count);
    else if (in->kind == CUDA_MOVE_SERVE)
        ebb__mover_stays(mover, first, count); /* for the engine, they have left */
    else
        arrive(mover, first, count);
}

/* The *in* counts as arrived. False: not yet. */
static bool give_up(struct cuda_mover *mover, const struct cuda_move *in)
{
    uint32_t first = in->first + mover->moving.in.done, last = in->first + in->count, count;
    if (!mover->config.backing->ops->is_coherent && mover->moving.flights.count)
        return false; /* they land soon, whatever kernels do */
    if (is_exposed(mover))
        call_off_eviction(mover, in);
    for (; first < last; first += count) {
        bool is_here = mover->units[first].real == CUDA_REAL_DEVICE;
        ebb__mover_find_run(mover, first, last, CUDA_REAL_DEVICE, is_here, &count);
        use_in_place(mover, in, first, count);
    }
    mover->patience.is_hasty = true;
    mover->patience.newest_number = in->number;
    atomic_fetch_add(&mover->patience.ends, 1);
    announce(mover, in);
    return true;
}

bool ebb__mover_step_in(struct cuda_mover *mover)
{
    struct cuda_side *side = &mover->moving.in;
    struct cuda_move move;
    bool is_free, is_moved = false;
    if (!mover->lanes.can_write && mover->queues.in.first < mover->queues.in.issued)
        return false; /* one at a time: there is one event */
    if (!next_in(mover, &move, &is_free))
        return false;
    if (move.kind == CUDA_MOVE_SERVE && is_free) {
        if (step_serve(mover, &move))
            return true;
        is_free = false; /* it never takes device memory */
    }
    if (side->number != move.number)
        *side = (struct cuda_side){.number = move.number};
    uint32_t count, last = move.first + move.count;
    uint32_t first =
        ebb__mover_find_run(mover, move.first + side->done, last, CUDA_REAL_DEVICE, false, &count);
    if (is_free && count && may_come(mover, &move, first, &count))
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
        !(mover->patience.is_hasty || ebb__mover_is_impatient(mover)))
        return false;
    return give_up(mover, &move);
}

/* ---- a quiet device -------------------------------------------------------------------------- */

static bool has_host_units(const struct cuda_mover *mover, const struct cuda_move *move)
{
    uint32_t count;
    ebb__mover_find_run(mover, move->first, move->first + move->count, CUDA_REAL_HOST, true,
                        &count);
    return count > 0;
}

bool ebb__mover_wants_quiet(struct cuda_mover *mover)
{
    pthread_mutex_lock(&mover->lock);
    bool leaves = mover->moving.flights.count > 0;
    for (uint64_t i = mover->queues.out.issued; i < mover->queues.out.last && !leaves; i++)
        leaves = ebb__queue_at(&mover->queues.out, i)->kind == CUDA_MOVE_EVICT;
    bool comes = mover->queues.in.issued < mover->queues.in.last && !mover->spare.is_starved &&
                 has_host_units(mover, ebb__queue_at(&mover->queues.in, mover->queues.in.issued));
    pthread_mutex_unlock(&mover->lock);
    return leaves || comes;
}
