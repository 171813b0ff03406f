#include "lab/swap/engine.h"

#include "sim/reactive.h"

#include <stdlib.h>

struct ebb_plan_rules ebb__engine_rules(const struct ebb_plan_request *request)
{
    return (struct ebb_plan_rules){.passive = true,
                                   .passive_least_bytes = request->smallest_block_bytes};
}

enum ebb_status ebb__engine_finish(struct ebb_swap *swap, struct ebb_plan *plan,
                                   struct ebb_error *error)
{
    const struct ebb_plan_request *request = swap->request;
    struct ebb_reactive_request reactive = {.model = request->model,
                                            .machine = request->machine,
                                            .budget_bytes = request->budget_bytes,
                                            .page_bytes = request->page_bytes,
                                            .smallest_block_bytes = request->smallest_block_bytes};
    struct ebb_reactive_result result;
    enum ebb_status status = ebb__swap_finish(swap, plan, error);
    if (!status)
        status = ebb__simulate_reactive(&reactive, &result, error);
    if (status)
        return status;
    free(result.absences);
    plan->smallest_feasible_bytes = result.smallest_feasible_bytes;
    return EBB_OK;
}
