/* Finds policies in the tables of src/plan and, if it is in the build (EBB_LAB), src/lab. */
#ifndef EBB_TESTS_POLICIES_H
#define EBB_TESTS_POLICIES_H

#include "lab/lab.h"
#include "plan/plan.h"

#include <string.h>

/* NULL if `index` is past the last policy. */
static inline const struct ebb_policy *policy_at(size_t index)
{
    size_t own, more = 0;
    const struct ebb_policy *policies = ebb__plan_policies(&own), *others = NULL;
#if EBB_LAB
    others = ebb__lab_policies(&more);
#endif
    if (index < own)
        return &policies[index];
    return index - own < more ? &others[index - own] : NULL;
}

/* NULL if no policy has this name. */
static inline const struct ebb_policy *policy_named(const char *name)
{
    const struct ebb_policy *policy;
    for (size_t i = 0; (policy = policy_at(i)); i++)
        if (strcmp(policy->name, name) == 0)
            return policy;
    return NULL;
}

/* True if the policy refuses a model in which the program has not marked its layers. */
static inline bool needs_layers(const struct ebb_policy *policy)
{
    return strncmp(policy->name, "layrub:", 7) == 0;
}

#endif
