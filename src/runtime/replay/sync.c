/* Synchronisation: finds the script and position of the program, and the blocks that it has
 * there. */
#include "runtime/replay/matcher.h"

/* Binds the parts of `block` that lie in `known` to `script_block`. Returns the first of them. */
static uint32_t bind_part(struct replay *replay, struct block *block, uint32_t script_block,
                          const struct ebb_script_block *known)
{
    uint32_t first = ebb__part_shape(replay->table, block, known->part_first, known->part_count);
    uint32_t end = ebb__block_index(replay->table, block) + known->part_first + known->part_count;
    for (uint32_t i = first; i != NO_BLOCK && i < end; i = ebb__part_next(replay->table, i))
        replay->table->blocks[i].script_block = script_block;
    return first;
}

void ebb__clock_bind(struct replay *replay, struct prepared_script *current, struct block *block,
                     uint32_t script_block)
{
    const struct ebb_script_block *known = &ebb__script_blocks(current->script)[script_block];
    bool large = block->size_bytes == known->size_bytes &&
                 ebb__part_is_large(replay->table, block->run.total_units * EBB_HUGE_BYTES);
    for (uint32_t i = 0; large && known->part_count && i < known->parts; i++)
        current->live[script_block + i] = bind_part(replay, block, script_block + i, &known[i]);
    if (large && known->part_count)
        return;
    current->live[script_block] = ebb__block_index(replay->table, block);
    for (uint32_t i = current->live[script_block]; i != NO_BLOCK;
         i = ebb__part_next(replay->table, i))
        replay->table->blocks[i].script_block = script_block;
}

void ebb__clock_unbind(const struct replay *replay, struct prepared_script *current,
                       const struct block *block)
{
    uint32_t known = block->script_block;
    if (current->live[known] == ebb__block_index(replay->table, block))
        for (uint32_t i = ebb__script_blocks(current->script)[known].parts; i-- > 0;)
            current->live[known + i] = NO_BLOCK;
}

void ebb__clock_start(struct replay *replay, struct prepared_script *current, uint32_t position)
{
    const struct ebb_script *script = current->script;
    for (uint32_t i = 0; i < script->block_count; i++)
        current->live[i] = NO_BLOCK;
    for (uint32_t i = 1; i <= replay->table->count; i++) {
        struct block *block = &replay->table->blocks[i];
        block->script_block = EBB_SCRIPT_NONE;
    }
    ebb__names_bind(replay, current);
    if (current->matcher->begin)
        current->matcher->begin(replay, current, position);
    replay->current = current;
    replay->other_sizes = (struct other_sizes){0};
    replay->position = (position + 1) % script->clock_count;
    replay->position_ns = ebb__progress_ns(replay->core);
    replay->position_touches = replay->table->uses.touches;
    replay->position_event = replay->table->uses.event_number;
    replay->lead_ns = 0;
    current->timer_count = 0;
    current->used = ++replay->script_uses;
    current->left.begun_at = replay->allocations;
    atomic_fetch_add(&replay->core->counters->resyncs, 1);
    ebb__core_mark(replay->core, EBB_MARK_PLAN_ON, position);
    ebb__replay_cross_border(replay);
}

const struct matcher *ebb__matcher_of(const struct ebb_script *script)
{
    if (script->flags & EBB_SCRIPT_ANNOUNCED)
        return &ebb__matcher_announced;
    if (script->alloc_count == 0)
        return &ebb__matcher_access_clock;
    return script->flags & EBB_SCRIPT_UNORDERED ? &ebb__matcher_unordered : &ebb__matcher_ordered;
}

/* Does a script whose newest `agreed` allocations agree fit better than another one? If both
 * agree with as much, it is the shorter one: a longer one contains it, and expects something
 * behind it. */
static bool fits_better(const struct prepared_script *script, uint32_t agreed,
                        const struct prepared_script *other, uint32_t other_agreed)
{
    if (!other || agreed != other_agreed)
        return !other || agreed > other_agreed;
    return script->script->alloc_count < other->script->alloc_count;
}

void ebb__replay_look_for_script(struct replay *replay)
{
    struct prepared_script *best = NULL;
    uint32_t best_position = 0, best_agreed = 0;
    for (uint32_t i = replay->script_count; i-- > 0;) { /* newest first */
        struct prepared_script *known = &replay->scripts[i];
        const struct matcher *matcher = known->matcher;
        uint32_t position = matcher->find ? matcher->find(replay, known) : EBB_SCRIPT_NONE;
        if (position == EBB_SCRIPT_NONE)
            continue;
        uint32_t agreed = matcher->agreement ? matcher->agreement(replay, known, position) : 0;
        if (!fits_better(known, agreed, best, best_agreed))
            continue;
        best = known;
        best_position = position;
        best_agreed = agreed;
    }
    if (best)
        ebb__clock_start(replay, best, best_position);
}

void ebb__replay_marked(struct replay *replay)
{
    for (uint32_t i = replay->script_count; !replay->current && i-- > 0;) /* newest first */
        if (replay->scripts[i].script->flags & EBB_SCRIPT_MARKED)
            ebb__clock_start(replay, &replay->scripts[i],
                             replay->scripts[i].script->clock_count - 1);
}

bool ebb__replay_begin(struct replay *replay, const struct ebb_script *script, bool continues)
{
    replay->current = NULL;
    replay->continues = continues;
    for (uint32_t i = 0; i < replay->script_count; i++)
        if (replay->scripts[i].script == script) {
            ebb__clock_start(replay, &replay->scripts[i], script->clock_count - 1);
            return true;
        }
    return false;
}
