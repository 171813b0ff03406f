/* The plan checker: is a plan valid? It does not trust the planner or the simulator, and shares no
 * code with them. An error would have to be made twice to pass.
 *
 * It checks for every absence, on the model clock (see plan.h):
 *   - Its block and ticks exist. from_tick and to_tick are successive uses of the block: two
 *     accesses, or the last access and the FREE. It `drops` if and only if to_tick is the FREE. No
 *     gap is used twice, so no two absences of one block overlap.
 *   - The copy out starts at or after the first clock event behind from_tick and its margin. If it
 *     starts within a stretch: at or after the event behind its margin, by which the use is over
 *     according to plan.h. It ends before the copy in starts, which ends at or before to_tick.
 *   - Each copy takes at least its lane's time. If the plan declares stalls, it may take less on
 *     the model clock, by at most the stall: that clock stands still meanwhile.
 *   - Each lane has at most one copy at a time.
 * If the plan has rules (struct ebb_plan_rules):
 *   - No copy is under way at a barrier, if it was requested before. A block is back at the last
 *     barrier before its use.
 *   - A block that lies in its host's memory is born in the backward work of the layer that uses
 *     the host for the last time. The host is allocated, present and no smaller. Each block is in
 *     one share at most.
 *   - If each block keeps its memory, there are no absences.
 * For a feasible plan without barriers and shares: its stall is the declared one. The iteration is
 * carried out again for that (stalls.c). If the plan is reactive or passive, its copies on demand
 * take no longer than the declared stall.
 * For the plan: the resident bytes at every instant are within its claimed peak. That peak is
 * within the budget unless `feasible == false`. Its sums are those of its absences.
 *
 * Not checked: whether a better plan exists; the stalls of plans with barriers or shares. */
#ifndef EBB_CHECK_CHECK_H
#define EBB_CHECK_CHECK_H

#include "base/status.h"
#include "machine/machine.h"
#include "model/model.h"
#include "plan/plan.h"

#include <stdint.h>

struct ebb_check_request {
    const struct ebb_model *model;
    const struct ebb_machine *machine;
    uint64_t budget_bytes;
    uint64_t page_bytes;
};

/* Returns EBB_OK if the plan is valid, EBB_ERR_FORMAT if not: `why` then names the first violation.
 * EBB_ERR_MEMORY. O(ticks + absences log absences). */
EBB_NODISCARD enum ebb_status ebb__check_plan(const struct ebb_check_request *request,
                                              const struct ebb_plan *plan, struct ebb_error *error);

#endif
