/* What a choice of gaps needs in fast memory on a given timeline, measured fast: for searches that ask
 * a million times.
 *
 * Copies out run one by one as blocks become ready, copies in one by one as late as they may. The
 * timeline may be longer than the model's own: then the program waits as if it had agreed to. Lanes
 * take what swap->lane_scale says, always: those that share bandwidth only the simulator knows. */
#ifndef EBB_PLAN_SWAP_MEASURE_H
#define EBB_PLAN_SWAP_MEASURE_H

#include "plan/swap/swap.h"

struct ebb_measure_item {
    int64_t ready_ns, due_ns; /* unrolled: ready in [0, lap) */
    int64_t out_ns, in_ns;
    int64_t bytes;
    bool drops, taken;
    int64_t end_ns;   /* of the copy out, as scheduled last */
    int64_t start_ns; /* of the copy in, or when it is freed */
};

struct ebb_measure_step {
    int64_t at_ns;
    int64_t load_bytes; /* the largest from here to the next step */
};

/* Something that a lane does to the curve. */
struct ebb_measure_instant {
    int64_t at_ns, bytes;
};

struct ebb_measure {
    struct ebb_effort *effort; /* counts what is looked at */
    int64_t lap_ns;
    struct ebb_measure_item *items; /* one for each gap of the swap */
    uint32_t item_count;
    uint32_t *by_ready, *by_due; /* taken items, in order */
    uint32_t taken_count;
    uint32_t *useful; /* items whose gap is long enough for their copies */
    uint32_t useful_count;

    /* Internal. */
    struct ebb_measure_step *steps; /* of the load, in order of time; an end that never comes */
    uint32_t step_count;
    uint32_t *watched; /* the steps that are looked at each time, in order */
    bool *is_watched;  /* by step */
    uint32_t watched_count;
    uint32_t *bucket; /* the last step at or before each of equal spans of time */
    int bucket_shift;
    struct ebb_measure_instant *outs, *ins; /* ends and starts in order */
    uint32_t *due_rank, *ready_rank;        /* by item: its place among all */
    uint32_t *ranked;                       /* scratch: the items by one of them */
};

struct ebb_measured {
    double excess;      /* over the target, squared and summed; more for what cannot be */
    int64_t peak_bytes; /* at the watched steps; at least the target; INT64_MAX: cannot be */
};

/* `time_ns`: of the ticks, tick_count + 1. Nothing is taken. The swap's effort is spent.
 * EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__measure_init(struct ebb_measure *measure, struct ebb_swap *swap,
                                                const uint64_t *time_ns, struct ebb_error *error);
void ebb__measure_fini(struct ebb_measure *measure);

/* Take the item, or take it no longer. O(taken). */
void ebb__measure_turn_over(struct ebb_measure *measure, uint32_t item);
/* As well for many at once, whose `taken` the caller has set. O(items). */
void ebb__measure_retake(struct ebb_measure *measure);

/* Set end_ns and start_ns of what is taken. */
void ebb__measure_schedule(struct ebb_measure *measure);

/* Schedule and measure; given up where the excess is over `limit`. O(watched steps + taken). */
struct ebb_measured ebb__measure(struct ebb_measure *measure, int64_t target_bytes, double limit);

/* Schedule; the true peak, at all steps. The step that has it is watched from now on. INT64_MAX where
 * something is wanted before it is gone. O(steps + taken). */
int64_t ebb__measure_peak(struct ebb_measure *measure);

/* An instant on the cyclic timeline, and on which lap from its own. */
int64_t ebb__measure_wrap(int64_t at_ns, int64_t lap_ns, int64_t *laps);

#endif
