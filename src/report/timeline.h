/* The timeline: an iteration with its stalls, in the time that passes on a clock.
 *
 * A plan's times are on the model clock, which stands while the program stalls. Here each stall has
 * its width, so that transfers can be drawn with their true length. */
#ifndef EBB_REPORT_TIMELINE_H
#define EBB_REPORT_TIMELINE_H

#include "base/status.h"
#include "plan/request/request.h"

struct ebb_timeline_stall {
    uint64_t model_ns; /* where the model clock stands */
    uint64_t start_ns; /* in real time, like all other times */
    uint64_t ns;
};

/* A copy of the absence with the same index in the plan. in_start_ns == in_end_ns: none. Times may
 * exceed the iteration: the copy then ends in the next one. */
struct ebb_timeline_copy {
    uint64_t out_start_ns, out_end_ns;
    uint64_t in_start_ns, in_end_ns;
};

struct ebb_timeline {
    uint64_t iteration_ns;             /* with stalls */
    struct ebb_timeline_stall *stalls; /* by time */
    uint32_t stall_count;
    struct ebb_timeline_copy *copies;
    uint32_t copy_count;
};

/* `planned` may be NULL: no stalls and no copies. EBB_ERR_MEMORY, and errors of the simulator. */
EBB_NODISCARD enum ebb_status ebb__timeline_init(const struct ebb_model *model,
                                                 const struct ebb_planned *planned,
                                                 struct ebb_timeline *timeline,
                                                 struct ebb_error *error);
void ebb__timeline_fini(struct ebb_timeline *timeline);

/* The real time of a model time, before or after a stall at that instant. */
uint64_t ebb__timeline_before(const struct ebb_timeline *timeline, uint64_t model_ns);
uint64_t ebb__timeline_after(const struct ebb_timeline *timeline, uint64_t model_ns);

#endif
