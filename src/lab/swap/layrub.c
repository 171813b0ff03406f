/* Layrub: reuses memory within a layer, and moves the outputs of layers to the host.
 *
 * Problem: train networks that are far larger than the device, by fixed rules on layers. Method:
 * `inter` migrates each output of a forward layer when the last forward layer that uses it is done.
 * It fetches the output one layer before backward uses it. A barrier stands between any two layers:
 * a layer begins when its data is back and the copies of the layer before are done. `intra` puts
 * the gradient of data into the memory of data of which the same layer makes the last use. It moves
 * nothing. `hybrid` does both. Everything eligible moves, whatever the budget. Layers come from the
 * program's marks. Source: Jin et al., ACM TACO 2018, doi 10.1145/3243904; docs/papers.md lists the
 * differences. O(gaps log gaps + blocks log blocks). Fails in three ways. The barrier costs time
 * even if nothing is short. One layer may be too short for a fetch. Weights and what backward keeps
 * stay on the device. */
#include "lab/swap/layers.h"
#include "lab/swap/policies.h"
#include "lab/swap/shares.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The program stops where a layer begins. A copy out of a layer may start only at the first
 * allocation or free of the next one: then it stops there, too. */
static enum ebb_status barriers_make(const struct ebb_swap *swap, const struct ebb_stages *stages,
                                     struct ebb_plan_rules *rules, struct ebb_error *error)
{
    uint32_t ticks = swap->cell_count;
    bool *stops = calloc(ticks, sizeof *stops);
    rules->barriers = malloc(ticks * sizeof *rules->barriers);
    if (!stops || !rules->barriers) {
        free(stops);
        return ebb__fail(error, EBB_ERR_MEMORY, "plan", "out of memory");
    }
    for (uint32_t i = 0; i < stages->count; i++)
        stops[stages->items[i].first_tick] = true;
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        const struct ebb_swap_gap *gap = &swap->gaps[i];
        if (stages->at[gap->ready_tick] != stages->at[gap->from_tick])
            stops[gap->ready_tick] = true;
    }
    for (uint32_t tick = 0; tick < ticks; tick++)
        if (stops[tick])
            rules->barriers[rules->barrier_count++] = tick;
    free(stops);
    return EBB_OK;
}

static enum ebb_status migrate(struct ebb_swap *swap, const struct ebb_stages *stages,
                               struct ebb_plan_rules *rules, struct ebb_error *error)
{
    enum ebb_status status = ebb__swap_narrow(swap, ebb__layers_is_migrated, stages, error);
    for (uint32_t i = 0; !status && i < swap->gap_count; i++) {
        struct ebb_swap_gap *gap = &swap->gaps[i];
        gap->taken = true;
        gap->trigger_ns = swap->model->time_ns[ebb__layers_fetch_tick(stages, gap)] % swap->lap_ns;
    }
    return status ? status : barriers_make(swap, stages, rules, error);
}

enum ebb_status ebb__swap_layrub(const struct ebb_plan_request *request, struct ebb_plan *plan,
                                 struct ebb_error *error)
{
    bool inter = strcmp(plan->policy, "layrub:intra") != 0;
    bool intra = strcmp(plan->policy, "layrub:inter") != 0;
    const struct ebb_plan_request unlimited = ebb__unlimited(request);
    struct ebb_plan_rules rules = {0};
    struct ebb_stages stages;
    struct ebb_swap swap;
    enum ebb_status status = ebb__stages_init(request->model, &stages, error);
    if (status && error)
        snprintf(error->what, sizeof error->what, "%s", plan->policy);
    if (status)
        return status;
    status = ebb__swap_init(&swap, &unlimited, error);
    if (status) {
        ebb__stages_fini(&stages);
        return status;
    }
    if (inter)
        status = migrate(&swap, &stages, &rules, error);
    if (!status && intra)
        status = ebb__shares_choose(request, &stages, &rules, error);
    if (!status) {
        status = ebb__unlimited_finish(&swap, request->budget_bytes, &rules, plan, error);
    } else {
        free(rules.barriers);
        free(rules.shares);
    }
    ebb__swap_fini(&swap);
    ebb__stages_fini(&stages);
    return status;
}

enum ebb_status ebb__swap_layrub_zero_stall(const struct ebb_plan_request *request,
                                            struct ebb_plan *plan, struct ebb_error *error)
{
    return ebb__unlimited_zero_stall(ebb__swap_layrub, request, plan, error);
}
