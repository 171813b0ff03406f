/* Planned addresses: where a script puts its blocks, and which of them an allocation is. */
#include "runtime/replay/replay.h"

static bool is_static(const struct ebb_script_block *block)
{
    return block->place != EBB_SCRIPT_NO_PLACE;
}

static uint32_t units_up_to(const struct ebb_script_block *block)
{
    return (uint32_t)((block->place + block->size_bytes - 1) / EBB_HUGE_BYTES) + 1;
}

size_t ebb__placement_table_words(const struct replay *replay, const struct ebb_script *script)
{
    if (script->placement_bytes == 0 ||
        script->placement_bytes / EBB_HUGE_BYTES >= replay->addresses->placement.units_total)
        return 0;
    const struct ebb_script_event *events = ebb__script_events(script);
    const struct ebb_script_block *blocks = ebb__script_blocks(script);
    size_t words = script->placement_bytes / EBB_HUGE_BYTES + 2;
    for (uint32_t i = 0; i < script->clock_count; i++) {
        const struct ebb_script_block *block = &blocks[events[i].block];
        if (events[i].kind == EBB_EVENT_ALLOC && is_static(block))
            words += units_up_to(block) - block->place / EBB_HUGE_BYTES;
    }
    return words > UINT32_MAX ? 0 : words;
}

/* Lists the positions of the allocations that cover each unit, ascending. It is a counting sort,
 * since most units are covered by many blocks. */
void ebb__placement_prepare(struct prepared_script *prepared, uint32_t *words)
{
    const struct ebb_script *script = prepared->script;
    const struct ebb_script_event *events = ebb__script_events(script);
    const struct ebb_script_block *blocks = ebb__script_blocks(script);
    uint32_t units = (uint32_t)(script->placement_bytes / EBB_HUGE_BYTES) + 1;
    uint32_t *first = prepared->unit_first = words;
    uint32_t *covers = prepared->unit_covers = words + units + 1;
    prepared->unit_count = units;
    for (int counting = 1; counting >= 0; counting--) {
        for (uint32_t i = 0; i < script->clock_count; i++) {
            const struct ebb_script_block *block = &blocks[events[i].block];
            if (events[i].kind != EBB_EVENT_ALLOC || !is_static(block))
                continue;
            for (uint64_t unit = block->place / EBB_HUGE_BYTES; unit < units_up_to(block); unit++) {
                if (counting)
                    first[unit + 1]++;
                else
                    covers[first[unit]++] = i;
            }
        }
        if (counting)
            for (uint32_t unit = 0; unit < units; unit++)
                first[unit + 1] += first[unit];
    }
    for (uint32_t unit = units; unit > 0; unit--) /* each entry has reached the start of the next
                                                     one */
        first[unit] = first[unit - 1];
    first[0] = 0;
}

uint32_t ebb__replay_next_cover(const struct replay *replay, uint32_t unit)
{
    const struct prepared_script *current = replay->current;
    if (!current || unit >= current->unit_count)
        return UINT32_MAX;
    const uint32_t *covers = current->unit_covers;
    uint32_t low = current->unit_first[unit], high = current->unit_first[unit + 1];
    uint32_t behind = high, earliest = low;
    if (low == behind)
        return UINT32_MAX;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (covers[middle] < replay->position)
            low = middle + 1;
        else
            high = middle;
    }
    return low < behind ? covers[low] - replay->position
                        : covers[earliest] + current->script->clock_count - replay->position;
}

/* Does the peak of the plan fit beside the memory of small blocks and other processes? They may
 * hold more than the plan assumed. Blocks in the static placement could not be evicted then. */
static bool plan_fits(const struct replay *replay)
{
    const struct ebb_counters *counters = replay->core->counters;
    uint64_t share =
        ebb__ledger_share(replay->core->ledger, atomic_load(&replay->core->ledger->budget_bytes),
                          atomic_load(&counters->held_bytes), atomic_load(&counters->small_bytes));
    return replay->current->script->peak_bytes <= share;
}

/* The first step makes what is there in each later one: gradients, an optimizer's states. Blocks of
 * later steps that are freed at once may have their sizes and order. A script of an earlier run
 * cannot tell them apart, and what is placed there would keep others' places for good. */
static bool may_last(const struct replay *replay)
{
    return replay->current->script->first_serial && replay->laps == 0;
}

struct block *ebb__replay_place(struct replay *replay, size_t bytes, size_t alignment)
{
    const struct prepared_script *current = replay->current;
    if (!current || replay->table->uses.trace || current->unit_count == 0 || may_last(replay))
        return NULL;
    uint32_t known = ebb__clock_foresee(replay, bytes);
    if (known == EBB_SCRIPT_NONE)
        return NULL;
    const struct ebb_script_block *planned = &ebb__script_blocks(current->script)[known];
    if (!is_static(planned) || !plan_fits(replay))
        return NULL;
    struct block *block = ebb__placement_take(replay->addresses, planned->place, bytes, alignment);
    if (!block)
        atomic_fetch_add(&replay->core->counters->placement_misses, 1);
    return block;
}
