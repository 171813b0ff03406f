/* Planning as the offline commands do it: on a machine that the user names, and never unchecked. */
#ifndef EBB_CLI_PLANNING_H
#define EBB_CLI_PLANNING_H

#include "base/size.h"
#include "plan/request/request.h"

#include <stdbool.h>

/* What --machine takes: `host`, which measures the store in the directory `store` now, or a name or a
 * file as in ebb__machine_find(). */
EBB_NODISCARD enum ebb_status ebb__planning_machine(const char *spec, const char *store,
                                                    struct ebb_machine *machine,
                                                    struct ebb_error *error);

/* Bytes in fast memory with nothing evicted, in pages: what percentages are of. */
EBB_NODISCARD enum ebb_status ebb__planning_unmanaged_peak(const struct ebb_plan_terms *terms,
                                                           uint64_t *bytes,
                                                           struct ebb_error *error);

/* What a budget given as text is under a peak: a size, or a percentage of it. EBB_ERR_ARGUMENT. */
EBB_NODISCARD enum ebb_status ebb__planning_budget(const char *text, uint64_t peak_bytes,
                                                   uint64_t *bytes, struct ebb_error *error);

/* Plan by the terms' budget, as a run under it does, or for the smallest without a stall, and check the
 * plan. *planned is the caller's on EBB_OK. */
EBB_NODISCARD enum ebb_status ebb__planning_make(const struct ebb_plan_terms *terms,
                                                 bool zero_stall, struct ebb_planned *planned,
                                                 struct ebb_error *error);

#endif
