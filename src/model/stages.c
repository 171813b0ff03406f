/* Method: one pass over the ticks with the layer and phase in force. It starts with those that hold
 * at the iteration's end. */
#include "stages.h"

#include "base/vec.h"

#include <string.h>

struct force {
    uint32_t layer;
    uint8_t phase;
};

static void obey(const struct ebb_model *model, const struct ebb_model_mark *mark,
                 struct force *force)
{
    enum ebb_mark kind = (enum ebb_mark)model->events[mark->tick].mark;
    if (kind == EBB_MARK_LAYER)
        force->layer = mark->value;
    else if (kind == EBB_MARK_PHASE)
        force->phase = mark->value <= EBB_PHASE_EVALUATE ? (uint8_t)mark->value : EBB_PHASE_NONE;
}

/* Tells what the program has not marked; NULL: nothing is missing. */
static const char *missing(const struct ebb_model *model)
{
    bool layers = false, phases[EBB_PHASE_EVALUATE + 1] = {false};
    for (uint32_t i = 0; i < model->mark_count; i++) {
        struct force force = {0};
        obey(model, &model->marks[i], &force);
        layers |= force.layer != 0;
        phases[force.phase] = true;
    }
    if (!layers)
        return "the trace has no layer marks";
    if (!phases[EBB_PHASE_FORWARD] || !phases[EBB_PHASE_BACKWARD])
        return "the trace does not mark both phases, forward and backward";
    return NULL;
}

bool ebb__model_has_layers(const struct ebb_model *model)
{
    return missing(model) == NULL;
}

typedef EBB_VEC(struct ebb_stage) stage_vec;

/* Lists the stages and the stage of each tick. Ticks before the first stage get UINT32_MAX. */
static bool collect(const struct ebb_model *model, stage_vec *stages, uint32_t *at)
{
    struct force force = {0};
    uint32_t next = 0;
    for (uint32_t i = 0; i < model->mark_count; i++)
        obey(model, &model->marks[i], &force);
    for (uint32_t tick = 0; tick < model->tick_count; tick++) {
        bool is_mark = model->events[tick].kind == EBB_EVENT_MARK;
        if (next < model->mark_count && model->marks[next].tick == tick)
            obey(model, &model->marks[next++], &force);
        const struct ebb_stage *last = stages->count ? &stages->items[stages->count - 1] : NULL;
        struct ebb_stage own = {tick, force.layer, force.phase};
        if (!is_mark && (!last || last->layer != own.layer || last->phase != own.phase) &&
            !ebb_vec_push(stages, own))
            return false;
        at[tick] = stages->count ? (uint32_t)stages->count - 1 : UINT32_MAX;
    }
    return stages->count || ebb_vec_push(stages, ((struct ebb_stage){0, force.layer, force.phase}));
}

enum ebb_status ebb__stages_init(const struct ebb_model *model, struct ebb_stages *stages,
                                 struct ebb_error *error)
{
    *stages = (struct ebb_stages){0};
    const char *lacks = missing(model);
    if (lacks) {
        ebb__fail(error, EBB_ERR_UNSUPPORTED, "", "%s", lacks);
        ebb__error_set_remedy(error, "use a policy that needs none, or mark layers and phases");
        return EBB_ERR_UNSUPPORTED;
    }
    stage_vec found = {0};
    uint32_t *at = calloc(model->tick_count, sizeof *at);
    if (!at || !collect(model, &found, at)) {
        free(at);
        ebb_vec_free(&found);
        return ebb__fail(error, EBB_ERR_MEMORY, "plan", "no memory for its layers");
    }
    /* The stage at the iteration's end may go on at its begin. */
    uint32_t count = (uint32_t)found.count;
    const struct ebb_stage *first = found.items, *last = first + count - 1;
    bool joined = count > 1 && first->layer == last->layer && first->phase == last->phase;
    for (uint32_t tick = 0; tick < model->tick_count; tick++) {
        if (at[tick] == UINT32_MAX || (joined && at[tick] == 0))
            at[tick] = count - 1;
        at[tick] -= joined;
    }
    if (joined)
        memmove(found.items, found.items + 1, --count * sizeof *found.items);
    *stages = (struct ebb_stages){found.items, count, at};
    return EBB_OK;
}

void ebb__stages_fini(struct ebb_stages *stages)
{
    free(stages->items);
    free(stages->at);
    *stages = (struct ebb_stages){0};
}
