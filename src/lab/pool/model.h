/* Packing problems out of models and of plans for them: what `ebb pack` is given a trace for. */
#ifndef EBB_LAB_POOL_MODEL_H
#define EBB_LAB_POOL_MODEL_H

#include "plan/plan.h"
#include "plan/pool/pool.h"

#define EBB_POOL_ITERATIONS_MAX 4 /* a limit; training programs need 2 */

/* Buffers out of a model, or of a plan for it: one for each residency of a block, the time from its
 * allocation or the start of a copy in to the end of a copy out or its free. `names[i]` says whose
 * buffer i is. All arrays are the owner's. */
struct ebb_pool_source {
    const struct ebb_model *model;
    const struct ebb_absence *absences; /* of a plan that ebb__check_plan() accepts; NULL: none */
    uint32_t absence_count;
    uint64_t page_bytes; /* sizes are rounded up to it; 1 or 0: as they are */
    bool unroll;         /* more iterations than one on the circle where that helps */
};

struct ebb_pool_name {
    uint32_t block;  /* index into model->blocks */
    uint32_t number; /* from 0, among the buffers of this block */
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
    struct ebb_pool_instant *instants; /* of one iteration, in order: the unit of lifetimes */
    uint32_t instant_count;
    uint64_t period;     /* iterations * instant_count */
    uint32_t iterations; /* on the circle */
    uint64_t load_bytes; /* most that is resident at one instant. Where a residency outlives the
                            circle the buffers' own load may be more */
};

/* Instants are the ticks and, with absences, where copies out end and copies in start. At one time
 * what ends goes first, as the checker of plans has it, but a block is there at its own events. A
 * residency that outlives its successor's beginning has several instances at once, which cannot
 * share an address: the circle then holds as many iterations as that takes (but
 * EBB_POOL_ITERATIONS_MAX, and one where not `unroll`), each with addresses of its own. What
 * outlives even that circle gets as many buffers as it has instances, each there all the time.
 * EBB_ERR_MEMORY; *blocks is then empty. */
EBB_NODISCARD enum ebb_status ebb__pool_from_model(const struct ebb_pool_source *source,
                                                   struct ebb_pool_blocks *blocks,
                                                   struct ebb_error *error);
void ebb__pool_blocks_fini(struct ebb_pool_blocks *blocks);

#endif
