#include "base/vec.h"
#include "plan/pool/pool.h"

#include <stdlib.h>

/* Whole iterations, of this many ticks, that a block's lifetime reaches into at most at once. */
static uint32_t instances_of(const struct ebb_model_block *block, uint32_t ticks)
{
    if (block->alloc_tick == EBB_TICK_NONE)
        return 1;
    return block->span_ticks / ticks + (block->span_ticks % ticks != 0);
}

static uint32_t iterations_of(const struct ebb_model *model)
{
    uint32_t most = 1;
    for (uint32_t b = 0; b < model->block_count; b++) {
        uint32_t instances = instances_of(&model->blocks[b], model->tick_count);
        if (instances > most && instances <= EBB_POOL_ITERATIONS_MAX)
            most = instances;
    }
    return most;
}

struct making {
    EBB_VEC(struct ebb_pool_buffer) buffers;
    EBB_VEC(struct ebb_pool_name) names;
};

static bool make(struct making *making, uint64_t lower, uint64_t span, uint64_t size,
                 uint32_t block, uint32_t instance)
{
    struct ebb_pool_buffer buffer = {lower, lower + span, size};
    struct ebb_pool_name name = {block, instance};
    return making->buffers.count < UINT32_MAX / 4 && ebb_vec_push(&making->buffers, buffer) &&
           ebb_vec_push(&making->names, name);
}

enum ebb_status ebb__pool_from_model(const struct ebb_model *model, bool unroll,
                                     struct ebb_pool_blocks *blocks, struct ebb_error *error)
{
    struct making making = {0};
    uint32_t iterations = unroll ? iterations_of(model) : 1;
    uint64_t ticks = model->tick_count, period = iterations * ticks;
    bool made = true;
    *blocks = (struct ebb_pool_blocks){0};
    for (uint32_t b = 0; b < model->block_count && made; b++) {
        const struct ebb_model_block *block = &model->blocks[b];
        uint32_t instances = instances_of(block, model->tick_count);
        if (block->size_bytes == 0 || block->span_ticks == 0)
            continue;
        if (block->alloc_tick == EBB_TICK_NONE || instances > iterations) {
            /* Instances take turns in as many places, none of which is free for a whole turn. */
            for (uint32_t i = 0; i < instances && made; i++)
                made = make(&making, 0, period, block->size_bytes, b, i);
            continue;
        }
        for (uint32_t i = 0; i < iterations && made; i++)
            made = make(&making, block->alloc_tick + i * ticks, block->span_ticks,
                        block->size_bytes, b, i);
    }
    if (!made) {
        ebb_vec_free(&making.buffers);
        ebb_vec_free(&making.names);
        return ebb__fail(error, EBB_ERR_MEMORY, "model", "too many blocks to pack");
    }
    *blocks = (struct ebb_pool_blocks){making.buffers.items, making.names.items,
                                       (uint32_t)making.buffers.count, period, iterations};
    return EBB_OK;
}

void ebb__pool_blocks_fini(struct ebb_pool_blocks *blocks)
{
    free(blocks->buffers);
    free(blocks->names);
    *blocks = (struct ebb_pool_blocks){0};
}
