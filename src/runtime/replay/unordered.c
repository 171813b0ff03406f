/* Matching where threads interleave: the same events in every lap of the template, in varying order.
 *
 * Each lap begins with the template's first event, an ALLOC whose size is its own: the landmark.
 * Within the lap an ALLOC is the first open one of its size, a FREE that of the block which the
 * ALLOC has named. What hangs on an event is done when that event is seen, whichever came before: so
 * an action waits for what it was planned behind, not for what merely stood before it once. An event
 * that does not come is given up when the others are far ahead, what it would have let go goes then.
 * What the template does not know is let pass as long as it is little.
 *
 * O(1) amortised an event, O(log allocations) for the size. */
#include "runtime/internal.h"

#include "base/tuning.h"

#include <string.h>

/* Of the events of a lap so many may be strays or missing. */
static uint32_t tolerance(uint32_t events)
{
    return events / (uint32_t)ebb__tuning()->stray_divisor + 8;
}

static uint64_t landmark_bytes(const struct ebb_script *script)
{
    return ebb__script_events(script)[0].size_bytes;
}

size_t ebb__woven_words(const struct ebb_script *script)
{
    if (!(script->flags & EBB_SCRIPT_WOVEN))
        return 0;
    return (size_t)script->clock_count + script->block_count + script->alloc_count;
}

void ebb__woven_prepare(struct performance *performance, uint32_t *memory)
{
    const struct ebb_script *script = performance->script;
    struct woven *woven = &performance->woven;
    if (!memory)
        return;
    woven->passed = memory;
    woven->free_at = woven->passed + script->clock_count;
    woven->cursors = woven->free_at + script->block_count;
    for (uint32_t i = 0; i < script->block_count; i++)
        woven->free_at[i] = EBB_SCRIPT_NONE;
    const struct ebb_script_event *events = ebb__script_events(script);
    for (uint32_t position = 0; position < script->clock_count; position++)
        if (events[position].kind == EBB_EVENT_FREE)
            woven->free_at[events[position].block] = position;
}

/* A lap begins: nothing of it has passed. */
static void clear(struct performance *playing)
{
    const struct ebb_script *script = playing->script;
    struct woven *woven = &playing->woven;
    memset(woven->passed, 0, script->clock_count * sizeof *woven->passed);
    for (uint32_t i = 0; i < script->alloc_count; i++)
        woven->cursors[i] = i;
    woven->passed_count = woven->first_open = woven->strays = 0;
}

static void mark_passed(struct performance *playing, uint32_t position)
{
    struct woven *woven = &playing->woven;
    woven->passed[position] = 1;
    woven->passed_count++;
    while (woven->first_open < playing->script->clock_count && woven->passed[woven->first_open])
        woven->first_open++;
}

/* The first open ALLOC of this size; EBB_SCRIPT_NONE: none is left in this lap. */
static uint32_t open_alloc(const struct performance *playing, uint64_t size_bytes)
{
    const struct ebb_script *script = playing->script;
    const struct ebb_script_event *events = ebb__script_events(script);
    const uint32_t *allocs = ebb__script_allocs(script);
    uint32_t first = ebb__clock_first_alloc(script, size_bytes);
    if (first == script->alloc_count || events[allocs[first]].size_bytes != size_bytes)
        return EBB_SCRIPT_NONE;
    uint32_t *cursor = &playing->woven.cursors[first];
    while (*cursor < script->alloc_count && events[allocs[*cursor]].size_bytes == size_bytes) {
        if (!playing->woven.passed[allocs[*cursor]])
            return allocs[*cursor];
        ++*cursor;
    }
    return EBB_SCRIPT_NONE;
}

uint32_t ebb__woven_next_alloc(const struct performance *playing, uint64_t size_bytes)
{
    bool is_landmark = size_bytes == landmark_bytes(playing->script);
    return is_landmark ? 0 : open_alloc(playing, size_bytes);
}

/* The event at `position` has been seen. Those that the others have left far behind are given up. */
static void take(struct ebb_runtime *runtime, struct performance *playing, uint32_t position)
{
    struct woven *woven = &playing->woven;
    uint32_t clocks = playing->script->clock_count;
    mark_passed(playing, position);
    ebb__clock_act(runtime, playing, position);
    while (woven->first_open < clocks &&
           woven->passed_count > woven->first_open + tolerance(clocks)) {
        uint32_t given_up = woven->first_open;
        mark_passed(playing, given_up);
        ebb__clock_act(runtime, playing, given_up);
    }
    runtime->replay.position = woven->first_open % clocks;
}

