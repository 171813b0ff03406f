/* The clock: the program's position in the script in force, and the actions attached to that
 * position.
 *
 * The live stream of managed ALLOC and FREE events is matched to the script (matcher.h). If it
 * leaves the script, all known scripts are searched for the newest allocations. One that contains
 * them takes over at once: an iteration and what comes between its repetitions are scripts of their
 * own. If there is none, the runtime is reactive until one matches. */
#include "runtime/replay/matcher.h"

void ebb__clock_pass(struct replay *replay)
{
    ebb__clock_act(replay, replay->current, replay->position);
    replay->position++;
    if (replay->position == replay->current->script->clock_count) {
        replay->position = 0;
        replay->laps++;
        replay->other_sizes.strays = 0;
        ebb__core_mark(replay->core, EBB_MARK_LAP, replay->laps);
    }
    if (replay->awaited.script && replay->position == replay->awaited_at)
        replay->awaited_due = true;
}

void ebb__clock_stop(struct replay *replay)
{
    if (!replay->current)
        return;
    atomic_fetch_add(&replay->core->counters->mismatches, 1);
    ebb__core_mark(replay->core, EBB_MARK_PLAN_OFF, replay->position);
    replay->current = NULL;
    if (replay->awaited.script)
        ebb__replay_take_over(replay);
}

enum { FALSE_START = 4 }; /* what is followed for less than such a part is another phrase */

/* The newest allocation is not in the script in force. Another one takes over, or none. */
static void change_script(struct replay *replay)
{
    uint32_t position = /* what is in doubt was none of it */
        ebb__sizes_doubtful(replay) ? replay->other_sizes.position : replay->position;
    struct prepared_script *left = replay->current;
    if ((replay->allocations - left->left.begun_at) * FALSE_START >= left->script->alloc_count)
        left->left.at = position;
    replay->current = NULL;
    if (replay->awaited.script)
        ebb__replay_take_over(replay);
    ebb__replay_look_for_script(replay);
    if (replay->current)
        return;
    atomic_fetch_add(&replay->core->counters->mismatches, 1);
    ebb__core_mark(replay->core, EBB_MARK_PLAN_OFF, position);
}

uint32_t ebb__clock_foresee(const struct replay *replay, uint64_t size_bytes)
{
    const struct prepared_script *current = replay->current;
    uint32_t clocks = current->script->clock_count, passed = 0;
    uint32_t position = ebb__matcher_next_position(current->matcher, replay, size_bytes);
    if (position == EBB_SCRIPT_NONE)
        return EBB_SCRIPT_NONE;
    for (; ebb__replay_event(current, position)->kind == EBB_EVENT_FREE;
         position = (position + 1) % clocks)
        if (++passed > clocks)
            return EBB_SCRIPT_NONE;
    const struct ebb_script_event *event = ebb__replay_event(current, position);
    return event->size_bytes == size_bytes ? event->block : EBB_SCRIPT_NONE;
}

uint64_t ebb__clock_page_bytes(const struct replay *replay, uint64_t bytes)
{
    uint64_t page_bytes = ebb__whole_pages(bytes);
    if (!replay->current || replay->table->uses.trace || page_bytes < bytes)
        return page_bytes;
    uint32_t known = ebb__clock_foresee(replay, bytes);
    if (known == EBB_SCRIPT_NONE ||
        !ebb__script_blocks(replay->current->script)[known].huge_rounded)
        return page_bytes;
    return ebb__whole_units(bytes);
}

bool ebb__clock_expects_parts(const struct replay *replay, uint64_t size_bytes)
{
    if (!replay->current || !ebb__part_is_large(replay->table, size_bytes))
        return false;
    uint32_t known = ebb__clock_foresee(replay, size_bytes);
    return known != EBB_SCRIPT_NONE &&
           ebb__script_blocks(replay->current->script)[known].part_count > 0;
}

struct due ebb__clock_step(struct replay *replay, enum ebb_event_kind kind, struct block *block)
{
    struct prepared_script *current = replay->current;
    struct due due = {.current = current, .first = replay->position};
    ebb__observe_begin(replay->transfer, ebb__now_ns());
    if (kind == EBB_EVENT_ALLOC) {
        replay->history[replay->allocations++ % HISTORY] = (struct history){
            .size_bytes = block->size_bytes,
            .serial = block->serial,
            .block = ebb__block_index(replay->table, block),
        };
    }
    if (current && !ebb__matcher_match(current->matcher, replay, kind, block, &due)) {
        if (kind == EBB_EVENT_ALLOC)
            change_script(replay);
        else
            ebb__clock_stop(replay);
        due.count = 0;
    }
    due.script_sets = replay->script_sets;
    return due;
}

void ebb__clock_end_step(struct replay *replay, enum ebb_event_kind kind, struct due due)
{
    for (uint32_t i = 0;
         i < due.count && replay->current == due.current && replay->script_sets == due.script_sets;
         i++)
        ebb__replay_wait_for_due(replay, due.current,
                                 (due.first + i) % due.current->script->clock_count);
    if (replay->awaited_due)
        ebb__replay_take_over(replay);
    if (!replay->current && kind == EBB_EVENT_ALLOC && replay->script_count)
        ebb__replay_look_for_script(replay);
}

void ebb__replay_watch(struct replay *replay)
{
    if (replay->current && replay->current->matcher->watch)
        replay->current->matcher->watch(replay);
}

bool ebb__replay_is_awaited(const struct replay *replay, const struct block *block)
{
    return replay->current && replay->current->matcher->is_watching &&
           replay->current->matcher->is_watching(replay, block);
}

void ebb__replay_touched(struct replay *replay, const struct block *block, bool missed)
{
    if (replay->current && replay->current->matcher->touched)
        replay->current->matcher->touched(replay, block, missed);
}
