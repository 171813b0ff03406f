/* The simulator of plans for two tiers.
 *
 *     struct ebb_tier_request request = {&operations, &machine, budget_bytes};
 *     struct ebb_tier_result result;
 *     status = ebb__tiers_simulate(&request, &plan, &result, &error);
 *
 * Operations run one after another, in the model's order. An operation takes the longer of two
 * times: the recorded one, and that of its bytes in each tier, one operand after another. To it
 * come the latencies of the operands in the slow tier, as far as they exceed those of fast
 * memory. Before an operation the program waits for the copies that are due, then makes the
 * synchronous ones: first out, then in. Then copies that start there are queued. Each lane
 * carries one copy at a time, in the order in which they were queued; without duplex, both lanes
 * are one. Copies and compute do not slow each other down. The iteration is repeated until its
 * time is steady. Deterministic. O(laps * (operations + copies) + stays log stays). */
#ifndef EBB_SIM_TIERS_H
#define EBB_SIM_TIERS_H

#include "base/status.h"
#include "machine/tiers.h"
#include "model/operations.h"
#include "plan/tiers.h"

#include <stdbool.h>
#include <stdint.h>

/* What every policy for two tiers is given. */
struct ebb_tier_request {
    const struct ebb_operations *operations;
    const struct ebb_tier_machine *machine;
    uint64_t budget_bytes;         /* of fast memory */
    uint64_t time_limit_ns;        /* of a planner; soft */
    const struct ebb_model *model; /* of the operations, for planners of events; may be NULL */
};

struct ebb_tier_result {
    double iteration_ns;
    double fast_ns;    /* with everything in fast memory; no plan takes less */
    double compute_ns; /* of the operations alone; iteration = compute + synchronous + waits */
    double synchronous_ns, wait_ns;
    uint64_t fast_peak_bytes, slow_peak_bytes; /* in whole pages, copies included */
    uint64_t moved_out_bytes, moved_in_bytes;
    uint32_t transfers;
    bool steady;
};

/* EBB_ERR_ARGUMENT if a stay names no block or operation; EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__tiers_simulate(const struct ebb_tier_request *request,
                                                  const struct ebb_tier_plan *plan,
                                                  struct ebb_tier_result *result,
                                                  struct ebb_error *error);

/* Time of an operation's use, ns: by a tier's bandwidth, and the latency that is added to it. */
static inline double ebb__use_ns(const struct ebb_tier_machine *machine, const struct ebb_use *use,
                                 int tier)
{
    return ebb__tier_ns(&machine->tiers[tier], use->read_bytes, use->write_bytes);
}
static inline double ebb__use_latency_ns(const struct ebb_tier_machine *machine, int tier)
{
    double more = machine->tiers[tier].latency_ns - machine->tiers[0].latency_ns;
    return tier && more > 0 ? more : 0;
}

/* Bytes of a block in whole pages. */
static inline uint64_t ebb__tier_bytes(const struct ebb_tier_machine *machine, uint64_t bytes)
{
    uint64_t page = machine->page_bytes;
    return (bytes + page - 1) / page * page;
}

/* The tier of each use under a plan: uint8_t[use_count], which the caller frees. NULL if out of
 * memory. */
uint8_t *ebb__tiers_of_uses(const struct ebb_operations *operations,
                            const struct ebb_tier_plan *plan);

/* Bytes that the plan gives to each tier in each operation, copies included: levels[tier] has an
 * entry for each operation. Errors as ebb__tiers_simulate(). */
EBB_NODISCARD enum ebb_status ebb__tiers_levels(const struct ebb_tier_request *request,
                                                const struct ebb_tier_plan *plan,
                                                uint64_t *levels[EBB_TIER_COUNT],
                                                struct ebb_error *error);

/* Time with everything in fast memory. */
double ebb__tiers_fast_ns(const struct ebb_operations *operations,
                          const struct ebb_tier_machine *machine);

/* Most bytes that are live in an operation, in whole pages. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__tiers_peak(const struct ebb_operations *operations,
                                              const struct ebb_tier_machine *machine,
                                              uint64_t *bytes, struct ebb_error *error);

#endif
