/* Times and the ring: writes the events of the engine to the parent, with the times at which the
 * device did them.
 *
 * Launches return long before they run. While accesses are observed (learning, recording), a timing
 * event of the driver follows each work on its stream. The events of the ring wait in a queue until
 * the device has passed them, and get its times, on CLOCK_MONOTONIC. Otherwise events get the time
 * of the call, no earlier than that of the event before. Times never decrease.
 *
 * ebb__clock_* are called under the engine's lock, but for ebb__clock_drain(), which the mover's
 * thread calls without it. */
#ifndef EBB_CUDA_CLOCK_H
#define EBB_CUDA_CLOCK_H

#include "cuda/engine.h"

struct ebb_cuda_clock;

EBB_NODISCARD enum ebb_status ebb__clock_create(const struct ebb_cuda_driver *driver,
                                                struct ebb_ring *ring,
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
/* Writes what the device has passed. Returns when to call again, in ns from now; UINT64_MAX: not
 * before new events. */
uint64_t ebb__clock_drain(struct ebb_cuda_clock *clock);

#endif
