/* Gathering: turns pages of any kind into huge or small ones, as needed, and releases them to the
 * system.
 *
 * The need for either kind varies within an iteration. A unit is split if small pages are lacking.
 * If units are lacking, small pages are assembled into a *fragmented* unit. It holds as much, and
 * is the first to be split again. But its addresses take longer to translate, its moves interrupt
 * the program many times, and its transfers take many segments. Only an exchange with the system
 * for a huge page makes it whole again, which takes a fraction of a millisecond. So exchanges get a
 * small share of the time. They happen when a unit is assembled, or when a fragmented one is about
 * to be filled. A few exchanges per iteration keep all units whole. A program that needs more of
 * them does not spend its time on them. */
#include "runtime/memory/memory.h"

#include "base/tuning.h"

enum { MOST_SAVED_NS = 50000000 }; /* an iteration's exchanges come at once */

static const uint64_t huge_mask = EBB_HUGE_BYTES - 1;

static void held_add(struct memory *memory, uint64_t bytes)
{
    atomic_fetch_add(&memory->core->counters->held_bytes, bytes);
}

static bool make(struct memory *memory, uintptr_t target, uint64_t bytes, bool force)
{
    if (!ebb__ledger_reserve(memory->core->ledger, memory->core->slot, bytes)) {
        if (!force)
            return false;
        ebb__ledger_force(memory->core->ledger, memory->core->slot, bytes);
    }
    held_add(memory, bytes);
    if (memory->core->device.ops->fresh(memory->core->device.state, target, bytes) == EBB_DEVICE_OK)
        return true;
    ebb__pages_gone(memory, bytes);
    return false;
}

static void release_small(struct memory *memory, uint64_t bytes)
{
    memory->page_stack_bytes -= bytes;
    memory->core->device.ops->release(memory->core->device.state, ebb__pages_stack_top(memory),
                                      bytes);
    ebb__pages_gone(memory, bytes);
}

/* Releases adjacent cached frames to the system, at most `most_bytes`. Returns how many bytes. */
static uint64_t release_frames(struct memory *memory, uint64_t most_bytes)
{
    uint64_t bytes;
    uintptr_t frame = ebb__frames_spend(&memory->frames, most_bytes, true, &bytes);
    memory->core->device.ops->release(memory->core->device.state, frame, bytes);
    ebb__pages_gone(memory, bytes);
    return bytes;
}

uint64_t ebb__pages_unmade(const struct memory *memory)
{
    uint64_t budget = atomic_load(&memory->core->ledger->budget_bytes);
    uint64_t held = atomic_load(&memory->core->ledger->held_bytes);
    return budget > held ? budget - held : 0;
}

/* Takes the pages of the cached block or the cached units of the static placement that are needed
 * latest. About `bytes`, but at least one block or unit. False: there is none. */
static bool strip(struct memory *memory, uint64_t bytes)
{
    struct cached_run run = ebb__placement_cached(memory, bytes);
    uint32_t index = ebb__pages_choose_cached(memory);
    if (run.units &&
        (index == NO_BLOCK || !memory->core->policy->is_planned(memory->core->policy_context) ||
         run.distance >=
             memory->core->policy->next_alloc(memory->core->policy_context,
                                              memory->table->blocks[index].size_bytes))) {
        ebb__placement_strip(memory, run);
        return true;
    }
    return ebb__pages_strip_block(memory, index);
}

/* Is there time to exchange pages with the system? */
static bool may_exchange(struct memory *memory)
{
    uint64_t share = memory->core->config.exchange_share;
    uint64_t part_ns = (ebb__now_ns() - memory->exchange_since_ns) / share;
    memory->exchange_ns += (int64_t)part_ns;
    memory->exchange_since_ns += part_ns * share;
    if (memory->exchange_ns > MOST_SAVED_NS)
        memory->exchange_ns = MOST_SAVED_NS;
    return memory->exchange_ns > 0;
}

/* Exchanges the small pages at `source`, without content, for a huge page at `target`, which must
 * be empty. */
static bool exchange(struct memory *memory, uintptr_t target, uintptr_t source)
{
    uint64_t began = ebb__now_ns();
    memory->core->device.ops->release(memory->core->device.state, source, EBB_HUGE_BYTES);
    bool made = memory->core->device.ops->fresh(memory->core->device.state, target,
                                                EBB_HUGE_BYTES) == EBB_DEVICE_OK;
    *ebb__pages_fragmented(memory, target) = 0;
    memory->exchange_ns -= (int64_t)(ebb__now_ns() - began);
    return made;
}

bool ebb__pages_mend(struct memory *memory, uintptr_t frame, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += EBB_HUGE_BYTES)
        if (*ebb__pages_fragmented(memory, frame + at) && may_exchange(memory) &&
            !exchange(memory, frame + at, frame + at))
            return false;
    return true;
}

