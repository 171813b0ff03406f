/* Matching in order: allocation sizes identify the position.
 *
 * Frees are only hints, and may be early or late. An unexpected allocation ends the match at once,
 * unless a step of other sizes has begun (sizes.c). Then frees are evidence.
 * A new position is found if the newest allocations occur exactly once in the template, or were the
 * next ones where it was left.
 *
 * A program that announces its uses (../acquire.c) also says where an iteration begins. Its uses
 * must then be of the blocks that the script has there. */
#include "runtime/replay/matcher.h"

#include "base/tuning.h"

enum { EXACT_DIVISOR = 4 }; /* of the allocations that tell a position, such a part by their size */

/* Number of the newest allocations that agree with the template, from `position` backwards.
 * *exact: those of them whose size tells it. */
static uint32_t agreement(const struct replay *replay, const struct prepared_script *current,
                          uint32_t position, uint32_t most, uint32_t *exact)
{
    *exact = 0;
    uint32_t clocks = current->script->clock_count, agreed = 0, steps = 0;
    while (agreed < most && steps++ < 2 * clocks) {
        const struct ebb_script_event *event = ebb__replay_event(current, position);
        if (event->kind == EBB_EVENT_ALLOC) {
            uint64_t at = replay->allocations - 1 - agreed;
            bool is_exact = replay->history[at % HISTORY].size_bytes == event->size_bytes;
            if (!is_exact && event->size_bytes != EBB_SCRIPT_ANY_SIZE)
                return agreed;
            *exact += is_exact;
            agreed++;
        }
        position = (position + clocks - 1) % clocks;
    }
    return agreed;
}

/* Are the `count` allocations up to `position` those that were expected when the script was left?
 * An evaluation may have come in between. */
static bool goes_on(const struct prepared_script *current, uint32_t position, uint32_t count)
{
    uint32_t clocks = current->script->clock_count, steps = 0;
    while (count > 0 && steps++ < 2 * clocks) {
        count -= ebb__replay_event(current, position)->kind == EBB_EVENT_ALLOC;
        if (count)
            position = (position + clocks - 1) % clocks;
    }
    return position == current->left.at;
}

/* The position of `current` at which the newest allocations end. If there are several, the one
 * where the script was left. Micro-batches of a step are alike. EBB_SCRIPT_NONE: none, or not to be
 * told. */
static uint32_t find_position(const struct replay *replay, struct prepared_script *current)
{
    const struct ebb_script *script = current->script;
    const uint32_t *allocs = ebb__script_allocs(script);
    uint64_t size = replay->history[(replay->allocations - 1) % HISTORY].size_bytes;
    uint32_t most = script->alloc_count < (uint32_t)ebb__tuning()->sync_allocations
                        ? script->alloc_count
                        : (uint32_t)ebb__tuning()->sync_allocations;
    if (replay->allocations < most ||
        replay->table->newest_serial + 1 < script->first_serial + most)
        return EBB_SCRIPT_NONE;
    uint32_t low = ebb__template_first_alloc(script, size);
    uint32_t found = EBB_SCRIPT_NONE;
    bool several = false;
    for (; low < script->alloc_count && ebb__replay_event(current, allocs[low])->size_bytes == size;
         low++) {
        uint32_t exact;
        if (agreement(replay, current, allocs[low], most, &exact) < most ||
            EXACT_DIVISOR * exact < most)
            continue;
        if (goes_on(current, allocs[low], most))
            return allocs[low];
        several |= found != EBB_SCRIPT_NONE;
        found = allocs[low];
    }
    return several ? EBB_SCRIPT_NONE : found;
}

static uint32_t whole_agreement(const struct replay *replay, const struct prepared_script *current,
                                uint32_t position)
{
    uint32_t most = current->script->alloc_count < HISTORY ? current->script->alloc_count : HISTORY;
    uint32_t exact;
    return agreement(replay, current, position, most, &exact);
}

