#include "guards.h"

#include "base/map.h"
#include "base/tuning.h"
#include "base/vec.h"

#define MOST_GUARDS 512u

struct guard {
    uint64_t position;      /* tick, of the second of two turns */
    uint64_t used_position; /* when its unit was used before; 0: never */
};

typedef EBB_VEC(struct guard) guard_vec;

/* Where the guard `back` places before the next one stood, were it of an endless row. */
static uint64_t position_before(const guard_vec *guards, size_t index, size_t back, uint32_t ticks)
{
    size_t count = guards->count, turns = 0;
    while (index + turns * count < back)
        turns++;
    return guards->items[index + turns * count - back].position - (uint64_t)turns * ticks;
}

static bool choose(const struct ebb_model *model, const uint32_t *unit_at_tick, guard_vec *guards)
{
    struct ebb_map used = {0};
    uint32_t ticks = model->tick_count;
    uint64_t spacing = ebb__model_iteration_ns(model) / MOST_GUARDS, last_ns = 0;
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
        bool apart = guards->count == 0 || model->time_ns[tick] >= last_ns + spacing;
        bool rested =
            guards->count < ebb__tuning_access_clock_rest()
                ? before <= ticks
                : before <= guards->items[guards->count - ebb__tuning_access_clock_rest()].position;
        if (!apart || !rested)
            continue;
        ok = ok && ebb_vec_push(guards, ((struct guard){position, before}));
        last_ns = model->time_ns[tick];
    }
    ebb__map_fini(&used);
    /* The first ones must have rested since the last ones of the turn before. */
    size_t bad = 0;
    while (ok && bad < guards->count && bad < ebb__tuning_access_clock_rest() &&
           guards->items[bad].used_position >
               position_before(guards, bad, ebb__tuning_access_clock_rest(), ticks))
        bad++;
    for (size_t i = bad; i < guards->count; i++)
        guards->items[i - bad] = guards->items[i];
    guards->count -= bad;
    if (guards->count < ebb__tuning()->access_clock_fewest)
        guards->count = 0;
    return ok;
}

enum ebb_status ebb__model_guard(struct ebb_model *model, const uint32_t *unit_at_tick)
{
    guard_vec guards = {0};
    if (!choose(model, unit_at_tick, &guards)) {
        ebb_vec_free(&guards);
        return EBB_ERR_MEMORY;
    }
    for (uint32_t tick = 0; tick < model->tick_count; tick++)
        model->events[tick].clock = false;
    for (size_t i = 0; i < guards.count; i++)
        model->events[guards.items[i].position % model->tick_count].clock = true;
    for (uint32_t i = 0; i < model->block_count; i++)
        if (model->blocks[i].alloc_tick != EBB_TICK_NONE)
            model->blocks[i].access_count = 0;
    ebb_vec_free(&guards);
    return EBB_OK;
}
