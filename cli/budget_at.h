/* `ebb compare --at-slowdown`: for each trace and policy, the least budgets for some slow-downs. */
#ifndef EBB_CLI_BUDGET_AT_H
#define EBB_CLI_BUDGET_AT_H

#include "compare.h"

/* Does what `ebb compare --at-slowdown` asks for, and returns its exit code. */
int ebb__budget_at(const struct ebb_compare_list *list);

#endif
