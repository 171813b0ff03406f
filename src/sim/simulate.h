/* The simulator: one iteration under a plan and a machine, lap after lap, until it is steady.
 *
 *     struct ebb_sim_request request = {&model, &machine, plan.absences, plan.absence_count,
 *                                       budget_bytes, page_bytes};
 *     struct ebb_sim_result result;
 *     status = ebb__simulate(&request, NULL, &result, &error);
 *
 * The program's events happen in the model's order and with the model's times between them; what a
 * plan adds is waiting. The **model clock** is the program's progress in stall-free time: it stands
 * while the program stalls. All times given and taken here are on it.
 *
 *   - An absence becomes ready at the first clock event after its from_tick (and its margin), or, where
 *     it starts within a stretch, at the event behind its margin itself. Copies out run one by
 *     one in the order in which they became ready (at one event: in that of out_start_ns, counted
 *     from there; then in that of the absences).
 *   - A copy in is due to start when the model clock reaches in_start_ns; it starts when the lane
 *     is free and resident + its bytes <= budget. Copies in run in the order of in_start_ns; one
 *     that the program waits for goes first.
 *   - An access to an absent block stalls until the block is resident; a copy out still waiting or
 *     running is cancelled by the access instead (its predicted times are then meaningless).
 *   - An allocation takes its pages at once and stalls until they fit.
 *   - Bytes count until the copy out is done and again from the start of the copy in.
 *   - Where the machine is not duplex, two running copies go at half their rate each.
 *   - If nothing can move any more, the budget is broken (feasible == false) and the run goes on.
 *
 * Every copy out costs its lane time, also where a kept copy would spare it. Deterministic.
 * O((events + absences) log absences) a lap. */
#ifndef EBB_SIM_SIMULATE_H
#define EBB_SIM_SIMULATE_H

#include "base/status.h"
#include "machine/machine.h"
#include "model/model.h"
#include "plan/plan.h"

#include <stdbool.h>
#include <stdint.h>

struct ebb_sim_request {
    const struct ebb_model *model;
    const struct ebb_machine *machine;
    const struct ebb_absence *absences; /* all but keep_copy and the ends are read */
    uint32_t absence_count;
    uint64_t budget_bytes;
    uint64_t page_bytes; /* as in struct ebb_plan_request */
};

/* What happened to one absence in the steady state; times modulo the stall-free iteration. */
struct ebb_sim_times {
    uint64_t out_start_ns;
    uint64_t out_end_ns;
    uint64_t in_start_ns;
    uint64_t in_end_ns;
    uint64_t stall_ns; /* that the program waited for this block */
    bool cancelled;    /* the block was needed before it had left */
};

/* Where a caller wants more than figures; each pointer may be NULL. */
struct ebb_sim_detail {
    struct ebb_sim_times *times; /* absence_count */
    uint64_t *tick_stall_ns;     /* tick_count: stall just before each event */
};

struct ebb_sim_result {
    uint64_t peak_bytes;
    uint64_t iteration_ns;  /* with stalls */
    uint64_t stall_ns;      /* iteration_ns less the model's */
    uint64_t room_stall_ns; /* the part that allocations waited for */
    uint64_t moved_out_bytes;
    uint64_t moved_in_bytes;
    uint32_t cancelled_count;
    uint32_t laps;
    bool steady;   /* the last two laps took the same time */
    bool feasible; /* the budget was never broken in the last lap */
};

/* EBB_ERR_ARGUMENT where an absence names no block or tick of the model; EBB_ERR_MEMORY. `detail` may
 * be NULL. */
EBB_NODISCARD enum ebb_status ebb__simulate(const struct ebb_sim_request *request,
                                            const struct ebb_sim_detail *detail,
                                            struct ebb_sim_result *result, struct ebb_error *error);

#endif
