#include "plan/plan.h"

#include "plan/swap/swap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct policy {
    const char *name;
    enum ebb_status (*make)(const struct ebb_plan_request *request, struct ebb_plan *plan,
                            struct ebb_error *error);
};

static const struct policy policies[] = {
    {"ebb", ebb__swap_ebb},
    {"fifo", ebb__swap_fifo},
    {"none", ebb__swap_none},
};

enum ebb_status ebb__plan_make(const char *policy, const struct ebb_plan_request *request,
                               struct ebb_plan *plan, struct ebb_error *error)
{
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        if (strcmp(policies[i].name, policy) != 0)
            continue;
        struct ebb_plan made = {0};
        snprintf(made.policy, sizeof made.policy, "%s", policy);
        enum ebb_status status = policies[i].make(request, &made, error);
        if (status)
            ebb__plan_fini(&made);
        else
            *plan = made;
        return status;
    }
    ebb__fail(error, EBB_ERR_ARGUMENT, policy, "no policy of this name");
    ebb__error_set_remedy(error, "known: ebb, fifo, none");
    return EBB_ERR_ARGUMENT;
}

void ebb__plan_fini(struct ebb_plan *plan)
{
    free(plan->absences);
    plan->absences = NULL;
    plan->absence_count = 0;
}
