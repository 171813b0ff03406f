/* The plan: when each block is evicted, and when it is resident again.
 *
 * Ticks are those of the plan's model. An absence uses one gap of one block:
 *   from_tick   the access before the gap. The eviction may start when the use that begins there is
 *               over: at the first clock event after it (ebb_gap.from_ns; but see out_within)
 *   in_ns       planned start of the prefetch, ns from the iteration's start, cyclic
 *   to_tick     the access (or FREE) at which the block must be resident again
 *   drops       to_tick is the block's FREE: it is never fetched
 * A block's bytes count as resident until its copy out ends, and again from the start of its copy
 * in. */
#ifndef EBB_PLAN_PLAN_H
#define EBB_PLAN_PLAN_H

#include "base/effort.h"
#include "base/geometry.h"
#include "base/status.h"
#include "machine/machine.h"
#include "model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* An absence. If no clock event marks the end of a use, the use counts as over after within_ticks
 * events and a time margin. The margin is the possible error of a predicted time. It is within_ns,
 * or, if greater, the time from the last clock event to the use's start divided by
 * within_drift_divisor. All three are rows of the tuning. */

struct ebb_absence {
    uint32_t block; /* index into model->blocks */
    uint32_t from_tick;
    uint32_t to_tick;
    bool drops;
    bool keep_copy; /* according to the trace, the block is only read until its next absence. The
                       store keeps its copy: an unchanged block is evicted without a write */
    uint32_t margin_ticks; /* number of further events before the eviction may start: at the first
                              clock event after from_tick + margin_ticks */
    uint64_t out_start_ns; /* predicted, ns from the iteration's start, cyclic in its duration */
    uint64_t out_end_ns;
    uint64_t in_start_ns; /* 0 and unused if drops */
    uint64_t in_end_ns;
    uint64_t stall_ns; /* predicted: how long the program waits for the block */
    /* In a long stretch without clock events, where access times are known only from the trace: */
    bool out_within; /* the eviction may start at the event from_tick + margin_ticks itself,
                        although it is not a clock event: the use counts as over (within_ns) */
    bool in_within;  /* the block may still be absent at the last clock event before to_tick: the
                        program does not wait for it there */
    bool passive;    /* a prediction: memory was lacking, and the block was evicted although nothing
                        was planned (struct ebb_plan_rules) */
};

/* A block that lies in the memory of another one, its host, from its allocation to its free. It
 * takes no bytes of its own. The host keeps its bytes until both are freed. */
struct ebb_share {
    uint32_t block;
    uint32_t host;
};

/* What a plan asks of the program, or of the runtime, beyond absences. Only policies for comparison
 * do. What is asked of the program the runtime cannot carry out, so such a plan has no script. */
struct ebb_plan_rules {
    uint32_t *barriers; /* ticks, ascending. Before the event at each, the program waits for copies:
                           for all copies out that were requested, and for the blocks whose
                           absences end before the next barrier */
    uint32_t barrier_count;
    struct ebb_share *shares;
    uint32_t share_count;
    bool keeps_all; /* each block has memory of its own for the whole iteration; there are no
                       absences */
    bool passive;   /* if memory is lacking and no planned copy will bring some, the least recently
                       used block is evicted; it is fetched on access. Every runtime does that */
    uint64_t passive_least_bytes; /* smaller blocks are never evicted so */
};

struct ebb_plan {
    char policy[32];
    uint64_t budget_bytes;
    uint64_t searched_bytes; /* the budget that its predictions are for, if that is less; else 0 */
    bool feasible;           /* peak_bytes <= budget_bytes */
    bool reactive;           /* nothing is decided in advance: the absences are a prediction */
    uint64_t smallest_feasible_bytes; /* by any plan of this policy: the working set of one
                                         operation */
    struct ebb_absence *absences;     /* sorted by out_start_ns */
    uint32_t absence_count;
    struct ebb_plan_rules rules; /* as a rule empty */
    /* Predictions, made by the simulator, for one iteration in steady state. */
    uint64_t peak_bytes; /* resident */
    uint64_t stall_ns;
    uint64_t iteration_ns; /* with stalls */
    uint64_t overhead_ns;  /* beside that: transfers cost the program, even if it does not wait */
    uint64_t moved_out_bytes;
    uint64_t moved_in_bytes;
    uint64_t plan_ns; /* time spent planning */
    bool timed_out;   /* the search ended by the time limit: another machine may find another
                         plan */
};

/* The input of a planner. */
struct ebb_plan_request {
    const struct ebb_model *model;
    const struct ebb_machine *machine;
    uint64_t budget_bytes; /* on resident block bytes, each block rounded up to page_bytes */
    uint64_t page_bytes;   /* a power of two; 1 for traces without pages */
    uint64_t smallest_block_bytes; /* smaller blocks are never evicted */
    uint64_t time_limit_ns;        /* soft; 0: plan_box_ns, and the planner's own effort */
    bool newest_only;        /* only the newest instance of a block can be evicted (by the runtime's
                         script). Gaps of blocks that outlive an iteration are not used */
    uint64_t effort_steps;   /* of the search (base/effort.h); 0: derived from time_limit_ns */
    uint64_t seed;           /* of the search's chance; 0: the usual one */
    const atomic_bool *stop; /* as in struct ebb_effort */
    bool *chance_used; /* is set if the search used chance: another seed may find another plan.
                              NULL: nobody asks */
    uint64_t place_unit_bytes; /* memory of the static placement comes and leaves in such units, of
                                  whole pages; 0: huge pages */
};

