/* The mover's interface and its thread. */
#include "cuda/mover_internal.h"

#include "base/clock.h"
#include "base/threads.h"
#include "cuda/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>

#define LEAST_PAUSE_NS 20000u /* half of the fixed cost of a transfer (docs/results) */
#define MOST_PAUSE_NS 60000u  /* so long may the device stand still for what is over */
#define SLACK_NS 1000u  /* by which pauses may last longer; the system's usual 50 us double them */
#define POLL_NS 300000u /* to look for work that is over costs a call of the driver a stream */

/* ---- requests -------------------------------------------------------------------------------- */

bool ebb__mover_has_room(struct cuda_mover *mover, unsigned count)
{
    pthread_mutex_lock(&mover->lock);
    bool has = ebb__queue_reserve(&mover->queues.in, count) &&
               ebb__queue_reserve(&mover->queues.out, count) &&
               ebb__queue_reserve(&mover->queues.drop, count);
    pthread_mutex_unlock(&mover->lock);
    return has;
}

static void wake(struct cuda_mover *mover)
{
    mover->must_wake = true;
    if (mover->is_asleep)
        pthread_cond_signal(&mover->wake);
}

static enum cuda_queue_kind queue_of(const struct cuda_mover *mover, uint8_t kind)
{
    if (kind == CUDA_MOVE_POPULATE || kind == CUDA_MOVE_FETCH || kind == CUDA_MOVE_SERVE)
        return CUDA_QUEUE_IN;
    bool ends_at_once = kind != CUDA_MOVE_EVICT && mover->config.backing->ops->drops_at_once;
    return ends_at_once ? CUDA_QUEUE_DROP : CUDA_QUEUE_OUT;
}

/* Requests of one queue end in their order. So the newest of each is enough. */
static void come_after(struct cuda_mover *mover, struct cuda_move *move, enum cuda_queue_kind kind)
{
    memset(move->after, 0, sizeof move->after);
    for (uint32_t i = 0; i < move->count; i++) {
        uint64_t *newest = &mover->unit_moves[move->first + i];
        uint64_t *after = &move->after[*newest & 3];
        if (*newest >> 2 > *after)
            *after = *newest >> 2;
        *newest = move->number << 2 | (uint64_t)kind;
    }
}

static uint32_t next_arrival(struct cuda_mover *mover)
{
    mover->newest_arrival += 2;
    if (mover->newest_arrival == 0) /* that means that there is none */
        mover->newest_arrival = 2;
    return mover->newest_arrival;
}

uint64_t ebb__mover_add(struct cuda_mover *mover, const struct cuda_move *request,
                        uint32_t *arrival)
{
    struct cuda_move move = *request;
    struct cuda_queue *queues[] = {&mover->queues.in, &mover->queues.out, &mover->queues.drop};
    enum cuda_queue_kind kind = queue_of(mover, move.kind);
    move.number = ++mover->newest_number;
    come_after(mover, &move, kind);
    if (move.kind == CUDA_MOVE_EVICT)
        atomic_fetch_add(&mover->leaving_units, move.count);
    pthread_mutex_lock(&mover->lock);
    if (kind == CUDA_QUEUE_IN) {
        move.arrival = next_arrival(mover);
        *arrival = move.arrival - ebb__mover_is_light(mover, &move);
    }
    ebb__queue_push(queues[kind], &move);
    wake(mover);
    pthread_mutex_unlock(&mover->lock);
    return move.number;
}

void ebb__mover_kill(struct cuda_mover *mover, uint64_t number)
{
    pthread_mutex_lock(&mover->lock);
    struct cuda_move *move = ebb__queue_find(&mover->queues.in, number);
    if (move)
        move->is_dead = true;
    pthread_mutex_unlock(&mover->lock);
}

void ebb__mover_call_off(struct cuda_mover *mover, uint64_t number)
{
    pthread_mutex_lock(&mover->lock);
    if (mover->queues.in.issued == mover->queues.in.last)
        ebb__mover_end_eviction(mover, number);
    pthread_mutex_unlock(&mover->lock);
}

void ebb__mover_wake(struct cuda_mover *mover)
{
    pthread_mutex_lock(&mover->lock);
    wake(mover);
    pthread_mutex_unlock(&mover->lock);
}

const _Atomic uint64_t *ebb__mover_outs_over(const struct cuda_mover *mover)
{
    return &mover->outs_over;
}

/* ---- questions ------------------------------------------------------------------------------- */

static bool has_reached(const _Atomic uint32_t *counter, uint32_t arrival)
{
    return ebb__arrival_reached(atomic_load_explicit(counter, memory_order_acquire), arrival);
}

