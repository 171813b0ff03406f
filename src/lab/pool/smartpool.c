/* SmartPool, as published. It places blocks by descending size; of equal ones the earlier allocated
 * first. Each block gets the smallest sufficient gap between the placed blocks that conflict with
 * it.
 *
 * The published method has a linear iteration, not a cyclic one. A block that lives across the end
 * of the iteration gets an exclusive region of twice its size. It is also for the block of the next
 * iteration. The iteration begins at the begin of the problem's period. A model puts that at
 * the tick with the least live memory. The height includes whole regions, but an offset names the
 * first half. Source: docs/papers.md, AutoSwap and SmartPool. O(n^2). */
#include "lab/pool/smartpool.h"
#include "plan/pool/fit.h"
#include "plan/pool/internal.h"

#include <stdlib.h>
#include <string.h>

enum ebb_status ebb__pool_smartpool(struct ebb_pool_job *job)
{
    const struct ebb_pool_problem *problem = job->problem;
    if (problem->period == 0)
        return ebb__pool_bestfit(job);
    uint32_t n = problem->count;
    enum ebb_status status = EBB_ERR_MEMORY;
    struct ebb_pool_buffer *line = malloc((n + 1u) * sizeof *line);
    if (!line)
        return status;
    memcpy(line, problem->buffers, n * sizeof *line);
    for (uint32_t i = 0; i < n; i++)
        if (line[i].upper > problem->period)
            line[i] = (struct ebb_pool_buffer){0, problem->period, 2 * line[i].size_bytes};
    struct ebb_pool_problem lined = {.buffers = line, .count = n};
    struct ebb_pool_job inner = {.problem = &lined, .offsets = job->offsets, .height = UINT64_MAX};
    status = ebb__pool_sections_init(&inner.sections, &lined);
    if (!status)
        status = ebb__pool_bestfit(&inner);
    if (!status)
        job->height = inner.height;
    ebb__pool_sections_fini(&inner.sections);
    free(line);
    return status;
}
