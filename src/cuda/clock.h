/* Times and the ring: writes the events of the engine to the parent, with the times at which the
 * device did them.
 *
 * Launches return long before they run. While accesses are observed (learning, recording), a timing
 * event of the driver follows each work on its stream. The events of the ring wait in a queue until
 * the device has passed them, and get its times, on CLOCK_MONOTONIC. Otherwise events get the time
 * of the call, no earlier than that of the event before. Times never decrease.
 *
 * A *stall* is the time in which a stream stands still for Ebb (stalls.c).
 *
 * ebb__clock_* are called under the engine's lock, but for ebb__clock_drain(), which the mover's
 * thread calls without it. */
#ifndef EBB_CUDA_CLOCK_H
#define EBB_CUDA_CLOCK_H

#include "cuda/engine.h"

struct ebb_cuda_clock;

/* context: of the device whose times are taken; NULL: the current one. */
EBB_NODISCARD enum ebb_status ebb__clock_create(const struct ebb_cuda_driver *driver,
                                                CUcontext context, struct ebb_ring *ring,
                                                struct ebb_cuda_clock **clock,
                                                struct ebb_error *error);
void ebb__clock_destroy(struct ebb_cuda_clock *clock);
/* No more driver calls: what waits is written with the times of its calls. */
void ebb__clock_abandon(struct ebb_cuda_clock *clock);
/* on: device times from the next work on. */
void ebb__clock_observe(struct ebb_cuda_clock *clock, bool on);
bool ebb__clock_is_observing(const struct ebb_cuda_clock *clock);
/* An ALLOC, FREE or MARK, at this place of the launch order. */
void ebb__clock_event(struct ebb_cuda_clock *clock, const struct ebb_event *event);
/* Work begins on `stream`, with `count` uses (ACCESS events, in order). Call before the launch, and
 * ebb__clock_work_end() after it: the timing events are recorded around it. A work that is captured
 * or not queued has the times of its calls. */
void ebb__clock_work_begin(struct ebb_cuda_clock *clock, CUstream stream,
                           const struct ebb_event *uses, size_t count, bool may_time);
void ebb__clock_work_end(struct ebb_cuda_clock *clock, CUstream stream, bool is_queued);
/* `stream` stands still for Ebb. Call begin before the first wait for a work, on the host or
 * queued. Call end when the work may be queued, before ebb__clock_work_end(). Observed or not,
 * timing events are recorded at both places. What lies between is added to counters.stall_ns once
 * the device has passed it, and only once where several streams stand still. If the work is
 * observed, the ring gets an EBB_MARK_WAIT before its uses.
 * Returns a number for end. CLOCK_NO_STALL: it cannot be timed. Not for a stream that is being
 * captured. With or without the engine's lock. */
#define CLOCK_NO_STALL UINT32_MAX
uint32_t ebb__clock_stall_begin(struct ebb_cuda_clock *clock, CUstream stream);
void ebb__clock_stall_end(struct ebb_cuda_clock *clock, uint32_t stall);
/* Writes what the device has passed. Returns when to call again, in ns from now; UINT64_MAX: not
 * before new events. */
uint64_t ebb__clock_drain(struct ebb_cuda_clock *clock);

#endif
