/* What the pools share: a problem being solved, and the best packing so far. */
#ifndef EBB_PLAN_POOL_INTERNAL_H
#define EBB_PLAN_POOL_INTERNAL_H

#include "base/effort.h"
#include "plan/pool/pool.h"
#include "plan/pool/sections.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct ebb_pool_job {
    const struct ebb_pool_problem *problem;
    struct ebb_pool_sections sections;
    struct ebb_effort effort;
    uint64_t *offsets; /* offsets of the best packing */
    uint64_t height;   /* its height; UINT64_MAX: none yet */
    uint64_t bound;    /* no packing is lower */
};

static inline bool ebb__pool_is_over(const struct ebb_pool_job *job)
{
    return ebb__effort_is_over(&job->effort, job->effort.limit);
}

/* True if nothing remains to be done: the capacity is reached or proved impossible, or the best
 * packing is proved the lowest. */
static inline bool ebb__pool_settled(const struct ebb_pool_job *job)
{
    uint64_t capacity = job->problem->capacity_bytes;
    return job->height <= job->bound || job->bound > capacity ||
           (capacity != EBB_POOL_NO_CAPACITY && job->height <= capacity);
}

/* Keeps this packing if it is lower than the best. */
static inline void ebb__pool_offer(struct ebb_pool_job *job, const uint64_t *offsets,
                                   uint64_t height)
{
    if (height >= job->height)
        return;
    job->height = height;
    memcpy(job->offsets, offsets, job->problem->count * sizeof *offsets);
}

/* The pools: each offers packings, and raises the bound if it proves one. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__pool_bestfit(struct ebb_pool_job *job);
EBB_NODISCARD enum ebb_status ebb__pool_firstfit(struct ebb_pool_job *job);
EBB_NODISCARD enum ebb_status ebb__pool_portfolio(struct ebb_pool_job *job);
EBB_NODISCARD enum ebb_status ebb__pool_optimise(struct ebb_pool_job *job); /* `exact` */
EBB_NODISCARD enum ebb_status ebb__pool_ebb(struct ebb_pool_job *job);

/* Repeatedly moves what exceeds the target height in the best packing, until the effort is
 * spent. */
EBB_NODISCARD enum ebb_status ebb__pool_improve(struct ebb_pool_job *job);

/* The number of steps that one pass of a fit over the problem counts as. */
static inline uint64_t ebb__pool_fit_steps(const struct ebb_pool_problem *problem)
{
    return 64 * (uint64_t)problem->count + (uint64_t)problem->count * problem->count / 16;
}

#endif
