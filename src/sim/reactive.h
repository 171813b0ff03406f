/* The reactive simulator: an iteration under a budget without a plan. It is repeated until the same
 * blocks are resident at the start of two successive iterations.
 *
 *   - If an allocation or an absent block needs memory, blocks are evicted one after another until
 *     it fits. The first is the least recently used, or the one whose next use is farthest away.
 *     An absent block is then copied in. The program waits for all of it: nothing overlaps, and
 *     every copy is a stall.
 *   - A block is in use from its access to the first clock event after it. In a long stretch
 *     without clock events the use is over earlier, by the rule that planners have, too
 *     (ebb__plan_use_over()). Before its first access it has no pages to evict. Blocks below
 *     smallest_block_bytes and those that live longer than an iteration are never evicted.
 *   - If nothing can be evicted, the budget is exceeded and the run continues.
 *
 * Every copy out costs its lane time, even if a kept copy would avoid it. Deterministic. O(events +
 * evictions) an iteration by least recent use; by farthest use O(evictions * blocks).
 * Source: docs/papers.md, "Others". */
#ifndef EBB_SIM_REACTIVE_H
#define EBB_SIM_REACTIVE_H

#include "base/status.h"
#include "machine/machine.h"
#include "model/model.h"
#include "plan/plan.h"

#include <stdbool.h>
#include <stdint.h>

enum ebb_reactive_order {
    EBB_REACTIVE_OLDEST,   /* the least recently used block first */
    EBB_REACTIVE_FARTHEST, /* first a block that is not used again before its FREE, then the one
                              whose next use is farthest away. Of equals the least recently used */
};

/* The order of a policy without a plan, by its name. */
enum ebb_reactive_order ebb__reactive_order(const char *policy);

struct ebb_reactive_request {
    const struct ebb_model *model;
    const struct ebb_machine *machine;
    uint64_t budget_bytes;
    uint64_t page_bytes; /* as in struct ebb_plan_request */
    uint64_t smallest_block_bytes;
    enum ebb_reactive_order order;
};

struct ebb_reactive_result {
    struct ebb_absence *absences; /* of the last iteration, by out_start_ns; the caller frees it
                                     with free() */
    uint32_t absence_count;
    uint64_t peak_bytes;
    uint64_t stall_ns;
    uint64_t iteration_ns;
    uint64_t moved_out_bytes;
    uint64_t moved_in_bytes;
    uint64_t smallest_feasible_bytes; /* the most that is needed at one time, whatever is evicted */
    uint32_t laps;
    bool steady; /* the last two iterations ended in the state in which they began */
};

/* EBB_ERR_ARGUMENT if the model has no events or takes no time; EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__simulate_reactive(const struct ebb_reactive_request *request,
                                                     struct ebb_reactive_result *result,
                                                     struct ebb_error *error);

#endif
