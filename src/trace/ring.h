/* The ring: shared memory through which a traced process sends its events to the parent.
 *
 * Each process has one region: counters, followed by a ring of events. The shim creates it as a
 * memfd and sends it to the parent in its hello message. There is one producer at a time (under the
 * runtime's lock) and one consumer (the parent). Each side only increments its own counter. So if a
 * process is killed at any point, its ring can be drained to the last complete event.
 *
 * If the ring is full, the producer waits at most a second: the parent is then stopped or very
 * busy. After that, events are dropped and counted until the parent reads again. The next event is
 * then a mark with the number of lost events. Without a parent nobody waits. */
#ifndef EBB_TRACE_RING_H
#define EBB_TRACE_RING_H

#include "trace/event.h"
#include "trace/waits.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EBB_RING_MAGIC 0x31474e5242424536ull
#define EBB_RING_EVENTS ((uint64_t)1 << 16) /* 2 MiB: 40 iterations of ResNet-50 */
/* Number of kinds of state marks: accesses are observed or not, a plan is in force or not. */
#define EBB_RING_OWED 2u

/* Counters of one process, in bytes and ns. The runtime writes them; the parent reads them at any
 * time. */
struct ebb_counters {
    _Atomic uint64_t held_bytes;      /* pages that this process holds for managed blocks, in any
                                         state */
    _Atomic uint64_t small_bytes;     /* the part of held_bytes in slabs, without unused slabs */
    _Atomic uint64_t slab_peak_bytes; /* most bytes in slabs, used or not, in any state */
    _Atomic uint64_t live_bytes;      /* managed blocks as requested, small ones by their size
                                         class */
    _Atomic uint64_t peak_live_bytes;
    _Atomic uint64_t inherited_bytes; /* live when a fork made the process */
    _Atomic uint64_t unmanaged_bytes; /* most bytes that the next allocator had given out, from
                                         samples of its own report (libc has one) */
    _Atomic uint64_t allocations;     /* number of managed ones */
    _Atomic uint64_t moved_out_bytes;
    _Atomic uint64_t moved_in_bytes;
    /* Measured lanes: bytes written and read, time with any in flight, and with both directions in
     * flight. */
    _Atomic uint64_t out_lane_bytes, in_lane_bytes;
    _Atomic uint64_t out_busy_ns, in_busy_ns, both_busy_ns;
    _Atomic uint64_t saved_bytes;         /* of the bytes written: zeros that were left out */
    _Atomic uint64_t evicted_clean_bytes; /* evicted without a write: the store had an unchanged
                                             copy */
    _Atomic uint64_t stall_ns;            /* the program waited for a transfer or for memory; with
                                             CUDA, its streams did */
    _Atomic uint64_t demand_faults;       /* without those of learning */
    _Atomic uint64_t observed_faults;     /* those of learning, and */
    _Atomic uint64_t observed_ns; /* what they and the moves for them have cost, estimated */
    _Atomic uint64_t mismatches;  /* the live stream diverged from the template */
    _Atomic uint64_t resyncs;
    _Atomic uint64_t reactive_evictions;
    _Atomic uint64_t store_bytes;
    _Atomic uint64_t store_peak_bytes;
    _Atomic uint64_t placement_load_bytes; /* most bytes live at planned addresses */
    _Atomic uint64_t placement_peak_bytes; /* most pages held for them, including cached ones */
    _Atomic uint64_t placement_blocks;     /* allocations served at planned addresses */
    _Atomic uint64_t placement_misses;     /* planned, but the address was not free */
    _Atomic uint64_t page_moves;           /* number of runs of pages moved */
    /* Of these, the runs of huge pages alone and of small ones alone: pages, and time. */
    _Atomic uint64_t moved_huge_pages, moved_huge_ns;
    _Atomic uint64_t moved_small_pages, moved_small_ns;
    _Atomic uint64_t busy_blocks;       /* number of times a block could not be moved: pinned or
                                              shared */
    _Atomic uint64_t away_allocations;  /* number of blocks that began in host memory: nothing
                                              could leave the device for them */
    _Atomic uint64_t over_budget_bytes; /* most bytes by which the budget had to be exceeded */
    _Atomic uint32_t store_error;       /* errno of the store; 0: none */
    _Atomic uint32_t managing;          /* 1 once the arena is up; 0 again when retired */
    _Atomic uint32_t retired;           /* 1: the process uses a device, and its blocks in the
                                           host's memory are not managed any more */
    _Atomic uint64_t arena_first, arena_last; /* address range of all pages of the runtime */
    _Atomic uint64_t place_unit_bytes; /* memory of the static placement comes and leaves in such
                                          units; 0: huge pages */
    _Atomic uint64_t
        copied_bytes;           /* at the exit of a fork's child: its own pages beyond held_bytes */
    _Atomic uint32_t has_slot;  /* 1: the process has its own in the ledger */
    _Atomic uint32_t mechanism; /* enum ebb_device_kind */
};

struct ebb_ring {
    uint64_t magic;
    uint64_t event_capacity;
    uint64_t origin_ns; /* CLOCK_MONOTONIC at time_ns 0 */
    struct ebb_counters counters;
    struct ebb_waits waits;
    _Alignas(64) _Atomic uint64_t written; /* number of events ever written */
    _Atomic uint64_t lost;                 /* number of events dropped */
    uint64_t untold;      /* lost events that no mark reports yet; private to the producer */
    uint64_t given_up_at; /* `read` when an event was last dropped; private to the producer */
    struct ebb_event owed[EBB_RING_OWED]; /* newest dropped state marks; private to the producer */
    _Alignas(64) _Atomic uint64_t read;   /* number of events ever read */
    _Atomic uint32_t parent_gone; /* the parent's channel hung up: set by the process, for good */
    _Alignas(64) struct ebb_event events[];
};

static inline size_t ebb__ring_bytes(uint64_t event_capacity)
{
    return sizeof(struct ebb_ring) + (size_t)event_capacity * sizeof(struct ebb_event);
}

/* Initialises `ring` (zeroed memory of ebb__ring_bytes()); the capacity is a power of two. */
void ebb__ring_init(struct ebb_ring *ring, uint64_t event_capacity, uint64_t origin_ns);

/* Appends one event. Waits while the ring is full and the parent reads events, at most a second
 * without progress. After that, events are dropped at once until the parent has read some. One
 * producer at a time. */
void ebb__ring_write(struct ebb_ring *ring, const struct ebb_event *event);

/* False if the counters are impossible: the process has overwritten them. */
static inline bool ebb__ring_is_sound(const struct ebb_ring *ring)
{
    return atomic_load(&ring->written) - atomic_load(&ring->read) <= EBB_RING_EVENTS;
}

/* Reads up to `most` events; returns how many, 0 if the ring is not sound. One consumer. A hostile
 * or dying process may write `ring`: indices are masked, never trusted. */
size_t ebb__ring_read(struct ebb_ring *ring, struct ebb_event *events, size_t most);

#endif