/* The first state of a search's random generator: `usual`, changed by the request's seed. */
static inline uint64_t ebb__plan_chance(const struct ebb_plan_request *request, uint64_t usual)
{
    uint64_t chance = usual ^ (request->seed << 32) ^ request->seed;
    return chance ? chance : usual;
}

/* A search calls it if its random generator decided something. */
static inline void ebb__plan_used_chance(const struct ebb_plan_request *request)
{
    if (request->chance_used)
        *request->chance_used = true;
}

/* The effort that the request allows. A time limit alone is converted to the steps that it usually
 * suffices for. */
struct ebb_effort ebb__plan_effort(const struct ebb_plan_request *request);

/* Reduces the request to the share of one of `count` plans that divide its effort. */
static inline void ebb__plan_request_share(struct ebb_plan_request *request, uint64_t count)
{
    if (request->effort_steps)
        request->effort_steps = (request->effort_steps - 1) / count + 1;
    if (request->time_limit_ns)
        request->time_limit_ns = (request->time_limit_ns - 1) / count + 1;
}

static inline uint64_t ebb__plan_place_unit(const struct ebb_plan_request *request)
{
    return request->place_unit_bytes ? request->place_unit_bytes : EBB_HUGE_BYTES;
}

/* Bytes that a block takes in fast memory under this request. */
static inline uint64_t ebb__plan_block_bytes(const struct ebb_plan_request *request,
                                             const struct ebb_model_block *block)
{
    uint64_t page = request->page_bytes ? request->page_bytes : 1;
    return (block->size_bytes + page - 1) / page * page;
}

/* The tick at which the use at `from` is over: the first at which it certainly is (within_ns).
 * `ready`, the first clock event after `from`, if no earlier tick qualifies. `before`: from
 * ebb__model_clocks_before(). O(distance). */
uint32_t ebb__plan_use_over(const struct ebb_model *model, const uint32_t *before, uint32_t from,
                            uint32_t ready);
/* The last tick by which the block used at `to` must be resident, in case it is used earlier than
 * predicted. It is between `due`, the last clock event before `to`, and `to`; `due` if no tick
 * qualifies. O(distance). */
uint32_t ebb__plan_use_near(const struct ebb_model *model, uint32_t due, uint32_t to);

/* Makes *plan; the policy's name in it is set already. The caller releases it, even on failure. */
typedef enum ebb_status (*ebb_planner)(const struct ebb_plan_request *request,
                                       struct ebb_plan *plan, struct ebb_error *error);

/* A policy is a row of a table. One table is in this folder; the table of policies for comparison
 * is in src/lab. The caller passes the row to the planner. */
struct ebb_policy {
    const char *name; /* "autoswap:doa": the planner reads the variant from plan->policy */
    ebb_planner make;
    ebb_planner zero_stall; /* its own search for the smallest budget without a stall, or NULL */
    bool reactive;      /* decides nothing in advance: a program runs under it without a script */
    const char *ground; /* which gaps of `ebb` its authors could not use, and why; NULL: it may use
                           them all */
};

/* The policies of this folder, the default first; *count is their number. */
const struct ebb_policy *ebb__plan_policies(size_t *count);
/* The policy of this folder with that name, or NULL. */
const struct ebb_policy *ebb__plan_policy(const char *name);

/* Plans under `policy`. On EBB_OK the caller owns *plan (ebb__plan_fini()). If the budget is too
 * small, the result is EBB_OK with feasible == false and smallest_feasible_bytes set; the absences
 * are then the planner's best effort. EBB_ERR_ARGUMENT if `policy` is NULL. */
EBB_NODISCARD enum ebb_status ebb__plan_make(const struct ebb_policy *policy,
                                             const struct ebb_plan_request *request,
                                             struct ebb_plan *plan, struct ebb_error *error);

/* Finds the plan for the smallest budget at which `policy` has no stall; plan->budget_bytes is that
 * budget. If plan->stall_ns is not 0, the policy stalls even with memory for the whole load, and
 * the plan is for that. request->budget_bytes is ignored. Uses the policy's own search if it has
 * one, else ebb__plan_search_zero_stall() from the peak down. Errors as in ebb__plan_make(). */
EBB_NODISCARD enum ebb_status ebb__plan_zero_stall(const struct ebb_policy *policy,
                                                   const struct ebb_plan_request *request,
                                                   struct ebb_plan *plan, struct ebb_error *error);

/* Makes a plan by `make`, with the given name, and charges the machine's costs of its transfers. */
EBB_NODISCARD enum ebb_status ebb__plan_by(const char *name, bool reactive, ebb_planner make,
                                           const struct ebb_plan_request *request,
                                           struct ebb_plan *plan, struct ebb_error *error);

/* Bisects budgets below plan->budget_bytes, at which *plan, made by `make`, has no stall. Replaces
 * *plan by each better one. Planners are heuristic: a smaller budget may happen to work although a
 * larger one does not. The result is a budget that works, next to one that does not. */
EBB_NODISCARD enum ebb_status ebb__plan_search_zero_stall(ebb_planner make,
                                                          const struct ebb_plan_request *request,
                                                          struct ebb_plan *plan,
                                                          struct ebb_error *error);

/* True if the plan asks nothing of the program: the runtime can carry it out. */
static inline bool ebb__plan_is_plain(const struct ebb_plan *plan)
{
    return !plan->rules.barrier_count && !plan->rules.share_count && !plan->rules.keeps_all;
}

static inline void ebb__plan_fini(struct ebb_plan *plan)
{
    free(plan->absences);
    free(plan->rules.barriers);
    free(plan->rules.shares);
    plan->absences = NULL;
    plan->absence_count = 0;
    plan->rules = (struct ebb_plan_rules){0};
}

#endif
