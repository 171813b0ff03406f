/* Ebb's own pool. The portfolio is fast. The exact search solves most problems of up to some
 * thousand buffers. For the rest, the buffers that exceed the target height are moved.
 *
 * Without a capacity, the exact search tries a height, and then a lower or higher one by the
 * result. The bound is first, since it is often reached. Then heights are bisected between the
 * highest that was refused or took too long and the best packing. Heights that took too long are
 * tried again with more effort. */
#include "plan/pool/exact.h"

#include "base/tuning.h"
#include "plan/pool/internal.h"

#include <stdlib.h>

/* A search often ends this little above the bound. Half and twice of it give the same packing. */
#define NEAR 8192
/* Heights closer than a 2000th are not distinguished; half and twice give the same packing. */
#define CLOSE_ENOUGH 2000
#define EXACT_COUNT 4000 /* more buffers exceed its memory and time */

static enum ebb_status ask(struct ebb_pool_job *job, uint64_t height, uint64_t slice_steps,
                           uint64_t turns[2], uint64_t *scratch, enum ebb_pool_verdict *verdict)
{
    uint64_t limit = job->effort.limit;
    if (limit > job->effort.spent && slice_steps < limit - job->effort.spent)
        limit = job->effort.spent + slice_steps;
    enum ebb_status status = ebb__pool_exact(job->problem, &job->sections, height, &job->effort,
                                             limit, turns, scratch, verdict);
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

/* Bisection in which "no" may mean "not with this effort". */
static enum ebb_status bisect(struct ebb_pool_job *job, uint64_t *scratch)
{
    uint64_t slice_steps = ebb__tuning()->pack_first_steps, turns[2] = {0};
    enum ebb_pool_verdict verdict;
    enum ebb_status status = EBB_OK;
    while (!status && !ebb__pool_settled(job) && !ebb__pool_is_over(job)) {
        status = ask(job, job->bound, slice_steps, turns, scratch, &verdict);
        uint64_t refused = job->bound, near = job->bound + job->bound / NEAR;
        if (!status && near > refused && job->height > near && !ebb__pool_is_over(job)) {
            status = ask(job, near, ebb__tuning()->pack_near_patience * slice_steps, turns, scratch,
                         &verdict);
            refused = near;
        }
        while (!status && !ebb__pool_settled(job) && !ebb__pool_is_over(job) &&
               job->height > refused + job->bound / CLOSE_ENOUGH + 1) {
            uint64_t height = refused + (job->height - refused) / 2;
            status = ask(job, height, slice_steps, turns, scratch, &verdict);
            if (verdict != EBB_POOL_FOUND)
                refused = height > refused ? height : refused;
        }
        slice_steps *= 2;
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
            status = ebb__pool_firstfit(job); /* an initial upper bound */
        if (!status)
            status = bisect(job, scratch);
    }
    free(scratch);
    return status;
}

enum ebb_status ebb__pool_ebb(struct ebb_pool_job *job)
{
    enum ebb_status status = EBB_OK;
    if (job->problem->count <= EXACT_COUNT) { /* otherwise the local search tries the ways itself */
        status = ebb__pool_portfolio(job);
        if (!status && !ebb__pool_settled(job))
            status = ebb__pool_optimise(job);
    }
    if (!status && !ebb__pool_settled(job) && !ebb__pool_is_over(job))
        status = ebb__pool_improve(job);
    return status;
}
