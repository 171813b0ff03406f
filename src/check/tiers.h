/* The checker of plans for two tiers. It does not trust planners or the simulator, and shares no
 * code with them. It checks what plan/tiers.h states, by walking through every operation:
 * - Each block has a stay at each time of its life, and no stay outside of it. Tiers alternate.
 * - A copy starts within the stay before, and its block is not written meanwhile. A dropped block
 *     has a valid copy in the slow tier.
 * - Transfers that are one have adjacent blocks; blocks that share pages stay together.
 * - The bytes in each tier are within what is claimed, and that is within budget and capacity.
 * - The iteration takes the claimed time: it is carried out again, without the simulator's code. */
#ifndef EBB_CHECK_TIERS_H
#define EBB_CHECK_TIERS_H

#include "base/status.h"
#include "machine/tiers.h"
#include "model/operations.h"
#include "plan/tiers.h"

#include <stdint.h>

struct ebb_tier_claim {
    uint64_t budget_bytes;
    uint64_t fast_peak_bytes, slow_peak_bytes;
    double iteration_ns;
};

/* EBB_OK if the plan is valid, EBB_ERR_FORMAT if not: `why` then names the first violation.
 * EBB_ERR_MEMORY. O(blocks * operations). */
EBB_NODISCARD enum ebb_status ebb__check_tiers(const struct ebb_operations *operations,
                                               const struct ebb_tier_machine *machine,
                                               const struct ebb_tier_plan *plan,
                                               const struct ebb_tier_claim *claim,
                                               struct ebb_error *error);

#endif
