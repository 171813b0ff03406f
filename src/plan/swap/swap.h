/* The common part of the swap policies: possible gaps, their schedule on the lanes, and the
 * resulting resident curve. It converts a choice of gaps to a plan.
 *
 * A policy chooses gaps (`taken`), sets the start of each copy in (`trigger_ns`) and asks the
 * simulator for the cost. Times here are on the model clock and **unrolled**: a gap begins at
 * ready_ns in [0, lap_ns). Its later times may be up to an iteration later. A **cell** is the span
 * between two ticks: cell t is [time(t), time(t + 1)). Curves have a value for each cell. */
#ifndef EBB_PLAN_SWAP_SWAP_H
#define EBB_PLAN_SWAP_SWAP_H

#include "base/effort.h"
#include "plan/plan.h"
#include "sim/simulate.h"

/* A gap that may be taken. */
struct ebb_swap_gap {
    uint32_t block;
    uint32_t from_tick;
    uint32_t to_tick;
    uint32_t margin_ticks; /* number of events after from_tick that must pass first */
    uint32_t ready_tick;   /* the first clock event after those: the eviction may start */
    bool drops;
    bool out_within; /* ready_tick is from_tick + margin_ticks, although it is not a clock event */

    uint64_t bytes;
    uint64_t ready_ns;
    uint64_t need_ns; /* time of to_tick */
    uint64_t due_ns;  /* start of the operation of to_tick: it may touch the block at once */
    uint64_t out_ns;  /* lane times */
    uint64_t in_ns;   /* 0 if it drops */

    bool taken;
    uint64_t trigger_ns; /* planned start of its copy in, modulo an iteration */
    /* Set by ebb__swap_schedule(). Gaps not taken get times as if they were taken last. */
    int64_t out_end_ns;
    int64_t in_start_ns;
};

/* A gap in a sweep (sweep.c). */
struct ebb_swap_open {
    uint64_t rank;
    int64_t end; /* in ticks after the sweep's start */
    uint32_t gap;
};

struct ebb_swap {
    const struct ebb_plan_request *request;
    const struct ebb_model *model;
    uint64_t lap_ns;
    uint32_t cell_count;
    uint64_t *load;  /* live bytes in whole pages, by cell */
    uint64_t *curve; /* resident bytes under the current schedule, by cell */
    struct ebb_swap_gap *gaps;
    uint32_t gap_count;
    bool within;           /* gaps may begin and end within stretches that have no clock event */
    uint32_t within_count; /* number of gaps for which that makes a difference */
    uint64_t smallest_feasible_bytes;
    double lane_scale;        /* lanes are assumed this many times as fast (default 1) */
    struct ebb_effort effort; /* of the whole search: counts operations on gaps and cells */
    uint64_t limit_steps;     /* of that effort: the end of refinement */
    uint64_t started_ns;
    const struct ebb_plan_rules *rules; /* of the policy, for the simulator; or NULL */
    uint64_t *tick_stall_ns; /* tick_count, owned by the policy: filled by each evaluation; or
                                NULL */

    /* Internal. */
    uint32_t *by_ready, *by_due; /* sorted indices of the gaps */
    struct ebb_swap_open *open;  /* space for each gap twice */
    uint32_t *bucket;            /* first tick at or after each of cell_count equal time steps */
    struct ebb_absence *absences;
    uint32_t *absence_gap;
    struct ebb_sim_times *times;
};

/* The simulator's result for a choice. */
struct ebb_swap_outcome {
    bool feasible;
    uint64_t iteration_ns;
    uint64_t moved_bytes;
    uint64_t peak_bytes;
};

EBB_NODISCARD enum ebb_status ebb__swap_init(struct ebb_swap *swap,
                                             const struct ebb_plan_request *request,
                                             struct ebb_error *error);
/* The same, with gaps that begin and end within long stretches without clock events. It relies on
 * traced access times and a margin. The blocks used in such a stretch need not all be resident
 * together. */
EBB_NODISCARD enum ebb_status ebb__swap_init_within(struct ebb_swap *swap,
                                                    const struct ebb_plan_request *request,
                                                    struct ebb_error *error);
void ebb__swap_fini(struct ebb_swap *swap);

/* Ticks from `from` to `to` on the cyclic timeline, 1 ... tick_count. */
static inline uint32_t ebb__swap_ticks_between(const struct ebb_swap *swap, uint32_t from,
                                               uint32_t to)
{
    return to > from ? to - from : to + swap->cell_count - from;
}
/* Adds `bytes` (two's complement: also negative) to the cells [first, first + count), cyclic. */
void ebb__swap_range_add(uint64_t *curve, uint32_t cell_count, uint32_t first, uint32_t count,
                         uint64_t bytes);

/* Keeps only the gaps for which `choose` returns true. It may set *margin_ticks, the number of
 * events before the block is evicted. The orders and smallest_feasible_bytes are recomputed for the
 * remaining gaps, and no gap is taken. */
