/* Carries a plan for two tiers out, in real memory.
 *
 *     struct ebb_tier_execution run = {.folder = "/dev/shm", .laps = 3, .paces = true};
 *     status = ebb__tier_execute(&request, &plan, &run, &error);
 *     if (run.checksum != other.checksum) ...
 *
 * The iteration's operations are replayed: each reads the bytes that it read, and writes bytes
 * that depend on them and on nothing else. So the checksum is that of the program, wherever its
 * blocks lie. The memories are those of memory.h, the plan is carried out by carry.h.
 *
 * Nothing of the program itself runs: it is the plan that is tried. program.h runs programs. */
#ifndef EBB_LAB_TIER_EXECUTE_H
#define EBB_LAB_TIER_EXECUTE_H

#include "lab/tier/carry.h"
#include "lab/tier/tier.h"

#include <stdbool.h>
#include <stdint.h>

struct ebb_tier_execution {
    const char *folder; /* of the slow tier, as in memory.h */
    uint32_t laps;      /* iterations; at least 1 */
    bool paces;         /* operations take at least what the machine says for them */
    bool samples;       /* residency; it costs time */
    /* Results. */
    double *operation_ns; /* by operation, of the last lap; NULL: not wanted */
    uint64_t checksum;    /* of all that was read */
    struct ebb_tier_samples samples_taken;
    double iteration_ns;      /* of the last lap */
    double copy_ns;           /* of all copies of the last lap, on their threads */
    double predicted_copy_ns; /* by the lanes */
    uint64_t copies;
};

/* EBB_ERR_IO if the slow tier cannot be made, EBB_ERR_MEMORY. Uses as much memory as the blocks
 * take. Not for several threads at once in one folder that is nearly full. */
EBB_NODISCARD enum ebb_status ebb__tier_execute(const struct ebb_tier_request *request,
                                                const struct ebb_tier_plan *plan,
                                                struct ebb_tier_execution *run,
                                                struct ebb_error *error);

#endif
