/* Lost time: what the first iterations of a run waited for, by cause.
 *
 * A trace of `ebb run --record` has a mark for each wait of a program thread. Other marks tell
 * where accesses are observed, and where a plan is in force. Together they tell the cause. Waits of
 * several threads add up, so a cause is an upper bound. */
#ifndef EBB_REPORT_LOST_H
#define EBB_REPORT_LOST_H

#include "base/status.h"
#include "model/model.h"

#define EBB_LOST_ITERATIONS 20

enum ebb_lost_cause {
    EBB_LOST_OBSERVED, /* waits while accesses were observed */
    EBB_LOST_EVICTED,  /* before the first plan: a block was evicted that was needed again */
    EBB_LOST_LATE,     /* under a plan: a transfer was late */
    EBB_LOST_SWITCHED, /* after a plan was left: the program did something else */
    EBB_LOST_CAUSES
};

struct ebb_lost_iteration {
    uint64_t ns; /* its duration */
    uint64_t cause_ns[EBB_LOST_CAUSES];
};

struct ebb_lost {
    struct ebb_lost_iteration iterations[EBB_LOST_ITERATIONS];
    uint32_t count;
    bool has_waits; /* the trace has marks of waits: it is of a run within a budget */
};

const char *ebb__lost_cause_name(enum ebb_lost_cause cause);

/* Reads the marks of a trace. The iterations begin at the events `starts`. O(events). */
void ebb__lost_find(struct ebb_event_span trace, const size_t *starts, size_t start_count,
                    struct ebb_lost *lost);

#endif
