/* Matching if threads interleave: each iteration has the same events, in varying order.
 *
 * Each iteration begins with the template's first event, an ALLOC of a unique size: the landmark.
 * Within an iteration an ALLOC matches the first open one of its size. A FREE matches that of the
 * block bound by the ALLOC. The actions of an event are performed when that event is seen, in any
 * order. So an action waits for the event that it was planned after, not for events that merely
 * preceded it once. If an event is not seen, it is given up when the others are far ahead; its
 * actions are then performed. Unknown events are ignored if they are few.
 *
 * O(1) amortised per event, O(log allocations) for the size. */
#include "runtime/replay/matcher.h"

#include "base/tuning.h"

#include <string.h>

/* The most events of an iteration that may be unknown or missing. */
static uint32_t tolerance(uint32_t events)
{
    return events / (uint32_t)ebb__tuning()->stray_divisor + 8;
}

static uint64_t landmark_bytes(const struct ebb_script *script)
{
    return ebb__script_events(script)[0].size_bytes;
}

static size_t table_words(const struct ebb_script *script)
{
    return (size_t)script->clock_count + script->block_count + script->alloc_count;
}

static void prepare(struct prepared_script *prepared, uint32_t *memory)
{
    const struct ebb_script *script = prepared->script;
    struct unordered *unordered = &prepared->unordered;
    unordered->passed = memory;
    unordered->free_at = unordered->passed + script->clock_count;
    unordered->cursors = unordered->free_at + script->block_count;
    for (uint32_t i = 0; i < script->block_count; i++)
        unordered->free_at[i] = EBB_SCRIPT_NONE;
    const struct ebb_script_event *events = ebb__script_events(script);
    for (uint32_t position = 0; position < script->clock_count; position++)
        if (events[position].kind == EBB_EVENT_FREE)
            unordered->free_at[events[position].block] = position;
}

/* Begins an iteration: no event has passed. */
static void clear(struct prepared_script *current)
{
    const struct ebb_script *script = current->script;
    struct unordered *unordered = &current->unordered;
    memset(unordered->passed, 0, script->clock_count * sizeof *unordered->passed);
    for (uint32_t i = 0; i < script->alloc_count; i++)
        unordered->cursors[i] = i;
    unordered->passed_count = unordered->first_open = unordered->unknown_allocs = 0;
}

static void mark_passed(struct prepared_script *current, uint32_t position)
{
    struct unordered *unordered = &current->unordered;
    unordered->passed[position] = 1;
    unordered->passed_count++;
    while (unordered->first_open < current->script->clock_count &&
           unordered->passed[unordered->first_open])
        unordered->first_open++;
}

/* The first open ALLOC of this size. EBB_SCRIPT_NONE: none is left in this iteration. */
static uint32_t open_alloc(const struct prepared_script *current, uint64_t size_bytes)
{
    const struct ebb_script *script = current->script;
    const struct ebb_script_event *events = ebb__script_events(script);
    const uint32_t *allocs = ebb__script_allocs(script);
    uint32_t first = ebb__template_first_alloc(script, size_bytes);
    if (first == script->alloc_count || events[allocs[first]].size_bytes != size_bytes)
        return EBB_SCRIPT_NONE;
    uint32_t *cursor = &current->unordered.cursors[first];
    while (*cursor < script->alloc_count && events[allocs[*cursor]].size_bytes == size_bytes) {
        if (!current->unordered.passed[allocs[*cursor]])
            return allocs[*cursor];
        ++*cursor;
    }
    return EBB_SCRIPT_NONE;
}

static uint32_t next_alloc(const struct prepared_script *current, uint64_t size_bytes)
{
    bool is_landmark = size_bytes == landmark_bytes(current->script);
    return is_landmark ? 0 : open_alloc(current, size_bytes);
}

/* The event at `position` has been seen. Gives up events that the others have left far behind. */
static void take(struct replay *replay, struct prepared_script *current, uint32_t position)
{
    struct unordered *unordered = &current->unordered;
    uint32_t clocks = current->script->clock_count;
    mark_passed(current, position);
    ebb__clock_act(replay, current, position);
    while (unordered->first_open < clocks &&
           unordered->passed_count > unordered->first_open + tolerance(clocks)) {
        uint32_t given_up = unordered->first_open;
        mark_passed(current, given_up);
        ebb__clock_act(replay, current, given_up);
    }
    replay->position = unordered->first_open % clocks;
}

/* The landmark has been seen: ends the iteration and performs the open actions. False: too many
 * events are missing. */
static bool end_lap(struct replay *replay, struct prepared_script *current)
{
    struct unordered *unordered = &current->unordered;
    uint32_t clocks = current->script->clock_count;
    if (clocks - unordered->passed_count > tolerance(clocks))
        return false;
    for (uint32_t position = unordered->first_open; position < clocks; position++)
        if (!unordered->passed[position])
            ebb__clock_act(replay, current, position);
    clear(current);
    unordered->confirmed = true;
    replay->laps++;
    ebb__core_mark(replay->core, EBB_MARK_LAP, replay->laps);
    return true;
}

/* Matches one event. *position: of the template; EBB_SCRIPT_NONE: the event is unknown or already
 * passed. */
