/* Which block leaves when room is needed that no plan has made.
 *
 * By the template, where the live stream is known in it: the block whose next use is farthest away
 * (Belady's choice). Elsewhere: the one that was used longest ago, as far as uses are seen. What
 * the operation in progress uses never leaves. */
#include "engine/internal.h"

struct block *ebb__victim_choose(struct ebb_engine *engine)
{
    struct block *best = NULL;
    uint64_t best_key = 0;
    for (uint32_t i = 1; i <= engine->block_count; i++) {
        struct block *block = &engine->blocks[i];
        if ((block->state != BLOCK_RESIDENT && block->state != BLOCK_PARKED) || block->open ||
            block->out_queued || block->pinned_until > engine->event_number)
            continue;
        uint64_t key = engine->event_number - block->last_use;
        if (engine->playing) {
            uint32_t distance = ebb__clock_distance(engine, block);
            uint32_t whole = engine->playing->script->clock_count;
            if (distance != UINT32_MAX)
                key = distance;
            else if (key > whole)
                key = whole;
        }
        if (key == 0)
            continue;
        /* Of like distance the larger one: fewer transfers for the same room. */
        if (!best || key > best_key || (key == best_key && block->page_bytes > best->page_bytes)) {
            best = block;
            best_key = key;
        }
    }
    return best;
}
