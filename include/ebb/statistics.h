/* Statistics of a context since its creation.
 *
 *     struct ebb_statistics statistics;
 *     ebb_statistics(context, &statistics);
 *     printf("%llu bytes at most\n", (unsigned long long)statistics.peak_resident_bytes);
 */
#ifndef EBB_STATISTICS_H
#define EBB_STATISTICS_H

#include "ebb/context.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_statistics {
    uint64_t budget_bytes;            /* 0: none */
    uint64_t resident_bytes;          /* memory of tensors, and what is kept for the next ones */
    uint64_t peak_resident_bytes;     /* the most of that */
    uint64_t live_bytes;              /* of tensors that have contents */
    uint64_t peak_live_bytes;         /* the most of that: needed without Ebb */
    uint64_t moved_out_bytes;         /* written to the store */
    uint64_t moved_in_bytes;          /* read from it */
    uint64_t stall_ns;                /* the program has waited for tensors or memory */
    uint64_t iterations;              /* whole ones */
    uint64_t planned_iterations;      /* those that followed a plan from begin to end */
    uint64_t plans;                   /* plans made */
    uint64_t smallest_feasible_bytes; /* by the newest plan; 0: unknown */
    /* The budget is exceeded only while the store cannot be written, and the program would have to
     * stop otherwise. */
    uint64_t over_budget_bytes; /* the most by which that was so; 0: never */
    int store_errno;            /* of its last failure; 0: none */
};

/* Fills *statistics. Cannot fail. O(1). */
EBB_API void ebb_statistics(struct ebb_context *context, struct ebb_statistics *statistics);

#ifdef __cplusplus
}
#endif

#endif
