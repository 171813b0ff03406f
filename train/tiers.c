#include "train/tiers.h"

#include "train/base/fail.h"

#include <stdlib.h>

struct ebb_train_tiers {
    struct ebb_tier_program *program;
    uint32_t *block_of;     /* [storage]; EBB_NONE: no step uses it */
    uint32_t *operation_of; /* [step]; EBB_NONE: left out */
    struct ebb_exec_places places;
};

static enum ebb_status before(void *self, uint32_t step, struct ebb_error *error)
{
    struct ebb_train_tiers *tiers = self;
    return ebb__tier_program_before(tiers->program, tiers->operation_of[step], error);
}

static void after(void *self, uint32_t step)
{
    struct ebb_train_tiers *tiers = self;
    ebb__tier_program_after(tiers->program, tiers->operation_of[step]);
}

static void *at(void *self, uint32_t storage)
{
    struct ebb_train_tiers *tiers = self;
    return ebb__tier_program_at(tiers->program, tiers->block_of[storage]);
}

static uint32_t storage_of(const struct ebb_schedule *schedule, const struct ebb_step *step,
                           uint32_t hold)
{
    uint32_t slot = schedule->holds.items[step->first_hold + hold].slot;
    return schedule->slots.items[slot].storage;
}

/* Blocks: storages that are persistent, or that a step uses. */
static bool name_blocks(struct ebb_train_tiers *tiers, const struct ebb_schedule *schedule)
{
    for (uint32_t s = 0; s < schedule->storages.count; s++)
        tiers->block_of[s] = schedule->storages.items[s].is_persistent ? 0 : EBB_NONE;
    for (uint32_t number = 0; number < schedule->steps.count; number++) {
        const struct ebb_step *step = &schedule->steps.items[number];
        for (uint32_t h = 0; !step->is_left_out && h < step->hold_count; h++)
            tiers->block_of[storage_of(schedule, step, h)] = 0;
    }
    for (uint32_t s = 0; s < schedule->storages.count; s++) {
        const struct ebb_storage *storage = &schedule->storages.items[s];
        if (tiers->block_of[s] == EBB_NONE)
            continue;
        tiers->block_of[s] =
            ebb__tier_program_block(tiers->program, storage->bytes, storage->is_persistent);
        if (tiers->block_of[s] == UINT32_MAX)
            return false;
    }
    return true;
}

static enum ebb_status name_operations(struct ebb_train_tiers *tiers,
                                       const struct ebb_schedule *schedule, struct ebb_error *error)
{
    uint32_t count = 0;
    for (uint32_t number = 0; number < schedule->steps.count; number++) {
        const struct ebb_step *step = &schedule->steps.items[number];
        struct ebb_tier_program_use uses[EBB_STEP_USES_MOST];
        tiers->operation_of[number] = step->is_left_out ? EBB_NONE : count++;
        if (step->is_left_out)
            continue;
        for (uint32_t h = 0; h < step->hold_count; h++) {
            enum ebb_use use = schedule->holds.items[step->first_hold + h].use;
            uses[h] = (struct ebb_tier_program_use){
                .block = tiers->block_of[storage_of(schedule, step, h)],
                .reads = use != EBB_USE_OVERWRITE,
                .writes = use != EBB_USE_READ};
        }
        enum ebb_status status =
            ebb__tier_program_operation(tiers->program, uses, step->hold_count, error);
        if (status)
            return status;
    }
    return EBB_OK;
}

static enum ebb_status make(struct ebb_train_tiers *tiers, const struct ebb_schedule *schedule,
                            const struct ebb_tier_program_options *options, struct ebb_error *error)
{
    tiers->block_of = calloc(schedule->storages.count + 1u, sizeof *tiers->block_of);
    tiers->operation_of = calloc(schedule->steps.count + 1u, sizeof *tiers->operation_of);
    if (!tiers->block_of || !tiers->operation_of)
        return ebb__train_fail_memory(error, "--tiers");
    enum ebb_status status = ebb__tier_program_create(options, &tiers->program, error);
    if (!status && !name_blocks(tiers, schedule))
        status = ebb__train_fail_memory(error, "--tiers");
    if (!status)
        status = name_operations(tiers, schedule, error);
    return status ? status : ebb__tier_program_start(tiers->program, error);
}

enum ebb_status ebb__train_tiers_open(struct ebb_exec *exec,
                                      const struct ebb_tier_program_options *options,
                                      struct ebb_train_tiers **tiers, struct ebb_error *error)
{
    struct ebb_train_tiers *made = calloc(1, sizeof *made);
    if (!made)
        return ebb__train_fail_memory(error, "--tiers");
    enum ebb_status status = make(made, &exec->train, options, error);
    if (status) {
        ebb__train_tiers_close(made);
        return status;
    }
    made->places = (struct ebb_exec_places){made, before, after, at};
    ebb__exec_place(exec, &made->places);
    *tiers = made;
    return EBB_OK;
}

void ebb__train_tiers_close(struct ebb_train_tiers *tiers)
{
    if (!tiers)
        return;
    ebb__tier_program_destroy(tiers->program);
    free(tiers->block_of);
    free(tiers->operation_of);
    free(tiers);
}

void ebb__train_tiers_figures(const struct ebb_train_tiers *tiers,
                              struct ebb_tier_program_figures *figures)
{
    ebb__tier_program_figures(tiers->program, figures);
}
