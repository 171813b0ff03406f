/* What the parts of the engine share: blocks, their states, the lock.
 *
 * Each function of the parts expects the engine's lock, unless its comment says otherwise. */
#ifndef EBB_CUDA_CORE_H
#define EBB_CUDA_CORE_H

#include "cuda/engine.h"

#include <pthread.h>

#define CUDA_NO_BLOCK 0u

/* Where a block is, in launch order: as work that is queued now will find it. What the device has
 * really done follows later (mover.h). */
enum cuda_block_state {
    CUDA_BLOCK_FREE,     /* the table's entry is unused */
    CUDA_BLOCK_EMPTY,    /* allocated; no page on the device, contents undefined */
    CUDA_BLOCK_RESIDENT, /* on the device, or on its way to it: `arrival` */
    CUDA_BLOCK_ABSENT,   /* its contents are in host memory, or on their way to it */
    CUDA_BLOCK_STATE_COUNT
};

struct cuda_block {
    CUdeviceptr address;
    uint64_t bytes;       /* as the program asked */
    uint64_t whole_bytes; /* what it takes: whole units, or its slot in a slab of small blocks */
    uint64_t serial;      /* its name in the trace, from 1 */
    enum cuda_block_state state;
    uint8_t is_small : 1;  /* in a slab, which is always resident: never moved, in no plan */
    uint8_t is_kept : 1;   /* stays resident until it is freed */
    uint8_t is_written : 1; /* differs from what is in host memory, as far as known */
    uint8_t is_captured : 1;
    uint32_t holds;         /* works between begin and end that use it: not evicted */
    uint32_t script_block;  /* EBB_SCRIPT_NONE: the script in force does not know it */
    uint32_t arrival;       /* number of the move that makes it resident; 0: over */
    uint64_t last_order;    /* launch order of its last use */
    /* The streams that used it since they were last known to have passed: index and order. */
    struct cuda_passage {
        uint32_t stream;
        uint64_t order;
    } passages[4];
    uint8_t passage_count; /* 5: more streams than that; any other work must be waited for */
    uint32_t newer, older; /* in the list of resident blocks by last use */
};

#endif
