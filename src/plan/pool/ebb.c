/* Ebb's own pool: the portfolio, which is quick; the exact search, which settles most of what has up
 * to some thousand buffers; and moving what stands out, for the rest.
 *
 * Without a capacity the exact search asks for a height, and for a lower or a higher one by the
 * answer: the bound first, since it often can be had; then between what was refused or took too
 * long and what is there. What took too long is asked again with more time. */
#include "plan/pool/exact.h"
#include "plan/pool/internal.h"

#include <stdlib.h>

#define EXACT_COUNT 4000          /* more buffers do not fit its memory, nor its time */
#define FIRST_SLICE_NS 100000000u /* arbitrary: most that can be had is had at once */
#define CLOSE_ENOUGH 2000         /* heights closer than a 2000th are not told apart */
#define NEAR 8192       /* so little above the bound is often had where the bound is not */
#define NEAR_PATIENCE 4 /* and is worth so much more time than what lies between */

static enum ebb_status ask(struct ebb_pool_job *job, uint64_t height, uint64_t slice_ns,
                           uint64_t turns[2], uint64_t *scratch, enum ebb_pool_verdict *verdict)
{
    uint64_t deadline_ns = ebb__now_ns() + slice_ns;
    if (deadline_ns > job->deadline_ns)
        deadline_ns = job->deadline_ns;
    enum ebb_status status =
        ebb__pool_exact(job->problem, &job->sections, height, deadline_ns, turns, scratch, verdict);
    if (status)
        return status;
    if (*verdict == EBB_POOL_IMPOSSIBLE && height + 1 > job->bound)
        job->bound = height + 1;
    if (*verdict != EBB_POOL_IMPOSSIBLE && scratch[0] != UINT64_MAX) {
        uint64_t top = 0;
        for (uint32_t i = 0; i < job->problem->count; i++)
            if (scratch[i] + job->problem->buffers[i].size_bytes > top)
                top = scratch[i] + job->problem->buffers[i].size_bytes;
        ebb__pool_offer(job, scratch, top);
    }
    return EBB_OK;
}

/* Bisection where "no" may mean "not in this time". */
static enum ebb_status bisect(struct ebb_pool_job *job, uint64_t *scratch)
{
    uint64_t slice_ns = FIRST_SLICE_NS, turns[2] = {0};
    enum ebb_pool_verdict verdict;
    enum ebb_status status = EBB_OK;
    while (!status && !ebb__pool_settled(job) && !ebb__pool_time_is_up(job)) {
        status = ask(job, job->bound, slice_ns, turns, scratch, &verdict);
        uint64_t refused = job->bound, near = job->bound + job->bound / NEAR;
        if (!status && near > refused && job->height > near && !ebb__pool_time_is_up(job)) {
            status = ask(job, near, NEAR_PATIENCE * slice_ns, turns, scratch, &verdict);
            refused = near;
        }
        while (!status && !ebb__pool_settled(job) && !ebb__pool_time_is_up(job) &&
               job->height > refused + job->bound / CLOSE_ENOUGH + 1) {
            uint64_t height = refused + (job->height - refused) / 2;
            status = ask(job, height, slice_ns, turns, scratch, &verdict);
            if (verdict != EBB_POOL_FOUND)
                refused = height > refused ? height : refused;
        }
        slice_ns *= 2;
    }
    return status;
}

enum ebb_status ebb__pool_optimise(struct ebb_pool_job *job)
{
    if (job->problem->count > EXACT_COUNT)
        return EBB_OK;
    uint64_t turns[2] = {0};
    enum ebb_pool_verdict verdict;
    uint64_t *scratch = calloc(job->problem->count + 1u, sizeof *scratch);
    if (!scratch)
        return EBB_ERR_MEMORY;
    enum ebb_status status = EBB_OK;
    if (job->problem->capacity_bytes != EBB_POOL_NO_CAPACITY) {
        status = ask(job, job->problem->capacity_bytes, UINT64_MAX / 4, turns, scratch, &verdict);
    } else {
        if (job->height == UINT64_MAX)
            status = ebb__pool_firstfit(job); /* something to be below */
        if (!status)
            status = bisect(job, scratch);
    }
    free(scratch);
    return status;
}

enum ebb_status ebb__pool_ebb(struct ebb_pool_job *job)
{
    enum ebb_status status = EBB_OK;
    if (job->problem->count <=
        EXACT_COUNT) { /* else the local search goes through the ways itself */
        status = ebb__pool_portfolio(job);
        if (!status && !ebb__pool_settled(job))
            status = ebb__pool_optimise(job);
    }
    if (!status && !ebb__pool_settled(job) && !ebb__pool_time_is_up(job))
        status = ebb__pool_improve(job, job->deadline_ns);
    return status;
}