/* Binds the blocks of the last iteration's allocations, newest first. The newest is at
 * `position`. */
static void name_blocks(struct replay *replay, struct prepared_script *current, uint32_t position)
{
    const struct ebb_script *script = current->script;
    uint32_t at = position, exact;
    uint32_t agreed = agreement(replay, current, position, script->alloc_count, &exact);
    for (uint32_t i = 0; i < agreed && i < HISTORY;) {
        const struct ebb_script_event *event = ebb__replay_event(current, at);
        if (event->kind == EBB_EVENT_ALLOC) {
            const struct history *past = &replay->history[(replay->allocations - 1 - i) % HISTORY];
            struct block *block = &replay->table->blocks[past->block];
            if (ebb__block_is_live(block) && block->serial == past->serial &&
                block->script_block == EBB_SCRIPT_NONE) /* else it has a name */
                ebb__clock_bind(replay, current, block, event->block);
            i++;
        }
        at = (at + script->clock_count - 1) % script->clock_count;
    }
}

/* Passes the FREE events before the next other event. False: there is no other one. */
static bool pass_frees(struct replay *replay, struct due *due)
{
    const struct prepared_script *current = replay->current;
    const struct ebb_script_event *event;
    while ((event = ebb__replay_event(current, replay->position))->kind == EBB_EVENT_FREE) {
        if (++due->count > current->script->clock_count)
            return false;
        if (current->live[event->block] != NO_BLOCK)
            ebb__sizes_stray(replay);
        ebb__clock_pass(replay);
    }
    return true;
}

/* An event passes one position. An ALLOC, and an announced use, also passes the FREE events before
 * it that have not happened. */
bool ebb__ordered_match(struct replay *replay, enum ebb_event_kind kind, struct block *block,
                        struct due *due)
{
    struct prepared_script *current = replay->current;
    if (kind == EBB_EVENT_FREE) {
        uint32_t known = block->script_block;
        if (known == EBB_SCRIPT_NONE)
            return true;
        const struct ebb_script_event *event = ebb__replay_event(current, replay->position);
        bool expected = event->kind == EBB_EVENT_FREE && event->block == known;
        ebb__clock_unbind(replay, current, block);
        if (expected) {
            ebb__clock_pass(replay);
            due->count = 1;
        } else {
            ebb__sizes_stray(replay);
        }
        return true;
    }
    if (!pass_frees(replay, due) || !ebb__sizes_are_regular(replay))
        return false;
    const struct ebb_script_event *event = ebb__replay_event(current, replay->position);
    if (event->kind != kind || (event->size_bytes != block->size_bytes &&
                                !ebb__sizes_agree(replay, event, block->size_bytes)))
        return false;
    if (kind == EBB_EVENT_ACCESS && block->script_block != event->block)
        return false;
    if (kind == EBB_EVENT_ALLOC)
        ebb__clock_bind(replay, current, block, ebb__names_or_place(current, block, event->block));
    ebb__clock_pass(replay);
    due->count++;
    return true;
}

static uint32_t next_position(const struct replay *replay, uint64_t size_bytes)
{
    (void)size_bytes;
    return replay->position;
}

const struct matcher ebb__matcher_ordered = {
    .name = "ordered",
    .is_ordered = true,
    .find = find_position,
    .agreement = whole_agreement,
    .begin = name_blocks,
    .match = ebb__ordered_match,
    .next_position = next_position,
};

/* Other allocations before an iteration may have the same sizes as those in it. */
static void begin_announced(struct replay *replay, struct prepared_script *current,
                            uint32_t position)
{
    if (replay->continues)
        name_blocks(replay, current, position);
}

/* The program says where an iteration begins: no position is looked for. */
const struct matcher ebb__matcher_announced = {
    .name = "announced",
    .is_ordered = true,
    .begin = begin_announced,
    .match = ebb__ordered_match,
    .next_position = next_position,
};