/* The landmark has come: was it time, and what is still open? */
static bool end_lap(struct ebb_runtime *runtime, struct performance *playing)
{
    struct woven *woven = &playing->woven;
    uint32_t clocks = playing->script->clock_count;
    if (clocks - woven->passed_count > tolerance(clocks))
        return false;
    for (uint32_t position = woven->first_open; position < clocks; position++)
        if (!woven->passed[position])
            ebb__clock_act(runtime, playing, position);
    clear(playing);
    woven->confirmed = true;
    runtime->replay.laps++;
    ebb__core_mark(runtime, EBB_MARK_LAP, runtime->replay.laps);
    return true;
}

bool ebb__woven_match(struct ebb_runtime *runtime, enum ebb_event_kind kind, struct block *block,
                      uint32_t *position)
{
    struct performance *playing = runtime->replay.playing;
    struct woven *woven = &playing->woven;
    const struct ebb_script *script = playing->script;
    *position = EBB_SCRIPT_NONE;
    if (kind == EBB_EVENT_FREE) {
        uint32_t known = block->script_block;
        if (known == EBB_SCRIPT_NONE)
            return true;
        ebb__clock_unbind(runtime, playing, block);
        uint32_t at = woven->free_at[known];
        if (at == EBB_SCRIPT_NONE || woven->passed[at])
            return true;
        *position = at;
    } else {
        bool is_landmark = block->size_bytes == landmark_bytes(script);
        *position = ebb__woven_next_alloc(playing, block->size_bytes);
        if (*position == EBB_SCRIPT_NONE && ++woven->strays <= tolerance(script->alloc_count))
            return true;
        if (*position == EBB_SCRIPT_NONE || (is_landmark && !end_lap(runtime, playing))) {
            woven->confirmed = false;
            return false;
        }
        ebb__clock_bind(runtime, playing, block, ebb__script_events(script)[*position].block);
    }
    take(runtime, playing, *position);
    return true;
}

/* Find the lap that ends with the newest allocation but one: how many allocations it has. 0: what is
 * remembered does not begin with the landmark. */
static uint32_t last_lap(const struct ebb_runtime *runtime, const struct ebb_script *script)
{
    uint32_t most = script->alloc_count + tolerance(script->alloc_count);
    for (uint32_t i = 1; i <= most && i < runtime->replay.allocations && i < HISTORY; i++)
        if (runtime->replay.history[(runtime->replay.allocations - 1 - i) % HISTORY].size_bytes ==
            landmark_bytes(script))
            return i;
    return 0;
}

static const struct history *past(const struct ebb_runtime *runtime, uint32_t back)
{
    return &runtime->replay.history[(runtime->replay.allocations - 1 - back) % HISTORY];
}

bool ebb__woven_begins(const struct ebb_runtime *runtime, struct performance *performance)
{
    const struct ebb_script *script = performance->script;
    if (runtime->replay.allocations == 0 || past(runtime, 0)->size_bytes != landmark_bytes(script))
        return false;
    if (performance->woven.confirmed)
        return true; /* it is known to be the landmark of this program: what follows will show */
    uint32_t lap = last_lap(runtime, script), matched = 0;
    clear(performance);
    for (uint32_t back = lap; back > 0; back--) {
        uint32_t position = open_alloc(performance, past(runtime, back)->size_bytes);
        if (position != EBB_SCRIPT_NONE)
            mark_passed(performance, position);
        matched += position != EBB_SCRIPT_NONE;
    }
    return lap > 0 && lap - matched <= tolerance(script->alloc_count) &&
           script->alloc_count - matched <= tolerance(script->alloc_count);
}

void ebb__woven_begin(struct ebb_runtime *runtime, struct performance *performance)
{
    const struct ebb_script_event *events = ebb__script_events(performance->script);
    clear(performance);
    for (uint32_t back = last_lap(runtime, performance->script); back > 0; back--) {
        const struct history *one = past(runtime, back);
        struct block *block = &runtime->table.blocks[one->block];
        uint32_t position = open_alloc(performance, one->size_bytes);
        if (position == EBB_SCRIPT_NONE)
            continue;
        mark_passed(performance, position);
        if (ebb__block_is_live(block) && block->serial == one->serial)
            ebb__clock_bind(runtime, performance, block, events[position].block);
    }
    clear(performance);
    struct block *newest = &runtime->table.blocks[past(runtime, 0)->block];
    ebb__clock_bind(runtime, performance, newest, events[0].block);
    mark_passed(performance, 0);
}
