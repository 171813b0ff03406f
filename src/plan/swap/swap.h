/* What the swap policies share: the gaps that may become absences, their schedule on the lanes, the
 * resident curve that results, and the way from a choice of gaps to a finished plan.
 *
 * A policy chooses gaps (`taken`), fixes when each copy in is to start (`trigger_ns`) and lets the
 * simulator say what that costs. Times here are on the model clock and **unrolled**: a gap begins
 * at ready_ns in [0, lap_ns) and what follows may be up to a lap later. A **cell** is the span
 * between two ticks, cell t being [time(t), time(t + 1)); curves have a value for each. */
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
    uint32_t margin_ticks; /* events after from_tick that pass first */
    uint32_t ready_tick;   /* the first clock event after these: the eviction may start */
    bool drops;
    bool out_within; /* ready_tick is no clock event, but from_tick + margin_ticks */

    uint64_t bytes;
    uint64_t ready_ns;
    uint64_t need_ns; /* of to_tick */
    uint64_t due_ns;  /* when the operation of to_tick begins: it may touch the block at once */
    uint64_t out_ns;  /* lane times */
    uint64_t in_ns;   /* 0 where it drops */

    bool taken;
    uint64_t trigger_ns; /* when its copy in is to start, modulo a lap */
    /* Set by ebb__swap_schedule(), for gaps not taken as if they were, after those that are. */
    int64_t out_end_ns;
    int64_t in_start_ns;
};

/* A gap in a sweep (sweep.c). */
struct ebb_swap_open {
    uint64_t rank;
    int64_t end; /* ticks after the sweep's begin */
    uint32_t gap;
};

struct ebb_swap {
    const struct ebb_plan_request *request;
    const struct ebb_model *model;
    uint64_t lap_ns;
    uint32_t cell_count;
    uint64_t *load;  /* live bytes in pages, by cell */
    uint64_t *curve; /* resident bytes under the present schedule, by cell */
    struct ebb_swap_gap *gaps;
    uint32_t gap_count;
    bool within;           /* gaps may begin and end within stretches that have no clock event */
    uint32_t within_count; /* of gaps for which that makes a difference */
    uint64_t smallest_feasible_bytes;
    double lane_scale;        /* > 1: schedule as if lanes took this many times less (default 1) */
    struct ebb_effort effort; /* of the whole search: what is done to gaps and cells is counted */
    uint64_t limit_steps;     /* of it: when refinement ends */
    uint64_t started_ns;
    uint64_t *tick_stall_ns; /* tick_count, the policy's own: filled by each evaluation; or NULL */

    /* Internal. */
    uint32_t *by_ready, *by_due; /* orders of the gaps */
    struct ebb_swap_open *open;  /* room for each gap twice */
    uint32_t *bucket;            /* first tick at or after each of cell_count equal time steps */
    struct ebb_absence *absences;
    uint32_t *absence_gap;
    struct ebb_sim_times *times;
};

/* What the simulator says of a choice. */
struct ebb_swap_outcome {
    bool feasible;
    uint64_t iteration_ns;
    uint64_t moved_bytes;
    uint64_t peak_bytes;
};

EBB_NODISCARD enum ebb_status ebb__swap_init(struct ebb_swap *swap,
                                             const struct ebb_plan_request *request,
                                             struct ebb_error *error);
/* The same, with gaps that begin and end within long stretches without clock events, by the traced
 * times of accesses and a margin: what a stretch touches need then not be resident together. */
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
/* Add `bytes` (two's complement: also negative) to the cells [first, first + count), cyclic. */
void ebb__swap_range_add(uint64_t *curve, uint32_t cell_count, uint32_t first, uint32_t count,
                         uint64_t bytes);

/* Keep the gaps that `choose` says true of; it may set *margin_ticks, events that pass before the
 * block is evicted. What is left counts as all there is: the orders and smallest_feasible_bytes are
 * made anew, nothing is taken. */
