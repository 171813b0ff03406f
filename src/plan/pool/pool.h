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

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EBB_POOL_NO_CAPACITY UINT64_MAX

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
    /* Both soft; heuristics may need more for their first packing. */
    uint64_t time_limit_ns; /* 0: a box that only a slow machine hits, and pack_steps of effort */
    uint64_t effort_steps;  /* base/effort.h; 0: as much as time_limit_ns has room for */
};

/* What is known of the capacity. */
enum ebb_pool_capacity {
    EBB_POOL_CAPACITY_MET,        /* the packing is within it */
    EBB_POOL_CAPACITY_OPEN,       /* it is not, and whether one can be is open */
    EBB_POOL_CAPACITY_IMPOSSIBLE, /* proved: no packing is within it */
};

struct ebb_pool_solution {
    char pool[32];
    uint64_t *offsets; /* bytes; of the best packing found, one a buffer; NULL without buffers */
    uint32_t count;
    uint64_t height_bytes;      /* what the packing needs; no offset + size is above it */
    uint64_t load_bytes;        /* most that live at one instant */
    uint64_t lower_bound_bytes; /* no packing is lower: the load, or more where that was proved */
    enum ebb_pool_capacity capacity;
    bool optimal;   /* proved: no packing is lower than height_bytes */
    bool timed_out; /* the time was out before the effort: another machine may find another */
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

/* A problem in work (src/plan/pool/internal.h). */
struct ebb_pool_job;

/* A pool is a row of a table: of the one in pool.c, or of that of src/lab, whose rows come in by
 * ebb__pool_solve_by(). */
struct ebb_pool {
    const char *name;
    enum ebb_status (*pack)(struct ebb_pool_job *job); /* as those in internal.h */
    bool unrolls; /* makes use of more than one iteration on the circle; the published do not */
};

/* As ebb__pool_solve(), under a pool of any table. */
EBB_NODISCARD enum ebb_status ebb__pool_solve_by(const struct ebb_pool *pool,
                                                 const struct ebb_pool_problem *problem,
                                                 struct ebb_pool_solution *solution,
                                                 struct ebb_error *error);

/* The table in pool.c, the default first; *count is the number of rows. */
const struct ebb_pool *ebb__pools(size_t *count);

#endif
