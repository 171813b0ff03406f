/* Chooses the block to evict if memory is needed that no plan has freed.
 *
 * If the live stream matches a template, it is the block whose next use is farthest in the future
 * (Belady's choice). Blocks used since the last clock event are in use. While accesses are
 * observed, the next use is predicted (reclaim/predict.h), if that has not cost more than LRU
 * (reclaim/rival.h). Otherwise it is the least recently used block, as far as uses are seen.
 *
 * Unused slabs are evicted before all blocks. If only blocks in use are left, the slabs that have
 * been resident for longest are evicted (reclaim/slabs.c). So a program that walks over all its
 * small objects, as garbage collectors do, makes progress.
 *
 * Blocks that the current operation has used are evicted only if nothing else can be. The one
 * touched earliest is evicted first. So a program that walks over more than the budget without
 * allocating makes progress. If a block is evicted and needed again within one operation, it is not
 * evicted again before the next event. So an operation whose blocks do not fit together exceeds the
 * budget as little as possible, instead of thrashing.
 *
 * A block whose move failed, because the kernel held its pages, is left alone for some events. If
 * nothing else can be evicted, it is tried again, once an event. */
#include "runtime/reclaim/reclaim.h"

#include "base/tuning.h"

static bool may_be_evicted(const struct reclaim *reclaim, const struct block *block)
{
    return block->kind != BLOCK_STATIC && block->kind != BLOCK_SLAB &&
           ebb__block_may_be_evicted(&reclaim->table->uses, block);
}

/* A block that no plan moves as a whole is evicted part by part. */
static bool is_evicted_by_the_part(const struct reclaim *reclaim, const struct block *block)
{
    return !reclaim->core->policy->knows(reclaim->core->policy_context, block);
}

/* The number of parts that it is evicted in. */
static uint32_t parts_in(const struct reclaim *reclaim, const struct block *block)
{
    return is_evicted_by_the_part(reclaim, block) &&
                   ebb__part_has_units(reclaim->table, &reclaim->table->blocks[block->run.head])
               ? block->run.units
               : 1;
}

static struct block *earliest_touched(struct reclaim *reclaim)
{
    struct block *best = NULL, *in_use = NULL;
    uint32_t in_use_count = 0;
    for (uint32_t i = 1; i <= reclaim->table->count; i++) {
        struct block *block = &reclaim->table->blocks[i];
        if (!may_be_evicted(reclaim, block) ||
            block->use.needed_at == reclaim->table->uses.event_number + 1)
            continue;
        bool touched_last =
            block->use.touch + ebb__tuning()->blocks_in_use > reclaim->table->uses.touches;
        struct block **earliest = touched_last ? &in_use : &best;
        if (touched_last)
            in_use_count += parts_in(reclaim, block);
        if (!*earliest || block->use.touch < (*earliest)->use.touch)
            *earliest = block;
    }
    /* A block that was used as a whole counts as one touch, however many parts it has. */
    return best || in_use_count <= ebb__tuning()->blocks_in_use ? best : in_use;
}

static bool holds_pages(const struct block *block)
{
    return block->kind == BLOCK_HEAP && block->transfer.queue != QUEUE_OUT &&
           (block->state == BLOCK_RESIDENT || block->state == BLOCK_PARKED ||
            block->state == BLOCK_FETCHING);
}

/* How far away the next use of `block` is expected. 0: it is in use. */
static uint64_t next_use(const struct reclaim *reclaim, const struct block *block, bool foresees)
{
    if (ebb__in_order_awaits(&reclaim->order, block))
        return 1;
    return foresees ? ebb__foresee_distance(&reclaim->foresee, reclaim->table, block)
                    : reclaim->core->policy->next_use(reclaim->core->policy_context, block);
}

/* See ebb__victim_latest(). *held_bytes: what blocks hold. */
static struct block *used_latest(struct reclaim *reclaim, uint64_t *held_bytes, uint64_t *distance)
{
    struct block *best = NULL;
    uint64_t best_key = 0;
    bool foresees = !reclaim->core->policy->is_planned(reclaim->core->policy_context) &&
                    ebb__foresee_leads(&reclaim->foresee, reclaim->table);
    for (uint32_t i = 1; i <= reclaim->table->count; i++) {
        struct block *block = &reclaim->table->blocks[i];
        uint64_t key = may_be_evicted(reclaim, block) ? next_use(reclaim, block, foresees) : 0;
        if (holds_pages(block))
            *held_bytes += block->page_bytes;
        if (key == 0)
            continue;
        /* At equal distance the larger block: it frees the same memory with fewer transfers. */
        if (!best || key > best_key || (key == best_key && block->page_bytes > best->page_bytes)) {
            best = block;
            best_key = key;
        }
    }
    *distance = best_key;
    return best;
}

/* The block whose move failed first, if not since the last event: what pinned it may be over. */
static struct block *earliest_pinned(const struct reclaim *reclaim)
{
    struct block *best = NULL;
    uint64_t since_event = reclaim->table->uses.event_number + ebb__tuning()->pinned_events;
    for (uint32_t i = 1; i <= reclaim->table->count; i++) {
        struct block *block = &reclaim->table->blocks[i];
        if (block->kind == BLOCK_HEAP && ebb__block_may_be_moved(block) &&
            block->pinned_until > reclaim->table->uses.event_number &&
            block->pinned_until < since_event &&
            (!best || block->pinned_until < best->pinned_until))
            best = block;
    }
    return best;
}

/* needed: memory is needed now, so what is in use or was pinned may be chosen. */
static struct block *choose(struct reclaim *reclaim, bool needed)
{
    uint64_t held_bytes = 0, distance;
    struct block *best = ebb__slab_victim(reclaim);
    if (best)
        return best;
    best = used_latest(reclaim, &held_bytes, &distance);
    if (!best && needed)
        best = ebb__slab_oldest(reclaim);
    if (!best && needed)
        best = earliest_touched(reclaim);
    if (!best && needed)
        best = earliest_pinned(reclaim);
    if (best)
        ebb__in_order_gone(&reclaim->order, best);
    if (best && is_evicted_by_the_part(reclaim, best))
        ebb__part_split(reclaim->table, &reclaim->table->blocks[best->run.head]);
    if (best)
        ebb__foresee_evicted(&reclaim->foresee, reclaim->table, best,
                             held_bytes + ebb__pages_available(reclaim->memory) +
                                 reclaim->transfer->out_pending_bytes);
    return best;
}

struct block *ebb__victim_choose(struct reclaim *reclaim)
{
    return choose(reclaim, true);
}

struct block *ebb__victim_ahead(struct reclaim *reclaim)
{
    return choose(reclaim, false);
}

struct block *ebb__victim_latest(struct reclaim *reclaim, uint64_t *distance)
{
    uint64_t held_bytes = 0;
    return used_latest(reclaim, &held_bytes, distance);
}
