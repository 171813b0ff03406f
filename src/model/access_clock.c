#include "access_clock.h"

#include "base/map.h"
#include "base/tuning.h"
#include "base/vec.h"

#define MOST_ACCESSES 512u

struct clock_access {
    uint64_t position;      /* a tick in the second of two iterations */
    uint64_t used_position; /* the previous use of its unit; 0: none */
};

typedef EBB_VEC(struct clock_access) clock_access_vec;

/* The position of the event `back` places before `index`, on the unrolled timeline. */
static uint64_t position_before(const clock_access_vec *chosen, size_t index, size_t back,
                                uint32_t ticks)
{
    size_t count = chosen->count, turns = 0;
    while (index + turns * count < back)
        turns++;
    return chosen->items[index + turns * count - back].position - (uint64_t)turns * ticks;
}

static bool choose(const struct ebb_model *model, const uint32_t *unit_at_tick,
                   clock_access_vec *chosen)
{
    struct ebb_map used = {0};
    uint32_t ticks = model->tick_count;
    uint64_t spacing = ebb__model_iteration_ns(model) / MOST_ACCESSES, last_ns = 0;
    if (spacing < ebb__tuning()->access_clock_spacing_ns)
        spacing = ebb__tuning()->access_clock_spacing_ns;
    bool ok = true;
    for (uint64_t position = 0; ok && position < 2 * (uint64_t)ticks; position++) {
        uint32_t tick = (uint32_t)(position % ticks);
        const struct ebb_model_event *event = &model->events[tick];
        if (event->kind != EBB_EVENT_ACCESS ||
            model->blocks[event->block].alloc_tick != EBB_TICK_NONE)
            continue;
        uint64_t unit = unit_at_tick ? unit_at_tick[tick] : EBB_TICK_NONE, before = 0;
        uint64_t key = (uint64_t)event->block << 32 | unit;
        (void)ebb__map_get(&used, key, &before);
        ok = ebb__map_put(&used, key, position + 1);
        if (position < ticks || before == 0)
            continue;
        bool apart = chosen->count == 0 || model->time_ns[tick] >= last_ns + spacing;
        bool rested =
            chosen->count < ebb__tuning_access_clock_rest()
                ? before <= ticks
                : before <= chosen->items[chosen->count - ebb__tuning_access_clock_rest()].position;
        if (!apart || !rested)
            continue;
        ok = ok && ebb_vec_push(chosen, ((struct clock_access){position, before}));
        last_ns = model->time_ns[tick];
    }
    ebb__map_fini(&used);
    /* The first ones must have rested since the last ones of the previous iteration. */
    size_t bad = 0;
    while (ok && bad < chosen->count && bad < ebb__tuning_access_clock_rest() &&
           chosen->items[bad].used_position >
               position_before(chosen, bad, ebb__tuning_access_clock_rest(), ticks))
        bad++;
    for (size_t i = bad; i < chosen->count; i++)
        chosen->items[i - bad] = chosen->items[i];
    chosen->count -= bad;
    if (chosen->count < ebb__tuning()->access_clock_fewest)
        chosen->count = 0;
    return ok;
}

enum ebb_status ebb__access_clock_choose(struct ebb_model *model, const uint32_t *unit_at_tick)
{
    clock_access_vec chosen = {0};
    if (!choose(model, unit_at_tick, &chosen)) {
        ebb_vec_free(&chosen);
        return EBB_ERR_MEMORY;
    }
    for (uint32_t tick = 0; tick < model->tick_count; tick++)
        model->events[tick].clock = false;
    for (size_t i = 0; i < chosen.count; i++)
        model->events[chosen.items[i].position % model->tick_count].clock = true;
    for (uint32_t i = 0; i < model->block_count; i++)
        if (model->blocks[i].alloc_tick != EBB_TICK_NONE)
            model->blocks[i].access_count = 0;
    ebb_vec_free(&chosen);
    return EBB_OK;
}
