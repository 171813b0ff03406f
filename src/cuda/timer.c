#include "cuda/timer.h"

#include "base/clock.h"
#include "cuda/memory.h"

/* A base is renewed after this: 2^24 steps of a float's mantissa are 0.3 us each then. */
#define BASE_NS 5000000000u
#define GOOD_BASE_NS 50000u /* a base that took longer is tried again: an idle device takes 10 us */
#define MOST_ELAPSED_MS 86400000.0f

bool ebb__timer_init(struct cuda_timer *timer, const struct ebb_cuda_driver *driver,
                     CUcontext context, uint32_t most_events)
{
    *timer = (struct cuda_timer){.driver = driver,
                                 .context = context,
                                 .most_events = most_events,
                                 .first_free = CUDA_TIMER_NONE};
    if (!driver->cuEventElapsedTime && !driver->cuEventElapsedTime_v2)
        return false;
    timer->events = ebb__cuda_reserve(most_events * sizeof *timer->events);
    return timer->events != NULL;
}

void ebb__timer_fini(struct cuda_timer *timer, bool call_driver)
{
    for (uint32_t i = 0; call_driver && i < timer->event_count; i++)
        timer->driver->cuEventDestroy_v2(timer->events[i].event);
    if (call_driver && timer->base)
        timer->driver->cuEventDestroy_v2(timer->base);
    if (call_driver && timer->stream)
        timer->driver->cuStreamDestroy_v2(timer->stream);
    ebb__cuda_unreserve(timer->events, timer->most_events * sizeof *timer->events);
}

static uint32_t take(struct cuda_timer *timer)
{
    uint32_t index = timer->first_free;
    if (index != CUDA_TIMER_NONE) {
        timer->first_free = timer->events[index].next;
        return index;
    }
    if (timer->event_count == timer->most_events)
        return CUDA_TIMER_NONE;
    CUcontext popped;
    bool is_pushed =
        timer->context && timer->driver->cuCtxPushCurrent_v2(timer->context) == CUDA_SUCCESS;
    CUresult result =
        timer->driver->cuEventCreate(&timer->events[timer->event_count].event, CU_EVENT_DEFAULT);
    if (is_pushed)
        timer->driver->cuCtxPopCurrent_v2(&popped);
    return result == CUDA_SUCCESS ? timer->event_count++ : CUDA_TIMER_NONE;
}

uint32_t ebb__timer_record(struct cuda_timer *timer, CUstream stream)
{
    uint32_t index = take(timer);
    if (index != CUDA_TIMER_NONE &&
        timer->driver->cuEventRecord(timer->events[index].event, stream) != CUDA_SUCCESS) {
        ebb__timer_give_back(timer, index);
        return CUDA_TIMER_NONE;
    }
    return index;
}

void ebb__timer_give_back(struct cuda_timer *timer, uint32_t index)
{
    timer->events[index].next = timer->first_free;
    timer->first_free = index;
}

/* Records the base. *took_ns: twice the error of its time at most. */
static bool record_base(struct cuda_timer *timer, uint64_t *took_ns)
{
    uint64_t begin_ns = ebb__now_ns();
    if (timer->driver->cuEventRecord(timer->base, timer->stream) != CUDA_SUCCESS ||
        timer->driver->cuStreamSynchronize(timer->stream) != CUDA_SUCCESS)
        return false;
    *took_ns = ebb__now_ns() - begin_ns;
    timer->base_ns = begin_ns + *took_ns / 2;
    return true;
}

bool ebb__timer_base(struct cuda_timer *timer)
{
    const struct ebb_cuda_driver *driver = timer->driver;
    uint64_t took_ns = UINT64_MAX;
    if (timer->base_ns && ebb__now_ns() - timer->base_ns < BASE_NS)
        return true;
    if (!timer->stream &&
        driver->cuStreamCreate(&timer->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return false;
    if (!timer->base && driver->cuEventCreate(&timer->base, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        return false;
    for (unsigned tries = 0; tries < 4 && took_ns > GOOD_BASE_NS; tries++)
        if (!record_base(timer, &took_ns))
            return false;
    return true;
}

enum cuda_timer_state ebb__timer_look(const struct cuda_timer *timer, CUevent event, uint64_t *ns)
{
    const struct ebb_cuda_driver *driver = timer->driver;
    CUresult result = driver->cuEventQuery(event);
    float ms = 0;
    if (result == CUDA_ERROR_NOT_READY)
        return CUDA_TIMER_PENDING;
    if (result == CUDA_SUCCESS)
        result = driver->cuEventElapsedTime_v2
                     ? driver->cuEventElapsedTime_v2(&ms, timer->base, event)
                     : driver->cuEventElapsedTime(&ms, timer->base, event);
    /* A work may have ended shortly before the base. */
    if (result != CUDA_SUCCESS || !(ms > -MOST_ELAPSED_MS && ms < MOST_ELAPSED_MS))
        return CUDA_TIMER_FAILED;
    double at = (double)timer->base_ns + (double)ms * 1e6;
    *ns = at > 0 ? (uint64_t)at : 0;
    return CUDA_TIMER_OVER;
}
