/* The planners of this folder, for the table in tier.c. Each file says what its own one does. */
#ifndef EBB_LAB_TIER_POLICIES_H
#define EBB_LAB_TIER_POLICIES_H

#include "lab/tier/tier.h"

enum ebb_status ebb__tier_first_touch(const struct ebb_tier_request *request, const char *variant,
                                      struct ebb_tier_plan *plan, struct ebb_error *error);
enum ebb_status ebb__tier_cache(const struct ebb_tier_request *request,
                                struct ebb_tier_result *result, struct ebb_error *error);
/* variant: "static", "sync", "async" */
enum ebb_status ebb__tier_autotm(const struct ebb_tier_request *request, const char *variant,
                                 struct ebb_tier_plan *plan, struct ebb_error *error);
enum ebb_status ebb__tier_sentinel(const struct ebb_tier_request *request, const char *variant,
                                   struct ebb_tier_plan *plan, struct ebb_error *error);
enum ebb_status ebb__tier_ebb(const struct ebb_tier_request *request, const char *variant,
                              struct ebb_tier_plan *plan, struct ebb_error *error);
/* variant: the mechanisms that are off, as letters (deeptm.c) */
enum ebb_status ebb__tier_deeptm(const struct ebb_tier_request *request, const char *variant,
                                 struct ebb_tier_plan *plan, struct ebb_error *error);

#endif
