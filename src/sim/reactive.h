/* The reactive simulator: an iteration under a budget with nothing planned, lap after lap until the
 * same blocks are there at a lap's begin as at the one before.
 *
 *   - Where an allocation or a missing block needs memory, the least recently used are evicted
 *     one after another until it fits; then the missing block is copied in. The program waits for
 *     all of it, so nothing overlaps and every copy is a stall.
 *   - A block is in use from its access to the first clock event after it; before its first access
 *     there is nothing to move. Blocks below smallest_block_bytes and those that live longer than an
 *     iteration are never evicted.
 *   - If nothing can be evicted, the budget is broken and the run goes on.
 *
 * Every copy out costs its lane time, also where a kept copy would spare it. Deterministic.
 * O(events + evictions * blocks in use) a lap. Source: LRU, after docs/papers.md. */
#ifndef EBB_SIM_REACTIVE_H
#define EBB_SIM_REACTIVE_H

#include "base/status.h"
#include "machine/machine.h"
#include "model/model.h"
#include "plan/plan.h"

#include <stdbool.h>
#include <stdint.h>

struct ebb_reactive_request {
    const struct ebb_model *model;
    const struct ebb_machine *machine;
    uint64_t budget_bytes;
    uint64_t page_bytes; /* as in struct ebb_plan_request */
    uint64_t smallest_block_bytes;
};

struct ebb_reactive_result {
    struct ebb_absence *absences; /* of the last lap, by out_start_ns; the caller's to free() */
    uint32_t absence_count;
    uint64_t peak_bytes;
    uint64_t stall_ns;
    uint64_t iteration_ns;
    uint64_t moved_out_bytes;
    uint64_t moved_in_bytes;
    uint64_t smallest_feasible_bytes; /* the most that is needed together, whatever is evicted */
    uint32_t laps;
    bool steady; /* the last two laps ended as they began */
};

/* EBB_ERR_ARGUMENT where the model has no events or takes no time, EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__simulate_reactive(const struct ebb_reactive_request *request,
                                                     struct ebb_reactive_result *result,
                                                     struct ebb_error *error);

#endif
