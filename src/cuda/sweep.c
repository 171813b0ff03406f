/* Arrivals are compared modulo 2^32, so an old one must not stay. */
#include "cuda/internal.h"

static void sweep_blocks(struct ebb_cuda *engine)
{
    for (uint32_t i = 1; i < engine->table.used; i++) {
        struct cuda_block *entry = &engine->table.blocks[i];
        if (entry->arrival && ebb__mover_is_over(engine->mover, entry->arrival))
            entry->arrival = 0;
    }
    for (uint32_t i = 0; i < engine->slabs.slab_count; i++) {
        struct cuda_slab *slab = &engine->slabs.slabs[i];
        if (slab->arrival && ebb__mover_is_over(engine->mover, slab->arrival))
            slab->arrival = 0;
    }
    for (uint32_t i = 0; i < engine->table.unit_count; i++) {
        struct cuda_unit *unit = &engine->pool.units[i];
        if (unit->arrival && ebb__mover_is_over(engine->mover, unit->arrival))
            unit->arrival = 0;
    }
    for (uint32_t i = 0; i < engine->streams.used; i++) {
        struct cuda_stream *stream = &engine->streams.streams[i];
        if (stream->awaited && ebb__mover_is_over(engine->mover, stream->awaited))
            stream->awaited = 0;
    }
}

void ebb__cuda_sweep(struct ebb_cuda *engine)
{
    uint32_t newest = ebb__mover_last_arrival(engine->mover);
    if (newest - engine->swept_arrival < (uint32_t)1 << 28)
        return;
    engine->swept_arrival = newest;
    sweep_blocks(engine);
}
