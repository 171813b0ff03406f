/* Stages: an iteration as a cycle of layers at work.
 *
 * A **stage** is the work of one layer in one phase: a longest run of events under the same layer
 * and phase. Marks of the program tell both (EBB_MARK_LAYER, EBB_MARK_PHASE). Each holds until the
 * next of its kind. The last ones of the iteration hold until the first ones: its timeline is
 * cyclic. Stages begin at events of the program, not at marks. So two marks in a row make no stage
 * without events.
 *
 *     struct ebb_stages stages;
 *     if (ebb__stages_init(&model, &stages, &error) == EBB_OK) {
 *         const struct ebb_stage *stage = &stages.items[stages.at[tick]];
 *         ...
 *         ebb__stages_fini(&stages);
 *     }
 *
 * Time and memory: O(ticks). */
#ifndef EBB_MODEL_STAGES_H
#define EBB_MODEL_STAGES_H

#include "model/model.h"

struct ebb_stage {
    uint32_t first_tick;
    uint32_t layer; /* from 1; 0: the work of no layer */
    uint8_t phase;  /* enum ebb_phase */
};

struct ebb_stages {
    struct ebb_stage *items; /* by first_tick; the last one may extend across the iteration's end */
    uint32_t count;          /* at least 1 */
    uint32_t *at;            /* tick_count: the stage of each tick; a mark is in the one before */
};

/* True if the program has marked layers, and the phases forward and backward. O(marks). */
bool ebb__model_has_layers(const struct ebb_model *model);

/* On EBB_OK the caller owns *stages. EBB_ERR_UNSUPPORTED if the program has not marked layers, or
 * not both phases. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__stages_init(const struct ebb_model *model,
                                               struct ebb_stages *stages, struct ebb_error *error);
void ebb__stages_fini(struct ebb_stages *stages);

/* The stage before `stage` on the cyclic timeline. */
static inline uint32_t ebb__stage_before(const struct ebb_stages *stages, uint32_t stage)
{
    return stage ? stage - 1 : stages->count - 1;
}

#endif
