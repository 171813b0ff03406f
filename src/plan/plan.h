/* The plan: which block is evicted when, and when it is resident again.
 *
 * Ticks are those of the model the plan was made for. An absence takes one gap of one block:
 *   from_tick   the access before the gap; the eviction may start once the use that began there is
 *               over, that is at the first clock event after it (ebb_gap.from_ns; but see out_within)
 *   in_ns       when the prefetch should start, ns from the iteration's start, cyclic
 *   to_tick     the access (or FREE) at which the block must be resident again
 *   drops       to_tick is the block's FREE: it is never fetched
 * Bytes of a block count as resident until its copy out is done, and again from the start of its
 * copy in. */
#ifndef EBB_PLAN_PLAN_H
#define EBB_PLAN_PLAN_H

#include "base/effort.h"
#include "base/status.h"
#include "machine/machine.h"
#include "model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Where no clock event says so, a use is taken to be over when within_ticks events have followed
 * and the greater of within_ns and a within_drift_divisor-th of the time from the last clock event
 * to its beginning has passed: by so much may a predicted time be off. These three are
 * rows of the tuning. */

struct ebb_absence {
    uint32_t block; /* index into model->blocks */
    uint32_t from_tick;
    uint32_t to_tick;
    bool drops;
    bool keep_copy; /* the trace says that the block is only read until its next absence: the store
                       keeps its copy, so that it may be evicted without a write if unchanged */
    uint32_t margin_ticks; /* so many more events pass before the eviction may start: it does at the
                              first clock event after from_tick + margin_ticks */
    uint64_t out_start_ns; /* predicted, ns from the iteration's start, cyclic in its duration */
    uint64_t out_end_ns;
    uint64_t in_start_ns; /* 0 and unused where drops */
    uint64_t in_end_ns;
    uint64_t stall_ns; /* predicted: how long the program waits for the block */
    /* In a long stretch without clock events, whose accesses only the trace knows the times of: */
    bool out_within; /* the eviction may start at the event from_tick + margin_ticks itself,
                        although it is no clock event: the use is taken to be over
                        (within_ns) */
    bool in_within;  /* the block may still be absent at the last clock event before to_tick: the
                        program is not held there */
};

struct ebb_plan {
    char policy[32];
    uint64_t budget_bytes;
    bool feasible; /* peak_bytes <= budget_bytes */
    bool reactive; /* nothing is decided beforehand: the absences say what would happen */
    uint64_t smallest_feasible_bytes; /* of any plan by this policy: one operation's working set */
    struct ebb_absence *absences;     /* by out_start_ns */
    uint32_t absence_count;
    /* Predictions, made by the simulator, for one iteration in steady state. */
    uint64_t peak_bytes; /* resident */
    uint64_t stall_ns;
    uint64_t iteration_ns; /* with stalls */
    uint64_t moved_out_bytes;
    uint64_t moved_in_bytes;
    uint64_t plan_ns; /* time spent planning */
    bool timed_out;   /* the search ended by the box of time: another machine may plan otherwise */
};

/* What a planner is asked. */
struct ebb_plan_request {
    const struct ebb_model *model;
    const struct ebb_machine *machine;
    uint64_t budget_bytes; /* on resident block bytes, each block rounded up to page_bytes */
    uint64_t page_bytes;   /* a power of two; 1 for traces without pages */
    uint64_t smallest_block_bytes; /* smaller blocks never move */
    uint64_t time_limit_ns;        /* soft; 0: plan_box_ns, and the planner's own effort */
    bool newest_only; /* only the newest instance of a block can be evicted (the runtime's script),
                         so gaps of blocks that outlive an iteration are no gaps */
    uint64_t effort_steps; /* of the search (base/effort.h); 0: what time_limit_ns allows */
};

/* The effort that the request allows: a limit of time alone stands for the steps that it usually
 * suffices for. */
struct ebb_effort ebb__plan_effort(const struct ebb_plan_request *request);

