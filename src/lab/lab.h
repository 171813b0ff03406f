/* The laboratory: code for comparisons only. It has published policies and pools, lower bounds,
 * emulated allocators, and importers of foreign traces. `ebb run` works without it, and uses it
 * only for some values of --policy. cli/lab.h is its only entry; EBB_LAB=OFF omits it from the
 * build. */
#ifndef EBB_LAB_LAB_H
#define EBB_LAB_LAB_H

#include "plan/plan.h"
#include "plan/pool/pool.h"

#include <stddef.h>

/* The published policies and pools; *count is their number. */
const struct ebb_policy *ebb__lab_policies(size_t *count);
const struct ebb_pool *ebb__lab_pools(size_t *count);

#endif
