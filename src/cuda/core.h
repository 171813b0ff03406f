/* What the parts of the engine share: blocks, their states, the lock.
 *
 * Each function of the parts expects the engine's lock, unless its comment says otherwise. */
#ifndef EBB_CUDA_CORE_H
#define EBB_CUDA_CORE_H

#include "cuda/engine.h"

#include <pthread.h>

#define CUDA_NO_BLOCK 0u
#define CUDA_MOST_BLOCKS ((uint32_t)1 << 20) /* limits of storage, which is reserved, not taken */
#define CUDA_MOST_UNITS ((uint32_t)1 << 20)
#define CUDA_RUN_SIZES 1024u /* that free ranges are told apart by, in units */
/* All larger ones count as the last. */
static inline uint32_t ebb__run_size(uint64_t units)
{
    return units < CUDA_RUN_SIZES ? (uint32_t)units : CUDA_RUN_SIZES - 1;
}

/* Work in one stream up to a place of the launch order. */
#define CUDA_ALL_STREAMS UINT32_MAX
struct cuda_passage {
    uint32_t stream; /* index, or CUDA_ALL_STREAMS */
    uint64_t order;
};

/* The work that something must wait for. More streams than it has items become all streams. */
#define CUDA_MOST_PASSAGES 4u
struct cuda_passages {
    uint32_t count;
    struct cuda_passage items[CUDA_MOST_PASSAGES];
};

/* Where a block is, in launch order: as work that is queued now will find it. What the device has
 * really done follows later (mover.h). */
enum cuda_block_state {
    CUDA_BLOCK_FREE,     /* the table's entry is unused, or a free slot of a slab */
    CUDA_BLOCK_RESIDENT, /* on the device, or on its way to it: `arrival` */
    CUDA_BLOCK_ABSENT,   /* its contents are in host memory, or on their way to it */
    CUDA_BLOCK_STATE_COUNT
};

/* What each launch reads and writes stands first, in one line of the processor's cache. Threads
 * that launch with the same blocks send that line to each other. */
struct cuda_block {
    uint8_t state;            /* enum cuda_block_state */
    uint8_t is_small : 1;     /* in a slab, which is always resident: never moved, in no plan */
    uint8_t is_kept : 1;      /* stays resident until it is freed */
    uint8_t is_placed : 1;    /* at a planned address */
    uint8_t is_served : 1;    /* absent, and accesses to it are served where they would fail */
    uint8_t stays_absent : 1; /* for life: kernels that nobody announces use it over the bus */
    uint8_t is_fixed : 1;  /* kept, and its pages do not move either, not even while it is quiet */
    uint8_t evict_due : 1; /* the plan evicts it as soon as no work holds it */
    uint8_t is_of_stream : 1;  /* it was allocated in the order of a stream */
    uint32_t holds;            /* works between begin and end that use it: not evicted; small: 0 */
    uint32_t arrival;          /* number of the move that makes it resident; 0: over */
    uint32_t newer, older;     /* in the list of resident blocks by last use; or of free ones */
    uint64_t last_order;       /* launch order of its last use */
    struct cuda_passages uses; /* work that used it */
    uint32_t first_unit, unit_count; /* small: the slab's number, and its slot in the slab */
    CUdeviceptr address;
    uint64_t bytes;              /* as the program asked */
    uint64_t serial;             /* its name in the trace, from 1; small blocks have none */
    uint64_t id;                 /* no other block of the process ever has it */
    uint64_t move;               /* number of its newest request to the mover; 0: none */
    uint64_t refused;            /* newest search for a victim in which it could not leave */
    struct cuda_passages before; /* work that used its addresses before it was allocated */
} __attribute__((aligned(64)));

/* ---- arrivals: numbers of transfers to the device (mover.h) ---------------------------------- */

/* Is it over as soon as it is issued? */
static inline bool ebb__arrival_is_light(uint32_t arrival)
{
    return arrival & 1;
}

/* a is not older than b, modulo 2^32. */
static inline bool ebb__arrival_reached(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) >= 0;
}

/* Both are over when this one is. 0: none. */
static inline uint32_t ebb__arrival_both(uint32_t a, uint32_t b)
{
    if (!a || !b)
        return a ? a : b;
    uint32_t newest = ebb__arrival_reached(a, b) ? a : b;
    bool is_light = ebb__arrival_is_light(a) && ebb__arrival_is_light(b);
    return ebb__arrival_is_light(newest) && !is_light ? newest + 1 : newest;
}

#endif
