/* The way from the commands to src/lab. lab.c answers from there; in a build without it (EBB_LAB=OFF)
 * no_lab.c stands for lab.c and for the commands compare, pack and import, and says what is missing.
 * No other file tells the two builds apart. */
#ifndef EBB_CLI_LAB_H
#define EBB_CLI_LAB_H

#include "lab/lab.h"
#include "plan/plan.h"
#include "trace/file.h"

#include <stdbool.h>
#include <stdint.h>

/* What a message says is missing. */
#define EBB_NO_LAB "this build is without src/lab (cmake -DEBB_LAB=ON adds it)"

bool ebb__lab_is_here(void);

/* Read any trace: Ebb's own, or one that src/lab imports. Errors as ebb__trace_read(). */
EBB_NODISCARD enum ebb_status ebb__lab_trace_open(const char *path, struct ebb_trace *trace,
                                                  struct ebb_error *error);

/* What holds for every policy, and so says how good a plan is. */
struct ebb_bounds {
    bool known;          /* false: nothing computes them here; the rest is 0 */
    uint64_t peak_bytes; /* no plan without a stall has a lower peak */
    uint64_t stall_ns;   /* no plan within the budget stalls less */
    double gap; /* without a stall asked for: of the peak; with a budget: of the iteration */
};

EBB_NODISCARD enum ebb_status ebb__lab_bounds(const struct ebb_plan_request *request,
                                              const struct ebb_plan *plan, bool zero_stall,
                                              struct ebb_bounds *bounds, struct ebb_error *error);

#endif
