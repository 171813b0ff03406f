/* The ring: how a traced process hands its events to the parent, in shared memory.
 *
 * One region a process, made by the shim as a memfd and sent to the parent when the process says
 * hello: counters, then a ring of events. One producer at a time (the runtime's lock sees to it),
 * one consumer (the parent). Both sides only ever add to their own counter, so that a process
 * killed anywhere leaves a ring that can be drained to the last complete event.
 *
 * A full ring is waited for, a second at most: then the parent is stopped, or very busy. Events are
 * dropped and counted until it takes some again. The first event after that is a mark that says how
 * many were lost. Without a parent nobody waits. */
#ifndef EBB_TRACE_RING_H
#define EBB_TRACE_RING_H

#include "trace/event.h"
#include "trace/waits.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EBB_RING_MAGIC 0x31474e5242424535ull
#define EBB_RING_EVENTS ((uint64_t)1 << 16) /* 2 MiB: 40 iterations of ResNet-50 */
/* Marks that say what is so from then on: accesses are observed or not, a plan is in force or not. */
#define EBB_RING_OWED 2u

/* Counters of one process, written by the runtime, read by the parent at any time. Bytes and ns. */
struct ebb_counters {
    _Atomic uint64_t held_bytes;  /* pages this process holds for managed blocks, in any state */
    _Atomic uint64_t small_bytes; /* the part of it in slabs, but for those that nobody uses */
    _Atomic uint64_t slab_peak_bytes; /* most in slabs, used or not, wherever they are */
    _Atomic uint64_t live_bytes;      /* managed blocks as asked for, small ones by their class */
    _Atomic uint64_t peak_live_bytes;
    _Atomic uint64_t unmanaged_bytes; /* most that the next allocator had given out, as far as it
                                         was sampled and says so (libc does) */
    _Atomic uint64_t allocations;     /* managed */
    _Atomic uint64_t moved_out_bytes;
    _Atomic uint64_t moved_in_bytes;
    /* The lanes as they are: bytes written and read, time in which any were in flight, and in which
     * both ways were. */
    _Atomic uint64_t out_lane_bytes, in_lane_bytes;
    _Atomic uint64_t out_busy_ns, in_busy_ns, both_busy_ns;
    _Atomic uint64_t saved_bytes;         /* of those written: zeros that were left out */
    _Atomic uint64_t evicted_clean_bytes; /* evicted without a write: an unchanged copy was there */
    _Atomic uint64_t stall_ns;            /* the program waited for a transfer or for memory */
    _Atomic uint64_t demand_faults;       /* learning excluded */
    _Atomic uint64_t mismatches;          /* the live stream left the template */
    _Atomic uint64_t resyncs;
    _Atomic uint64_t reactive_evictions;
    _Atomic uint64_t store_bytes;
    _Atomic uint64_t store_peak_bytes;
    _Atomic uint64_t placement_load_bytes; /* most that lived at planned addresses */
    _Atomic uint64_t placement_peak_bytes; /* most pages held for them, cached ones included */
    _Atomic uint64_t placement_blocks;     /* allocations served at planned addresses */
    _Atomic uint64_t placement_misses;     /* planned, but the address was not free */
    _Atomic uint64_t page_moves;           /* runs of pages moved */
    _Atomic uint64_t busy_blocks;          /* times a block could not be moved: pinned or shared */
    _Atomic uint64_t over_budget_bytes;    /* most bytes by which the budget had to be exceeded */
    _Atomic uint32_t store_error;          /* errno of the store; 0: none */
    _Atomic uint32_t managing;             /* 1 once the arena is up */
    _Atomic uint64_t arena_first, arena_last; /* addresses: all that the runtime has pages in */
    _Atomic uint64_t
        copied_bytes; /* at the end of a fork's child: pages of its own beyond held_bytes */
    _Atomic uint32_t has_slot;  /* 1: of its own in the ledger */
    _Atomic uint32_t mechanism; /* enum ebb_device_kind */
};

struct ebb_ring {
    uint64_t magic;
    uint64_t event_capacity;
    uint64_t origin_ns; /* CLOCK_MONOTONIC that time_ns counts from */
    struct ebb_counters counters;
    struct ebb_waits waits;
    _Alignas(64) _Atomic uint64_t written; /* events ever written */
    _Atomic uint64_t lost;                 /* events dropped */
    uint64_t untold;      /* of these, those that no mark tells of yet; the producer's alone */
    uint64_t given_up_at; /* `read`, when an event was dropped last; likewise */
    struct ebb_event owed[EBB_RING_OWED]; /* newest marks of state among the untold; likewise */
    _Alignas(64) _Atomic uint64_t read;   /* events ever taken */
    _Atomic uint32_t parent_gone; /* its channel has hung up: set by the process, for good */
    _Alignas(64) struct ebb_event events[];
};

static inline size_t ebb__ring_bytes(uint64_t event_capacity)
{
    return sizeof(struct ebb_ring) + (size_t)event_capacity * sizeof(struct ebb_event);
}

/* Make `ring` (zeroed memory of ebb__ring_bytes()) ready; capacity a power of two. */
void ebb__ring_init(struct ebb_ring *ring, uint64_t event_capacity, uint64_t origin_ns);

/* Append one event. Waits while the ring is full and the parent takes events: at most a second
 * without progress, after which events are dropped at once until the parent has taken some. One
 * producer at a time. */
void ebb__ring_write(struct ebb_ring *ring, const struct ebb_event *event);

/* False where the counters are those of no ring: the process has written where it should not. */
static inline bool ebb__ring_is_sound(const struct ebb_ring *ring)
{
    return atomic_load(&ring->written) - atomic_load(&ring->read) <= EBB_RING_EVENTS;
}

/* Take up to `most` events; returns how many, none where the ring is not sound. One consumer. `ring`
 * may be memory that a hostile or dying process writes: indices are masked, never trusted. */
size_t ebb__ring_read(struct ebb_ring *ring, struct ebb_event *events, size_t most);

#endif