typedef bool (*ebb_swap_choice)(const struct ebb_swap *swap, const struct ebb_swap_gap *gap,
                                const void *context, uint32_t *margin_ticks);
EBB_NODISCARD enum ebb_status ebb__swap_narrow(struct ebb_swap *swap, ebb_swap_choice choose,
                                               const void *context, struct ebb_error *error);

/* Computes `curve` for instant copies: taken gaps are evicted from ready to need. Returns its
 * maximum. O(gaps + cells). */
uint64_t ebb__swap_curve_ideal(struct ebb_swap *swap);

/* Schedules the taken gaps on the lanes and computes `curve`. Copies out run first come first
 * served. Copies in run as late as possible, each `margin_ns` before it is due. Returns the curve's
 * maximum. O(gaps + cells). */
uint64_t ebb__swap_schedule(struct ebb_swap *swap, uint64_t margin_ns);

/* The cells [*first, *last) (modulo cell_count) in which the scheduled gap frees its bytes. Empty:
 * *first >= *last. */
void ebb__swap_cells(const struct ebb_swap *swap, const struct ebb_swap_gap *gap, uint32_t *first,
                     uint32_t *last);

/* Sets trigger_ns of the taken gaps to the schedule's in_start_ns. */
void ebb__swap_trigger_late(struct ebb_swap *swap);

/* Sets trigger_ns of the taken gaps to the earliest time from which the block fits permanently, in
 * order of need, with instant copies out. The simulator can then never deadlock. */
void ebb__swap_trigger_early(struct ebb_swap *swap, uint64_t budget_bytes);

/* Combines both: as late as the schedule says, but not before the block fits permanently. */
void ebb__swap_trigger_limit(struct ebb_swap *swap, uint64_t budget_bytes);

/* Which gap becomes an absence if the load exceeds the budget. */
enum ebb_swap_order { EBB_SWAP_FIRST_IN, EBB_SWAP_LATEST_NEED, EBB_SWAP_CHEAPEST };

/* Takes gaps, in one sweep over the cells, until the curve for instant copies is within
 * `budget_bytes`. Gaps taken before are dropped. Returns false if that is impossible. Overwrites
 * `curve`. O(gaps log gaps + cells). */
bool ebb__swap_select(struct ebb_swap *swap, uint64_t budget_bytes, enum ebb_swap_order order);

/* Takes gaps by `order`, an order of all gaps, peak by peak. At the highest tick of the ideal curve
 * it takes the first gaps that contain it. Those that are too short for their copies come last. It
 * goes on at the next highest tick. False: a tick stays above the limit. O(taken * (gaps +
 * cells)). */
bool ebb__swap_take_peaks(struct ebb_swap *swap, const uint32_t *order, uint64_t limit_bytes);

/* What a gap is worth: the time that is left beside its copies, that times its bytes, or the excess
 * load over its ticks. */
enum ebb_swap_rank { EBB_SWAP_BY_DURATION, EBB_SWAP_BY_AREA, EBB_SWAP_BY_EXCESS, EBB_SWAP_RANKS };

/* The same by a rank of gaps. False also if out of memory. */
bool ebb__swap_select_ranked(struct ebb_swap *swap, uint64_t budget_bytes, enum ebb_swap_rank rank);

/* Simulates the taken gaps under the request's budget. Gaps whose copy out is cancelled are
 * dropped. */
EBB_NODISCARD enum ebb_status ebb__swap_evaluate(struct ebb_swap *swap,
                                                 struct ebb_swap_outcome *outcome,
                                                 struct ebb_error *error);

/* True if `left` is the better outcome: feasible first, then less time (differences under 0.1 % of
 * an iteration do not count), then fewer bytes moved. */
bool ebb__swap_better(const struct ebb_swap *swap, const struct ebb_swap_outcome *left,
                      const struct ebb_swap_outcome *right);

/* Fills all of *plan but its policy from the taken gaps, with predictions by the simulator. */
EBB_NODISCARD enum ebb_status ebb__swap_finish(struct ebb_swap *swap, struct ebb_plan *plan,
                                               struct ebb_error *error);

/* The policies, for the table in plan.c. plan->policy is already set, and names the variant. */
enum ebb_status ebb__swap_none(const struct ebb_plan_request *request, struct ebb_plan *plan,
                               struct ebb_error *error);
enum ebb_status ebb__swap_fifo(const struct ebb_plan_request *request, struct ebb_plan *plan,
                               struct ebb_error *error);
enum ebb_status ebb__swap_ebb(const struct ebb_plan_request *request, struct ebb_plan *plan,
                              struct ebb_error *error);
enum ebb_status ebb__swap_ebb_zero_stall(const struct ebb_plan_request *request,
                                         struct ebb_plan *plan, struct ebb_error *error);

#endif