static bool match_one(struct replay *replay, enum ebb_event_kind kind, struct block *block,
                      uint32_t *position)
{
    struct prepared_script *current = replay->current;
    struct unordered *unordered = &current->unordered;
    const struct ebb_script *script = current->script;
    *position = EBB_SCRIPT_NONE;
    if (kind == EBB_EVENT_FREE) {
        uint32_t known = block->script_block;
        if (known == EBB_SCRIPT_NONE)
            return true;
        ebb__clock_unbind(replay, current, block);
        uint32_t at = unordered->free_at[known];
        if (at == EBB_SCRIPT_NONE || unordered->passed[at])
            return true;
        *position = at;
    } else {
        bool is_landmark = block->size_bytes == landmark_bytes(script);
        *position = next_alloc(current, block->size_bytes);
        if (*position == EBB_SCRIPT_NONE &&
            ++unordered->unknown_allocs <= tolerance(script->alloc_count))
            return true;
        if (*position == EBB_SCRIPT_NONE || (is_landmark && !end_lap(replay, current))) {
            unordered->confirmed = false;
            return false;
        }
        uint32_t place = ebb__script_events(script)[*position].block;
        ebb__clock_bind(replay, current, block, ebb__names_or_place(current, block, place));
    }
    take(replay, current, *position);
    return true;
}

/* Number of allocations in the last iteration, which ends before the newest allocation. 0: the
 * history does not reach back to its landmark. */
static uint32_t last_lap(const struct replay *replay, const struct ebb_script *script)
{
    uint32_t most = script->alloc_count + tolerance(script->alloc_count);
    for (uint32_t i = 1; i <= most && i < replay->allocations && i < HISTORY; i++)
        if (replay->history[(replay->allocations - 1 - i) % HISTORY].size_bytes ==
            landmark_bytes(script))
            return i;
    return 0;
}

static const struct history *past(const struct replay *replay, uint32_t back)
{
    return &replay->history[(replay->allocations - 1 - back) % HISTORY];
}

/* Does the newest allocation begin an iteration of the script? */
static bool begins(const struct replay *replay, struct prepared_script *prepared)
{
    const struct ebb_script *script = prepared->script;
    if (replay->allocations == 0 || past(replay, 0)->size_bytes != landmark_bytes(script))
        return false;
    if (prepared->unordered.confirmed)
        return true; /* a known landmark of this program: a wrong match will show later */
    uint32_t lap = last_lap(replay, script), matched = 0;
    clear(prepared);
    for (uint32_t back = lap; back > 0; back--) {
        uint32_t position = open_alloc(prepared, past(replay, back)->size_bytes);
        if (position != EBB_SCRIPT_NONE)
            mark_passed(prepared, position);
        matched += position != EBB_SCRIPT_NONE;
    }
    return lap > 0 && lap - matched <= tolerance(script->alloc_count) &&
           script->alloc_count - matched <= tolerance(script->alloc_count);
}

/* Binds the blocks of the last iteration, and begins to follow the script. */
static void begin(struct replay *replay, struct prepared_script *prepared, uint32_t position_found)
{
    (void)position_found; /* that of the landmark */
    const struct ebb_script_event *events = ebb__script_events(prepared->script);
    clear(prepared);
    for (uint32_t back = last_lap(replay, prepared->script); back > 0; back--) {
        const struct history *one = past(replay, back);
        struct block *block = &replay->table->blocks[one->block];
        uint32_t position = open_alloc(prepared, one->size_bytes);
        if (position == EBB_SCRIPT_NONE)
            continue;
        mark_passed(prepared, position);
        if (ebb__block_is_live(block) && block->serial == one->serial &&
            block->script_block == EBB_SCRIPT_NONE) /* else it has a name */
            ebb__clock_bind(replay, prepared, block, events[position].block);
    }
    clear(prepared);
    struct block *newest = &replay->table->blocks[past(replay, 0)->block];
    if (newest->script_block == EBB_SCRIPT_NONE)
        ebb__clock_bind(replay, prepared, newest, events[0].block);
    mark_passed(prepared, 0);
}

static uint32_t find(const struct replay *replay, struct prepared_script *prepared)
{
    return begins(replay, prepared) ? 0 : EBB_SCRIPT_NONE;
}

static bool match(struct replay *replay, enum ebb_event_kind kind, struct block *block,
                  struct due *due)
{
    bool matches = match_one(replay, kind, block, &due->first);
    due->count = due->first != EBB_SCRIPT_NONE;
    return matches;
}

static uint32_t next_position(const struct replay *replay, uint64_t size_bytes)
{
    return next_alloc(replay->current, size_bytes);
}

static bool is_over(const struct prepared_script *prepared,
                    const struct ebb_script_absence *absence)
{
    return absence->due_clock != EBB_SCRIPT_NONE && absence->due_clock > absence->out_clock &&
           prepared->unordered.passed[absence->due_clock];
}

const struct matcher ebb__matcher_unordered = {
    .name = "unordered",
    .words = table_words,
    .prepare = prepare,
    .find = find,
    .begin = begin,
    .match = match,
    .next_position = next_position,
    .is_over = is_over,
};
