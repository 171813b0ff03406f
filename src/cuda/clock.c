/* Problem: the parent needs the times at which the device works, but the program queues work long
 * before that, and must not wait for it.
 * Method: events of the ring wait in a queue, in launch order. A timing event of the driver ends
 * each work. A work begins when the one before it on its stream has ended, and not before it is
 * launched. So one event a work tells both. The mover's thread writes what is known: the uses of a
 * work at its begin, and each of them again, held, at its end. Thus nothing is unused in between.
 * Streams go on side by side, but the ring keeps the launch order. If an earlier event is late, so
 * are those behind it.
 * A work that has waited for Ebb begins behind its stall (stalls.c), and the ring tells that first.
 * What a wait between streams delays seems to begin too early. */
#include "cuda/clock_state.h"

#include "base/clock.h"
#include "cuda/memory.h"

enum ebb_status ebb__clock_create(const struct ebb_cuda_driver *driver, CUcontext context,
                                  struct ebb_ring *ring, struct ebb_cuda_clock **made,
                                  struct ebb_error *error)
{
    struct ebb_cuda_clock *clock = ebb__cuda_reserve(sizeof *clock);
    if (!clock)
        return ebb__fail(error, EBB_ERR_MEMORY, "CUDA", "memory is exhausted");
    clock->ring = ring;
    clock->items = ebb__cuda_reserve(MOST_ITEMS * sizeof *clock->items);
    clock->works = ebb__cuda_reserve(MOST_WORKS * sizeof *clock->works);
    clock->stalls = ebb__cuda_reserve(MOST_STALLS * sizeof *clock->stalls);
    clock->has_timer =
        ebb__timer_init(&clock->timer, driver, context, MOST_WORKS + 2 * MOST_STALLS);
    pthread_mutex_init(&clock->lock, NULL);
    if (!clock->items || !clock->works || !clock->stalls) {
        ebb__clock_destroy(clock);
        return ebb__fail(error, EBB_ERR_MEMORY, "CUDA", "memory is exhausted");
    }
    *made = clock;
    return EBB_OK;
}

/* ---- in launch order ------------------------------------------------------------------------- */

void ebb__clock_event(struct ebb_cuda_clock *clock, const struct ebb_event *event)
{
    uint64_t now_ns = ebb__now_ns();
    pthread_mutex_lock(&clock->lock);
    ebb__clock_make_space(clock, 1);
    if (clock_is_idle(clock))
        ebb__clock_write(clock, event, now_ns);
    else
        ebb__clock_push(clock, event, NO_WORK, now_ns);
    pthread_mutex_unlock(&clock->lock);
}

/* The index of a stream. STREAMS: too many run. */
static uint32_t find_stream(struct ebb_cuda_clock *clock, CUstream handle)
{
    uint32_t idle = STREAMS;
    for (uint32_t i = 0; i < clock->stream_count; i++) {
        if (clock->streams[i].handle == handle)
            return i;
        if (clock->streams[i].queued == 0)
            idle = i;
    }
    if (clock->stream_count < STREAMS)
        idle = clock->stream_count++;
    if (idle != STREAMS)
        clock->streams[idle] = (struct timed_stream){.handle = handle, .begun = NO_WORK};
    return idle;
}

void ebb__clock_work_begin(struct ebb_cuda_clock *clock, CUstream stream,
                           const struct ebb_event *uses, size_t count, bool may_time)
{
    if (!count && !clock->is_observing)
        return;
    uint64_t now_ns = ebb__now_ns();
    pthread_mutex_lock(&clock->lock);
    bool is_timed = clock->is_observing && may_time && clock->has_timer && count <= MOST_USES &&
                    clock->open_count < MOST_OPEN && stream != EBB_CUDA_NO_STREAM;
    if (!is_timed) {
        for (size_t i = 0; i < count; i++) {
            ebb__clock_make_space(clock, 1);
            if (clock_is_idle(clock))
                ebb__clock_write(clock, &uses[i], now_ns);
            else
                ebb__clock_push(clock, &uses[i], NO_WORK, now_ns);
        }
        pthread_mutex_unlock(&clock->lock);
        return;
    }
    const struct ebb_event nothing = {.kind = EBB_EVENT_NONE}; /* a place for a work without uses */
    if (!count)
        uses = &nothing;
    count += !count;
    ebb__clock_make_space(clock, (uint32_t)count);
    struct work *work = work_at(clock, clock->last_work);
    *work = (struct work){.state = WORK_OPEN,
                          .handle = stream,
                          .event = CUDA_TIMER_NONE,
                          .first = clock->last,
                          .count = (uint32_t)count,
                          .launch_ns = now_ns,
                          .stall = CLOCK_NO_STALL};
    for (size_t i = 0; i < count; i++)
        ebb__clock_push(clock, &uses[i], clock->last_work, now_ns);
    clock->open[clock->open_count++] = clock->last_work++;
    pthread_mutex_unlock(&clock->lock);
}

/* Takes the oldest open work on a stream out of the list. NO_WORK: none. Those of two threads may
 * be exchanged: the device takes them in any order, too. */
static uint32_t close_work(struct ebb_cuda_clock *clock, CUstream stream)
{
    uint32_t place = 0;
    while (place < clock->open_count && work_at(clock, clock->open[place])->handle != stream)
        place++;
    if (place == clock->open_count)
        return NO_WORK;
    uint32_t number = clock->open[place];
    clock->open_count--;
    for (; place < clock->open_count; place++)
        clock->open[place] = clock->open[place + 1];
    return number;
}

