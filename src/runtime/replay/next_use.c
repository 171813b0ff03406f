/* The next use of a block, and the next allocation of a size, by the script in force. */
#include "runtime/replay/matcher.h"

#include "base/tuning.h"

/* Closer uses count as one. A bit mask; the value has no influence. */
#define FINE_US 4095u

/* Largest error of the time within the stretch behind `position`. */
static uint64_t drift_ns(const struct prepared_script *current, uint32_t position)
{
    uint64_t shift_ns = ebb__timers_most_shift_ns(current, position);
    return shift_ns > ebb__tuning_drift_ns() ? shift_ns : ebb__tuning_drift_ns();
}

uint32_t ebb__replay_next_alloc(const struct replay *replay, uint64_t size_bytes)
{
    return ebb__template_next_alloc(replay->current->script, replay->position, size_bytes);
}

uint64_t ebb__replay_distance(const struct replay *replay, const struct block *block, bool *done)
{
    const struct prepared_script *current = replay->current;
    const struct ebb_script *script = current->script;
    *done = false;
    if (block->script_block == EBB_SCRIPT_NONE)
        return UINT64_MAX;
    const struct ebb_script_block *known = &ebb__script_blocks(script)[block->script_block];
    const struct ebb_script_use *uses = ebb__script_uses(script) + known->first_use;
    uint32_t clocks = script->clock_count, now = ebb__clock_now(replay);
    uint64_t best = (uint64_t)clocks << 32;
    uint64_t drift_us = drift_ns(current, now) / 1000;
    uint64_t since_us = current->matcher->is_ordered ? ebb__timers_since_ns(replay) / 1000 : 0;
    bool here = false, ahead = false;
    for (uint32_t i = 0; i < known->use_count; i++) {
        uint64_t distance = (uint64_t)((uses[i].clock + clocks - now) % clocks) << 32;
        if (distance) {
            distance += uses[i].within_us & ~FINE_US;
        } else {
            here = true;
            if (uses[i].within_us + drift_us < since_us)
                continue;
            ahead = true;
            if (uses[i].within_us > since_us + drift_us)
                distance = uses[i].within_us - since_us;
        }
        if (distance < best)
            best = distance;
    }
    *done = here && !ahead;
    return best;
}

void ebb__replay_seen(struct replay *replay, const struct block *block)
{
    const struct prepared_script *current = replay->current;
    if (!current || !current->matcher->is_ordered || block->script_block == EBB_SCRIPT_NONE)
        return;
    uint32_t now = ebb__clock_now(replay);
    if (ebb__timers_stretch_ns(current, now) < ebb__tuning()->pause_ns)
        return;
    const struct ebb_script *script = current->script;
    const struct ebb_script_block *known = &ebb__script_blocks(script)[block->script_block];
    const struct ebb_script_use *uses = ebb__script_uses(script) + known->first_use;
    uint64_t since_ns = ebb__timers_since_ns(replay), nearest_ns = UINT64_MAX, least = UINT64_MAX;
    for (uint32_t i = 0; i < known->use_count; i++) {
        uint64_t use_ns = (uint64_t)uses[i].within_us * 1000;
        uint64_t off = use_ns > since_ns ? use_ns - since_ns : since_ns - use_ns;
        if (uses[i].clock == now && off < least) {
            least = off;
            nearest_ns = use_ns;
        }
    }
    if (least != UINT64_MAX)
        ebb__timers_set_since(replay, nearest_ns);
}

uint64_t ebb__replay_next_use(const struct replay *replay, const struct block *block)
{
    uint64_t age = replay->table->uses.event_number - block->use.last;
    if (!replay->current)
        return block->use.open ? 0 : age;
    bool done;
    uint64_t distance = ebb__replay_distance(replay, block, &done);
    bool in_use = block->use.touch + ebb__tuning()->blocks_in_use > replay->table->uses.touches;
    if (block->use.touch > replay->position_touches && (in_use || !done))
        return 0; /* even if the template says otherwise: operations may differ in the blocks
                     they use */
    uint64_t whole = replay->current->script->clock_count;
    if (distance != UINT64_MAX)
        return distance;
    /* Of the blocks that the script does not know, the least recently used first. */
    uint64_t fine = age < UINT32_MAX ? age : UINT32_MAX;
    return (age < whole ? age : whole) << 32 | fine;
}
