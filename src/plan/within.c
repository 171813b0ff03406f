/* Stretches without clock events: when a use is over, and when the next use is near. Planners and
 * the bound on their results share this rule; src/check has its own. */
#include "plan/plan.h"

#include "base/tuning.h"

static uint32_t ticks_between(const struct ebb_model *model, uint32_t from, uint32_t to)
{
    return to > from ? to - from : to + model->tick_count - from;
}

uint32_t ebb__plan_use_over(const struct ebb_model *model, const uint32_t *before, uint32_t from,
                            uint32_t ready)
{
    uint32_t length = ticks_between(model, from, ready);
    uint64_t safe_ns =
        ebb__model_time_error_ns(model, model->events[from].clock ? from : before[from], from);
    for (uint32_t step = (uint32_t)ebb__tuning()->within_ticks; step < length; step++) {
        uint32_t tick = (uint32_t)(((uint64_t)from + step) % model->tick_count);
        if (ebb__model_ns_between(model, from, tick) >= safe_ns)
            return tick;
    }
    return ready;
}

uint32_t ebb__plan_use_near(const struct ebb_model *model, uint32_t due, uint32_t to)
{
    uint32_t length = ticks_between(model, due, to);
    uint64_t safe_ns = ebb__model_time_error_ns(model, due, to);
    for (uint32_t step = 1; step < length; step++) {
        uint32_t tick = (to + model->tick_count - step) % model->tick_count;
        if (ebb__model_ns_between(model, tick, to) >= safe_ns)
            return tick;
    }
    return due;
}
