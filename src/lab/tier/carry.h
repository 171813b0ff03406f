/* A plan for two tiers carried out, operation by operation.
 *
 *     status = ebb__tier_carry_init(&carry, &request, &plan, &memory, &error);
 *     status = ebb__tier_carry_begin(&carry, NULL, &error);  // persistent blocks have places
 *     ... fill them at ebb__tier_carry_at(&carry, block) ...
 *     status = ebb__tier_carry_start(&carry, &error);
 *     for each iteration, for each operation:
 *         status = ebb__tier_carry_lives(&carry, operation, &error);
 *         status = ebb__tier_carry_moves(&carry, operation, &error);
 *         ... compute at ebb__tier_carry_at(&carry, block) ...
 *     ebb__tier_carry_settle(&carry);
 *
 * Copies run on a thread for each lane, no faster than the machine says. Where blocks really are
 * can be sampled in each operation. Not thread-safe. */
#ifndef EBB_LAB_TIER_CARRY_H
#define EBB_LAB_TIER_CARRY_H

#include "lab/tier/execute_lane.h"
#include "lab/tier/memory.h"
#include "sim/tiers.h"

#include <stdbool.h>
#include <stdint.h>

/* A copy of the plan: a stay that begins with one. */
struct ebb_tier_move {
    const struct ebb_stay *stay;
    bool done;
};

struct ebb_tier_samples {
    uint64_t operations; /* sampled */
    uint64_t same;       /* in which each tier held what the plan says, to the byte */
    uint64_t fast_over;  /* in which fast memory held more than the plan says */
    uint64_t off;        /* these, and: in which fast memory held less than what has arrived by
                                the plan, or the slow tier something else than the plan says */
    uint64_t peak_bytes[EBB_TIER_COUNT];
};

struct ebb_tier_carry {
    const struct ebb_tier_request *request;
    const struct ebb_operations *operations;
    const struct ebb_tier_plan *plan;
    struct ebb_tier_memory *memory; /* the caller's */
    uint8_t *tier;                  /* by block: where it is used */
    bool *live;
    struct ebb_tier_move *moves;
    uint32_t move_count;
    struct ebb_tier_lane lanes[2];
    uint64_t *levels[EBB_TIER_COUNT]; /* by operation: bytes that the plan gives to each tier */
    struct ebb_tier_samples samples;
    double predicted_copy_ns; /* of the copies since it was last set to 0, by the lanes */
    uint64_t copies;          /* likewise */
};

/* Request, plan and memory must outlive it. EBB_ERR_MEMORY. Release it in any case. */
EBB_NODISCARD enum ebb_status ebb__tier_carry_init(struct ebb_tier_carry *carry,
                                                   const struct ebb_tier_request *request,
                                                   const struct ebb_tier_plan *plan,
                                                   struct ebb_tier_memory *memory,
                                                   struct ebb_error *error);
void ebb__tier_carry_fini(struct ebb_tier_carry *carry);

/* Errors of all below: EBB_ERR_IO if the slow tier is full. */

/* Persistent blocks get the places that they have when operation 0 begins. If `from` is not NULL,
 * they get the contents that they have there, and leave it. */
EBB_NODISCARD enum ebb_status ebb__tier_carry_begin(struct ebb_tier_carry *carry,
                                                    struct ebb_tier_carry *from,
                                                    struct ebb_error *error);
/* What is under way or kept when operation 0 begins. Their contents are there. */
EBB_NODISCARD enum ebb_status ebb__tier_carry_start(struct ebb_tier_carry *carry,
                                                    struct ebb_error *error);
/* Before an operation: blocks that die, then those that are born. */
EBB_NODISCARD enum ebb_status ebb__tier_carry_lives(struct ebb_tier_carry *carry, uint32_t at,
                                                    struct ebb_error *error);
/* Then the copies, in the simulator's order. */
EBB_NODISCARD enum ebb_status ebb__tier_carry_moves(struct ebb_tier_carry *carry, uint32_t at,
                                                    struct ebb_error *error);
/* Waits for all copies. */
void ebb__tier_carry_settle(struct ebb_tier_carry *carry);

/* Where the block is used now. */
static inline unsigned char *ebb__tier_carry_at(const struct ebb_tier_carry *carry, uint32_t block)
{
    return ebb__tier_place(carry->memory, block, carry->tier[block]);
}

/* What an operation takes on the machine, with its operands where they are, ns. */
uint64_t ebb__tier_carry_pace_ns(const struct ebb_tier_carry *carry, uint32_t at);
/* Time that the lanes spent on copies so far, ns. */
double ebb__tier_carry_copy_ns(const struct ebb_tier_carry *carry);
/* Compares what each tier holds with the plan, in the operation `at`. */
void ebb__tier_carry_sample(struct ebb_tier_carry *carry, uint32_t at);

#endif
