#include "plan/place/widen.h"

#include "base/tuning.h"

#include <stdlib.h>
#include <string.h>

#define UNIT_BYTES EBB_PART_BYTES
#define LEAST_TAIL_BYTES (UNIT_BYTES / 2)

static uint64_t in_units(uint64_t bytes)
{
    return (bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
}

static bool may_be_wide(const struct ebb_model_block *block)
{
    uint64_t tail = block->size_bytes % UNIT_BYTES, wide = in_units(block->size_bytes);
    return block->alloc_tick != EBB_TICK_NONE && block->part_count == 0 &&
           tail >= LEAST_TAIL_BYTES &&
           wide - block->size_bytes <= wide / ebb__tuning()->huge_waste_divisor;
}

enum ebb_status ebb__wide_init(const struct ebb_model *model, struct ebb_wide *wide)
{
    *wide = (struct ebb_wide){.model = *model};
    wide->model.blocks = malloc((model->block_count + (size_t)1) * sizeof *model->blocks);
    wide->blocks = calloc(model->block_count + (size_t)1, 1);
    if (!wide->model.blocks || !wide->blocks) {
        ebb__wide_fini(wide);
        return EBB_ERR_MEMORY;
    }
    memcpy(wide->model.blocks, model->blocks, model->block_count * sizeof *model->blocks);
    return EBB_OK;
}

bool ebb__wide_add(struct ebb_wide *wide, uint32_t index)
{
    struct ebb_model_block *block = &wide->model.blocks[index];
    if (!may_be_wide(block)) /* as one that is wide already is not */
        return false;
    wide->count++;
    wide->blocks[index] = 1;
    block->size_bytes = in_units(block->size_bytes);
    return true;
}

enum ebb_status ebb__widen(const struct ebb_model *model, const struct ebb_plan *plan,
                           struct ebb_wide *wide)
{
    enum ebb_status status = ebb__wide_init(model, wide);
    if (status != EBB_OK)
        return status;
    uint64_t tails = 0, moved = 0;
    for (uint32_t i = 0; i < plan->absence_count; i++) {
        uint32_t index = plan->absences[i].block;
        uint64_t bytes = model->blocks[index].size_bytes;
        moved += bytes;
        if (ebb__wide_add(wide, index) || wide->blocks[index])
            tails += bytes % UNIT_BYTES;
    }
    if (tails < moved / ebb__tuning()->huge_moved_divisor)
        wide->count = 0;
    return EBB_OK;
}

void ebb__wide_fini(struct ebb_wide *wide)
{
    free(wide->model.blocks);
    free(wide->blocks);
    *wide = (struct ebb_wide){0};
}
