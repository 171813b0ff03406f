/* The clock: where in the template the program is, and what hangs on that position.
 *
 * The live stream of managed ALLOC and FREE events is matched to the template of the script.
 * Allocation sizes identify the position. Frees are hints: one that comes early or late is taken
 * as it comes. An allocation that is not the expected one ends the match at once; the runtime is
 * then reactive and looks for the last allocations anywhere in any script it knows, so that an
 * evaluation, a checkpoint or a partial batch costs one stretch of reactive running and no more.
 * Where threads interleave no allocation is the expected one: replay/unordered.c. */
#include "runtime/internal.h"

uint32_t ebb__clock_first_alloc(const struct ebb_script *script, uint64_t size_bytes)
{
    const struct ebb_script_event *events = ebb__script_events(script);
    const uint32_t *allocs = ebb__script_allocs(script); /* by size, then by position */
    uint32_t low = 0, high = script->alloc_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (events[allocs[middle]].size_bytes < size_bytes)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void ebb__clock_pass(struct ebb_runtime *runtime)
{
    ebb__clock_act(runtime, runtime->replay.current, runtime->replay.position);
    runtime->replay.position++;
    if (runtime->replay.position == runtime->replay.current->script->clock_count) {
        runtime->replay.position = 0;
        runtime->replay.laps++;
        ebb__core_mark(runtime, EBB_MARK_LAP, runtime->replay.laps);
    }
    if (runtime->replay.awaited.script && runtime->replay.position == runtime->replay.awaited_at)
        runtime->replay.awaited_due = true;
}

void ebb__clock_stop(struct ebb_runtime *runtime)
{
    if (!runtime->replay.current)
        return;
    atomic_fetch_add(&runtime->core.counters->mismatches, 1);
    ebb__core_mark(runtime, EBB_MARK_PLAN_OFF, runtime->replay.position);
    runtime->replay.current = NULL;
    if (runtime->replay.awaited.script)
        ebb__replay_take_over(runtime);
}

uint32_t ebb__clock_foresee(const struct ebb_runtime *runtime, uint64_t size_bytes)
{
    const struct prepared_script *current = runtime->replay.current;
    uint32_t clocks = current->script->clock_count, position = runtime->replay.position, passed = 0;
    if (current->unordered.passed)
        position = ebb__unordered_next_alloc(current, size_bytes);
    if (position == EBB_SCRIPT_NONE)
        return EBB_SCRIPT_NONE;
    for (; ebb__replay_event(current, position)->kind == EBB_EVENT_FREE;
         position = (position + 1) % clocks)
        if (++passed > clocks)
            return EBB_SCRIPT_NONE;
    const struct ebb_script_event *event = ebb__replay_event(current, position);
    return event->size_bytes == size_bytes ? event->block : EBB_SCRIPT_NONE;
}

uint64_t ebb__clock_page_bytes(const struct ebb_runtime *runtime, uint64_t bytes)
{
    uint64_t page_bytes = ebb__whole_pages(bytes);
    if (!runtime->replay.current || runtime->uses.trace || page_bytes < bytes)
        return page_bytes;
    uint32_t known = ebb__clock_foresee(runtime, bytes);
    if (known == EBB_SCRIPT_NONE ||
        !ebb__script_blocks(runtime->replay.current->script)[known].huge_rounded)
        return page_bytes;
    return ebb__whole_units(bytes);
}

bool ebb__clock_expects_parts(const struct ebb_runtime *runtime, uint64_t size_bytes)
{
    if (!runtime->replay.current || !ebb__part_is_large(runtime, size_bytes))
        return false;
    uint32_t known = ebb__clock_foresee(runtime, size_bytes);
    return known != EBB_SCRIPT_NONE &&
           ebb__script_blocks(runtime->replay.current->script)[known].part_count > 0;
}

/* Match one event; false: the stream has left the template. Positions passed are
 * [*first, runtime->replay.position) on the cyclic template, *passed of them. */
static bool match(struct ebb_runtime *runtime, enum ebb_event_kind kind, struct block *block,
                  uint32_t *passed)
{
    struct prepared_script *current = runtime->replay.current;
    uint32_t clocks = current->script->clock_count;
    *passed = 0;
    if (ebb__access_clock_in_force(&runtime->replay)) {
        uint32_t known = block->script_block;
        if (kind == EBB_EVENT_ALLOC || known == EBB_SCRIPT_NONE)
            return true;
        for (uint32_t i = 0; i < clocks; i++)
            if (ebb__replay_event(current, i)->block == known)
                return false; /* what the clock stands on must not go */
        ebb__clock_unbind(runtime, current, block);
        return true;
    }
    if (kind == EBB_EVENT_FREE) {
        uint32_t known = block->script_block;
        if (known == EBB_SCRIPT_NONE)
            return true;
        const struct ebb_script_event *event = ebb__replay_event(current, runtime->replay.position);
        bool expected = event->kind == EBB_EVENT_FREE && event->block == known;
        ebb__clock_unbind(runtime, current, block);
        if (expected) {
            ebb__clock_pass(runtime);
            *passed = 1;
        }
        return true;
    }
    while (ebb__replay_event(current, runtime->replay.position)->kind == EBB_EVENT_FREE) {
        if (++*passed > clocks)
            return false;
        ebb__clock_pass(runtime);
    }
    const struct ebb_script_event *event = ebb__replay_event(current, runtime->replay.position);
    if (event->size_bytes != block->size_bytes)
        return false;
    ebb__clock_bind(runtime, current, block, event->block);
    ebb__clock_pass(runtime);
    ++*passed;
    return true;
}

struct due ebb__clock_step(struct ebb_runtime *runtime, enum ebb_event_kind kind,
                           struct block *block)
{
    struct prepared_script *current = runtime->replay.current;
    struct due due = {.current = current, .first = runtime->replay.position};
    ebb__observe_begin(runtime, ebb__now_ns());
    if (kind == EBB_EVENT_ALLOC) {
        runtime->replay.history[runtime->replay.allocations++ % HISTORY] = (struct history){
            .size_bytes = block->size_bytes,
            .serial = block->serial,
            .block = ebb__block_index(&runtime->table, block),
        };
    }
    if (current) {
        bool unordered = current->unordered.passed != NULL;
        if (unordered ? !ebb__unordered_match(runtime, kind, block, &due.first)
                      : !match(runtime, kind, block, &due.count)) {
            ebb__clock_stop(runtime);
            due.count = 0;
        } else if (unordered) {
            due.count = due.first != EBB_SCRIPT_NONE;
        }
    }
    due.script_sets = runtime->replay.script_sets;
    return due;
}

void ebb__clock_end_step(struct ebb_runtime *runtime, enum ebb_event_kind kind, struct due due)
{
    for (uint32_t i = 0; i < due.count && runtime->replay.current == due.current &&
                         runtime->replay.script_sets == due.script_sets;
         i++)
        ebb__replay_wait_for_due(runtime, due.current,
                                 (due.first + i) % due.current->script->clock_count);
    if (runtime->replay.awaited_due)
        ebb__replay_take_over(runtime);
    if (!runtime->replay.current && kind == EBB_EVENT_ALLOC && runtime->replay.script_count)
        ebb__replay_look_for_script(runtime);
}
