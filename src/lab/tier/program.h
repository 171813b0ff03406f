/* A program that runs on two tiers: it names its blocks and operations, and computes at addresses.
 *
 *     status = ebb__tier_program_create(&options, &program, &error);
 *     block = ebb__tier_program_block(program, bytes, false);
 *     status = ebb__tier_program_operation(program, uses, use_count, &error);
 *     status = ebb__tier_program_start(program, &error);
 *     for each iteration, for each operation:
 *         status = ebb__tier_program_before(program, operation, &error);
 *         ... compute at ebb__tier_program_at(program, block) ...
 *         ebb__tier_program_after(program, operation);
 *     ebb__tier_program_figures(program, &figures);
 *     ebb__tier_program_destroy(program);
 *
 * In the first iterations every block is in the slow tier and is used in place. The last of them
 * is measured. Then the policy plans, the plan is checked, and the persistent blocks are copied to
 * their places. From then on the plan is carried out: the program computes where the block is by
 * the plan, in either tier. Some of these iterations are sampled (carry.h), the others are timed.
 *
 * A block that is not persistent lives from its first use to its last one. Its contents are
 * undefined at first. What the program must keep: all operations in order, all iterations alike.
 * Not thread-safe. After a failure the program can only be destroyed. */
#ifndef EBB_LAB_TIER_PROGRAM_H
#define EBB_LAB_TIER_PROGRAM_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define EBB_TIER_PROFILED 2 /* iterations without a plan; the first is slower than all others */

struct ebb_tier_program; /* opaque */

struct ebb_tier_program_options {
    const char *policy;     /* of ebb__tier_policies(), one that makes plans */
    const char *machine;    /* of ebb__tiers_find() */
    const char *place;      /* of the slow tier: a folder, `memory` or `memory:NODE` */
    double share;           /* of the peak that fast memory holds, in (0, 1] */
    double throttle;        /* 0: as fast as this machine is. Else operations take so many times
                               their measured time at least, and what the machine says for their
                               operands. */
    uint64_t time_limit_ns; /* of the planner; 0: its own */
};

struct ebb_tier_program_use {
    uint32_t block;
    bool reads, writes;
};

struct ebb_tier_program_figures {
    char policy[32], machine[32], note[96];
    uint64_t peak_bytes, budget_bytes;
    uint64_t plan_ns;
    uint64_t planned_iterations, timed_iterations;
    double predicted_iteration_ns, iteration_ns; /* the median of the timed ones */
    double predicted_rest_ns, rest_ns;           /* likewise, without its operations */
    double predicted_fast_ns;                    /* with everything in fast memory */
    double predicted_copy_ns, copy_ns;           /* of an iteration's copies; the latter a mean */
    uint64_t copies;                             /* of an iteration */
    uint64_t moved_out_bytes, moved_in_bytes;    /* likewise */
    uint64_t planned_fast_bytes, planned_slow_bytes; /* peaks that the plan says */
    uint64_t fast_bytes, slow_bytes;                 /* peaks that were sampled */
    uint64_t sampled_operations, same_operations;    /* same: both tiers as planned, to the byte */
    uint64_t off_operations;                         /* a tier held what the plan does not say */
};

/* EBB_ERR_ARGUMENT: no such policy or machine, or the policy makes no plans. Errors of
 * ebb__tiers_find(). EBB_ERR_UNSUPPORTED: the machine has no whole pages. The texts are copied. */
EBB_NODISCARD enum ebb_status ebb__tier_program_create(
    const struct ebb_tier_program_options *options, struct ebb_tier_program **program,
    struct ebb_error *error);
/* NULL is allowed. */
void ebb__tier_program_destroy(struct ebb_tier_program *program);

/* Blocks and operations have the numbers 0, 1, 2. Bytes are rounded up to 64. UINT32_MAX: out of
 * memory. */
uint32_t ebb__tier_program_block(struct ebb_tier_program *program, uint64_t bytes, bool persistent);
/* EBB_ERR_ARGUMENT if a block is named twice, or is none; EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__tier_program_operation(struct ebb_tier_program *program,
                                                          const struct ebb_tier_program_use *uses,
                                                          uint32_t count, struct ebb_error *error);

/* Persistent blocks have addresses from here on, and zeros. EBB_ERR_IO: the slow tier cannot be
 * made, or is full; the error names its place. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__tier_program_start(struct ebb_tier_program *program,
                                                      struct ebb_error *error);
/* Before operation 0 it may plan. Errors of ebb__tier_run() and ebb__tier_program_start(). */
EBB_NODISCARD enum ebb_status ebb__tier_program_before(struct ebb_tier_program *program,
                                                       uint32_t operation, struct ebb_error *error);
void *ebb__tier_program_at(const struct ebb_tier_program *program, uint32_t block);
void ebb__tier_program_after(struct ebb_tier_program *program, uint32_t operation);

void ebb__tier_program_figures(const struct ebb_tier_program *program,
                               struct ebb_tier_program_figures *figures);

#endif
