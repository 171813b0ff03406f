/* Packing problems from a model, or from a plan for it. `ebb pack` makes them from a trace. */
#ifndef EBB_LAB_POOL_MODEL_H
#define EBB_LAB_POOL_MODEL_H

#include "plan/plan.h"
#include "plan/pool/pool.h"

#define EBB_POOL_ITERATIONS_MAX 4 /* a limit; training programs need 2 */

/* Source of buffers: a model, or a plan for it. Each residency of a block becomes a buffer. A
 * residency begins with the allocation or the start of a copy in. It ends with the end of a copy
 * out or the free. The caller owns all arrays. */
struct ebb_pool_source {
    const struct ebb_model *model;
    const struct ebb_absence *absences; /* of a plan that ebb__check_plan() accepts; NULL: none */
    uint32_t absence_count;
    uint64_t page_bytes; /* sizes are rounded up to a multiple of it; 1 or 0: not rounded */
    bool unroll;         /* the circle may have several iterations if a residency needs them */
};

struct ebb_pool_name {
    uint32_t block;  /* index into model->blocks */
    uint32_t number; /* of the buffer among those of its block, from 0 */
};

enum ebb_pool_instant_kind {
    EBB_POOL_TICK,    /* index: the tick */
    EBB_POOL_EVICTED, /* index: the absence whose copy out ends */
    EBB_POOL_FETCH,   /* index: the absence whose copy in starts */
};

struct ebb_pool_instant {
    uint32_t kind; /* enum ebb_pool_instant_kind */
    uint32_t index;
};

struct ebb_pool_blocks {
    struct ebb_pool_buffer *buffers;
    struct ebb_pool_name *names;
    uint32_t count;
    struct ebb_pool_instant *instants; /* of one iteration, in order; lifetimes count them */
    uint32_t instant_count;
    uint64_t period;     /* iterations * instant_count */
    uint32_t iterations; /* on the circle */
    uint64_t load_bytes; /* most resident bytes at one instant. The buffers' load may be higher if
                            a residency is longer than the circle */
};

/* Makes the buffers; `names[i]` names the block of buffer i. Instants are the ticks, the ends of
 * copies out and the starts of copies in. At equal times ends are ordered first, as in the checker
 * of plans, but a block is resident at its own events.
 *
 * A residency longer than an iteration has several instances at once, which cannot share an
 * address. If `unroll`, the circle then has as many iterations as there are instances, at most
 * EBB_POOL_ITERATIONS_MAX. Each iteration has its own addresses. A residency longer than the circle
 * gets one permanent buffer for each of its instances. EBB_ERR_MEMORY; *blocks is then empty. */
EBB_NODISCARD enum ebb_status ebb__pool_from_model(const struct ebb_pool_source *source,
                                                   struct ebb_pool_blocks *blocks,
                                                   struct ebb_error *error);
void ebb__pool_blocks_fini(struct ebb_pool_blocks *blocks);

#endif
