/* The pool: addresses for blocks whose lifetimes are known (dynamic storage allocation).
 *
 *     struct ebb_pool_problem problem = {.buffers = buffers, .count = count, ...};
 *     struct ebb_pool_solution solution;
 *     if (ebb__pool_solve("ebb", &problem, &solution, &error) == EBB_OK) {
 *         if (solution.feasible) use(solution.offsets, solution.height_bytes);
 *         ebb__pool_solution_fini(&solution);
 *     }
 *
 * A buffer is a rectangle, lifetime by size, of which only the offset can be chosen. No two may
 * overlap, and the highest top should be low. Deciding whether a height suffices is NP-complete
 * (Garey and Johnson 1979, problem SR2). The load, the most bytes live at one instant, is a lower
 * bound for every packing. Thread-safe: no state. */
#ifndef EBB_PLAN_POOL_POOL_H
#define EBB_PLAN_POOL_POOL_H

#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EBB_POOL_NO_CAPACITY UINT64_MAX

/* Live in [lower, upper), lower < upper. With a period, lower < period and upper - lower <= period:
 * a lifetime beyond the end of the period continues at its beginning. */
struct ebb_pool_buffer {
    uint64_t lower;
    uint64_t upper;
    uint64_t size_bytes; /* > 0 */
};

struct ebb_pool_problem {
    const struct ebb_pool_buffer *buffers;
    uint32_t count;
    uint64_t period;         /* 0: time is a line, not a circle */
    uint64_t capacity_bytes; /* a sufficient height, or EBB_POOL_NO_CAPACITY: find the lowest */
    /* Both are soft; heuristics may need more for their first packing. */
    uint64_t time_limit_ns;  /* 0: pack_steps of effort, and a limit that only a slow machine
                               reaches */
    uint64_t effort_steps;   /* base/effort.h; 0: derived from time_limit_ns */
    const atomic_bool *stop; /* as in struct ebb_effort */
};

/* What is known about the capacity. */
enum ebb_pool_capacity {
    EBB_POOL_CAPACITY_MET,        /* the packing is within it */
    EBB_POOL_CAPACITY_OPEN,       /* the packing exceeds it; whether another fits is unknown */
    EBB_POOL_CAPACITY_IMPOSSIBLE, /* proved: no packing fits into it */
};

struct ebb_pool_solution {
    char pool[32];
    uint64_t *offsets; /* of the best packing found, in bytes, one a buffer; NULL without buffers */
    uint32_t count;
    uint64_t height_bytes;      /* height of the packing: the largest offset + size */
    uint64_t load_bytes;        /* most bytes live at one instant */
    uint64_t lower_bound_bytes; /* no packing is lower: the load, or more if that was proved */
    enum ebb_pool_capacity capacity;
    bool optimal;   /* proved: no packing is lower than height_bytes */
    bool timed_out; /* the time ran out before the effort: another machine may find another
                       packing */
    uint64_t solve_ns;
};

/* Packs with `pool`, a name in the table in pool.c. On EBB_OK the caller owns *solution
 * (ebb__pool_solution_fini()). A capacity that was not reached is no error. EBB_ERR_ARGUMENT for an
 * unknown name or an invalid buffer; EBB_ERR_LIMIT if the sizes add up to 2^62 or more;
 * EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__pool_solve(const char *pool,
                                              const struct ebb_pool_problem *problem,
                                              struct ebb_pool_solution *solution,
                                              struct ebb_error *error);
void ebb__pool_solution_fini(struct ebb_pool_solution *solution);

/* A problem being solved (src/plan/pool/internal.h). */
struct ebb_pool_job;

/* A pool is a row of a table: of that in pool.c, or of that in src/lab, whose rows are passed to
 * ebb__pool_solve_by(). */
struct ebb_pool {
    const char *name;
    enum ebb_status (*pack)(struct ebb_pool_job *job); /* as those in internal.h */
    bool unrolls; /* uses more than one iteration on the circle; published pools do not */
};

/* As ebb__pool_solve(), with a pool of any table. */
EBB_NODISCARD enum ebb_status ebb__pool_solve_by(const struct ebb_pool *pool,
                                                 const struct ebb_pool_problem *problem,
                                                 struct ebb_pool_solution *solution,
                                                 struct ebb_error *error);

/* The table in pool.c, the default first; *count is the number of rows. */
const struct ebb_pool *ebb__pools(size_t *count);

#endif
