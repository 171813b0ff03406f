#include "trace/ring.h"

#include <string.h>
#include <time.h>

void ebb__ring_init(struct ebb_ring *ring, uint64_t event_capacity, uint64_t origin_ns)
{
    ring->magic = EBB_RING_MAGIC;
    ring->event_capacity = event_capacity;
    ring->origin_ns = origin_ns;
}

/* True once there is room; false where the parent has not taken an event for a second. */
static bool wait_for_room(struct ebb_ring *ring, uint64_t written)
{
    const struct timespec nap = {.tv_nsec = 100000};
    uint64_t seen = atomic_load_explicit(&ring->read, memory_order_acquire);
    for (int naps = 0; naps < 10000; naps++) {
        uint64_t read = atomic_load_explicit(&ring->read, memory_order_acquire);
        if (written - read < ring->event_capacity)
            return true;
        if (atomic_load(&ring->parent_gone))
            return false;
        if (read != seen) {
            seen = read;
            naps = 0;
        }
        nanosleep(&nap, NULL);
    }
    atomic_store(&ring->parent_gone, 1);
    return false;
}

void ebb__ring_write(struct ebb_ring *ring, const struct ebb_event *event)
{
    uint64_t written = atomic_load_explicit(&ring->written, memory_order_relaxed);
    uint64_t read = atomic_load_explicit(&ring->read, memory_order_acquire);
    if (written - read >= ring->event_capacity &&
        (atomic_load(&ring->parent_gone) || !wait_for_room(ring, written))) {
        atomic_fetch_add_explicit(&ring->lost, 1, memory_order_relaxed);
        return;
    }
    ring->events[written & (ring->event_capacity - 1)] = *event;
    atomic_store_explicit(&ring->written, written + 1, memory_order_release);
}

size_t ebb__ring_read(struct ebb_ring *ring, struct ebb_event *events, size_t most)
{
    uint64_t read = atomic_load_explicit(&ring->read, memory_order_relaxed);
    uint64_t written = atomic_load_explicit(&ring->written, memory_order_acquire);
    uint64_t waiting = written - read;
    if (waiting > EBB_RING_EVENTS) /* no producer lets it come to that */
        return 0;
    size_t count = waiting < most ? (size_t)waiting : most;
    for (size_t i = 0; i < count; i++)
        events[i] = ring->events[(read + i) & (EBB_RING_EVENTS - 1)];
    atomic_store_explicit(&ring->read, read + count, memory_order_release);
    return count;
}
