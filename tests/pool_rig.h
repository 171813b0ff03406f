/* Solves packing problems for tests, and checks the solutions. Include it after cmocka. */
#ifndef EBB_TESTS_POOL_RIG_H
#define EBB_TESTS_POOL_RIG_H

#include "check/packing.h"
#include "plan/pool/pool.h"
#include "synthetic.h"

#define SECOND_NS 1000000000u

static inline struct ebb_pool_problem problem_of(const struct ebb_pool_buffer *buffers,
                                                 uint32_t count, uint64_t period, uint64_t capacity)
{
    return (struct ebb_pool_problem){buffers, count, period, capacity, 2 * (uint64_t)SECOND_NS,
                                     0,       NULL};
}

/* Solves the problem and asserts that the checker accepts the solution. */
static inline struct ebb_pool_solution solve_by(const struct ebb_pool *pool,
                                                const struct ebb_pool_problem *problem)
{
    struct ebb_pool_solution solution;
    struct ebb_error error = {0};
    if (ebb__pool_solve_by(pool, problem, &solution, &error))
        fail_msg("%s: %s: %s", pool->name, error.what, error.why);
    if (ebb__check_packing(problem, &solution, &error))
        fail_msg("%s: %s", pool->name, error.why);
    assert_string_equal(solution.pool, pool->name);
    assert_int_equal(solution.count, problem->count);
    return solution;
}

static inline bool meet(const struct ebb_pool_buffer *a, const struct ebb_pool_buffer *b,
                        uint64_t period)
{
    for (int turn = period ? -1 : 0; turn <= (period ? 1 : 0); turn++) {
        int64_t shift = turn * (int64_t)period;
        if ((int64_t)a->lower + shift < (int64_t)b->upper &&
            (int64_t)b->lower < (int64_t)a->upper + shift)
            return true;
    }
    return false;
}

static inline void random_buffers(struct ebb_pool_buffer *buffers, uint32_t count, uint64_t period,
                                  uint64_t *seed)
{
    uint64_t times = period ? period : 12;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t lower = chance(seed) % times;
        uint64_t most = period ? period : times - lower;
        buffers[i] =
            (struct ebb_pool_buffer){lower, lower + 1 + chance(seed) % most, 1 + chance(seed) % 9};
    }
}

#endif
