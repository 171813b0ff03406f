/* Lost time: what the first iterations of a run waited for, by cause.
 *
 * A run has a mark for each wait of a program thread, and marks of what observing its accesses has
 * cost. Other marks tell where accesses are observed, and where a plan is in force. Together they
 * tell the cause. Waits of several threads add up, so a cause is an upper bound.
 *
 *     struct ebb_lost_sums sums = {0};
 *     for (each event) ebb__lost_take(&sums, &event);
 *     sums.cause_ns[EBB_LOST_LATE]                        (so far) */
#ifndef EBB_MODEL_LOST_H
#define EBB_MODEL_LOST_H

#include "model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EBB_LOST_ITERATIONS 20

enum ebb_lost_cause {
    EBB_LOST_OBSERVED, /* observing accesses, and waits meanwhile */
    EBB_LOST_EVICTED,  /* before the first plan: a block was evicted that was needed again */
    EBB_LOST_LATE,     /* under a plan: a transfer was late */
    EBB_LOST_SWITCHED, /* after a plan was left: the program did something else */
    EBB_LOST_CAUSES
};

/* Sums over all events so far, and what is in force. */
struct ebb_lost_sums {
    uint64_t cause_ns[EBB_LOST_CAUSES];
    bool is_observed, has_plan, had_plan;
};

struct ebb_lost_iteration {
    uint64_t ns; /* its duration */
    uint64_t cause_ns[EBB_LOST_CAUSES];
};

struct ebb_lost {
    struct ebb_lost_iteration iterations[EBB_LOST_ITERATIONS];
    uint32_t count;
    bool has_waits; /* the run had waits: it was within a budget */
};

/* "late" and so on; never NULL. */
const char *ebb__lost_cause_name(enum ebb_lost_cause cause);

/* Takes the next event. Only marks matter. */
void ebb__lost_take(struct ebb_lost_sums *sums, const struct ebb_event *event);

/* Reads the marks of a trace. The iterations begin at the events `starts`. O(events). */
void ebb__lost_find(struct ebb_event_span trace, const size_t *starts, size_t start_count,
                    struct ebb_lost *lost);

#endif