typedef bool (*ebb_swap_choice)(const struct ebb_swap *swap, const struct ebb_swap_gap *gap,
                                const void *context, uint32_t *margin_ticks);
EBB_NODISCARD enum ebb_status ebb__swap_narrow(struct ebb_swap *swap, ebb_swap_choice choose,
                                               const void *context, struct ebb_error *error);

/* Compute the `curve` that results where copies take no time: taken gaps are out from ready to
 * need. Returns its maximum. O(gaps + cells). */
uint64_t ebb__swap_curve_ideal(struct ebb_swap *swap);

/* Schedule the taken gaps on the lanes, outs first come first served and ins as late as they may,
 * each `margin_ns` before it is due, and compute `curve`. Returns the curve's maximum.
 * O(gaps + cells). */
uint64_t ebb__swap_schedule(struct ebb_swap *swap, uint64_t margin_ns);

/* The cells [*first, *last) (modulo cell_count) that a gap keeps its bytes out of, as scheduled.
 * Empty: *first >= *last. */
void ebb__swap_cells(const struct ebb_swap *swap, const struct ebb_swap_gap *gap, uint32_t *first,
                     uint32_t *last);

/* Set trigger_ns of the taken gaps to the schedule's in_start_ns. */
void ebb__swap_trigger_late(struct ebb_swap *swap);

/* Set trigger_ns of the taken gaps to the earliest time from which the block fits for good, in
 * order of need, copies out thought instant: then the simulator can never come to a standstill. */
void ebb__swap_trigger_early(struct ebb_swap *swap, uint64_t budget_bytes);

/* Both: as late as the schedule says, but not before it fits for good. */
void ebb__swap_trigger_limit(struct ebb_swap *swap, uint64_t budget_bytes);

/* Which gap becomes an absence where the load exceeds the budget. */
enum ebb_swap_order { EBB_SWAP_FIRST_IN, EBB_SWAP_LATEST_NEED, EBB_SWAP_CHEAPEST };

/* Take gaps, in one sweep over the cells, until the ideal curve (lanes thought instant) meets
 * `budget_bytes`; forgets what was taken before. False where it cannot.
 * `curve` is working space. O(gaps log gaps + cells). */
bool ebb__swap_select(struct ebb_swap *swap, uint64_t budget_bytes, enum ebb_swap_order order);

/* Simulate what is taken, under the request's budget. Gaps whose copy out is cancelled are no
 * longer taken afterwards. */
EBB_NODISCARD enum ebb_status ebb__swap_evaluate(struct ebb_swap *swap,
                                                 struct ebb_swap_outcome *outcome,
                                                 struct ebb_error *error);

/* True where `left` is the better outcome: feasible, then less time (differences under 0.1 % of an
 * iteration are none), then fewer bytes moved. */
bool ebb__swap_better(const struct ebb_swap *swap, const struct ebb_swap_outcome *left,
                      const struct ebb_swap_outcome *right);

/* Fill everything of *plan but its policy from what is taken, predictions by the simulator. */
EBB_NODISCARD enum ebb_status ebb__swap_finish(struct ebb_swap *swap, struct ebb_plan *plan,
                                               struct ebb_error *error);

/* The policies, for the table in plan.c; plan->policy is set, and names the variant. */
enum ebb_status ebb__swap_none(const struct ebb_plan_request *request, struct ebb_plan *plan,
                               struct ebb_error *error);
enum ebb_status ebb__swap_fifo(const struct ebb_plan_request *request, struct ebb_plan *plan,
                               struct ebb_error *error);
enum ebb_status ebb__swap_ebb(const struct ebb_plan_request *request, struct ebb_plan *plan,
                              struct ebb_error *error);
enum ebb_status ebb__swap_ebb_zero_stall(const struct ebb_plan_request *request,
                                         struct ebb_plan *plan, struct ebb_error *error);

#endif
