/* Stretches without clock events: when a use is over, and when the next use is near. Planners and
 * the bound on their results share this rule; src/check has its own. */
#include "plan/plan.h"

#include "base/tuning.h"

static uint32_t ticks_between(const struct ebb_model *model, uint32_t from, uint32_t to)
{
    return to > from ? to - from : to + model->tick_count - from;
}

static uint64_t ns_between(const struct ebb_model *model, uint32_t from, uint32_t to)
{
    uint64_t lap_ns = ebb__model_iteration_ns(model);
    return (model->time_ns[to] + lap_ns - model->time_ns[from]) % lap_ns;
}

/* The possible error of a time predicted for `tick`, in a stretch that began with the clock event
 * `start`. */
static uint64_t margin_ns(const struct ebb_model *model, uint32_t start, uint32_t tick)
{
    uint64_t drift_ns = ns_between(model, start, tick) / ebb__tuning()->within_drift_divisor;
    return drift_ns > ebb__tuning()->within_ns ? drift_ns : ebb__tuning()->within_ns;
}

uint32_t ebb__plan_use_over(const struct ebb_model *model, const uint32_t *before, uint32_t from,
                            uint32_t ready)
{
    uint32_t length = ticks_between(model, from, ready);
    uint64_t safe_ns = margin_ns(model, model->events[from].clock ? from : before[from], from);
    for (uint32_t step = (uint32_t)ebb__tuning()->within_ticks; step < length; step++) {
        uint32_t tick = (uint32_t)(((uint64_t)from + step) % model->tick_count);
        if (ns_between(model, from, tick) >= safe_ns)
            return tick;
    }
    return ready;
}

uint32_t ebb__plan_use_near(const struct ebb_model *model, uint32_t due, uint32_t to)
{
    uint32_t length = ticks_between(model, due, to);
    uint64_t safe_ns = margin_ns(model, due, to);
    for (uint32_t step = 1; step < length; step++) {
        uint32_t tick = (to + model->tick_count - step) % model->tick_count;
        if (ns_between(model, tick, to) >= safe_ns)
            return tick;
    }
    return due;
}
