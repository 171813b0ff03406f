/* Pages of the static placement: whole units of 2 MiB, which several blocks at planned addresses
 * may share.
 *
 * A unit holds its page while a block covers it. Then the page is cached: the next block there uses
 * it, unless it is needed elsewhere first. */
#include "runtime/memory/memory.h"

uint64_t ebb__placement_lacking(const struct memory *memory, const struct block *block)
{
    uint64_t lacking = 0;
    for (uint32_t unit = ebb__placement_first_unit(memory->addresses, block);
         unit <= ebb__placement_last_unit(memory->addresses, block); unit++)
        if (!(memory->addresses->placement.states[unit] & UNIT_BACKED))
            lacking += EBB_HUGE_BYTES;
    return lacking;
}

bool ebb__placement_back(struct memory *memory, struct block *block, bool force)
{
    struct placement *placement = &memory->addresses->placement;
    uint32_t behind = ebb__placement_last_unit(memory->addresses, block) + 1;
    if (!force && ebb__placement_lacking(memory, block) > ebb__pages_available(memory))
        return false;
    for (uint32_t unit = ebb__placement_first_unit(memory->addresses, block), next; unit < behind;
         unit = next) {
        next = unit + 1;
        if (placement->states[unit] & UNIT_BACKED)
            continue;
        while (next < behind && !(placement->states[next] & UNIT_BACKED))
            next++;
        uintptr_t target = ebb__placement_unit_address(memory->addresses, unit);
        uint64_t bytes = (next - unit) * EBB_HUGE_BYTES;
        for (uint32_t i = unit; i < next; i++)
            if (placement->states[i] & UNIT_ORPHANS)
                memory->core->device.ops->release(memory->core->device.state,
                                                  ebb__placement_unit_address(memory->addresses, i),
                                                  EBB_HUGE_BYTES);
        if (force ? !ebb__pages_force(memory, target, bytes)
                  : !ebb__pages_take(memory, target, bytes))
            return false;
        for (uint32_t i = unit; i < next; i++)
            placement->states[i] = UNIT_BACKED;
        placement->held_bytes += bytes;
    }
    ebb__ledger_raise(&memory->core->counters->placement_peak_bytes, placement->held_bytes);
    return true;
}

void ebb__placement_fill(struct memory *memory, uintptr_t address)
{
    uint64_t unit = (address - memory->addresses->placement.base) / EBB_HUGE_BYTES;
    if (memory->core->device.ops->fill(memory->core->device.state, address) &&
        !(memory->addresses->placement.states[unit] & UNIT_BACKED))
        memory->addresses->placement.states[unit] |= UNIT_ORPHANS;
}

static bool is_cached(const struct placement *placement, uint32_t unit)
{
    return placement->users[unit] == 0 && (placement->states[unit] & UNIT_BACKED);
}

struct cached_run ebb__placement_cached(const struct memory *memory, uint64_t most_bytes)
{
    const struct placement *placement = &memory->addresses->placement;
    struct cached_run run = {0};
    if (placement->cached_bytes == 0)
        return run;
    for (uint32_t unit = 0; unit < placement->units_used; unit++) {
        uint32_t distance =
            is_cached(placement, unit)
                ? memory->core->policy->next_cover(memory->core->policy_context, unit)
                : 0;
        if (distance >= run.distance && is_cached(placement, unit))
            run = (struct cached_run){unit, 1, distance};
    }
    /* Includes adjacent units unless they are needed much earlier: one move replaces many. */
    uint64_t most = ebb__whole_units(most_bytes) / EBB_HUGE_BYTES;
    uint32_t least = run.distance / 2;
    while (run.units < most && run.unit > 0 && is_cached(placement, run.unit - 1) &&
           memory->core->policy->next_cover(memory->core->policy_context, run.unit - 1) >= least) {
        run.unit--;
        run.units++;
    }
    for (uint32_t unit = run.unit + run.units;
         run.units < most && unit < placement->units_used && is_cached(placement, unit) &&
         memory->core->policy->next_cover(memory->core->policy_context, unit) >= least;
         unit++)
        run.units++;
    return run;
}

void ebb__placement_strip(struct memory *memory, struct cached_run run)
{
    struct placement *placement = &memory->addresses->placement;
    uint64_t bytes = run.units * EBB_HUGE_BYTES;
    ebb__pages_give(memory, ebb__placement_unit_address(memory->addresses, run.unit), bytes);
    for (uint32_t i = 0; i < run.units; i++)
        placement->states[run.unit + i] = 0;
    placement->cached_bytes -= bytes;
    placement->held_bytes -= bytes;
}

void ebb__placement_strip_all(struct memory *memory)
{
    const struct placement *placement = &memory->addresses->placement;
    for (uint32_t unit = 0, behind; placement->cached_bytes && unit < placement->units_used;
         unit = behind + 1) {
        behind = unit;
        while (behind < placement->units_used && is_cached(placement, behind))
            behind++;
        if (behind > unit)
            ebb__placement_strip(memory, (struct cached_run){.unit = unit, .units = behind - unit});
    }
}

void ebb__placed_forked(struct memory *memory)
{
    struct placement *placement = &memory->addresses->placement;
    for (uint32_t unit = 0; unit < placement->units_used; unit++) {
        if (is_cached(placement, unit)) {
            memory->core->device.ops->release(memory->core->device.state,
                                              ebb__placement_unit_address(memory->addresses, unit),
                                              EBB_HUGE_BYTES);
            placement->states[unit] = 0;
        } else if (placement->states[unit] & UNIT_BACKED) {
            placement->states[unit] |= UNIT_INHERITED;
        }
    }
    placement->cached_bytes = placement->held_bytes = 0;
}
