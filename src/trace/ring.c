#include "trace/ring.h"

#include <string.h>
#include <time.h>

void ebb__ring_init(struct ebb_ring *ring, uint64_t event_capacity, uint64_t origin_ns)
{
    ring->magic = EBB_RING_MAGIC;
    ring->event_capacity = event_capacity;
    ring->origin_ns = origin_ns;
}

/* Waits until the ring has space for `wanted` events. Returns false if the parent has read none for
 * a second. */
static bool wait_for_room(struct ebb_ring *ring, uint64_t written, uint64_t wanted)
{
    const struct timespec nap = {.tv_nsec = 100000};
    uint64_t seen = atomic_load_explicit(&ring->read, memory_order_acquire);
    if (ring->untold && seen == ring->given_up_at)
        return false;
    for (int naps = 0; naps < 10000; naps++) {
        uint64_t read = atomic_load_explicit(&ring->read, memory_order_acquire);
        if (written - read + wanted <= ring->event_capacity)
            return true;
        if (atomic_load(&ring->parent_gone))
            return false;
        if (read != seen) {
            seen = read;
            naps = 0;
        }
        nanosleep(&nap, NULL);
    }
    return false;
}

/* Where the newest lost mark of this kind is kept; NULL if the event is no state mark. */
static struct ebb_event *owed_place(struct ebb_ring *ring, const struct ebb_event *event)
{
    if (event->kind != EBB_EVENT_MARK)
        return NULL;
    if (event->mark == EBB_MARK_TRACE_ON || event->mark == EBB_MARK_TRACE_OFF)
        return &ring->owed[0];
    if (event->mark == EBB_MARK_PLAN_ON || event->mark == EBB_MARK_PLAN_OFF)
        return &ring->owed[1];
    return NULL;
}

static void lose(struct ebb_ring *ring, const struct ebb_event *event)
{
    struct ebb_event *owed = owed_place(ring, event);
    if (owed)
        *owed = *event;
    ring->untold++;
    ring->given_up_at = atomic_load_explicit(&ring->read, memory_order_acquire);
    atomic_fetch_add_explicit(&ring->lost, 1, memory_order_relaxed);
}

static void put(struct ebb_ring *ring, uint64_t at, const struct ebb_event *event)
{
    ring->events[at & (ring->event_capacity - 1)] = *event;
}

/* Writes marks at `time_ns` that report the loss and the current state; returns the number of
 * events written. */
static uint64_t tell_loss(struct ebb_ring *ring, uint64_t written, uint64_t time_ns)
{
    uint64_t count = 0;
    put(ring, written + count++,
        &(struct ebb_event){.time_ns = time_ns,
                            .size_bytes = ring->untold,
                            .kind = EBB_EVENT_MARK,
                            .mark = EBB_MARK_LOST});
    for (unsigned i = 0; i < EBB_RING_OWED; i++) {
        if (ring->owed[i].kind == EBB_EVENT_NONE)
            continue;
        ring->owed[i].time_ns = time_ns;
        put(ring, written + count++, &ring->owed[i]);
        ring->owed[i].kind = EBB_EVENT_NONE;
    }
    ring->untold = 0;
    return count;
}

void ebb__ring_write(struct ebb_ring *ring, const struct ebb_event *event)
{
    uint64_t written = atomic_load_explicit(&ring->written, memory_order_relaxed);
    uint64_t read = atomic_load_explicit(&ring->read, memory_order_acquire);
    uint64_t wanted = ring->untold ? 2 + EBB_RING_OWED : 1;
    if (written - read + wanted > ring->event_capacity &&
        (atomic_load(&ring->parent_gone) || !wait_for_room(ring, written, wanted))) {
        lose(ring, event);
        return;
    }
    if (ring->untold)
        written += tell_loss(ring, written, event->time_ns);
    put(ring, written, event);
    atomic_store_explicit(&ring->written, written + 1, memory_order_release);
}

size_t ebb__ring_read(struct ebb_ring *ring, struct ebb_event *events, size_t most)
{
    uint64_t read = atomic_load_explicit(&ring->read, memory_order_relaxed);
    uint64_t written = atomic_load_explicit(&ring->written, memory_order_acquire);
    uint64_t waiting = written - read;
    if (waiting > EBB_RING_EVENTS) /* impossible with a correct producer */
        return 0;
    size_t count = waiting < most ? (size_t)waiting : most;
    for (size_t i = 0; i < count; i++)
        events[i] = ring->events[(read + i) & (EBB_RING_EVENTS - 1)];
    atomic_store_explicit(&ring->read, read + count, memory_order_release);
    return count;
}
