/* When each use is over, by the rule that planners have, too, and when its block is used again. */
#include "sim/uses.h"

#include "plan/plan.h"

#include <stdlib.h>

bool ebb__sim_uses_init(struct ebb_sim_uses *uses, const struct ebb_model *model)
{
    uint32_t ticks = model->tick_count;
    uint32_t *after = ebb__model_clocks_after(model), *before = ebb__model_clocks_before(model);
    *uses = (struct ebb_sim_uses){.model = model,
                                  .over = malloc(ticks * sizeof *uses->over),
                                  .next = malloc(ticks * sizeof *uses->next)};
    bool known = after && before && uses->over && uses->next;
    /* If threads interleave, the time since an event is unknown. */
    bool within = model->clock_count > 0 && !model->unordered;
    for (uint32_t t = 0; known && t < ticks; t++) {
        bool used = within && model->events[t].kind == EBB_EVENT_ACCESS;
        uses->over[t] = used ? ebb__plan_use_over(model, before, t, after[t]) : after[t];
        uses->next[t] = EBB_TICK_NONE;
    }
    for (uint32_t b = 0; known && b < model->block_count; b++) {
        const struct ebb_model_block *block = &model->blocks[b];
        const struct ebb_model_access *accesses = &model->accesses[block->first_access];
        bool persistent = block->alloc_tick == EBB_TICK_NONE;
        for (uint32_t i = 0; i < block->access_count; i++)
            if (i + 1 < block->access_count || persistent)
                uses->next[accesses[i].tick] = accesses[(i + 1) % block->access_count].tick;
    }
    free(after);
    free(before);
    return known;
}

void ebb__sim_uses_fini(struct ebb_sim_uses *uses)
{
    free(uses->over);
    free(uses->next);
}

void ebb__sim_uses_margin(const struct ebb_sim_uses *uses, struct ebb_absence *absence)
{
    const struct ebb_model *model = uses->model;
    uint32_t from = absence->from_tick, over = uses->over[from];
    absence->out_within = model->clock_count > 0 && !model->events[over].clock;
    absence->margin_ticks =
        absence->out_within ? (over + model->tick_count - from) % model->tick_count : 0;
}
