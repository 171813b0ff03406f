/* A simulated program that repeats the events of a model on the rig, and the script for it. Include
 * it after cmocka. */
#ifndef EBB_TESTS_RUNTIME_PROGRAM_H
#define EBB_TESTS_RUNTIME_PROGRAM_H

#include "runtime_rig.h"
#include "runtime_script.h"

struct program {
    struct ebb_model model;
    struct item *items;
    uint64_t seeds;
};

static inline void program_init(struct program *program, struct rig *rig, struct ebb_model model)
{
    *program = (struct program){.model = model, .seeds = 1};
    program->items = must(calloc(model.block_count, sizeof *program->items));
    uint64_t serial = 0;
    for (uint32_t i = 0; i < model.block_count; i++) {
        if (model.blocks[i].alloc_tick != EBB_TICK_NONE)
            continue;
        model.blocks[i].serial = ++serial;
        program->items[i] = make(rig, model.blocks[i].size_bytes, program->seeds++);
    }
}

/* Runs one iteration. If `timed`, it pauses between events as long as the model says, even after
 * waits. At `odd_tick` it makes and frees a block that is not in the model. */
static inline void program_lap(struct program *program, struct rig *rig, bool timed,
                               uint32_t odd_tick)
{
    const struct ebb_model *model = &program->model;
    uint64_t began = ebb__now_ns();
    for (uint32_t tick = 0; tick < model->tick_count; tick++) {
        const struct ebb_model_event *event = &model->events[tick];
        uint64_t wanted = began + model->time_ns[tick], now = ebb__now_ns();
        if (timed && wanted > now)
            nap_us((long)((wanted - now) / 1000));
        else
            began += now - wanted;
        if (tick == odd_tick) {
            struct item odd = make(rig, 12345, 1);
            drop(rig, &odd);
        }
        if (event->kind == EBB_EVENT_MARK)
            continue;
        struct item *item = &program->items[event->block];
        if (event->kind == EBB_EVENT_ALLOC) {
            *item = make(rig, model->blocks[event->block].size_bytes, program->seeds++);
        } else if (event->kind == EBB_EVENT_FREE) {
            drop(rig, item);
        } else if (event->access == EBB_ACCESS_WRITE) {
            check(rig, item);
            put(rig, item, program->seeds++);
        } else {
            check(rig, item);
        }
    }
}

/* Runs iterations until `laps` successive ones had no demand fault. On a loaded machine some copies
 * are late, but not in every iteration. */
static inline void program_settles(struct program *program, struct rig *rig, unsigned laps)
{
    for (unsigned tries = 0, good = 0; good < laps; tries++) {
        uint64_t faults = atomic_load(&rig->counters->demand_faults);
        program_lap(program, rig, true, UINT32_MAX);
        good = atomic_load(&rig->counters->demand_faults) == faults ? good + 1 : 0;
        assert_true(tries < 100);
    }
}

static inline void program_fini(struct program *program)
{
    ebb__model_fini(&program->model);
    free(program->items);
}

/* Makes the model's script for a budget with the default policy and packing. Release it with
 * free(). */
static inline struct ebb_script *script_for(const struct ebb_model *model, uint64_t budget_bytes)
{
    const struct ebb_machine machine = {"test", {0.5, 50000}, {0.5, 50000}, true, EBB_NO_COSTS};
    struct ebb_plan_request request = request_for(model, &machine, budget_bytes, 200000000);
    return script_from(&request, true);
}

#endif
