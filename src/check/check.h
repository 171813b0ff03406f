/* The checker: is this plan one? It trusts nothing that a planner or the simulator says and shares
 * no code with them, so that an error would have to be made twice.
 *
 * Checked, for every absence, on the model clock (see plan.h):
 *   - its block and ticks exist; from_tick and to_tick are successive uses of the block (two
 *     accesses, or the last access and the FREE: then and only then it `drops`); no gap is taken
 *     twice, so that no two absences of one block overlap
 *   - the copy out starts at or after the first clock event behind from_tick and its margin (where it
 *     starts within a stretch: at or after the event behind its margin, by which the use is over as
 *     plan.h says), ends before the copy in starts, and that ends at or before to_tick
 *   - each copy takes its lane's time at least; where the plan declares stalls, less on the model
 *     clock by as much at most, because that clock stands meanwhile
 *   - at most one copy at a time on each lane
 * and for the plan: the resident bytes at every instant are within the peak that it claims, that
 * peak within the budget unless it says `feasible == false`, and its sums are those of its
 * absences.
 *
 * Not checked: whether there is a better plan; whether lanes that share bandwidth get it. */
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

/* EBB_OK where the plan holds. EBB_ERR_FORMAT where it does not: `why` names the first violation
 * found. EBB_ERR_MEMORY. O(ticks + absences log absences). */
EBB_NODISCARD enum ebb_status ebb__check_plan(const struct ebb_check_request *request,
                                              const struct ebb_plan *plan, struct ebb_error *error);

#endif
