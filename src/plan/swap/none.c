/* No absences: the memory that the program needs unmanaged. The reference for `compare`. */
#include "plan/swap/swap.h"

enum ebb_status ebb__swap_none(const struct ebb_plan_request *request, struct ebb_plan *plan,
                               struct ebb_error *error)
{
    struct ebb_swap swap;
    enum ebb_status status = ebb__swap_init(&swap, request, error);
    if (status)
        return status;
    status = ebb__swap_finish(&swap, plan, error);
    for (uint32_t t = 0; t < swap.cell_count; t++)
        if (swap.load[t] > plan->smallest_feasible_bytes)
            plan->smallest_feasible_bytes = swap.load[t];
    ebb__swap_fini(&swap);
    return status;
}
