#include "plan/idle.h"

#include <stdlib.h>
#include <string.h>

static bool is_idle(const struct ebb_model_block *block)
{
    return block->alloc_tick == EBB_TICK_NONE && block->access_count == 0 && block->size_bytes > 0;
}

enum ebb_status ebb__without_idle_init(const struct ebb_model *model,
                                       struct ebb_without_idle *without)
{
    *without = (struct ebb_without_idle){0};
    uint32_t count = 0;
    for (uint32_t i = 0; model->has_accesses && i < model->block_count; i++)
        count += is_idle(&model->blocks[i]);
    if (count == 0)
        return EBB_OK;
    struct ebb_model_block *blocks = malloc(model->block_count * sizeof *blocks);
    if (!blocks)
        return EBB_ERR_MEMORY;
    memcpy(blocks, model->blocks, model->block_count * sizeof *blocks);
    for (uint32_t i = 0; i < model->block_count; i++)
        if (is_idle(&blocks[i]))
            blocks[i].size_bytes = 0;
    without->model = *model;
    without->model.blocks = blocks;
    without->count = count;
    return EBB_OK;
}

void ebb__without_idle_fini(struct ebb_without_idle *without)
{
    free(without->model.blocks);
    *without = (struct ebb_without_idle){0};
}
