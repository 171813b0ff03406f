/* Fast computation of the memory that a choice of gaps needs on a given timeline, for searches that
 * ask a million times.
 *
 * Copies out run one by one as blocks become ready; copies in run one by one, as late as possible.
 * The timeline may be longer than the model's own: the difference stands for expected stalls. Lane
 * times are always scaled by swap->lane_scale; only the simulator models shared bandwidth. */
#ifndef EBB_PLAN_SWAP_MEASURE_H
#define EBB_PLAN_SWAP_MEASURE_H

#include "plan/swap/swap.h"

struct ebb_measure_item {
    int64_t ready_ns, due_ns; /* unrolled: ready in [0, iteration) */
    int64_t out_ns, in_ns;
    int64_t bytes;
    bool drops, taken;
    int64_t end_ns;   /* end of the copy out, as scheduled last */
    int64_t start_ns; /* start of the copy in, or the time of the FREE */
};

struct ebb_measure_step {
    int64_t at_ns;
    int64_t load_bytes; /* largest load from here to the next step */
};

/* A change of the resident curve by a lane. */
struct ebb_measure_instant {
    int64_t at_ns, bytes;
};

struct ebb_measure {
    struct ebb_effort *effort; /* counts the examined items */
    int64_t lap_ns;
    struct ebb_measure_item *items; /* one for each gap of the swap */
    uint32_t item_count;
    uint32_t *by_ready, *by_due; /* taken items, sorted */
    uint32_t taken_count;
    uint32_t *useful; /* items whose gap is long enough for their copies */
    uint32_t useful_count;

    /* Internal. */
    struct ebb_measure_step *steps; /* of the load, sorted by time; a sentinel at the end */
    uint32_t step_count;
    uint32_t *watched; /* the steps examined every time, sorted */
    bool *is_watched;  /* by step */
    uint32_t watched_count;
    uint32_t *bucket; /* the last step at or before each of equally long spans */
    int bucket_shift;
    struct ebb_measure_instant *outs, *ins; /* ends of copies out, starts of copies in; sorted */
    uint32_t *due_rank, *ready_rank;        /* by item: its rank among all */
    uint32_t *ranked;                       /* scratch: the items by one of these ranks */
};

struct ebb_measured {
    double excess;      /* over the target, sum of squares; more if the schedule is impossible */
    int64_t peak_bytes; /* at the watched steps; at least the target; INT64_MAX: impossible */
};

/* `time_ns` has tick_count + 1 entries: the time of each tick. No item is taken yet. Uses the
 * swap's effort. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__measure_init(struct ebb_measure *measure, struct ebb_swap *swap,
                                                const uint64_t *time_ns, struct ebb_error *error);
void ebb__measure_fini(struct ebb_measure *measure);

/* Takes the item, or drops it if it is taken. O(taken). */
void ebb__measure_turn_over(struct ebb_measure *measure, uint32_t item);
/* Updates after the caller has set `taken` of many items. O(items). */
void ebb__measure_retake(struct ebb_measure *measure);

/* Sets end_ns and start_ns of the taken items. */
void ebb__measure_schedule(struct ebb_measure *measure);

/* Schedules and measures; gives up once the excess is over `limit`. O(watched steps + taken). */
struct ebb_measured ebb__measure(struct ebb_measure *measure, int64_t target_bytes, double limit);

/* Schedules, and returns the true peak over all steps. The step of the peak is watched afterwards.
 * INT64_MAX if a block is needed before its copy out ends. O(steps + taken). */
int64_t ebb__measure_peak(struct ebb_measure *measure);

/* Reduces an instant to the cyclic timeline; *laps is the number of iterations subtracted. */
int64_t ebb__measure_wrap(int64_t at_ns, int64_t lap_ns, int64_t *laps);

#endif
