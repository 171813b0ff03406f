/* Planning for the offline commands: for a machine that the user names. Every plan is checked. */
#ifndef EBB_CLI_PLANNING_H
#define EBB_CLI_PLANNING_H

#include "base/size.h"
#include "plan/file.h"
#include "plan/request/request.h"

#include "sim/simulate.h"

#include <stdbool.h>

/* Finds the machine of --machine. `host` measures a store in the directory `store`. Other names and
 * files as in ebb__machine_find(). */
EBB_NODISCARD enum ebb_status ebb__planning_machine(const char *spec, const char *store,
                                                    struct ebb_machine *machine,
                                                    struct ebb_error *error);

/* Applies --scale-time to the model. */
void ebb__planning_scale_time(uint64_t time_billionths, struct ebb_model *model);

/* Peak of resident bytes if nothing is evicted, in whole pages. Percentages refer to it. */
EBB_NODISCARD enum ebb_status ebb__planning_unmanaged_peak(const struct ebb_plan_terms *terms,
                                                           uint64_t *bytes,
                                                           struct ebb_error *error);

/* Converts a budget given as text, a size or a percentage of the peak, to bytes.
 * EBB_ERR_ARGUMENT. */
EBB_NODISCARD enum ebb_status ebb__planning_budget(const char *text, uint64_t peak_bytes,
                                                   uint64_t *bytes, struct ebb_error *error);

/* Plans for the terms' budget, as a run does, or for the smallest budget without a stall. Then
 * checks the plan. On EBB_OK the caller owns *planned. */
EBB_NODISCARD enum ebb_status ebb__planning_make(const struct ebb_plan_terms *terms,
                                                 bool zero_stall, struct ebb_planned *planned,
                                                 struct ebb_error *error);

/* Simulates a plan out of a file on a machine, within the plan's budget. A reactive plan is
 * simulated as its budget alone, without absences. */
EBB_NODISCARD enum ebb_status ebb__planning_simulate(const struct ebb_plan_file *file,
                                                     const struct ebb_model *model,
                                                     const struct ebb_machine *machine,
                                                     uint64_t smallest_block_bytes,
                                                     struct ebb_sim_result *result,
                                                     struct ebb_error *error);

#endif
