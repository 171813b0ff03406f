/* The pool's area, in chunks: which are cached, and which lack memory. */
#include "cuda/pool.h"

bool ebb__pool_is_cached_chunk(const struct cuda_pool *pool, uint32_t first)
{
    for (uint32_t i = 0; i < pool->chunk_units; i++)
        if (!pool->units[first + i].is_free || !pool->units[first + i].is_backed)
            return false;
    return true;
}

uint32_t ebb__pool_old_chunk(const struct cuda_pool *pool)
{
    for (uint32_t i = 0; i < pool->old_area_count; i++) {
        const struct cuda_span *area = &pool->old_areas[i];
        for (uint32_t at = 0; at < area->count; at += pool->chunk_units)
            if (ebb__pool_is_cached_chunk(pool, area->first + at))
                return area->first + at;
    }
    return CUDA_NO_UNIT;
}

uint32_t ebb__pool_oldest_chunks(struct cuda_pool *pool, uint32_t most, uint32_t *count)
{
    uint32_t old = pool->area_cached_units ? ebb__pool_old_chunk(pool) : CUDA_NO_UNIT;
    if (old != CUDA_NO_UNIT) {
        *count = pool->chunk_units;
        return old;
    }
    uint32_t last = pool->area_first + pool->area_count, step = pool->chunk_units;
    for (uint32_t tries = 0; pool->area_cached_units && tries < pool->area_count; tries += step) {
        uint32_t first = pool->area_first + pool->area_cursor;
        for (*count = 0; *count < most && first + *count < last &&
                         ebb__pool_is_cached_chunk(pool, first + *count);)
            *count += step;
        if (*count)
            return first;
        pool->area_cursor = (pool->area_cursor + step) % pool->area_count;
    }
    return CUDA_NO_UNIT;
}

void ebb__pool_cached_chunk(struct cuda_pool *pool, uint32_t first, struct cuda_passages *before)
{
    before->count = 0;
    for (uint32_t i = 0; i < pool->chunk_units; i++)
        ebb__passages_join(before, pool->streams, &pool->units[first + i].before);
}

struct cuda_span ebb__pool_chunks(const struct cuda_pool *pool, uint32_t first, uint32_t count)
{
    uint32_t step = pool->chunk_units, at = first - pool->area_first;
    uint32_t from = at / step * step, to = (at + count + step - 1) / step * step;
    return (struct cuda_span){pool->area_first + from, to - from};
}

uint32_t ebb__pool_bare_at(const struct cuda_pool *pool, uint32_t first, uint32_t count)
{
    struct cuda_span chunks = ebb__pool_chunks(pool, first, count);
    uint32_t bare = 0;
    for (uint32_t i = 0; i < chunks.count; i++)
        bare += !pool->units[chunks.first + i].is_backed;
    return bare;
}

void ebb__pool_back_at(struct cuda_pool *pool, uint32_t first, uint32_t count, uint32_t arrival)
{
    struct cuda_span chunks = ebb__pool_chunks(pool, first, count);
    for (uint32_t i = 0; i < chunks.count; i++) {
        struct cuda_unit *unit = &pool->units[chunks.first + i];
        if (unit->is_backed)
            continue;
        unit->is_backed = true;
        unit->arrival = arrival;
        pool->backed_units++;
        pool->area_cached_units++;
    }
}
