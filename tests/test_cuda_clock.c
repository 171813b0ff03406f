/* Times of a device in the ring: on a driver whose streams end when the test says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "cuda/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MADE = 20000, MOST_TAKEN = 1 << 20, STREAM_COUNT = 4 };
#define MS 1000000u

/* ---- a driver -------------------------------------------------------------------------------- */

struct CUevent_st {
    _Atomic uint64_t at_ns; /* when its stream passes it */
};

static struct CUevent_st events[MOST_MADE];
static struct {
    _Atomic unsigned made;
    _Atomic uint64_t now_ns;        /* how far the device is */
    uint64_t ends_ns[STREAM_COUNT]; /* when the newest work on each stream ends */
    _Atomic unsigned live, refused; /* events; those that cannot be recorded */
    _Atomic bool is_gone;           /* no more calls may come */
} device;

static CUresult create_event(CUevent *event, unsigned flags)
{
    assert_int_equal(flags, CU_EVENT_DEFAULT);
    assert_false(device.is_gone);
    assert_true(device.made < MOST_MADE);
    *event = &events[device.made++];
    device.live++;
    return CUDA_SUCCESS;
}

static CUresult destroy_event(CUevent event)
{
    assert_false(device.is_gone);
    assert_non_null(event);
    device.live--;
    return CUDA_SUCCESS;
}

static CUresult record(CUevent event, CUstream stream)
{
    assert_false(device.is_gone);
    if (device.refused) {
        device.refused--;
        return CUDA_ERROR_INVALID_HANDLE;
    }
    uintptr_t number = (uintptr_t)stream;
    event->at_ns = number < STREAM_COUNT ? device.ends_ns[number] : ebb__now_ns();
    return CUDA_SUCCESS;
}

