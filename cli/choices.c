#include "choices.h"

#include "command.h"
#include "lab.h"
#include "machine/machine.h"

#include <stdio.h>
#include <string.h>

const struct ebb_policy *ebb__policy_at(size_t index)
{
    size_t own, more;
    const struct ebb_policy *policies = ebb__plan_policies(&own);
    const struct ebb_policy *others = ebb__lab_policies(&more);
    if (index < own)
        return &policies[index];
    return index - own < more ? &others[index - own] : NULL;
}

const char *ebb__policy_name(size_t index)
{
    const struct ebb_policy *policy = ebb__policy_at(index);
    return policy ? policy->name : NULL;
}

const struct ebb_policy *ebb__policy_choose(const char *command, const char *name)
{
    char known[320] = "known: ";
    for (size_t i = 0; ebb__policy_at(i); i++) {
        if (strcmp(ebb__policy_name(i), name) == 0)
            return ebb__policy_at(i);
        size_t length = strlen(known);
        snprintf(known + length, sizeof known - length, "%s%s", i ? ", " : "", ebb__policy_name(i));
    }
    struct ebb_error error;
    error.status = ebb__fail(&error, EBB_ERR_ARGUMENT, "", "no policy is called '%s'%s", name,
                             ebb__lab_is_here() ? "" : ": " EBB_NO_LAB);
    ebb__error_set_remedy(&error, "%s", known);
    ebb__command_fail(command, &error);
    return NULL;
}

const struct ebb_pool *ebb__pool_at(size_t index)
{
    size_t own, more;
    const struct ebb_pool *pools = ebb__pools(&own), *others = ebb__lab_pools(&more);
    if (index < own)
        return &pools[index];
    return index - own < more ? &others[index - own] : NULL;
}

const char *ebb__pool_name(size_t index)
{
    const struct ebb_pool *pool = ebb__pool_at(index);
    return pool ? pool->name : NULL;
}

const struct ebb_pool *ebb__pool_find(const char *name)
{
    const struct ebb_pool *pool;
    for (size_t i = 0; (pool = ebb__pool_at(i)); i++)
        if (strcmp(pool->name, name) == 0)
            return pool;
    return NULL;
}

const char *ebb__machine_word(size_t index)
{
    return index ? ebb__machine_name(index - 1) : "host";
}