void ebb__clock_work_end(struct ebb_cuda_clock *clock, CUstream stream, bool is_queued)
{
    uint32_t event = CUDA_TIMER_NONE, index = STREAMS, number = NO_WORK;
    if (!clock->open_count && !clock->open_stalls)
        return;
    pthread_mutex_lock(&clock->lock);
    ebb__clock_mix_stalls(clock, stream);
    if (clock->open_count)
        number = close_work(clock, stream);
    if (number == NO_WORK) {
        pthread_mutex_unlock(&clock->lock);
        return;
    }
    struct work *work = work_at(clock, number);
    if (is_queued && clock->has_timer)
        event = ebb__timer_record(&clock->timer, stream);
    if (event != CUDA_TIMER_NONE)
        index = find_stream(clock, stream);
    work->state = index == STREAMS ? WORK_UNTIMED : WORK_QUEUED;
    if (index != STREAMS) {
        work->event = event;
        work->stream = index;
        clock->streams[index].queued++;
    } else if (event != CUDA_TIMER_NONE) {
        ebb__timer_give_back(&clock->timer, event);
    }
    pthread_mutex_unlock(&clock->lock);
}

void ebb__clock_observe(struct ebb_cuda_clock *clock, bool on)
{
    pthread_mutex_lock(&clock->lock);
    clock->is_observing = on;
    pthread_mutex_unlock(&clock->lock);
}

bool ebb__clock_is_observing(const struct ebb_cuda_clock *clock)
{
    return clock->is_observing;
}

/* ---- the mover's thread ---------------------------------------------------------------------- */

/* The oldest work on each stream whose end is not known. */
static uint32_t oldest_works(struct ebb_cuda_clock *clock, uint32_t oldest[STREAMS])
{
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < STREAMS; i++)
        oldest[i] = NO_WORK;
    for (uint32_t i = clock->first_work; i != clock->last_work; i++) {
        const struct work *work = work_at(clock, i);
        if ((work->state != WORK_QUEUED && work->state != WORK_BEGUN) || work->end_ns ||
            oldest[work->stream] != NO_WORK)
            continue;
        oldest[work->stream] = i;
        if (++waiting == clock->stream_count)
            break;
    }
    return waiting;
}

/* Asks the device for the ends of works, the oldest on each stream first. Returns how many are
 * known now. The lock is held, but not in calls of the driver. */
static uint32_t look_at_ends(struct ebb_cuda_clock *clock)
{
    uint32_t oldest[STREAMS], found = 0, waiting = oldest_works(clock, oldest);
    for (uint32_t i = 0; waiting && i < STREAMS; i++) {
        if (oldest[i] == NO_WORK || oldest[i] - clock->first_work >= MOST_WORKS)
            continue;
        uint64_t ns = 0;
        CUevent event = clock->timer.events[work_at(clock, oldest[i])->event].event;
        waiting--;
        pthread_mutex_unlock(&clock->lock);
        enum cuda_timer_state state = ebb__timer_look(&clock->timer, event, &ns);
        pthread_mutex_lock(&clock->lock);
        struct work *work = work_at(clock, oldest[i]);
        bool is_gone = oldest[i] - clock->first_work >= clock->last_work - clock->first_work;
        if (state == CUDA_TIMER_PENDING || is_gone || work->state == WORK_UNTIMED || work->end_ns)
            continue;
        if (state == CUDA_TIMER_FAILED || ns < work->launch_ns)
            ns = work->launch_ns;
        work->end_ns = ns ? ns : 1;
        found++;
    }
    return found;
}

/* When the device is to be asked next, in ns from now. UINT64_MAX: nothing waits. */
static uint64_t next_look(const struct ebb_cuda_clock *clock)
{
    uint64_t now_ns = ebb__now_ns();
    if (clock->is_observing || !clock_is_idle(clock))
        return LOOK_NS;
    if (clock->first_stall == clock->last_stall)
        return UINT64_MAX;
    return clock->next_look_ns > now_ns ? clock->next_look_ns - now_ns : 0;
}

uint64_t ebb__clock_drain(struct ebb_cuda_clock *clock)
{
    pthread_mutex_lock(&clock->lock);
    uint64_t next_ns = next_look(clock);
    pthread_mutex_unlock(&clock->lock);
    if (!clock->has_timer || next_ns == UINT64_MAX)
        return UINT64_MAX;
    if (next_ns != 0 && next_ns != LOOK_NS)
        return next_ns;
    bool has_base = ebb__timer_base(&clock->timer);
    pthread_mutex_lock(&clock->lock);
    if (has_base)
        ebb__clock_look_at_stalls(clock);
    while (has_base && look_at_ends(clock))
        ebb__clock_write_known(clock, false);
    ebb__clock_write_known(clock, has_base);
    clock->next_look_ns = ebb__now_ns() + LOOK_AT_STALLS_NS;
    next_ns = next_look(clock);
    pthread_mutex_unlock(&clock->lock);
    return next_ns;
}

void ebb__clock_abandon(struct ebb_cuda_clock *clock)
{
    pthread_mutex_lock(&clock->lock);
    clock->has_timer = false;
    ebb__clock_forget_stalls(clock);
    ebb__clock_stop_timing(clock);
    ebb__clock_write_known(clock, true);
    pthread_mutex_unlock(&clock->lock);
}

void ebb__clock_destroy(struct ebb_cuda_clock *clock)
{
    bool may_call = clock->has_timer;
    if (clock->items && clock->works && clock->stalls)
        ebb__clock_abandon(clock);
    ebb__timer_fini(&clock->timer, may_call);
    ebb__cuda_unreserve(clock->items, MOST_ITEMS * sizeof *clock->items);
    ebb__cuda_unreserve(clock->works, MOST_WORKS * sizeof *clock->works);
    ebb__cuda_unreserve(clock->stalls, MOST_STALLS * sizeof *clock->stalls);
    pthread_mutex_destroy(&clock->lock);
    ebb__cuda_unreserve(clock, sizeof *clock);
}
