#include "plan/place/huge_round.h"

#include "base/geometry.h"
#include "base/tuning.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_MOVED_SHARE                                                                          \
    64 /* of all bytes moved, as a divisor; half and twice give the same
                                plan */
#define LEAST_TAIL_BYTES (EBB_HUGE_BYTES / 2)

static uint64_t in_units(uint64_t bytes)
{
    return (bytes + EBB_HUGE_BYTES - 1) / EBB_HUGE_BYTES * EBB_HUGE_BYTES;
}

static bool can_be_huge_rounded(const struct ebb_model_block *block)
{
    uint64_t tail = block->size_bytes % EBB_HUGE_BYTES, huge_rounded = in_units(block->size_bytes);
    return block->alloc_tick != EBB_TICK_NONE && block->part_count == 0 &&
           tail >= LEAST_TAIL_BYTES &&
           huge_rounded - block->size_bytes <= huge_rounded / ebb__tuning()->huge_waste_divisor;
}

enum ebb_status ebb__huge_rounded_init(const struct ebb_model *model,
                                       struct ebb_huge_rounded *huge_rounded)
{
    *huge_rounded = (struct ebb_huge_rounded){.model = *model};
    huge_rounded->model.blocks = malloc((model->block_count + (size_t)1) * sizeof *model->blocks);
    huge_rounded->blocks = calloc(model->block_count + (size_t)1, 1);
    if (!huge_rounded->model.blocks || !huge_rounded->blocks) {
        ebb__huge_rounded_fini(huge_rounded);
        return EBB_ERR_MEMORY;
    }
    memcpy(huge_rounded->model.blocks, model->blocks, model->block_count * sizeof *model->blocks);
    return EBB_OK;
}

bool ebb__huge_rounded_add(struct ebb_huge_rounded *huge_rounded, uint32_t index)
{
    struct ebb_model_block *block = &huge_rounded->model.blocks[index];
    if (!can_be_huge_rounded(block)) /* this excludes blocks that are huge-rounded already */
        return false;
    huge_rounded->count++;
    huge_rounded->blocks[index] = 1;
    block->size_bytes = in_units(block->size_bytes);
    return true;
}

enum ebb_status ebb__huge_round(const struct ebb_model *model, const struct ebb_plan *plan,
                                struct ebb_huge_rounded *huge_rounded)
{
    enum ebb_status status = ebb__huge_rounded_init(model, huge_rounded);
    if (status != EBB_OK)
        return status;
    uint64_t tails = 0, moved = 0;
    for (uint32_t i = 0; i < plan->absence_count; i++) {
        uint32_t index = plan->absences[i].block;
        uint64_t bytes = model->blocks[index].size_bytes;
        moved += bytes;
        if (ebb__huge_rounded_add(huge_rounded, index) || huge_rounded->blocks[index])
            tails += bytes % EBB_HUGE_BYTES;
    }
    if (tails < moved / LEAST_MOVED_SHARE)
        huge_rounded->count = 0;
    return EBB_OK;
}

void ebb__huge_rounded_fini(struct ebb_huge_rounded *huge_rounded)
{
    free(huge_rounded->model.blocks);
    free(huge_rounded->blocks);
    *huge_rounded = (struct ebb_huge_rounded){0};
}
