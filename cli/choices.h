/* What a user can name: the policies and pools of src/plan and of src/lab as one list each. */
#ifndef EBB_CLI_CHOICES_H
#define EBB_CLI_CHOICES_H

#include "plan/plan.h"
#include "plan/pool/pool.h"

#include <stddef.h>

/* The policies, the default first, then those for comparison; NULL from the last one on. */
const struct ebb_policy *ebb__policy_at(size_t index);
const char *ebb__policy_name(size_t index);
/* The policy of that name. NULL: there is none; what is missing was printed, as by
 * ebb__command_fail() with EBB_ERR_ARGUMENT. */
const struct ebb_policy *ebb__policy_choose(const char *command, const char *name);

/* The pools, likewise; ebb__pool_find() says nothing. */
const struct ebb_pool *ebb__pool_at(size_t index);
const char *ebb__pool_name(size_t index);
const struct ebb_pool *ebb__pool_find(const char *name);

#endif
