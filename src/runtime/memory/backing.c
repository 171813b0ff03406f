/* Pages of the pool: whole units of 2 MiB, which several blocks at planned addresses may share.
 *
 * A unit holds its page as long as a block covers it. Then the page is spare: the next block there
 * finds it, unless it is needed elsewhere first. */
#include "runtime/memory/memory.h"

uint64_t ebb__placed_lacking(const struct memory *memory, const struct block *block)
{
    uint64_t lacking = 0;
    for (uint32_t unit = ebb__placed_first_unit(memory->addresses, block);
         unit <= ebb__placed_last_unit(memory->addresses, block); unit++)
        if (!(memory->addresses->pool.states[unit] & UNIT_BACKED))
            lacking += EBB_HUGE_BYTES;
    return lacking;
}

bool ebb__placed_back(struct memory *memory, struct block *block, bool force)
{
    struct pool *pool = &memory->addresses->pool;
    uint32_t behind = ebb__placed_last_unit(memory->addresses, block) + 1;
    if (!force && ebb__placed_lacking(memory, block) > ebb__pages_available(memory))
        return false;
    for (uint32_t unit = ebb__placed_first_unit(memory->addresses, block), next; unit < behind;
         unit = next) {
        next = unit + 1;
        if (pool->states[unit] & UNIT_BACKED)
            continue;
        while (next < behind && !(pool->states[next] & UNIT_BACKED))
            next++;
        uintptr_t target = ebb__placed_unit_address(memory->addresses, unit);
        uint64_t bytes = (next - unit) * EBB_HUGE_BYTES;
        for (uint32_t i = unit; i < next; i++)
            if (pool->states[i] & UNIT_STRAYS)
                memory->core->device.ops->release(memory->core->device.state,
                                                  ebb__placed_unit_address(memory->addresses, i),
                                                  EBB_HUGE_BYTES);
        if (force ? !ebb__pages_force(memory, target, bytes)
                  : !ebb__pages_take(memory, target, bytes))
            return false;
        for (uint32_t i = unit; i < next; i++)
            pool->states[i] = UNIT_BACKED;
        pool->held_bytes += bytes;
    }
    ebb__ledger_raise(&memory->core->counters->pool_peak_bytes, pool->held_bytes);
    return true;
}

void ebb__placed_fill(struct memory *memory, uintptr_t address)
{
    uint64_t unit = (address - memory->addresses->pool.base) / EBB_HUGE_BYTES;
    if (memory->core->device.ops->fill(memory->core->device.state, address) &&
        !(memory->addresses->pool.states[unit] & UNIT_BACKED))
        memory->addresses->pool.states[unit] |= UNIT_STRAYS;
}

static bool is_spare(const struct pool *pool, uint32_t unit)
{
    return pool->users[unit] == 0 && (pool->states[unit] & UNIT_BACKED);
}

struct spare_run ebb__placed_spare(const struct memory *memory, uint64_t most_bytes)
{
    const struct pool *pool = &memory->addresses->pool;
    struct spare_run run = {0};
    if (pool->spare_bytes == 0)
        return run;
    for (uint32_t unit = 0; unit < pool->units_used; unit++) {
        uint32_t away = is_spare(pool, unit)
                            ? memory->core->policy->next_cover(memory->core->policy_context, unit)
                            : 0;
        if (away >= run.distance && is_spare(pool, unit))
            run = (struct spare_run){unit, 1, away};
    }
    /* Neighbours go along as long as they are not wanted much earlier: one move instead of many. */
    uint64_t most = ebb__whole_units(most_bytes) / EBB_HUGE_BYTES;
    uint32_t least = run.distance / 2;
    while (run.units < most && run.unit > 0 && is_spare(pool, run.unit - 1) &&
           memory->core->policy->next_cover(memory->core->policy_context, run.unit - 1) >= least) {
        run.unit--;
        run.units++;
    }
    for (uint32_t unit = run.unit + run.units;
         run.units < most && unit < pool->units_used && is_spare(pool, unit) &&
         memory->core->policy->next_cover(memory->core->policy_context, unit) >= least;
         unit++)
        run.units++;
    return run;
}

void ebb__placed_strip(struct memory *memory, struct spare_run run)
{
    struct pool *pool = &memory->addresses->pool;
    uint64_t bytes = run.units * EBB_HUGE_BYTES;
    ebb__pages_give(memory, ebb__placed_unit_address(memory->addresses, run.unit), bytes);
    for (uint32_t i = 0; i < run.units; i++)
        pool->states[run.unit + i] = 0;
    pool->spare_bytes -= bytes;
    pool->held_bytes -= bytes;
}

void ebb__placed_forked(struct memory *memory)
{
    struct pool *pool = &memory->addresses->pool;
    for (uint32_t unit = 0; unit < pool->units_used; unit++) {
        if (is_spare(pool, unit)) {
            memory->core->device.ops->release(memory->core->device.state,
                                              ebb__placed_unit_address(memory->addresses, unit),
                                              EBB_HUGE_BYTES);
            pool->states[unit] = 0;
        } else if (pool->states[unit] & UNIT_BACKED) {
            pool->states[unit] |= UNIT_INHERITED;
        }
    }
    pool->spare_bytes = pool->held_bytes = 0;
}
