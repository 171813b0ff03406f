/* The simulator: repeats one iteration under a plan and a machine until it is steady.
 *
 *     struct ebb_sim_request request = {&model, &machine, plan.absences, plan.absence_count,
 *                                       budget_bytes, page_bytes, &plan.rules};
 *     struct ebb_sim_result result;
 *     status = ebb__simulate(&request, NULL, &result, &error);
 *
 * The program's events occur in the model's order with the model's times between them; a plan only
 * adds stalls. The **model clock** is the program's progress in stall-free time: it stands still
 * while the program stalls. All times in arguments and results are on it.
 *
 *   - An absence becomes ready at the first clock event after its from_tick and margin. If it
 *     starts within a stretch: at the event behind its margin itself. Copies out run one by one in
 *     the order in which they became ready. Ties are broken by out_start_ns, counted from that
 *     event, and then by the order of the absences.
 *   - A copy in is due when the model clock reaches in_start_ns. It starts when the lane is free
 *     and resident + its bytes <= budget. Copies in run in the order of in_start_ns, but one that
 *     the program waits for runs first.
 *   - An access to an absent block stalls until the block is resident. If its copy out is still
 *     waiting or running, the access cancels that instead (predicted times are then meaningless).
 *   - An allocation takes its pages at once and stalls until they fit.
 *   - Bytes count until the copy out ends, and again from the start of the copy in.
 *   - If the machine is not duplex, two running copies have half their rate each.
 *   - At a barrier the program waits for copies (struct ebb_plan_rules). No copy in becomes due
 *     meanwhile.
 *   - A block in the memory of its host takes no bytes. The host's bytes count until both are free.
 *   - If nothing can progress, the budget is exceeded (feasible == false) and the run continues.
 *     If the plan is passive, a block is evicted first: passive.c. An access to a block that is
 *     absent for any reason then fetches it, also if the plan expects no access there.
 *
 * Every copy out costs its lane time, even if a kept copy would avoid it. Deterministic. O((events
 * + absences) log absences) an iteration. */
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
    const struct ebb_absence *absences; /* all fields are read but keep_copy and the ends. Passive
                                           ones are ignored: they are predicted again */
    uint32_t absence_count;
    uint64_t budget_bytes;
    uint64_t page_bytes;                /* as in struct ebb_plan_request */
    const struct ebb_plan_rules *rules; /* NULL: none */
};

/* Result for one absence in the steady state; times modulo the stall-free iteration. */
struct ebb_sim_times {
    uint64_t out_start_ns;
    uint64_t out_end_ns;
    uint64_t in_start_ns;
    uint64_t in_end_ns;
    uint64_t stall_ns; /* the program waited this long for the block */
    bool cancelled;    /* the block was needed before its copy out ended */
    bool wasted;       /* passive plans: it was fetched, and evicted again before its use */
};

/* Optional detail; each pointer may be NULL. */
struct ebb_sim_detail {
    struct ebb_sim_times *times; /* absence_count */
    uint64_t *tick_stall_ns;     /* tick_count: stall just before each event */
    /* Of a passive plan: absences that were not planned, in the order of their ends. */
    struct ebb_absence *passive; /* at most one for each gap of the model */
    uint32_t *passive_count;
};

struct ebb_sim_result {
    uint64_t peak_bytes;
    uint64_t iteration_ns;  /* with stalls */
    uint64_t stall_ns;      /* iteration_ns minus the model's */
    uint64_t room_stall_ns; /* the part for which allocations waited */
    uint64_t moved_out_bytes;
    uint64_t moved_in_bytes;
    uint32_t cancelled_count;
    uint32_t laps;
    bool steady;   /* all later iterations are like the last one. Of a passive plan: the last two
                      had the same figures */
    bool feasible; /* the budget was never exceeded in the last iteration */
};

/* EBB_ERR_ARGUMENT if an absence or a rule names no block or tick of the model; EBB_ERR_MEMORY.
 * `detail` may be NULL. */
EBB_NODISCARD enum ebb_status ebb__simulate(const struct ebb_sim_request *request,
                                            const struct ebb_sim_detail *detail,
                                            struct ebb_sim_result *result, struct ebb_error *error);

#endif