static CUresult query(CUevent event)
{
    assert_false(device.is_gone);
    return event->at_ns <= device.now_ns ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult elapsed(float *ms, CUevent from, CUevent to)
{
    assert_false(device.is_gone);
    *ms = (float)(((double)atomic_load(&to->at_ns) - (double)atomic_load(&from->at_ns)) / 1e6);
    return CUDA_SUCCESS;
}

static CUresult create_stream(CUstream *stream, unsigned flags)
{
    (void)flags;
    *stream = (CUstream)(uintptr_t)1000;
    return CUDA_SUCCESS;
}

static CUresult with_stream(CUstream stream)
{
    assert_int_equal((uintptr_t)stream, 1000);
    assert_false(device.is_gone);
    return CUDA_SUCCESS;
}

static const struct ebb_cuda_driver driver = {
    .cuEventCreate = create_event,
    .cuEventDestroy_v2 = destroy_event,
    .cuEventRecord = record,
    .cuEventQuery = query,
    .cuEventElapsedTime = elapsed,
    .cuStreamCreate = create_stream,
    .cuStreamDestroy_v2 = with_stream,
    .cuStreamSynchronize = with_stream,
};

/* ---- a program ------------------------------------------------------------------------------- */

struct rig {
    struct ebb_ring *ring;
    struct ebb_cuda_clock *clock;
    struct ebb_event *taken;
    size_t count;
    uint64_t began_ns;
};

static struct rig begin_with(const struct ebb_cuda_driver *functions)
{
    struct rig rig = {.ring = calloc(1, ebb__ring_bytes(EBB_RING_EVENTS)),
                      .taken = calloc(MOST_TAKEN, sizeof *rig.taken),
                      .began_ns = ebb__now_ns()};
    memset(&device, 0, sizeof device);
    ebb__ring_init(rig.ring, EBB_RING_EVENTS, rig.began_ns);
    struct ebb_error error;
    assert_int_equal(ebb__clock_create(functions, NULL, rig.ring, &rig.clock, &error), EBB_OK);
    return rig;
}

static struct rig begin(void)
{
    struct rig rig = begin_with(&driver);
    ebb__clock_observe(rig.clock, true);
    return rig;
}

static void take(struct rig *rig)
{
    size_t got;
    while ((got = ebb__ring_read(rig->ring, rig->taken + rig->count, MOST_TAKEN - rig->count)) > 0)
        rig->count += got;
}

static void finish(struct rig *rig)
{
    ebb__clock_destroy(rig->clock);
    take(rig);
    for (size_t i = 1; i < rig->count; i++)
        assert_true(rig->taken[i].time_ns >= rig->taken[i - 1].time_ns);
    assert_int_equal(atomic_load(&device.live), 0);
    free(rig->taken);
    free(rig->ring);
}

/* The device has come so far since the begin. */
static void advance(struct rig *rig, uint64_t ms)
{
    device.now_ns = rig->began_ns + ms * MS;
    ebb__clock_drain(rig->clock);
    take(rig);
}

static void event(struct rig *rig, enum ebb_event_kind kind, uint64_t block)
{
    ebb__clock_event(rig->clock, &(struct ebb_event){.kind = (uint8_t)kind, .block = block});
}

static struct ebb_event use_of(uint64_t block)
{
    return (struct ebb_event){.kind = EBB_EVENT_ACCESS,
                              .block = block,
                              .access = EBB_ACCESS_WRITE,
                              .flags = EBB_EVENT_ANNOUNCED};
}

/* A kernel on `stream` that uses two blocks, and ends so long after the begin of all. */
static void launch(struct rig *rig, unsigned stream, uint64_t end_ms, uint64_t a, uint64_t b)
{
    const struct ebb_event uses[] = {use_of(a), use_of(b)};
    CUstream handle = (CUstream)(uintptr_t)stream;
    ebb__clock_work_begin(rig->clock, handle, uses, b ? 2 : 1, true);
    device.ends_ns[stream] = rig->began_ns + end_ms * MS;
    ebb__clock_work_end(rig->clock, handle, true);
}

/* The next event taken is this one, within 2 ms after that time; the program itself is slow. */
static void expect_at(struct rig *rig, size_t at, enum ebb_event_kind kind, uint64_t block,
                      bool held, uint64_t ms)
{
    const struct ebb_event *found = &rig->taken[at];
    assert_true(at < rig->count);
    assert_int_equal(found->kind, kind);
    assert_int_equal(found->block, block);
    if (kind == EBB_EVENT_ACCESS)
        assert_int_equal(found->flags, held ? EBB_EVENT_HELD : EBB_EVENT_ANNOUNCED);
    uint64_t late = ms ? 1 : 50; /* what is launched at once has the time of the call */
    if (found->time_ns + MS / 10 < ms * MS || found->time_ns > (ms + late) * MS)
        fail_msg("event %zu: %f ms, not %f", at, (double)found->time_ns / MS, (double)ms);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Launches return long before they run: events get the times of the device. */
static void works_have_device_times(void **state)
{
    (void)state;
    struct rig rig = begin();
    event(&rig, EBB_EVENT_ALLOC, 1);
    launch(&rig, 1, 200, 1, 2);
    event(&rig, EBB_EVENT_ALLOC, 3);
    launch(&rig, 1, 500, 2, 3);
    event(&rig, EBB_EVENT_FREE, 1);
    advance(&rig, 100);
    assert_int_equal(rig.count, 4); /* the second work has not begun */
    expect_at(&rig, 1, EBB_EVENT_ACCESS, 1, false, 0);
    expect_at(&rig, 2, EBB_EVENT_ACCESS, 2, false, 0);
    expect_at(&rig, 3, EBB_EVENT_ALLOC, 3, false, 0);
    advance(&rig, 300);
    expect_at(&rig, 4, EBB_EVENT_ACCESS, 1, true, 200);
    expect_at(&rig, 5, EBB_EVENT_ACCESS, 2, true, 200);
    expect_at(&rig, 6, EBB_EVENT_ACCESS, 2, false, 200);
    expect_at(&rig, 7, EBB_EVENT_ACCESS, 3, false, 200);
    expect_at(&rig, 8, EBB_EVENT_FREE, 1, false, 200);
    assert_int_equal(rig.count, 9);
    advance(&rig, 1000);
    expect_at(&rig, 9, EBB_EVENT_ACCESS, 2, true, 500);
    expect_at(&rig, 10, EBB_EVENT_ACCESS, 3, true, 500);
    assert_int_equal(rig.count, 11);
    finish(&rig);
}

/* Works on two streams overlap. What ends between two begins is between them. */
static void streams_run_side_by_side(void **state)
{
    (void)state;
    struct rig rig = begin();
    launch(&rig, 1, 100, 1, 0);
    launch(&rig, 2, 300, 2, 0);
    launch(&rig, 1, 200, 3, 0);
    launch(&rig, 1, 400, 4, 0);
    advance(&rig, 1000);
    expect_at(&rig, 0, EBB_EVENT_ACCESS, 1, false, 0);
    expect_at(&rig, 1, EBB_EVENT_ACCESS, 2, false, 0);
    expect_at(&rig, 2, EBB_EVENT_ACCESS, 1, true, 100);
    expect_at(&rig, 3, EBB_EVENT_ACCESS, 3, false, 100);
    expect_at(&rig, 4, EBB_EVENT_ACCESS, 3, true, 200);
    expect_at(&rig, 5, EBB_EVENT_ACCESS, 4, false, 200);
    expect_at(&rig, 6, EBB_EVENT_ACCESS, 2, true, 300);
    expect_at(&rig, 7, EBB_EVENT_ACCESS, 4, true, 400);
    assert_int_equal(rig.count, 8);
    finish(&rig);
}

/* A block is freed, in launch order, while its work runs: its use ends before. */
static void a_use_ends_with_its_block(void **state)
{
    (void)state;
    struct rig rig = begin();
    launch(&rig, 1, 300, 1, 2);
    event(&rig, EBB_EVENT_FREE, 1);
    advance(&rig, 100);
    expect_at(&rig, 2, EBB_EVENT_ACCESS, 1, true, 0);
    expect_at(&rig, 3, EBB_EVENT_FREE, 1, false, 0);
    assert_int_equal(rig.count, 4);
    advance(&rig, 400);
    expect_at(&rig, 4, EBB_EVENT_ACCESS, 2, true, 300);
    assert_int_equal(rig.count, 5);
    finish(&rig);
}

/* Without observing, nothing waits and the driver is not called. */
static void unobserved_events_are_written_at_once(void **state)
{
    (void)state;
    struct rig rig = begin();
    ebb__clock_observe(rig.clock, false);
    assert_false(ebb__clock_is_observing(rig.clock));
    device.is_gone = true;
    launch(&rig, 1, 100, 1, 2);
    event(&rig, EBB_EVENT_ALLOC, 3);
    take(&rig);
    assert_int_equal(rig.count, 3);
    assert_true(ebb__clock_drain(rig.clock) == UINT64_MAX);
    device.is_gone = false;
    finish(&rig);
}

/* Observing ends while works are queued: what comes later waits for them. */
static void order_is_kept_when_observing_ends(void **state)
{
    (void)state;
    struct rig rig = begin();
    launch(&rig, 1, 100, 1, 0);
    launch(&rig, 1, 200, 2, 0);
    ebb__clock_observe(rig.clock, false);
    event(&rig, EBB_EVENT_MARK, 0);
    launch(&rig, 1, 300, 3, 0);
    advance(&rig, 1);
    assert_int_equal(rig.count, 1);
    advance(&rig, 150);
    expect_at(&rig, 2, EBB_EVENT_ACCESS, 2, false, 100);
    expect_at(&rig, 3, EBB_EVENT_MARK, 0, false, 100);
    expect_at(&rig, 4, EBB_EVENT_ACCESS, 3, false, 100);
    advance(&rig, 250);
    expect_at(&rig, 5, EBB_EVENT_ACCESS, 2, true, 200);
    assert_int_equal(rig.count, 6);
    event(&rig, EBB_EVENT_FREE, 1);
    take(&rig);
    assert_int_equal(rig.count, 7); /* at once again */
    finish(&rig);
}

/* A launch that fails, one that is captured, and one that the driver will not time. */
static void untimed_works_have_the_time_of_the_call(void **state)
{
    (void)state;
    struct rig rig = begin();
    const struct ebb_event use = use_of(9);
    CUstream stream = (CUstream)(uintptr_t)1;
    ebb__clock_work_begin(rig.clock, stream, &use, 1, true);
    ebb__clock_work_end(rig.clock, stream, false);
    ebb__clock_work_begin(rig.clock, stream, &use, 1, false);
    ebb__clock_work_end(rig.clock, stream, true);
    device.refused = 1;
    launch(&rig, 1, 500, 1, 0);
    launch(&rig, 1, 100, 2, 0);
    advance(&rig, 50);
    assert_int_equal(rig.count, 4);
    for (size_t i = 0; i < 3; i++)
        expect_at(&rig, i, EBB_EVENT_ACCESS, i < 2 ? 9 : 1, false, 0);
    finish(&rig);
}

/* More works without uses than the clock has places: those that come later are timed. */
static void works_without_uses_leave_no_trace(void **state)
{
    (void)state;
    struct rig rig = begin();
    CUstream stream = (CUstream)(uintptr_t)1;
    for (unsigned i = 0; i < 10000; i++) {
        ebb__clock_work_begin(rig.clock, stream, NULL, 0, true);
        ebb__clock_work_end(rig.clock, stream, true);
        if (i % 100 == 0)
            advance(&rig, 0);
    }
    assert_int_equal(rig.count, 0);
    launch(&rig, 1, 100, 1, 0);
    ebb__clock_work_begin(rig.clock, stream, NULL, 0, true);
    device.ends_ns[1] = rig.began_ns + 200 * MS;
    ebb__clock_work_end(rig.clock, stream, true);
    launch(&rig, 1, 300, 2, 0);
    advance(&rig, 1000);
    expect_at(&rig, 0, EBB_EVENT_ACCESS, 1, false, 0);
    expect_at(&rig, 1, EBB_EVENT_ACCESS, 1, true, 100);
    expect_at(&rig, 2, EBB_EVENT_ACCESS, 2, false, 200);
    expect_at(&rig, 3, EBB_EVENT_ACCESS, 2, true, 300);
    ebb__clock_observe(rig.clock, false);
    assert_true(ebb__clock_drain(rig.clock) == UINT64_MAX);
    finish(&rig);
}

/* Two threads are between begin and end of their launches. */
static void launches_interleave(void **state)
{
    (void)state;
    struct rig rig = begin();
    const struct ebb_event first = use_of(1), second = use_of(2);
    CUstream one = (CUstream)(uintptr_t)1, other = (CUstream)(uintptr_t)2;
    ebb__clock_work_begin(rig.clock, one, &first, 1, true);
    ebb__clock_work_begin(rig.clock, other, &second, 1, true);
    device.ends_ns[1] = rig.began_ns + 200 * MS;
    device.ends_ns[2] = rig.began_ns + 100 * MS;
    advance(&rig, 1000);
    assert_int_equal(rig.count, 0); /* the first one may not be queued at all */
    ebb__clock_work_end(rig.clock, other, true);
    advance(&rig, 1000);
    assert_int_equal(rig.count, 0);
    ebb__clock_work_end(rig.clock, one, true);
    advance(&rig, 1000);
    expect_at(&rig, 2, EBB_EVENT_ACCESS, 2, true, 100);
    expect_at(&rig, 3, EBB_EVENT_ACCESS, 1, true, 200);
    ebb__clock_work_end(rig.clock, one, true); /* no such work */
    finish(&rig);
}

/* The device stands still, and the program goes on: the queue is bounded, and no event is lost. */
static void a_full_queue_is_written_untimed(void **state)
{
    (void)state;
    struct rig rig = begin();
    uint64_t sent = 0;
    advance(&rig, 0);
    for (unsigned i = 0; i < 60000; i++) {
        launch(&rig, 1 + i % 3, 1000000, 1, 2);
        event(&rig, EBB_EVENT_ALLOC, 3);
        sent += 3;
        take(&rig);
    }
    ebb__clock_destroy(rig.clock);
    take(&rig);
    uint64_t seen = 0;
    for (size_t i = 0; i < rig.count; i++)
        seen += !(rig.taken[i].flags & EBB_EVENT_HELD);
    assert_int_equal(seen, sent);
    assert_int_equal(atomic_load(&rig.ring->lost), 0);
    assert_int_equal(atomic_load(&device.live), 0);
    free(rig.taken);
    free(rig.ring);
}

/* The context is gone: no more calls, and everything is written. */
static void an_abandoned_clock_calls_nothing(void **state)
{
    (void)state;
    struct rig rig = begin();
    advance(&rig, 0);
    launch(&rig, 1, 100, 1, 2);
    launch(&rig, 1, 200, 3, 4);
    unsigned live = device.live;
    device.is_gone = true;
    ebb__clock_abandon(rig.clock);
    take(&rig);
    assert_int_equal(rig.count, 8);
    launch(&rig, 1, 300, 5, 6);
    take(&rig);
    assert_int_equal(rig.count, 10);
    assert_true(ebb__clock_drain(rig.clock) == UINT64_MAX);
    ebb__clock_destroy(rig.clock);
    assert_int_equal(atomic_load(&device.live), live); /* with their context */
    free(rig.taken);
    free(rig.ring);
}

/* A driver without times of events. */
static void a_driver_without_times_is_served(void **state)
{
    (void)state;
    struct ebb_cuda_driver lacking = driver;
    lacking.cuEventElapsedTime = NULL;
    struct rig rig = begin_with(&lacking);
    ebb__clock_observe(rig.clock, true);
    device.is_gone = true;
    launch(&rig, 1, 100, 1, 2);
    take(&rig);
    assert_int_equal(rig.count, 2);
    device.is_gone = false;
    finish(&rig);
}

/* ---- stalls ---------------------------------------------------------------------------------- */

/* A stream that comes to a wait when its work has ended, and passes it at `until_ms`. */
static void stand_still(struct rig *rig, unsigned stream, uint64_t until_ms)
{
    uint32_t stall = ebb__clock_stall_begin(rig->clock, (CUstream)(uintptr_t)stream);
    assert_true(stall != CLOCK_NO_STALL);
    if (until_ms)
        device.ends_ns[stream] = rig->began_ns + until_ms * MS;
    ebb__clock_stall_end(rig->clock, stall);
}

/* A kernel that waits before it begins. */
static void launch_late(struct rig *rig, unsigned stream, uint64_t until_ms, uint64_t end_ms,
                        uint64_t block)
{
    const struct ebb_event use = use_of(block);
    CUstream handle = (CUstream)(uintptr_t)stream;
    ebb__clock_work_begin(rig->clock, handle, &use, 1, true);
    stand_still(rig, stream, until_ms);
    device.ends_ns[stream] = rig->began_ns + end_ms * MS;
    ebb__clock_work_end(rig->clock, handle, true);
}

static uint64_t stalled_ms(const struct rig *rig)
{
    return (atomic_load(&rig->ring->counters.stall_ns) + MS / 2) / MS;
}

/* EBB_MARK_WAIT of that length. */
static void expect_wait(struct rig *rig, size_t at, uint64_t ms, uint64_t end_ms)
{
    expect_at(rig, at, EBB_EVENT_MARK, 0, false, end_ms);
    assert_int_equal(rig->taken[at].mark, EBB_MARK_WAIT);
    assert_in_range(rig->taken[at].size_bytes, ms * MS - MS / 10, ms * MS + MS / 10);
}

/* The wait has its place before the uses, and the work begins behind it. */
static void a_stall_is_no_work(void **state)
{
    (void)state;
    struct rig rig = begin();
    launch(&rig, 1, 100, 1, 0);
    launch_late(&rig, 1, 300, 400, 2);
    event(&rig, EBB_EVENT_FREE, 1);
    advance(&rig, 200);
    expect_at(&rig, 1, EBB_EVENT_ACCESS, 1, true, 100);
    assert_int_equal(rig.count, 2); /* the second work stands still */
    assert_int_equal(stalled_ms(&rig), 0);
    advance(&rig, 350);
    expect_wait(&rig, 2, 200, 300);
    expect_at(&rig, 3, EBB_EVENT_ACCESS, 2, false, 300);
    expect_at(&rig, 4, EBB_EVENT_FREE, 1, false, 300);
    assert_int_equal(stalled_ms(&rig), 200);
    advance(&rig, 500);
    expect_at(&rig, 5, EBB_EVENT_ACCESS, 2, true, 400);
    assert_int_equal(rig.count, 6);
    finish(&rig);
}

/* The host waited while the device had work: nothing was lost. */
static void a_wait_of_the_host_is_no_stall(void **state)
{
    (void)state;
    struct rig rig = begin();
    launch(&rig, 1, 200, 1, 0);
    launch_late(&rig, 1, 0, 300, 2);
    advance(&rig, 1000);
    expect_at(&rig, 1, EBB_EVENT_ACCESS, 1, true, 200);
    expect_at(&rig, 2, EBB_EVENT_ACCESS, 2, false, 200);
    expect_at(&rig, 3, EBB_EVENT_ACCESS, 2, true, 300);
    assert_int_equal(rig.count, 4);
    assert_int_equal(stalled_ms(&rig), 0);
    finish(&rig);
}

/* Nothing is observed: stalls are counted all the same, and the ring does not tell them. */
static void unobserved_stalls_are_counted(void **state)
{
    (void)state;
    struct rig rig = begin();
    ebb__clock_observe(rig.clock, false);
    advance(&rig, 0);
    launch(&rig, 1, 100, 1, 0);
    device.ends_ns[1] = rig.began_ns + 100 * MS;
    launch_late(&rig, 1, 300, 400, 2);
    take(&rig);
    assert_int_equal(rig.count, 2);
    advance(&rig, 200);
    assert_int_equal(stalled_ms(&rig), 0);
    uint64_t next_ns = ebb__clock_drain(rig.clock);
    assert_in_range(next_ns, 0, 5 * MS); /* it is looked at again */
    nanosleep(&(struct timespec){.tv_nsec = 5 * MS}, NULL);
    advance(&rig, 301);
    assert_int_equal(stalled_ms(&rig), 200);
    assert_int_equal(rig.count, 2);
    assert_true(ebb__clock_drain(rig.clock) == UINT64_MAX);
    finish(&rig);
}

/* Two streams stand still at the same time, which counts once. What one of them did while the other
 * one stood still is not lost for the ring. */
static void stalls_of_two_streams(void **state)
{
    (void)state;
    struct rig rig = begin();
    launch(&rig, 1, 100, 1, 0);
    launch(&rig, 2, 250, 2, 0);
    launch_late(&rig, 1, 300, 600, 3);
    launch_late(&rig, 2, 350, 700, 4);
    advance(&rig, 1000);
    expect_at(&rig, 2, EBB_EVENT_ACCESS, 1, true, 100);
    expect_at(&rig, 3, EBB_EVENT_ACCESS, 2, true, 250);
    expect_wait(&rig, 4, 50, 300);
    expect_at(&rig, 5, EBB_EVENT_ACCESS, 3, false, 300);
    expect_wait(&rig, 6, 50, 350);
    expect_at(&rig, 7, EBB_EVENT_ACCESS, 4, false, 350);
    assert_int_equal(stalled_ms(&rig), 250);
    finish(&rig);
}

/* Another thread queues work on the stream meanwhile; an event cannot be had; the work is not
 * queued; no stream. */
static void stalls_that_are_none(void **state)
{
    (void)state;
    struct rig rig = begin();
    CUstream stream = (CUstream)(uintptr_t)1;
    uint32_t stall = ebb__clock_stall_begin(rig.clock, stream);
    launch(&rig, 1, 100, 1, 0);
    ebb__clock_stall_end(rig.clock, stall);
    device.refused = 1;
    assert_int_equal(ebb__clock_stall_begin(rig.clock, stream), CLOCK_NO_STALL);
    ebb__clock_stall_end(rig.clock, CLOCK_NO_STALL);
    stall = ebb__clock_stall_begin(rig.clock, stream);
    device.refused = 1;
    device.ends_ns[1] = rig.began_ns + 200 * MS;
    ebb__clock_stall_end(rig.clock, stall);
    assert_int_equal(ebb__clock_stall_begin(rig.clock, EBB_CUDA_NO_STREAM), CLOCK_NO_STALL);
    advance(&rig, 500);
    assert_int_equal(stalled_ms(&rig), 0);
    const struct ebb_event use = use_of(2);
    ebb__clock_work_begin(rig.clock, stream, &use, 1, true);
    stand_still(&rig, 1, 300);
    ebb__clock_work_end(rig.clock, stream, false);
    advance(&rig, 500);
    assert_int_equal(stalled_ms(&rig), 100); /* that time is lost all the same */
    expect_at(&rig, 2, EBB_EVENT_ACCESS, 2, false, 100);
    assert_int_equal(rig.count, 3);
    finish(&rig);
}

/* The device stands still for ever: the places for stalls are used up, and come back. */
static void many_stalls_wait(void **state)
{
    (void)state;
    struct rig rig = begin();
    ebb__clock_observe(rig.clock, false);
    advance(&rig, 0);
    device.ends_ns[1] = rig.began_ns + 100 * MS;
    unsigned most = 0;
    for (unsigned round = 0; round < 4; round++) {
        unsigned timed = 0;
        for (unsigned i = 0; i < 3000; i++) {
            uint32_t stall = ebb__clock_stall_begin(rig.clock, (CUstream)(uintptr_t)1);
            timed += stall != CLOCK_NO_STALL;
            ebb__clock_stall_end(rig.clock, stall);
        }
        assert_in_range(timed, 500, 2999);
        assert_true(round == 0 || timed == most);
        most = timed;
        nanosleep(&(struct timespec){.tv_nsec = 5 * MS}, NULL);
        advance(&rig, 1000);
    }
    assert_int_equal(stalled_ms(&rig), 0);
    stand_still(&rig, 1, 2000); /* one is left when the context goes */
    device.is_gone = true;
    ebb__clock_abandon(rig.clock);
    assert_int_equal(ebb__clock_stall_begin(rig.clock, (CUstream)(uintptr_t)1), CLOCK_NO_STALL);
    ebb__clock_destroy(rig.clock);
    free(rig.taken);
    free(rig.ring);
}

struct threads {
    struct rig *rig;
    pthread_mutex_t engine;
    _Atomic bool ends, is_written;
};

static void *drain(void *context)
{
    struct threads *threads = context;
    while (!threads->ends) {
        device.now_ns = ebb__now_ns();
        ebb__clock_drain(threads->rig->clock);
    }
    return NULL;
}

static void *launch_many(void *context)
{
    struct threads *threads = context;
    static _Atomic unsigned number;
    CUstream stream = (CUstream)(uintptr_t)(number++ % STREAM_COUNT);
    const struct ebb_event uses[] = {use_of(1), use_of(2)};
    for (unsigned i = 0; i < 20000; i++) {
        pthread_mutex_lock(&threads->engine);
        ebb__clock_work_begin(threads->rig->clock, stream, uses, 2, true);
        pthread_mutex_unlock(&threads->engine);
        if (i % 3 == 0)
            ebb__clock_stall_end(threads->rig->clock,
                                 ebb__clock_stall_begin(threads->rig->clock, stream));
        pthread_mutex_lock(&threads->engine);
        device.ends_ns[(uintptr_t)stream] = ebb__now_ns() + 5000;
        ebb__clock_work_end(threads->rig->clock, stream, i % 50 != 0);
        if (i % 1000 == 0)
            ebb__clock_observe(threads->rig->clock, i % 3000 != 0);
        pthread_mutex_unlock(&threads->engine);
    }
    return NULL;
}

static void *read_ring(void *context)
{
    struct threads *threads = context;
    while (!threads->is_written)
        take(threads->rig);
    return NULL;
}

/* Threads launch, one drains, one reads: nothing is lost, times never decrease. */
static void threads_share_the_clock(void **state)
{
    (void)state;
    struct rig rig = begin();
    struct threads threads = {.rig = &rig, .engine = PTHREAD_MUTEX_INITIALIZER};
    pthread_t mover, reader, programs[3];
    pthread_create(&mover, NULL, drain, &threads);
    pthread_create(&reader, NULL, read_ring, &threads);
    for (size_t i = 0; i < 3; i++)
        pthread_create(&programs[i], NULL, launch_many, &threads);
    for (size_t i = 0; i < 3; i++)
        pthread_join(programs[i], NULL);
    threads.ends = true;
    pthread_join(mover, NULL);
    ebb__clock_observe(rig.clock, false);
    device.now_ns = UINT64_MAX;
    ebb__clock_drain(rig.clock);
    threads.is_written = true;
    pthread_join(reader, NULL);
    take(&rig);
    size_t begun = 0, held = 0;
    for (size_t i = 0; i < rig.count; i++) {
        held += (rig.taken[i].flags & EBB_EVENT_HELD) != 0;
        begun += (rig.taken[i].flags & EBB_EVENT_ANNOUNCED) != 0;
    }
    assert_int_equal(begun, 3 * 2 * 20000);
    assert_true(held > 1000 && held <= begun);
    finish(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(works_have_device_times),
        cmocka_unit_test(streams_run_side_by_side),
        cmocka_unit_test(a_use_ends_with_its_block),
        cmocka_unit_test(unobserved_events_are_written_at_once),
        cmocka_unit_test(order_is_kept_when_observing_ends),
        cmocka_unit_test(untimed_works_have_the_time_of_the_call),
        cmocka_unit_test(works_without_uses_leave_no_trace),
        cmocka_unit_test(launches_interleave),
        cmocka_unit_test(a_full_queue_is_written_untimed),
        cmocka_unit_test(an_abandoned_clock_calls_nothing),
        cmocka_unit_test(a_driver_without_times_is_served),
        cmocka_unit_test(a_stall_is_no_work),
        cmocka_unit_test(a_wait_of_the_host_is_no_stall),
        cmocka_unit_test(unobserved_stalls_are_counted),
        cmocka_unit_test(stalls_of_two_streams),
        cmocka_unit_test(stalls_that_are_none),
        cmocka_unit_test(many_stalls_wait),
        cmocka_unit_test(threads_share_the_clock),
    };
    return cmocka_run_group_tests_name("clock of a device", tests, NULL, NULL);
}
