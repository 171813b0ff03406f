/* Effort: a limit for a search, in steps that the search counts itself instead of time.
 *
 *     struct ebb_effort effort = ebb__effort(steps, box_ns);
 *     while (!ebb__effort_is_over(&effort, effort.limit)) {
 *         ... look at n things ...
 *         ebb__effort_spend(&effort, n);
 *     }
 *
 * The same search ends at the same step on every machine and under every load. A slice of the
 * effort is a limit below effort.limit; it counts all steps spent so far. The time limit is the
 * last resort: if it is hit, all slices are over, and `timed_out` says that the result depends on
 * the machine. `stop`, if there is one, ends the search in the same way: somebody waits for what is
 * there. */
#ifndef EBB_BASE_EFFORT_H
#define EBB_BASE_EFFORT_H

#include "base/clock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Steps between two reads of the clock: a fraction of a millisecond, which is negligible. */
#define EBB_EFFORT_LOOK_STEPS ((uint64_t)1 << 17)

struct ebb_effort {
    uint64_t spent, limit;   /* steps */
    uint64_t deadline_ns;    /* CLOCK_MONOTONIC */
    uint64_t look_at;        /* the clock is read again at this many steps */
    const atomic_bool *stop; /* NULL: nobody stops it. Read with the clock */
    bool timed_out;
};

static inline struct ebb_effort ebb__effort(uint64_t steps, uint64_t box_ns)
{
    uint64_t now_ns = ebb__now_ns();
    return (struct ebb_effort){
        .limit = steps,
        .deadline_ns = box_ns < UINT64_MAX - now_ns ? now_ns + box_ns : UINT64_MAX,
        .look_at = EBB_EFFORT_LOOK_STEPS,
    };
}

static inline void ebb__effort_spend(struct ebb_effort *effort, uint64_t steps)
{
    effort->spent += steps;
    if (effort->spent < effort->look_at)
        return;
    effort->look_at = effort->spent + EBB_EFFORT_LOOK_STEPS;
    effort->timed_out = effort->timed_out || ebb__now_ns() > effort->deadline_ns ||
                        (effort->stop && atomic_load(effort->stop));
}

static inline bool ebb__effort_is_over(const struct ebb_effort *effort, uint64_t limit)
{
    return effort->timed_out || effort->spent >= limit;
}

/* The end of the first of `count` equal slices of the effort between now and `limit`. */
static inline uint64_t ebb__effort_slice(const struct ebb_effort *effort, uint64_t limit,
                                         uint64_t count)
{
    return effort->spent < limit ? effort->spent + (limit - effort->spent) / count : limit;
}

#endif
