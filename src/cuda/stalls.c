/* Problem: for how long did the device wait for Ebb? The host cannot tell. It runs far ahead, and
 * may wait long while the device is busy.
 * Method: two timing events on the stream, before the first wait for a work and behind the last.
 * The stream passes the first one when all that was queued before has ended, and the second one
 * when the work may begin. If the host was late, the stream stands between them, too.
 * They are looked at in the order of their begins, so one that is late delays those behind it.
 * Fails where two threads use one stream: what the other thread queues in between is no stall.
 * Such a stall is dropped. */
#include "cuda/clock_state.h"

#include "base/clock.h"

static struct stall *stall_at(struct ebb_cuda_clock *clock, uint32_t number)
{
    return &clock->stalls[number & (MOST_STALLS - 1)];
}

static void give_back(struct ebb_cuda_clock *clock, uint32_t *event)
{
    if (*event != CUDA_TIMER_NONE)
        ebb__timer_give_back(&clock->timer, *event);
    *event = CUDA_TIMER_NONE;
}

static void drop(struct ebb_cuda_clock *clock, struct stall *stall)
{
    clock->open_stalls -= stall->state == STALL_OPEN;
    stall->state = STALL_VOID;
    give_back(clock, &stall->begin);
    give_back(clock, &stall->end);
}

/* ---- in launch order ------------------------------------------------------------------------- */

uint32_t ebb__clock_stall_begin(struct ebb_cuda_clock *clock, CUstream stream)
{
    uint32_t event = CUDA_TIMER_NONE, number = CLOCK_NO_STALL;
    pthread_mutex_lock(&clock->lock);
    if (clock->has_timer && stream != EBB_CUDA_NO_STREAM &&
        clock->last_stall - clock->first_stall < MOST_STALLS - 1)
        event = ebb__timer_record(&clock->timer, stream);
    if (event != CUDA_TIMER_NONE) {
        if (clock->last_stall == CLOCK_NO_STALL) /* a gap of one */
            *stall_at(clock, clock->last_stall++) =
                (struct stall){.begin = CUDA_TIMER_NONE, .end = CUDA_TIMER_NONE};
        number = clock->last_stall++;
        clock->open_stalls++;
        *stall_at(clock, number) = (struct stall){.state = STALL_OPEN,
                                                  .stream = stream,
                                                  .begin = event,
                                                  .end = CUDA_TIMER_NONE,
                                                  .work = NO_WORK};
    }
    pthread_mutex_unlock(&clock->lock);
    return number;
}

/* The newest work that is about to be queued on the stream waits for the times of the stall. */
static void bind(struct ebb_cuda_clock *clock, uint32_t number)
{
    struct stall *stall = stall_at(clock, number);
    for (uint32_t i = clock->open_count; i-- > 0;) {
        struct work *work = work_at(clock, clock->open[i]);
        if (work->handle != stall->stream || work->stall != CLOCK_NO_STALL)
            continue;
        work->stall = number;
        stall->work = clock->open[i];
        return;
    }
}

void ebb__clock_stall_end(struct ebb_cuda_clock *clock, uint32_t number)
{
    if (number == CLOCK_NO_STALL)
        return;
    pthread_mutex_lock(&clock->lock);
    struct stall *stall = stall_at(clock, number);
    bool is_open = number - clock->first_stall < clock->last_stall - clock->first_stall &&
                   stall->state == STALL_OPEN;
    if (is_open)
        stall->end = ebb__timer_record(&clock->timer, stall->stream);
    if (is_open && stall->end == CUDA_TIMER_NONE) {
        drop(clock, stall);
    } else if (is_open) {
        clock->open_stalls--;
        stall->state = STALL_QUEUED;
        bind(clock, number);
    }
    pthread_mutex_unlock(&clock->lock);
}

void ebb__clock_mix_stalls(struct ebb_cuda_clock *clock, CUstream stream)
{
    for (uint32_t i = clock->first_stall; i != clock->last_stall && clock->open_stalls; i++) {
        struct stall *stall = stall_at(clock, i);
        if (stall->state == STALL_OPEN && stall->stream == stream)
            drop(clock, stall);
    }
}

/* ---- the mover's thread ---------------------------------------------------------------------- */

static void count(struct ebb_cuda_clock *clock, uint64_t begin_ns, uint64_t end_ns)
{
    if (begin_ns < clock->stalls_end_ns)
        begin_ns = clock->stalls_end_ns;
    if (end_ns <= begin_ns)
        return;
    clock->stalls_end_ns = end_ns;
    atomic_fetch_add(&clock->ring->counters.stall_ns, end_ns - begin_ns);
}

/* What was found is told to its work. */
static void settle(struct ebb_cuda_clock *clock, uint32_t number, uint64_t begin_ns,
                   uint64_t end_ns)
{
    uint32_t owner = stall_at(clock, number)->work;
    if (end_ns > begin_ns)
        count(clock, begin_ns, end_ns);
    if (owner == NO_WORK || owner - clock->first_work >= clock->last_work - clock->first_work ||
        work_at(clock, owner)->stall != number)
        return;
    struct work *work = work_at(clock, owner);
    work->stall = CLOCK_NO_STALL;
    work->stall_ns = end_ns > begin_ns ? end_ns - begin_ns : 0;
    work->stall_end_ns = end_ns;
}

/* The oldest one. False: it is not over. The lock is held, but not in calls of the driver. */
static bool look(struct ebb_cuda_clock *clock)
{
    const struct cuda_timer *timer = &clock->timer;
    const struct stall stall = *stall_at(clock, clock->first_stall);
    uint64_t begin_ns = 0, end_ns = 0;
    if (stall.state != STALL_QUEUED)
        return stall.state == STALL_VOID;
    CUevent begin = timer->events[stall.begin].event, end = timer->events[stall.end].event;
    pthread_mutex_unlock(&clock->lock);
    enum cuda_timer_state state = ebb__timer_look(timer, end, &end_ns);
    if (state == CUDA_TIMER_OVER)
        state = ebb__timer_look(timer, begin, &begin_ns);
    pthread_mutex_lock(&clock->lock);
    if (state == CUDA_TIMER_PENDING || stall_at(clock, clock->first_stall)->state != STALL_QUEUED)
        return false;
    bool is_known = state == CUDA_TIMER_OVER;
    settle(clock, clock->first_stall, is_known ? begin_ns : 0, is_known ? end_ns : 0);
    drop(clock, stall_at(clock, clock->first_stall));
    return true;
}

void ebb__clock_look_at_stalls(struct ebb_cuda_clock *clock)
{
    while (clock->has_timer && clock->first_stall != clock->last_stall && look(clock))
        clock->first_stall++;
}

void ebb__clock_forget_stalls(struct ebb_cuda_clock *clock)
{
    for (uint32_t i = clock->first_stall; i != clock->last_stall; i++) {
        settle(clock, i, 0, 0);
        drop(clock, stall_at(clock, i));
    }
}
