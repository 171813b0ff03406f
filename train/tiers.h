/* A training on two tiers: fast memory within a budget, and a slow tier that is used in place.
 *
 *     status = ebb__train_tiers_open(exec, &options, &tiers, &error);
 *     ... ebb__exec_begin(), ebb__exec_iterate() ...
 *     ebb__train_tiers_figures(tiers, &figures);
 *     ebb__exec_destroy(exec);
 *     ebb__train_tiers_close(tiers);
 *
 * Steps of the schedule are the operations, storages are the blocks. Policies, plans and the
 * memories are the laboratory's (src/lab/tier/program.h): a build without it has none. */
#ifndef EBB_TRAIN_TIERS_H
#define EBB_TRAIN_TIERS_H

#include "train/exec/exec.h"

#include "lab/tier/program.h"

struct ebb_train_tiers; /* opaque */

/* The executor's training is on two tiers from now on. Errors of ebb__tier_program_create() and
 * ebb__tier_program_start(). EBB_ERR_ARGUMENT in a build without the laboratory. */
EBB_NODISCARD enum ebb_status ebb__train_tiers_open(struct ebb_exec *exec,
                                                    const struct ebb_tier_program_options *options,
                                                    struct ebb_train_tiers **tiers,
                                                    struct ebb_error *error);
/* NULL is allowed. After the executor is destroyed. */
void ebb__train_tiers_close(struct ebb_train_tiers *tiers);

void ebb__train_tiers_figures(const struct ebb_train_tiers *tiers,
                              struct ebb_tier_program_figures *figures);

#endif
