#include "plan/pool/pool.h"

#include "base/tuning.h"
#include "plan/pool/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX ((uint64_t)1 << 62) /* far from overflow of sums */

static const struct ebb_pool pools[] = {
    {"ebb", ebb__pool_ebb, true},           {"portfolio", ebb__pool_portfolio, true},
    {"exact", ebb__pool_optimise, true},    {"bestfit", ebb__pool_bestfit, true},
    {"firstfit", ebb__pool_firstfit, true},
};

#define POOL_COUNT (sizeof pools / sizeof pools[0])

const struct ebb_pool *ebb__pools(size_t *count)
{
    *count = POOL_COUNT;
    return pools;
}

static enum ebb_status problem_check(const struct ebb_pool_problem *problem,
                                     struct ebb_error *error)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < problem->count; i++) {
        const struct ebb_pool_buffer *item = &problem->buffers[i];
        if (item->upper <= item->lower || item->size_bytes == 0 ||
            (problem->period &&
             (item->lower >= problem->period || item->upper - item->lower > problem->period)))
            return ebb__fail(error, EBB_ERR_ARGUMENT, "pool", "buffer %" PRIu32 " is none", i);
        if (item->size_bytes >= BYTES_MAX - sum)
            return ebb__fail(error, EBB_ERR_LIMIT, "pool", "the buffers are 2^62 bytes or more");
        sum += item->size_bytes;
    }
    return EBB_OK;
}

static enum ebb_status pack(enum ebb_status (*packer)(struct ebb_pool_job *job),
                            struct ebb_pool_job *job, struct ebb_pool_solution *solution)
{
    const struct ebb_pool_problem *problem = job->problem;
    uint64_t begin_ns = ebb__now_ns();
    uint64_t steps = problem->effort_steps;
    if (!steps)
        steps = problem->time_limit_ns ? UINT64_MAX / 4 : ebb__tuning()->pack_steps;
    job->effort = ebb__effort(steps, problem->time_limit_ns ? problem->time_limit_ns
                                                            : ebb__tuning_pack_box_ns());
    job->effort.stop = problem->stop;
    job->height = UINT64_MAX;
    job->offsets = calloc(problem->count + 1u, sizeof *job->offsets);
    enum ebb_status status =
        job->offsets ? ebb__pool_sections_init(&job->sections, problem) : EBB_ERR_MEMORY;
    if (status)
        return status;
    job->bound = job->sections.load_bound_bytes;
    status = packer(job);
    if (!status && job->height == UINT64_MAX)
        status = ebb__pool_firstfit(job); /* the exact search alone found nothing in time */
    if (status)
        return status;
    solution->offsets = job->offsets;
    job->offsets = NULL;
    solution->count = problem->count;
    solution->height_bytes = job->height;
    solution->load_bytes = job->sections.load_bound_bytes;
    solution->lower_bound_bytes = job->bound;
    solution->capacity = job->height <= problem->capacity_bytes ? EBB_POOL_CAPACITY_MET
                         : job->bound > problem->capacity_bytes ? EBB_POOL_CAPACITY_IMPOSSIBLE
                                                                : EBB_POOL_CAPACITY_OPEN;
    solution->optimal = job->height == job->bound;
    solution->timed_out = job->effort.timed_out;
    solution->solve_ns = ebb__now_ns() - begin_ns;
    return EBB_OK;
}

enum ebb_status ebb__pool_solve_by(const struct ebb_pool *pool,
                                   const struct ebb_pool_problem *problem,
                                   struct ebb_pool_solution *solution, struct ebb_error *error)
{
    *solution = (struct ebb_pool_solution){0};
    enum ebb_status status = problem_check(problem, error);
    if (status)
        return status;
    snprintf(solution->pool, sizeof solution->pool, "%s", pool->name);
    struct ebb_pool_job job = {.problem = problem};
    status = pack(pool->pack, &job, solution);
    ebb__pool_sections_fini(&job.sections);
    free(job.offsets);
    return status ? ebb__fail(error, status, "pool", "%s", ebb_status_text(status)) : EBB_OK;
}

enum ebb_status ebb__pool_solve(const char *pool, const struct ebb_pool_problem *problem,
                                struct ebb_pool_solution *solution, struct ebb_error *error)
{
    *solution = (struct ebb_pool_solution){0};
    for (size_t i = 0; i < POOL_COUNT; i++)
        if (strcmp(pools[i].name, pool) == 0)
            return ebb__pool_solve_by(&pools[i], problem, solution, error);
    return ebb__fail(error, EBB_ERR_ARGUMENT, pool, "no pool of this name");
}

void ebb__pool_solution_fini(struct ebb_pool_solution *solution)
{
    free(solution->offsets);
    *solution = (struct ebb_pool_solution){0};
}
