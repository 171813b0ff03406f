/* What must hold between calls, in builds with EBB_CHECK: a sample of it each time, since there may
 * be many blocks. */
#include "cuda/internal.h"

#include "base/check.h"

#define SAMPLE 8u

#if EBB_CHECKS
static void check_block(const struct ebb_cuda *engine, uint32_t number)
{
    const struct cuda_block *block = &engine->table.blocks[number];
    if (block->state == CUDA_BLOCK_FREE || block->is_small)
        return;
    for (uint32_t i = 0; i < block->unit_count; i++) {
        const struct cuda_unit *unit = &engine->pool.units[block->first_unit + i];
        EBB_CHECK_THAT(!unit->is_free);
        EBB_CHECK_THAT(unit->is_backed == (block->state == CUDA_BLOCK_RESIDENT));
        EBB_CHECK_THAT(engine->table.owners[block->first_unit + i] == number);
    }
    EBB_CHECK_THAT(block->address == ebb__table_address(&engine->table, block->first_unit));
    EBB_CHECK_THAT(block->state == CUDA_BLOCK_RESIDENT || block->arrival == 0 ||
                   !engine->backing->ops->is_coherent);
}
#endif

void ebb__cuda_check(const struct ebb_cuda *engine)
{
    (void)engine;
#if EBB_CHECKS
    const struct cuda_pool *pool = &engine->pool;
    EBB_CHECK_THAT(pool->cached_units + pool->area_cached_units <= pool->backed_units);
    EBB_CHECK_THAT(pool->backed_units <= engine->table.unit_count);
    for (uint32_t i = 0; i < SAMPLE && engine->table.used > 1; i++)
        check_block(engine,
                    1 + (uint32_t)((engine->order * SAMPLE + i) % (engine->table.used - 1)));
#endif
}
