/* Instead of tiers.c, in a build without the laboratory. */
#include "train/tiers.h"

#include "train/base/fail.h"

enum ebb_status ebb__train_tiers_open(struct ebb_exec *exec,
                                      const struct ebb_tier_program_options *options,
                                      struct ebb_train_tiers **tiers, struct ebb_error *error)
{
    (void)exec;
    (void)options;
    (void)tiers;
    return ebb__train_fail(error, EBB_ERR_ARGUMENT, "--tiers",
                           "this build has no laboratory (EBB_LAB)");
}

void ebb__train_tiers_close(struct ebb_train_tiers *tiers)
{
    (void)tiers;
}

void ebb__train_tiers_figures(const struct ebb_train_tiers *tiers,
                              struct ebb_tier_program_figures *figures)
{
    (void)tiers;
    *figures = (struct ebb_tier_program_figures){0};
}
