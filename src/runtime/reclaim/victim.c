/* Which block leaves when room is needed that no plan has made.
 *
 * By the template, where the live stream is known in it: the block whose next use is farthest away
 * (Belady's choice); what has been used since the last clock event is in use. Elsewhere: the one
 * that was used longest ago, as far as uses are seen.
 *
 * Before all of them go slabs that nobody uses, and where only what is in use is left, the slabs that
 * have been there longest (reclaim/slabs.c): a program that walks over all its small objects, as garbage
 * collectors do, gets through.
 *
 * What the operation in progress has used leaves only where nothing else can, the earliest touched
 * first: a program that walks over more than the budget without allocating must still get through.
 * A block that is needed again within the operation in which it was evicted is not evicted again
 * before the next event; so an operation whose blocks do not fit together ends over the budget, by
 * no more than it must, rather than in a dance. */
#include "runtime/internal.h"

#include "base/tuning.h"

static bool may_be_evicted(const struct ebb_runtime *runtime, const struct block *block)
{
    return block->kind != BLOCK_STATIC && block->kind != BLOCK_SLAB &&
           ebb__block_may_be_evicted(&runtime->uses, block);
}

/* What no plan moves as a whole leaves by the part. */
static bool is_evicted_by_the_part(const struct ebb_runtime *runtime, const struct block *block)
{
    return !runtime->core.policy->knows(runtime, block);
}

/* As many parts as it leaves in. */
static uint32_t parts_in(const struct ebb_runtime *runtime, const struct block *block)
{
    return is_evicted_by_the_part(runtime, block) &&
                   ebb__part_has_units(runtime, &runtime->table.blocks[block->run.head])
               ? block->run.units
               : 1;
}

static struct block *earliest_touched(struct ebb_runtime *runtime)
{
    struct block *best = NULL, *in_use = NULL;
    uint32_t in_use_count = 0;
    for (uint32_t i = 1; i <= runtime->table.count; i++) {
        struct block *block = &runtime->table.blocks[i];
        if (!may_be_evicted(runtime, block) ||
            block->use.needed_at == runtime->uses.event_number + 1)
            continue;
        bool touched_last = block->use.touch + ebb__tuning()->blocks_in_use > runtime->uses.touches;
        struct block **earliest = touched_last ? &in_use : &best;
        if (touched_last)
            in_use_count += parts_in(runtime, block);
        if (!*earliest || block->use.touch < (*earliest)->use.touch)
            *earliest = block;
    }
    /* A block that was used as a whole is one touch, however many parts it has now. */
    return best || in_use_count <= ebb__tuning()->blocks_in_use ? best : in_use;
}

struct block *ebb__victim_choose(struct ebb_runtime *runtime)
{
    struct block *best = ebb__slab_victim(runtime);
    uint64_t best_key = 0;
    if (best)
        return best;
    for (uint32_t i = 1; i <= runtime->table.count; i++) {
        struct block *block = &runtime->table.blocks[i];
        uint64_t key =
            may_be_evicted(runtime, block) ? runtime->core.policy->next_use(runtime, block) : 0;
        if (key == 0)
            continue;
        /* Of like distance the larger one: fewer transfers for the same room. */
        if (!best || key > best_key || (key == best_key && block->page_bytes > best->page_bytes)) {
            best = block;
            best_key = key;
        }
    }
    if (!best)
        best = ebb__slab_oldest(runtime);
    if (!best)
        best = earliest_touched(runtime);
    if (best && is_evicted_by_the_part(runtime, best))
        ebb__part_split(runtime, &runtime->table.blocks[best->run.head]);
    return best;
}
