/* The laboratory: what is there for comparison only. Policies and pools as published, what no plan can do
 * better, allocators of others, traces of others. `ebb run` works without it and reaches it only by
 * --policy; cli/lab.h is the only way in, and EBB_LAB=OFF leaves it out of the build. */
#ifndef EBB_LAB_LAB_H
#define EBB_LAB_LAB_H

#include "plan/plan.h"
#include "plan/pool/pool.h"

#include <stddef.h>

/* The policies and pools for comparison; *count is their number. */
const struct ebb_policy *ebb__lab_policies(size_t *count);
const struct ebb_pool *ebb__lab_pools(size_t *count);

#endif
