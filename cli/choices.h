/* What a user can name: the policies and the pools of src/plan and src/lab, as one list each. */
#ifndef EBB_CLI_CHOICES_H
#define EBB_CLI_CHOICES_H

#include "plan/plan.h"
#include "plan/pool/pool.h"

#include <stddef.h>

/* The policies: the default first, then those for comparison. NULL if index is beyond the last. */
const struct ebb_policy *ebb__policy_at(size_t index);
const char *ebb__policy_name(size_t index);
/* Returns the policy of that name. On failure prints an error, as ebb__command_fail() with
 * EBB_ERR_ARGUMENT, and returns NULL. */
const struct ebb_policy *ebb__policy_choose(const char *command, const char *name);

/* The same for pools. ebb__pool_find() prints nothing. */
const struct ebb_pool *ebb__pool_at(size_t index);
const char *ebb__pool_name(size_t index);
const struct ebb_pool *ebb__pool_find(const char *name);

/* What `--machine` can name, but for files: `host`, then the named machines. */
const char *ebb__machine_word(size_t index);

#endif
