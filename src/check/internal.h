/* What the files of the checker share: the plan under check, and its absences on an unrolled
 * clock. */
#ifndef EBB_CHECK_INTERNAL_H
#define EBB_CHECK_INTERNAL_H

#include "check/check.h"

/* An absence on an unrolled clock that begins with the iteration of its ready event. */
struct span {
    uint64_t ready, out_start, out_end, in_start, in_end, need;
};

/* When a block takes its bytes, under the plan's rules. */
struct life {
    uint64_t bytes;
    uint64_t span_ticks;
    uint32_t alloc_tick; /* EBB_TICK_NONE: always */
    uint32_t free_tick;
};

struct check {
    const struct ebb_check_request *request;
    const struct ebb_model *model;
    const struct ebb_plan *plan;
    struct ebb_error *error;
    uint64_t turn_ns;
    uint32_t *next_use;   /* by tick: the next event of the same block */
    uint32_t *next_clock; /* by tick: the first clock event after it */
    struct span *spans;   /* by absence */
    struct life *lives;   /* by block */
    bool *taken;          /* by tick: an absence begins after it */
    bool *dropped;        /* by tick: a FREE of a block that is already evicted */
};

#define VIOLATION(check, ...) ebb__fail((check)->error, EBB_ERR_FORMAT, "plan", __VA_ARGS__)

/* Bytes of a block in whole pages. */
uint64_t ebb__check_bytes(const struct check *check, uint32_t block);
/* The first instant at or after `after_ns` that equals `time_ns` modulo an iteration. */
uint64_t ebb__check_unroll(const struct check *check, uint64_t time_ns, uint64_t after_ns);
/* The event at which the eviction may start. */
uint32_t ebb__check_ready_tick(const struct check *check, const struct ebb_absence *absence);

/* Each absence keeps the plan's rules, and the rules are possible. Fills check->lives. */
EBB_NODISCARD enum ebb_status ebb__check_rules(struct check *check);
/* The resident bytes are within the claimed peak, and within the budget. */
EBB_NODISCARD enum ebb_status ebb__check_curve(struct check *check);

/* The stall of an iteration if the plan is carried out. The plan has absences alone, and its rules
 * were checked. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__check_replay(struct check *check, uint64_t *stall_ns);

#endif
