/* The interface of the commands to src/lab, implemented by lab.c. In a build without src/lab
 * (EBB_LAB=OFF), no_lab.c replaces lab.c and the commands compare, pack and import, and reports
 * that they are missing. No other file depends on which build it is. */
#ifndef EBB_CLI_LAB_H
#define EBB_CLI_LAB_H

#include "lab/lab.h"
#include "plan/plan.h"
#include "trace/file.h"

#include <stdbool.h>
#include <stdint.h>

/* Text of messages about a missing part. */
#define EBB_NO_LAB "this build is without src/lab (cmake -DEBB_LAB=ON adds it)"

bool ebb__lab_is_here(void);

/* Reads any trace: Ebb's own format, or one that src/lab imports. Errors as ebb__trace_read(). */
EBB_NODISCARD enum ebb_status ebb__lab_trace_open(const char *path, struct ebb_trace *trace,
                                                  struct ebb_error *error);

/* Bounds for every policy. They show how good a plan is. */
struct ebb_bounds {
    bool known;                /* false: not in this build, or not of such a plan; the rest is 0 */
    uint64_t peak_bytes;       /* no plan without a stall has a lower peak */
    uint64_t stall_ns;         /* no plan within the budget stalls less */
    uint64_t dirty_peak_bytes; /* the same two if blocks that were not written need no copy out: */
    uint64_t dirty_stall_ns;   /* they hold for the runtime, too */
    double gap; /* if no stall was requested: of the peak; with a budget: of the iteration */
};

EBB_NODISCARD enum ebb_status ebb__lab_bounds(const struct ebb_plan_request *request,
                                              const struct ebb_plan *plan, bool zero_stall,
                                              struct ebb_bounds *bounds, struct ebb_error *error);

#endif