/* Assembles 2 MiB of the small-page stack into a cached frame. */
static bool assemble_unit(struct memory *memory)
{
    uintptr_t frame = ebb__frames_take(&memory->frames, EBB_HUGE_BYTES);
    if (!frame)
        return false;
    memory->page_stack_bytes -= EBB_HUGE_BYTES;
    uintptr_t source = ebb__pages_stack_top(memory);
    bool is_whole = memory->core->device.ops->anew_is_cheaper || may_exchange(memory);
    if (is_whole ? !exchange(memory, frame, source)
                 : ebb__pages_move_empty(memory, frame, source, EBB_HUGE_BYTES) != EBB_DEVICE_OK) {
        ebb__frames_give(&memory->frames, frame, EBB_HUGE_BYTES);
        return false;
    }
    *ebb__pages_fragmented(memory, frame) = !is_whole;
    ebb__frames_keep(&memory->frames, frame, EBB_HUGE_BYTES);
    return true;
}

/* Splits a cached frame into small pages, a fragmented one if possible. A unit that is split can
 * only be made whole by an exchange with the system. */
static bool split_unit(struct memory *memory)
{
    uint64_t bytes;
    uintptr_t frame = ebb__frames_spend(&memory->frames, EBB_HUGE_BYTES, true, &bytes);
    if (ebb__pages_move_empty(memory, ebb__pages_stack_top(memory), frame, EBB_HUGE_BYTES) !=
        EBB_DEVICE_OK)
        return false;
    memory->page_stack_bytes += EBB_HUGE_BYTES;
    return true;
}

/* Creates new cached frames. */
static bool make_units(struct memory *memory, uint64_t bytes, bool force)
{
    uintptr_t frame = ebb__frames_take(&memory->frames, bytes);
    if (!frame)
        return false;
    if (!make(memory, frame, bytes, force)) {
        ebb__frames_give(&memory->frames, frame, bytes);
        return false;
    }
    for (uint64_t at = 0; at < bytes; at += EBB_HUGE_BYTES)
        *ebb__pages_fragmented(memory, frame + at) = 0;
    ebb__frames_keep(&memory->frames, frame, bytes);
    return true;
}

static bool gather_huge(struct memory *memory, uint64_t wanted, uint64_t small_wanted, bool force)
{
    while (memory->frames.cached_bytes < wanted) {
        uint64_t lacking = wanted - memory->frames.cached_bytes;
        if (ebb__pages_strip_tail_cache(memory) || strip(memory, lacking))
            continue;
        if (make_units(memory, lacking, false))
            break;
        if (memory->page_stack_bytes >= small_wanted + EBB_HUGE_BYTES) {
            if (!assemble_unit(memory))
                return false;
        } else if (memory->page_stack_bytes > small_wanted &&
                   memory->page_stack_bytes - small_wanted + ebb__pages_unmade(memory) >= lacking) {
            /* Too few for a unit: releases them to the system, so that new pages may be made. */
            uint64_t cached = memory->page_stack_bytes - small_wanted;
            release_small(memory, cached < lacking ? cached : lacking);
        } else {
            return force && make_units(memory, lacking, true);
        }
    }
    return true;
}

static bool gather_small(struct memory *memory, uint64_t wanted, uint64_t huge_wanted, bool force)
{
    while (memory->page_stack_bytes < wanted) {
        uint64_t lacking = wanted - memory->page_stack_bytes;
        if (make(memory, ebb__pages_stack_top(memory), lacking, false)) {
            memory->page_stack_bytes += lacking;
        } else if (ebb__pages_strip_tail_cache(memory) || ebb__pages_strip_cached(memory)) {
            continue;
        } else if (memory->frames.cached_bytes >= huge_wanted + EBB_HUGE_BYTES) {
            if (!split_unit(memory))
                return false;
        } else if (strip(memory, lacking)) {
            continue;
        } else if (force && make(memory, ebb__pages_stack_top(memory), lacking, true)) {
            memory->page_stack_bytes += lacking;
        } else {
            return false;
        }
    }
    return true;
}

bool ebb__pages_gather(struct memory *memory, uint64_t bytes, bool force)
{
    uint64_t huge_bytes = bytes & ~huge_mask, small_bytes = bytes & huge_mask;
    /* Each may use pages that the other has gathered, so try twice. */
    return gather_huge(memory, huge_bytes, small_bytes, force) &&
           gather_small(memory, small_bytes, huge_bytes, force) &&
           gather_huge(memory, huge_bytes, small_bytes, force);
}

/* Releases cached pages to the system, up to `bytes`. Returns how many bytes. */
static uint64_t give_back(struct memory *memory, uint64_t bytes)
{
    uint64_t given = 0;
    while (given < bytes) {
        uint64_t rest = ebb__whole_pages(bytes - given);
        if (memory->page_stack_bytes) {
            if (rest > memory->page_stack_bytes)
                rest = memory->page_stack_bytes;
            release_small(memory, rest);
        } else if (memory->frames.cached_bytes) {
            rest = release_frames(memory, ebb__whole_units(rest));
        } else if (ebb__pages_strip_tail_cache(memory) || strip(memory, rest)) {
            continue;
        } else {
            break;
        }
        given += rest;
    }
    return given;
}

void ebb__pages_trim(struct memory *memory)
{
    if (memory->owed_bytes) {
        uint64_t given = give_back(memory, memory->owed_bytes);
        memory->owed_bytes -= given < memory->owed_bytes ? given : memory->owed_bytes;
    }
    uint64_t budget = atomic_load(&memory->core->ledger->budget_bytes);
    uint64_t held = atomic_load(&memory->core->ledger->held_bytes);
    if (held > budget)
        give_back(memory, held - budget);
}
