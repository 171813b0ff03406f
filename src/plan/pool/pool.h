/* The pool: addresses for blocks whose lifetimes are known (dynamic storage allocation).
 *
 *     struct ebb_pool_problem problem = {.buffers = buffers, .count = count, ...};
 *     struct ebb_pool_solution solution;
 *     if (ebb__pool_solve("ebb", &problem, &solution, &error) == EBB_OK) {
 *         if (solution.feasible) use(solution.offsets, solution.height_bytes);
 *         ebb__pool_solution_fini(&solution);
 *     }
 *
 * A buffer is a rectangle, lifetime by size, of which only the height above zero may be chosen; no
 * two may overlap, and the highest top is to be low. Deciding whether a height suffices is
 * NP-complete (Garey and Johnson 1979, problem SR2). What no packing can beat is the load: the most
 * bytes that live at one instant. Thread-safe: no state. */
#ifndef EBB_PLAN_POOL_POOL_H
#define EBB_PLAN_POOL_POOL_H

#include "base/status.h"
#include "model/model.h"
#include "plan/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EBB_POOL_NO_CAPACITY UINT64_MAX
#define EBB_POOL_ITERATIONS_MAX 4 /* arbitrary; training programs need 2 */

/* Lives in [lower, upper), lower < upper. With a period, lower < period and upper - lower <=
 * period: a lifetime that leaves the period goes on at its beginning. */
struct ebb_pool_buffer {
    uint64_t lower;
    uint64_t upper;
    uint64_t size_bytes; /* > 0 */
};

struct ebb_pool_problem {
    const struct ebb_pool_buffer *buffers;
    uint32_t count;
    uint64_t period;         /* 0: time is a line */
    uint64_t capacity_bytes; /* a height that would do, or EBB_POOL_NO_CAPACITY: the lowest found */
    uint64_t time_limit_ns;  /* soft; heuristics may need longer for their first packing */
};

struct ebb_pool_solution {
    char pool[32];
    uint64_t *offsets; /* bytes; of the best packing found, one a buffer; NULL without buffers */
    uint32_t count;
    uint64_t height_bytes;      /* what the packing needs; no offset + size is above it */
    uint64_t load_bytes;        /* most that live at one instant */
    uint64_t lower_bound_bytes; /* no packing is lower: the load, or more where that was proved */
    bool feasible;              /* height_bytes <= capacity_bytes */
    bool infeasible;            /* proved: no packing is within the capacity */
    bool optimal;               /* proved: no packing is lower than height_bytes */
    uint64_t solve_ns;
};

/* Pack under `pool`, a name of the table in pool.c. On EBB_OK *solution is the caller's
 * (ebb__pool_solution_fini()); a capacity that was not reached is no error. EBB_ERR_ARGUMENT for an
 * unknown name or a buffer that is not one, EBB_ERR_LIMIT where the sizes add up to 2^62 or more,
 * EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__pool_solve(const char *pool,
                                              const struct ebb_pool_problem *problem,
                                              struct ebb_pool_solution *solution,
                                              struct ebb_error *error);
void ebb__pool_solution_fini(struct ebb_pool_solution *solution);

/* The names of the table, in its order: the default first; NULL behind the last. */
const char *ebb__pool_name(size_t index);

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
    EBB_POOL_TICK,  /* index: the tick */
    EBB_POOL_LEFT,  /* index: the absence whose copy out ends */
    EBB_POOL_COMES, /* index: the absence whose copy in starts */
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

/* Does this pool make use of more than one iteration on the circle? The published ones do not. */
bool ebb__pool_unrolls(const char *pool);

#endif
