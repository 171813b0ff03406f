#include "lab/swap/layers.h"

static bool is_forward_layer(const struct ebb_stages *stages, uint32_t tick)
{
    const struct ebb_stage *stage = &stages->items[stages->at[tick]];
    return stage->phase == EBB_PHASE_FORWARD && stage->layer > 0;
}

bool ebb__layers_is_output(const struct ebb_model *model, const struct ebb_stages *stages,
                           uint32_t block)
{
    const struct ebb_model_block *made = &model->blocks[block];
    if (made->alloc_tick != EBB_TICK_NONE)
        return is_forward_layer(stages, made->alloc_tick);
    for (uint32_t i = 0; i < made->access_count; i++) {
        const struct ebb_model_access *access = &model->accesses[made->first_access + i];
        if (access->access == EBB_ACCESS_WRITE && is_forward_layer(stages, access->tick))
            return true;
    }
    return false;
}

uint32_t ebb__layers_fetch_tick(const struct ebb_stages *stages, const struct ebb_swap_gap *gap)
{
    return stages->items[ebb__stage_before(stages, stages->at[gap->to_tick])].first_tick;
}

bool ebb__layers_is_migrated(const struct ebb_swap *swap, const struct ebb_swap_gap *gap,
                             const void *context, uint32_t *margin_ticks)
{
    const struct ebb_stages *stages = context;
    (void)margin_ticks;
    if (gap->drops || stages->items[stages->at[gap->from_tick]].phase != EBB_PHASE_FORWARD ||
        stages->items[stages->at[gap->to_tick]].phase != EBB_PHASE_BACKWARD ||
        !ebb__layers_is_output(swap->model, stages, gap->block))
        return false;
    uint32_t fetch_tick = ebb__layers_fetch_tick(stages, gap);
    uint32_t to_ready = ebb__swap_ticks_between(swap, gap->from_tick, gap->ready_tick);
    uint32_t to_fetch = ebb__swap_ticks_between(swap, gap->from_tick, fetch_tick);
    uint32_t to_need = ebb__swap_ticks_between(swap, gap->from_tick, gap->to_tick);
    return to_ready <= to_fetch && to_fetch < to_need;
}

struct ebb_plan_request ebb__unlimited(const struct ebb_plan_request *request)
{
    struct ebb_plan_request unlimited = *request;
    unlimited.budget_bytes = UINT64_MAX / 4;
    return unlimited;
}

enum ebb_status ebb__unlimited_finish(struct ebb_swap *swap, uint64_t budget_bytes,
                                      const struct ebb_plan_rules *rules, struct ebb_plan *plan,
                                      struct ebb_error *error)
{
    plan->rules = *rules;
    swap->rules = &plan->rules;
    enum ebb_status status = ebb__swap_finish(swap, plan, error);
    plan->budget_bytes = budget_bytes;
    plan->smallest_feasible_bytes = plan->peak_bytes;
    plan->feasible = plan->peak_bytes <= budget_bytes;
    return status;
}

enum ebb_status ebb__unlimited_zero_stall(ebb_planner make, const struct ebb_plan_request *request,
                                          struct ebb_plan *plan, struct ebb_error *error)
{
    enum ebb_status status = make(request, plan, error);
    plan->budget_bytes = plan->peak_bytes;
    plan->feasible = true;
    return status;
}