bool ebb__mover_is_over(const struct cuda_mover *mover, uint32_t arrival)
{
    return (ebb__arrival_is_light(arrival) && has_reached(&mover->issued_arrival, arrival)) ||
           has_reached(mover->lanes.flag, arrival);
}

bool ebb__mover_is_issued(const struct cuda_mover *mover, uint32_t arrival)
{
    return has_reached(&mover->issued_arrival, arrival) || has_reached(mover->lanes.flag, arrival);
}

uint32_t ebb__mover_last_arrival(const struct cuda_mover *mover)
{
    return mover->newest_arrival;
}

bool ebb__mover_await(struct cuda_mover *mover, CUstream stream, uint32_t arrival)
{
    return mover->lanes.can_wait &&
           mover->driver->cuStreamWaitValue32_v2(stream, mover->lanes.flag_on_device, arrival,
                                                 CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS;
}

uint64_t ebb__mover_held_bytes(const struct cuda_mover *mover)
{
    return atomic_load_explicit(&mover->held_bytes, memory_order_relaxed);
}

uint64_t ebb__mover_leaving_units(const struct cuda_mover *mover)
{
    return atomic_load_explicit(&mover->leaving_units, memory_order_relaxed);
}

uint64_t ebb__mover_stuck_bytes(const struct cuda_mover *mover)
{
    return atomic_load_explicit(&mover->stuck_bytes, memory_order_relaxed);
}

bool ebb__mover_has_strays(const struct cuda_mover *mover)
{
    return atomic_load_explicit(&mover->stray_units, memory_order_relaxed) > 0;
}

bool ebb__mover_is_stray(const struct cuda_mover *mover, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (atomic_load_explicit(&mover->units[first + i].is_stray, memory_order_relaxed))
            return true;
    return false;
}

uint64_t ebb__mover_give_ups(const struct cuda_mover *mover)
{
    return atomic_load_explicit(&mover->patience.ends, memory_order_relaxed);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void sleep_for(struct cuda_mover *mover, uint64_t ns)
{
    uint64_t until = ebb__now_ns() + ns;
    struct timespec at = {.tv_sec = (time_t)(until / 1000000000),
                          .tv_nsec = (long)(until % 1000000000)};
    pthread_mutex_lock(&mover->lock);
    mover->is_asleep = true;
    while (!mover->must_wake && !atomic_load(&mover->must_stop)) {
        if (ns == UINT64_MAX)
            pthread_cond_wait(&mover->wake, &mover->lock);
        else if (pthread_cond_clockwait(&mover->wake, &mover->lock, CLOCK_MONOTONIC, &at) ==
                 ETIMEDOUT)
            break;
    }
    mover->must_wake = false;
    mover->is_asleep = false;
    pthread_mutex_unlock(&mover->lock);
}

static bool has_work(struct cuda_mover *mover)
{
    pthread_mutex_lock(&mover->lock);
    bool has = mover->queues.in.first < mover->queues.in.last ||
               mover->queues.out.first < mover->queues.out.last ||
               mover->queues.drop.first < mover->queues.drop.last;
    pthread_mutex_unlock(&mover->lock);
    return has;
}

/* Which work is over, if the engine's lock is free. True: look again. */
static bool look(struct cuda_mover *mover, uint64_t *looked_ns, bool was_pending)
{
    uint64_t now = ebb__now_ns();
    if (now - *looked_ns < POLL_NS)
        return was_pending;
    if (pthread_mutex_trylock(mover->config.engine_lock) != 0)
        return true;
    bool pending = ebb__streams_poll(mover->config.streams);
    if (mover->patience.seen_news != mover->config.streams->news_count)
        ebb__mover_progress(mover); /* the device works on what *outs* wait for */
    mover->patience.seen_news = mover->config.streams->news_count;
    pthread_mutex_unlock(mover->config.engine_lock);
    *looked_ns = now;
    return pending;
}

/* The device has been quiet, and what has begun to move is over before it is not any more. */
static void end_quiet(struct cuda_mover *mover)
{
    while (mover->moving.flights.count)
        if (!ebb__mover_land(mover))
            sleep_for(mover, LEAST_PAUSE_NS);
    mover->driver->cuStreamSynchronize(mover->lanes.in);
    ebb__gate_open(mover->config.gate, mover->config.streams);
}

static bool step(struct cuda_mover *mover)
{
    struct cuda_gate *gate = mover->config.gate;
    bool did = ebb__mover_step_arrivals(mover);
    ebb__mover_look_at_lanes(mover);
    if (gate->is_used)
        did |= ebb__gate_step(gate, mover->config.streams, mover->config.engine_lock,
                              ebb__mover_wants_quiet(mover));
    bool moved = ebb__mover_step_drop(mover);
    moved |= ebb__mover_step_out(mover);
    moved |= ebb__mover_step_in(mover);
    if (ebb__gate_is_quiet(gate)) {
        gate->has_moved |= moved;
        if ((!moved && !mover->moving.flights.count) || ebb__gate_is_late(gate))
            end_quiet(mover);
    }
    return did || moved;
}

static void *run(void *context)
{
    struct cuda_mover *mover = context;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    uint64_t pause = LEAST_PAUSE_NS, looked_ns = 0, drain_ns;
    bool is_pending = false;
    prctl(PR_SET_TIMERSLACK, (unsigned long)SLACK_NS);
    mover->driver->cuCtxPushCurrent_v2(mover->config.engine->context);
    if (mover->driver->cuThreadExchangeStreamCaptureMode)
        mover->driver->cuThreadExchangeStreamCaptureMode(&mode);
    while (!atomic_load(&mover->must_stop)) {
        bool did = step(mover);
        is_pending = look(mover, &looked_ns, is_pending);
        drain_ns = mover->config.clock ? ebb__clock_drain(mover->config.clock) : UINT64_MAX;
        if (did) {
            pause = LEAST_PAUSE_NS;
            continue;
        }
        uint64_t ns = has_work(mover) || mover->config.gate->state != CUDA_GATE_OPEN ? pause
                      : is_pending                                                   ? POLL_NS
                                   : ebb__mover_trim(mover, false);
        sleep_for(mover, ns < drain_ns ? ns : drain_ns);
        pause = pause < MOST_PAUSE_NS ? pause * 2 : MOST_PAUSE_NS;
    }
    if (ebb__gate_is_quiet(mover->config.gate) || ebb__gate_is_closed(mover->config.gate))
        ebb__gate_open(mover->config.gate, mover->config.streams);
    CUcontext popped;
    mover->driver->cuCtxPopCurrent_v2(&popped);
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

static bool make_lane(struct cuda_mover *mover, CUstream *lane)
{
    const struct ebb_cuda_driver *driver = mover->driver;
    int least = 0, greatest = 0;
    /* Streams of another priority use other queues of the device, so that no stream of the program
     * stands before a lane there. */
    if (driver->cuStreamCreateWithPriority && driver->cuCtxGetStreamPriorityRange &&
        driver->cuCtxGetStreamPriorityRange(&least, &greatest) == CUDA_SUCCESS)
        return driver->cuStreamCreateWithPriority(lane, CU_STREAM_NON_BLOCKING, greatest) ==
               CUDA_SUCCESS;
    return driver->cuStreamCreate(lane, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
}

static bool make_flights(struct cuda_mover *mover)
{
    const struct ebb_cuda_driver *driver = mover->driver;
    uint32_t most = mover->config.backing->ops->most_flights;
    mover->moving.flights.most = most == 0                  ? 1
                                 : most > CUDA_MOST_FLIGHTS ? CUDA_MOST_FLIGHTS
                                                            : most;
    bool good = true;
    for (uint32_t i = 0; i < CUDA_MOST_FLIGHTS; i++)
        good = good && driver->cuEventCreate(&mover->moving.flights.items[i].event,
                                             CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
    return good;
}

static void wake_up(void *mover)
{
    ebb__mover_wake(mover);
}

static bool start_feeder(struct cuda_mover *mover)
{
    mover->lanes.feeder.driver = mover->driver;
    mover->lanes.feeder.context = mover->config.engine->context;
    mover->lanes.feeder.lane = mover->lanes.out;
    mover->lanes.feeder.chunk_bytes = mover->config.backing->ops->out_bytes;
    mover->lanes.feeder.tell = wake_up;
    mover->lanes.feeder.of = mover;
    return !mover->lanes.feeder.chunk_bytes || ebb__feeder_start(&mover->lanes.feeder);
}

static bool make_resources(struct cuda_mover *mover)
{
    const struct ebb_cuda_driver *driver = mover->driver;
    const unsigned flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
    void *flag = NULL;
    if (driver->cuMemHostAlloc(&flag, CUDA_FLAG_BYTES, flags) != CUDA_SUCCESS)
        return false;
    mover->lanes.flag = flag;
    atomic_store(mover->lanes.flag, mover->newest_arrival);
    atomic_fetch_add(&mover->config.backing->pinned_bytes, CUDA_FLAG_BYTES);
    return driver->cuMemHostGetDevicePointer_v2(&mover->lanes.flag_on_device, flag, 0) ==
               CUDA_SUCCESS &&
           make_lane(mover, &mover->lanes.in) && make_lane(mover, &mover->lanes.out) &&
           driver->cuEventCreate(&mover->lanes.in_event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
           driver->cuEventCreate(&mover->lanes.between, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
           make_flights(mover);
}

static void free_resources(struct cuda_mover *mover)
{
    const struct ebb_cuda_driver *driver = mover->driver;
    if (mover->lanes.in)
        driver->cuStreamDestroy_v2(mover->lanes.in);
    if (mover->lanes.out)
        driver->cuStreamDestroy_v2(mover->lanes.out);
    if (mover->lanes.in_event)
        driver->cuEventDestroy_v2(mover->lanes.in_event);
    for (uint32_t i = 0; i < CUDA_MOST_FLIGHTS; i++)
        if (mover->moving.flights.items[i].event)
            driver->cuEventDestroy_v2(mover->moving.flights.items[i].event);
    ebb__feeder_free(&mover->lanes.feeder);
    if (mover->lanes.between)
        driver->cuEventDestroy_v2(mover->lanes.between);
    if (mover->lanes.flag)
        driver->cuMemFreeHost((void *)mover->lanes.flag);
}

void ebb__mover_destroy(struct cuda_mover *mover, bool is_abandoned)
{
    if (!is_abandoned)
        free_resources(mover);
    ebb__queue_fini(&mover->queues.in);
    ebb__queue_fini(&mover->queues.out);
    ebb__queue_fini(&mover->queues.drop);
    ebb__cuda_unreserve(mover->unit_moves, CUDA_MOST_UNITS * sizeof *mover->unit_moves);
    ebb__cuda_unreserve(mover->units, CUDA_MOST_UNITS * sizeof *mover->units);
    pthread_mutex_destroy(&mover->lock);
    pthread_cond_destroy(&mover->wake);
    ebb__cuda_unreserve(mover, sizeof *mover);
}

enum ebb_status ebb__mover_create(const struct cuda_mover_config *config, struct cuda_mover **made,
                                  struct ebb_error *error)
{
    struct cuda_mover *mover = ebb__cuda_reserve(sizeof *mover);
    if (!mover)
        return ebb__fail(error, EBB_ERR_MEMORY, "CUDA", "memory is exhausted");
    mover->config = *config;
    mover->driver = config->engine->driver;
    mover->counters = &config->engine->ring->counters;
    mover->newest_arrival = (config->first_arrival & ~1u) - 2;
    atomic_store(&mover->issued_arrival, mover->newest_arrival);
    mover->lanes.can_write = mover->driver->cuStreamWriteValue32_v2 != NULL;
    mover->lanes.can_wait = mover->driver->cuStreamWaitValue32_v2 != NULL;
    pthread_mutex_init(&mover->lock, NULL);
    pthread_cond_init(&mover->wake, NULL);
    mover->unit_moves = ebb__cuda_reserve(CUDA_MOST_UNITS * sizeof *mover->unit_moves);
    mover->units = ebb__cuda_reserve(CUDA_MOST_UNITS * sizeof *mover->units);
    bool is_made = mover->unit_moves && mover->units && ebb__queue_reserve(&mover->queues.in, 1) &&
                   ebb__queue_reserve(&mover->queues.out, 1) &&
                   ebb__queue_reserve(&mover->queues.drop, 1);
    struct cuda_visit visit = ebb__streams_enter(config->streams);
    is_made = is_made && make_resources(mover);
    if (is_made && start_feeder(mover) &&
        ebb__thread_start(&mover->thread, CUDA_STACK_BYTES, run, mover) == 0)
        mover->is_started = true;
    if (!mover->is_started) {
        ebb__feeder_stop(&mover->lanes.feeder);
        ebb__mover_destroy(mover, false);
    }
    ebb__streams_leave(config->streams, visit);
    if (!is_made)
        return ebb__fail(error, EBB_ERR_MEMORY, "CUDA", "memory, streams or events are exhausted");
    if (!mover->is_started)
        return ebb__fail(error, EBB_ERR_LIMIT, "CUDA", "no thread can be started");
    *made = mover;
    return EBB_OK;
}

void ebb__mover_stop(struct cuda_mover *mover, bool is_abandoned, bool is_forked)
{
    if (is_forked)
        return;
    atomic_store(&mover->must_stop, true);
    ebb__mover_wake(mover);
    if (mover->is_started)
        pthread_join(mover->thread, NULL);
    mover->is_started = false;
    ebb__feeder_stop(&mover->lanes.feeder);
    atomic_store(mover->lanes.flag, mover->newest_arrival); /* no stream waits for ever */
    if (is_abandoned)
        return;
    struct cuda_visit visit = ebb__streams_enter(mover->config.streams);
    mover->driver->cuStreamSynchronize(mover->lanes.in);
    mover->driver->cuStreamSynchronize(mover->lanes.out);
    atomic_store(mover->lanes.flag,
                 mover->newest_arrival); /* the lane may have written an older one */
    ebb__streams_leave(mover->config.streams, visit);
}