/* The request for one of `count` plans that share what is allowed for one. */
static inline void ebb__plan_request_share(struct ebb_plan_request *request, uint64_t count)
{
    if (request->effort_steps)
        request->effort_steps = (request->effort_steps - 1) / count + 1;
    if (request->time_limit_ns)
        request->time_limit_ns = (request->time_limit_ns - 1) / count + 1;
}

/* Bytes that a block takes in fast memory under this request. */
static inline uint64_t ebb__plan_block_bytes(const struct ebb_plan_request *request,
                                             const struct ebb_model_block *block)
{
    uint64_t page = request->page_bytes ? request->page_bytes : 1;
    return (block->size_bytes + page - 1) / page * page;
}

/* When the use at `from` is over: the first tick at which it surely is (within_ns), `ready` where
 * that is none before it, which is the first clock event after `from`. `before`: of
 * ebb__model_clocks_before(). O(distance). */
uint32_t ebb__plan_use_over(const struct ebb_model *model, const uint32_t *before, uint32_t from,
                            uint32_t ready);
/* The last tick behind the clock event `due`, the last one before `to`, at which what is used at
 * `to` must be resident, lest it is used earlier than predicted; `due` where there is none.
 * O(distance). */
uint32_t ebb__plan_use_near(const struct ebb_model *model, uint32_t due, uint32_t to);

/* Makes *plan, of which the name of the policy is set; the caller releases it also on failure. */
typedef enum ebb_status (*ebb_planner)(const struct ebb_plan_request *request,
                                       struct ebb_plan *plan, struct ebb_error *error);

/* A policy is a row of a table. The tables are this folder's and, in src/lab, that of the policies
 * for comparison; who plans is handed the row, and knows no other. */
struct ebb_policy {
    const char *name; /* "autoswap:doa": the planner reads the variant from plan->policy */
    ebb_planner make;
    ebb_planner zero_stall; /* its own way to the smallest budget without a stall, or NULL */
    bool reactive; /* decides nothing beforehand: a program runs under it without a script */
};

/* The policies of this folder, the default first; *count is their number. */
const struct ebb_policy *ebb__plan_policies(size_t *count);
/* The one of this folder of that name, or NULL. */
const struct ebb_policy *ebb__plan_policy(const char *name);

/* Plan under `policy`. On EBB_OK *plan is owned by the caller (ebb__plan_fini()); a budget that
 * cannot be met gives EBB_OK with feasible == false and smallest_feasible_bytes set (the absences
 * are then the planner's best effort). NULL for a policy: EBB_ERR_ARGUMENT. */
EBB_NODISCARD enum ebb_status ebb__plan_make(const struct ebb_policy *policy,
                                             const struct ebb_plan_request *request,
                                             struct ebb_plan *plan, struct ebb_error *error);

/* The plan for the smallest budget found at which `policy` stalls nothing; plan->budget_bytes says
 * which. Where plan->stall_ns is not 0 the policy stalls even with room for the whole load, for
 * which the plan then is. request->budget_bytes is not read. By the policy's own way where it has
 * one, else by ebb__plan_search_zero_stall() from the peak on. Errors as ebb__plan_make(). */
EBB_NODISCARD enum ebb_status ebb__plan_zero_stall(const struct ebb_policy *policy,
                                                   const struct ebb_plan_request *request,
                                                   struct ebb_plan *plan, struct ebb_error *error);

/* Bisection over budgets below plan->budget_bytes, at which *plan, which `make` made, stalls nothing;
 * replaces *plan by each better one. Planners are no exact science: a smaller budget may happen to work where a
 * larger one does not, so what is found is a budget that works, next to one that does not. */
EBB_NODISCARD enum ebb_status ebb__plan_search_zero_stall(ebb_planner make,
                                                          const struct ebb_plan_request *request,
                                                          struct ebb_plan *plan,
                                                          struct ebb_error *error);

static inline void ebb__plan_fini(struct ebb_plan *plan)
{
    free(plan->absences);
    plan->absences = NULL;
    plan->absence_count = 0;
}

#endif
