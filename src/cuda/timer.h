/* Times of a device: when has a stream passed a place?
 *
 * Events of the driver tell the time between two of them. One of them, the *base*, is recorded on
 * an idle stream at a known time of CLOCK_MONOTONIC, and again from time to time. The driver tells
 * times as `float` milliseconds, so the base must not be old. */
#ifndef EBB_CUDA_TIMER_H
#define EBB_CUDA_TIMER_H

#include "cuda/driver.h"

#include <stdint.h>

struct cuda_timer_event {
    CUevent event;
    uint32_t next; /* in the list of free ones */
};

struct cuda_timer {
    const struct ebb_cuda_driver *driver;
    CUcontext context; /* of the events; NULL: the current one */
    CUstream stream;   /* for the base */
    CUevent base;
    uint64_t base_ns; /* 0: there is none */
    struct cuda_timer_event *events;
    uint32_t event_count, most_events, first_free;
};

#define CUDA_TIMER_NONE UINT32_MAX

/* False: memory is exhausted, or the driver lacks what it needs. */
EBB_NODISCARD bool ebb__timer_init(struct cuda_timer *timer, const struct ebb_cuda_driver *driver,
                                   CUcontext context, uint32_t most_events);
/* call_driver: false if no call may be made any more. */
void ebb__timer_fini(struct cuda_timer *timer, bool call_driver);
/* Records the time at which `stream` passes this place. Returns an index, which the caller gives
 * back; CUDA_TIMER_NONE: it cannot be had, as in streams of other contexts. A few us. */
uint32_t ebb__timer_record(struct cuda_timer *timer, CUstream stream);
void ebb__timer_give_back(struct cuda_timer *timer, uint32_t index);
/* Makes the base, or a new one if that is older than a few seconds. False: it cannot be had. Waits
 * for a stream of its own, some us. One thread calls this and the next, without a lock. */
bool ebb__timer_base(struct cuda_timer *timer);
enum cuda_timer_state { CUDA_TIMER_PENDING, CUDA_TIMER_OVER, CUDA_TIMER_FAILED };
/* Has the stream passed it? Over: *ns is the time, on CLOCK_MONOTONIC. */
enum cuda_timer_state ebb__timer_look(const struct cuda_timer *timer, CUevent event, uint64_t *ns);

#endif
