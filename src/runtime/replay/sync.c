/* Synchronisation: at which position of which script the program is, and which blocks it has there. */
#include "runtime/internal.h"

#include "base/tuning.h"

/* Give the parts of `block` that lie in `known` the script's number; the first of them. */
static uint32_t bind_part(struct ebb_runtime *runtime, struct block *block, uint32_t script_block,
                          const struct ebb_script_block *known)
{
    uint32_t first = ebb__part_shape(runtime, block, known->part_first, known->part_count);
    uint32_t end = ebb__block_index(&runtime->table, block) + known->part_first + known->part_count;
    for (uint32_t i = first; i != NO_BLOCK && i < end; i = ebb__part_next(runtime, i))
        runtime->table.blocks[i].script_block = script_block;
    return first;
}

void ebb__clock_bind(struct ebb_runtime *runtime, struct prepared_script *current,
                     struct block *block, uint32_t script_block)
{
    const struct ebb_script_block *known = &ebb__script_blocks(current->script)[script_block];
    bool large = ebb__part_is_large(runtime, block->run.total_units * EBB_HUGE_BYTES);
    for (uint32_t i = 0; large && known->part_count && i < known->parts; i++)
        current->live[script_block + i] = bind_part(runtime, block, script_block + i, &known[i]);
    if (large && known->part_count)
        return;
    current->live[script_block] = ebb__block_index(&runtime->table, block);
    for (uint32_t i = current->live[script_block]; i != NO_BLOCK; i = ebb__part_next(runtime, i))
        runtime->table.blocks[i].script_block = script_block;
}

void ebb__clock_unbind(const struct ebb_runtime *runtime, struct prepared_script *current,
                       const struct block *block)
{
    uint32_t known = block->script_block;
    if (current->live[known] == ebb__block_index(&runtime->table, block))
        for (uint32_t i = ebb__script_blocks(current->script)[known].parts; i-- > 0;)
            current->live[known + i] = NO_BLOCK;
}

/* How many of the newest allocations, walking back from template position `position`, agree. */
uint32_t ebb__replay_agreement(const struct ebb_runtime *runtime,
                               const struct prepared_script *current, uint32_t position,
                               uint32_t most)
{
    uint32_t clocks = current->script->clock_count, agreed = 0, steps = 0;
    while (agreed < most && steps++ < 2 * clocks) {
        const struct ebb_script_event *event = ebb__replay_event(current, position);
        if (event->kind == EBB_EVENT_ALLOC) {
            uint64_t at = runtime->replay.allocations - 1 - agreed;
            if (runtime->replay.history[at % HISTORY].size_bytes != event->size_bytes)
                return agreed;
            agreed++;
        }
        position = (position + clocks - 1) % clocks;
    }
    return agreed;
}

/* The one position of `current` at which the newest allocations end; EBB_SCRIPT_NONE: none, or
 * more than one. */
static uint32_t find_position(const struct ebb_runtime *runtime,
                              const struct prepared_script *current)
{
    const struct ebb_script *script = current->script;
    const uint32_t *allocs = ebb__script_allocs(script);
    uint64_t size = runtime->replay.history[(runtime->replay.allocations - 1) % HISTORY].size_bytes;
    uint32_t most = script->alloc_count < (uint32_t)ebb__tuning()->sync_allocations
                        ? script->alloc_count
                        : (uint32_t)ebb__tuning()->sync_allocations;
    if (runtime->replay.allocations < most ||
        runtime->next_serial + 1 < script->first_serial + most)
        return EBB_SCRIPT_NONE;
    uint32_t low = ebb__clock_first_alloc(script, size);
    uint32_t found = EBB_SCRIPT_NONE;
    for (; low < script->alloc_count && ebb__replay_event(current, allocs[low])->size_bytes == size;
         low++) {
        if (ebb__replay_agreement(runtime, current, allocs[low], most) < most)
            continue;
        if (found != EBB_SCRIPT_NONE)
            return EBB_SCRIPT_NONE;
        found = allocs[low];
    }
    return found;
}

/* Serials and sizes: a script may come from an earlier run that allocated otherwise. */
static uint32_t find_persistent(const struct ebb_script *script, uint64_t serial,
                                uint64_t size_bytes)
{
    const struct ebb_script_block *blocks = ebb__script_blocks(script);
    uint32_t low = 0, high = script->persistent_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (blocks[middle].serial < serial)
            low = middle + 1;
        else
            high = middle;
    }
    return low < script->persistent_count && blocks[low].serial == serial &&
                   blocks[low].size_bytes == size_bytes
               ? low
               : EBB_SCRIPT_NONE;
}

/* Name the blocks of the last iteration's allocations, newest first; the newest is at `position`. */
static void name_blocks(struct ebb_runtime *runtime, struct prepared_script *current,
                        uint32_t position)
{
    const struct ebb_script *script = current->script;
    uint32_t agreed = ebb__replay_agreement(runtime, current, position, script->alloc_count);
    uint32_t at = position;
    for (uint32_t i = 0; i < agreed && i < HISTORY;) {
        const struct ebb_script_event *event = ebb__replay_event(current, at);
        if (event->kind == EBB_EVENT_ALLOC) {
            const struct history *past =
                &runtime->replay.history[(runtime->replay.allocations - 1 - i) % HISTORY];
            struct block *block = &runtime->table.blocks[past->block];
            if (ebb__block_is_live(block) && block->serial == past->serial)
                ebb__clock_bind(runtime, current, block, event->block);
            i++;
        }
        at = (at + script->clock_count - 1) % script->clock_count;
    }
}

void ebb__clock_start(struct ebb_runtime *runtime, struct prepared_script *current,
                      uint32_t position)
{
    const struct ebb_script *script = current->script;
    for (uint32_t i = 0; i < script->block_count; i++)
        current->live[i] = NO_BLOCK;
    for (uint32_t i = 1; i <= runtime->table.count; i++) {
        struct block *block = &runtime->table.blocks[i];
        block->script_block = EBB_SCRIPT_NONE;
    }
    for (uint32_t i = 1; i <= runtime->table.count; i++) {
        struct block *block = &runtime->table.blocks[i];
        if (!ebb__block_is_live(block) || block->run.head != i)
            continue;
        uint32_t known = find_persistent(script, block->serial, block->size_bytes);
        if (known != EBB_SCRIPT_NONE)
            ebb__clock_bind(runtime, current, block, known);
    }
    if (current->unordered.passed)
        ebb__unordered_begin(runtime, current);
    else
        name_blocks(runtime, current, position);
    runtime->replay.current = current;
    runtime->replay.position = (position + 1) % script->clock_count;
    runtime->replay.position_ns = ebb__progress_ns(runtime);
    runtime->replay.position_touches = runtime->uses.touches;
    runtime->replay.position_event = runtime->uses.event_number;
    runtime->replay.lead_ns = 0;
    current->timer_count = 0;
    atomic_fetch_add(&runtime->core.counters->resyncs, 1);
    ebb__core_mark(runtime, EBB_MARK_PLAN_ON, position);
}

void ebb__replay_look_for_script(struct ebb_runtime *runtime)
{
    for (uint32_t i = runtime->replay.script_count; i-- > 0;) { /* the newest first */
        struct prepared_script *known = &runtime->replay.scripts[i];
        uint32_t position;
        if (known->unordered.passed)
            position = ebb__unordered_begins(runtime, known) ? 0 : EBB_SCRIPT_NONE;
        else
            position = find_position(runtime, known);
        if (position != EBB_SCRIPT_NONE) {
            ebb__clock_start(runtime, known, position);
            return;
        }
    }
}
