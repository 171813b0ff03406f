/* Pages: the physical memory that the runtime holds, and who has it.
 *
 * The number of pages is what the budget limits; they are entered in the ledger before they are
 * made. A page belongs to a block, to a *spare* block (freed, pages in place: the next block of
 * that size takes address and pages without a system call), to a spare frame (frames.c: huge pages),
 * or to the depot: a stack of small pages, because what is pushed and popped at one end is always one
 * contiguous run. A block takes huge pages for its whole 2 MiB units and small ones for the rest.
 *
 * How much of either is wanted varies within an iteration. A unit is split where small pages are
 * lacking; where units are lacking, small pages are *pieced* together to one, which holds as much and
 * is the first to be split again. But whatever it comes to hold, its addresses take longer to
 * translate, its moves interrupt the program many times and its transfers take many segments. Nothing
 * makes it whole again but to exchange it with the system for a huge page, which takes a fraction of a
 * millisecond. That is done for a small part of the time, where pages are pieced and where a pieced
 * unit is about to be filled: a few exchanges an iteration keep all units whole, while a program whose
 * iterations need more of them does not spend its time on it. */
#include "runtime/internal.h"

#include "base/tuning.h"

#include <sys/mman.h>

static const uint64_t huge_mask = EBB_HUGE_BYTES - 1;

static void held_add(struct ebb_runtime *runtime, uint64_t bytes)
{
    atomic_fetch_add(&runtime->core.counters->held_bytes, bytes);
}

static void held_release(struct ebb_runtime *runtime, uint64_t bytes)
{
    atomic_fetch_sub(&runtime->core.counters->held_bytes, bytes);
    ebb__ledger_release(runtime->core.ledger, runtime->core.slot, bytes);
}

void ebb__pages_gone(struct ebb_runtime *runtime, uint64_t bytes)
{
    held_release(runtime, bytes);
}

static uintptr_t page_stack_top(const struct ebb_runtime *runtime)
{
    return runtime->core.device.layout.page_stack.base + runtime->memory.page_stack_bytes;
}

static bool has_hint(const struct ebb_runtime *runtime, uintptr_t address)
{
    const struct ebb_device_layout *layout = &runtime->core.device.layout;
    return address - layout->arena.base < layout->arena.bytes ||
           address - layout->staging.base < layout->staging.bytes;
}

uint8_t *ebb__pages_fragmented(const struct ebb_runtime *runtime, uintptr_t address)
{
    const struct ebb_device_layout *layout = &runtime->core.device.layout;
    if (address - layout->staging.base < layout->staging.bytes)
        return &runtime->memory.frames
                    .fragmented[(address - layout->staging.base) / EBB_HUGE_BYTES];
    return &runtime->memory.fragmented[(address - layout->arena.base) / EBB_HUGE_BYTES];
}

enum ebb_device_result ebb__pages_move(struct ebb_runtime *runtime, uintptr_t target,
                                       uintptr_t source, uint64_t bytes, uint64_t *moved)
{
    const struct ebb_device_ops *ops = runtime->core.device.ops;
    uint64_t rest;
    atomic_fetch_add(&runtime->core.counters->page_moves, 1);
    if (has_hint(runtime, source) && has_hint(runtime, target))
        for (uint64_t at = 0; at + EBB_HUGE_BYTES <= bytes; at += EBB_HUGE_BYTES)
            *ebb__pages_fragmented(runtime, target + at) =
                *ebb__pages_fragmented(runtime, source + at);
    enum ebb_device_result result =
        ops->move(runtime->core.device.state, target, source, bytes, moved);
    if (result != EBB_DEVICE_BUSY || !runtime->core.forked)
        return result;
    /* Shared with a child: make the rest ours, then try once more. */
    ops->unshare(runtime->core.device.state, source + *moved, bytes - *moved);
    result = ops->move(runtime->core.device.state, target + *moved, source + *moved, bytes - *moved,
                       &rest);
    *moved += rest;
    return result;
}

bool ebb__pages_init(struct ebb_runtime *runtime)
{
    const struct ebb_device_layout *layout = &runtime->core.device.layout;
    runtime->memory.fragmented = ebb__core_memory(layout->arena.bytes / EBB_HUGE_BYTES);
    runtime->memory.exchange_since_ns = ebb__now_ns();
    return runtime->memory.fragmented && ebb__frames_init(&runtime->memory.frames, layout->staging);
}

void ebb__pages_fini(struct ebb_runtime *runtime)
{
    const struct ebb_device_layout *layout = &runtime->core.device.layout;
    ebb__core_unmap(runtime->memory.fragmented, layout->arena.bytes / EBB_HUGE_BYTES);
    ebb__frames_fini(&runtime->memory.frames);
}

/* Pages without value. */
static enum ebb_device_result move(struct ebb_runtime *runtime, uintptr_t target, uintptr_t source,
                                   uint64_t bytes)
{
    if (runtime->core.device.ops->anew_is_cheaper) {
        runtime->core.device.ops->release(runtime->core.device.state, source, bytes);
        if (runtime->core.device.ops->fresh(runtime->core.device.state, target, bytes) ==
            EBB_DEVICE_OK)
            return EBB_DEVICE_OK;
    }
    uint64_t moved;
    enum ebb_device_result result = ebb__pages_move(runtime, target, source, bytes, &moved);
    if (result != EBB_DEVICE_OK) {
        /* Whatever is at the target (a freed block that the program touched) has no value. */
        runtime->core.device.ops->release(runtime->core.device.state, target + moved,
                                          bytes - moved);
        /* Nothing of value is in spare pages: what cannot be moved goes back to the system and is
         * made anew where it is wanted. */
        runtime->core.device.ops->release(runtime->core.device.state, source + moved,
                                          bytes - moved);
        if (runtime->core.device.ops->fresh(runtime->core.device.state, target + moved,
                                            bytes - moved) != EBB_DEVICE_OK)
            return EBB_DEVICE_FAILED;
    }
    return EBB_DEVICE_OK;
}

static void give_small(struct ebb_runtime *runtime, uintptr_t source, uint64_t bytes)
{
    if (bytes && move(runtime, page_stack_top(runtime), source, bytes) == EBB_DEVICE_OK)
        runtime->memory.page_stack_bytes += bytes;
}

void ebb__pages_give(struct ebb_runtime *runtime, uintptr_t source, uint64_t bytes)
{
    uint64_t huge_bytes = bytes & ~huge_mask;
    uintptr_t frame = huge_bytes ? ebb__frames_take(&runtime->memory.frames, huge_bytes) : 0;
    if (frame && move(runtime, frame, source, huge_bytes) == EBB_DEVICE_OK) {
        ebb__frames_keep(&runtime->memory.frames, frame, huge_bytes);
    } else if (huge_bytes) {
        runtime->core.device.ops->release(runtime->core.device.state, source, huge_bytes);
        held_release(runtime, huge_bytes);
        if (frame)
            ebb__frames_give(&runtime->memory.frames, frame, huge_bytes);
    }
    give_small(runtime, source + huge_bytes, bytes & huge_mask);
}

/* Whole units become spare frames, the rest goes to the depot. */
static void take_apart(struct ebb_runtime *runtime, uintptr_t frame, uint64_t bytes)
{
    uint64_t huge_bytes = bytes & ~huge_mask, small_bytes = bytes & huge_mask;
    give_small(runtime, frame + huge_bytes, small_bytes);
    if (small_bytes)
        ebb__frames_give(&runtime->memory.frames, frame + huge_bytes, small_bytes);
    if (huge_bytes)
        ebb__frames_keep(&runtime->memory.frames, frame, huge_bytes);
}

void ebb__pages_give_frame(struct ebb_runtime *runtime, uintptr_t frame, uint64_t bytes)
{
    if ((bytes & huge_mask) == 0 || bytes < ebb__tuning()->tail_cache_least_bytes ||
        !ebb__tail_cache_keep(&runtime->memory.frames, frame, bytes))
        take_apart(runtime, frame, bytes);
}

static bool strip_tail_cache(struct ebb_runtime *runtime)
{
    struct tail_cache_entry entry = ebb__tail_cache_take_oldest(&runtime->memory.frames);
    if (entry.bytes)
        take_apart(runtime, entry.address, entry.bytes);
    return entry.bytes != 0;
}

static bool make(struct ebb_runtime *runtime, uintptr_t target, uint64_t bytes, bool force)
{
    if (!ebb__ledger_reserve(runtime->core.ledger, runtime->core.slot, bytes)) {
        if (!force)
            return false;
        ebb__ledger_force(runtime->core.ledger, runtime->core.slot, bytes);
    }
    held_add(runtime, bytes);
    if (runtime->core.device.ops->fresh(runtime->core.device.state, target, bytes) == EBB_DEVICE_OK)
        return true;
    held_release(runtime, bytes);
    return false;
}

static void release_small(struct ebb_runtime *runtime, uint64_t bytes)
{
    runtime->memory.page_stack_bytes -= bytes;
    runtime->core.device.ops->release(runtime->core.device.state, page_stack_top(runtime), bytes);
    held_release(runtime, bytes);
}

/* Spare frames, `most_bytes` or as many as lie together; returns how many. */
static uint64_t release_frames(struct ebb_runtime *runtime, uint64_t most_bytes)
{
    uint64_t bytes;
    uintptr_t frame = ebb__frames_spend(&runtime->memory.frames, most_bytes, true, &bytes);
    runtime->core.device.ops->release(runtime->core.device.state, frame, bytes);
    held_release(runtime, bytes);
    return bytes;
}

/* Bytes of pages that may still be made within the budget. */
static uint64_t unmade(const struct ebb_runtime *runtime)
{
    uint64_t budget = atomic_load(&runtime->core.ledger->budget_bytes);
    uint64_t held = atomic_load(&runtime->core.ledger->held_bytes);
    return budget > held ? budget - held : 0;
}

/* What is wanted latest, of spare blocks and of spare units of the pool, gives its pages away: about
 * `bytes`, at least one of either; false: there is none. */
static bool strip(struct ebb_runtime *runtime, uint64_t bytes)
{
    struct cached_run run = ebb__placement_cached(runtime, bytes);
    uint32_t index = ebb__pages_choose_cached(runtime);
    if (run.units && (index == NO_BLOCK || !runtime->core.policy->is_planned(runtime) ||
                      run.distance >= runtime->core.policy->next_alloc(
                                          runtime, runtime->table.blocks[index].size_bytes))) {
        ebb__placement_strip(runtime, run);
        return true;
    }
    return ebb__pages_strip_block(runtime, index);
}

/* Is there time to exchange pages with the system? */
static bool may_exchange(struct ebb_runtime *runtime)
{
    uint64_t share = runtime->core.config.exchange_share;
    uint64_t part_ns = (ebb__now_ns() - runtime->memory.exchange_since_ns) / share;
    runtime->memory.exchange_ns += (int64_t)part_ns;
    runtime->memory.exchange_since_ns += part_ns * share;
    if (runtime->memory.exchange_ns > (int64_t)ebb__tuning()->exchange_most_ns)
        runtime->memory.exchange_ns = (int64_t)ebb__tuning()->exchange_most_ns;
    return runtime->memory.exchange_ns > 0;
}

/* The small pages at `source`, without value, for a huge one at `target`, where nothing is else. */
static bool exchange(struct ebb_runtime *runtime, uintptr_t target, uintptr_t source)
{
    uint64_t began = ebb__now_ns();
    runtime->core.device.ops->release(runtime->core.device.state, source, EBB_HUGE_BYTES);
    bool made = runtime->core.device.ops->fresh(runtime->core.device.state, target,
                                                EBB_HUGE_BYTES) == EBB_DEVICE_OK;
    *ebb__pages_fragmented(runtime, target) = 0;
    runtime->memory.exchange_ns -= (int64_t)(ebb__now_ns() - began);
    return made;
}

/* Pieced units of a frame that is about to be filled become whole, as long as there is time. */
static bool mend(struct ebb_runtime *runtime, uintptr_t frame, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += EBB_HUGE_BYTES)
        if (*ebb__pages_fragmented(runtime, frame + at) && may_exchange(runtime) &&
            !exchange(runtime, frame + at, frame + at))
            return false;
    return true;
}

/* 2 MiB of small pages of the depot become a spare frame. */
static bool assemble_unit(struct ebb_runtime *runtime)
{
    uintptr_t frame = ebb__frames_take(&runtime->memory.frames, EBB_HUGE_BYTES);
    if (!frame)
        return false;
    runtime->memory.page_stack_bytes -= EBB_HUGE_BYTES;
    uintptr_t source = page_stack_top(runtime);
    bool is_whole = runtime->core.device.ops->anew_is_cheaper || may_exchange(runtime);
    if (is_whole ? !exchange(runtime, frame, source)
                 : move(runtime, frame, source, EBB_HUGE_BYTES) != EBB_DEVICE_OK) {
        ebb__frames_give(&runtime->memory.frames, frame, EBB_HUGE_BYTES);
        return false;
    }
    *ebb__pages_fragmented(runtime, frame) = !is_whole;
    ebb__frames_keep(&runtime->memory.frames, frame, EBB_HUGE_BYTES);
    return true;
}

/* A spare frame becomes small pages: a pieced one, where there is one. What has been split otherwise
 * is never whole again. */
static bool split_unit(struct ebb_runtime *runtime)
{
    uint64_t bytes;
    uintptr_t frame = ebb__frames_spend(&runtime->memory.frames, EBB_HUGE_BYTES, true, &bytes);
    if (move(runtime, page_stack_top(runtime), frame, EBB_HUGE_BYTES) != EBB_DEVICE_OK)
        return false;
    runtime->memory.page_stack_bytes += EBB_HUGE_BYTES;
    return true;
}

/* New spare frames. */
static bool make_units(struct ebb_runtime *runtime, uint64_t bytes, bool force)
{
    uintptr_t frame = ebb__frames_take(&runtime->memory.frames, bytes);
    if (!frame)
        return false;
    if (!make(runtime, frame, bytes, force)) {
        ebb__frames_give(&runtime->memory.frames, frame, bytes);
        return false;
    }
    for (uint64_t at = 0; at < bytes; at += EBB_HUGE_BYTES)
        *ebb__pages_fragmented(runtime, frame + at) = 0;
    ebb__frames_keep(&runtime->memory.frames, frame, bytes);
    return true;
}

static bool gather_huge(struct ebb_runtime *runtime, uint64_t wanted, uint64_t small_wanted,
                        bool force)
{
    while (runtime->memory.frames.cached_bytes < wanted) {
        uint64_t lacking = wanted - runtime->memory.frames.cached_bytes;
        if (strip_tail_cache(runtime) || strip(runtime, lacking))
            continue;
        if (make_units(runtime, lacking, false))
            break;
        if (runtime->memory.page_stack_bytes >= small_wanted + EBB_HUGE_BYTES) {
            if (!assemble_unit(runtime))
                return false;
        } else if (runtime->memory.page_stack_bytes > small_wanted &&
                   runtime->memory.page_stack_bytes - small_wanted + unmade(runtime) >= lacking) {
            /* Too few for a unit: exchange them with the system. */
            uint64_t cached = runtime->memory.page_stack_bytes - small_wanted;
            release_small(runtime, cached < lacking ? cached : lacking);
        } else {
            return force && make_units(runtime, lacking, true);
        }
    }
    return true;
}

static bool gather_small(struct ebb_runtime *runtime, uint64_t wanted, uint64_t huge_wanted,
                         bool force)
{
    while (runtime->memory.page_stack_bytes < wanted) {
        uint64_t lacking = wanted - runtime->memory.page_stack_bytes;
        if (make(runtime, page_stack_top(runtime), lacking, false)) {
            runtime->memory.page_stack_bytes += lacking;
        } else if (strip_tail_cache(runtime) || ebb__pages_strip_cached(runtime)) {
            continue;
        } else if (runtime->memory.frames.cached_bytes >= huge_wanted + EBB_HUGE_BYTES) {
            if (!split_unit(runtime))
                return false;
        } else if (strip(runtime, lacking)) {
            continue;
        } else if (force && make(runtime, page_stack_top(runtime), lacking, true)) {
            runtime->memory.page_stack_bytes += lacking;
        } else {
            return false;
        }
    }
    return true;
}

static bool gather(struct ebb_runtime *runtime, uint64_t bytes, bool force)
{
    uint64_t huge_bytes = bytes & ~huge_mask, small_bytes = bytes & huge_mask;
    /* Each may draw on what the other has gathered, so look twice. */
    return gather_huge(runtime, huge_bytes, small_bytes, force) &&
           gather_small(runtime, small_bytes, huge_bytes, force) &&
           gather_huge(runtime, huge_bytes, small_bytes, force);
}

/* What has been gathered, at `target`. */
static bool put_units(struct ebb_runtime *runtime, uintptr_t target, uint64_t bytes)
{
    uint64_t got;
    for (uint64_t at = 0; at < bytes; at += got) {
        uintptr_t frame = ebb__frames_spend(&runtime->memory.frames, bytes - at, false, &got);
        if (!mend(runtime, frame, got) || move(runtime, target + at, frame, got) != EBB_DEVICE_OK)
            return false;
    }
    return true;
}

static bool put_small(struct ebb_runtime *runtime, uintptr_t target, uint64_t bytes)
{
    runtime->memory.page_stack_bytes -= bytes;
    return bytes == 0 || move(runtime, target, page_stack_top(runtime), bytes) == EBB_DEVICE_OK;
}

static bool take(struct ebb_runtime *runtime, uintptr_t target, uint64_t bytes, bool force)
{
    uint64_t huge_bytes = bytes & ~huge_mask;
    uintptr_t entry = ebb__tail_cache_claim(&runtime->memory.frames, bytes);
    if (entry) {
        ebb__frames_give(&runtime->memory.frames, entry, bytes);
        return move(runtime, target, entry, bytes) == EBB_DEVICE_OK;
    }
    return gather(runtime, bytes, force) && put_units(runtime, target, huge_bytes) &&
           put_small(runtime, target + huge_bytes, bytes & huge_mask);
}

static uintptr_t take_frame(struct ebb_runtime *runtime, uint64_t bytes, bool force)
{
    uint64_t huge_bytes = bytes & ~huge_mask;
    uintptr_t frame = ebb__tail_cache_claim(&runtime->memory.frames, bytes);
    if (frame)
        return frame;
    if (!gather(runtime, bytes, force))
        return 0;
    frame = ebb__frames_claim(&runtime->memory.frames, bytes);
    bool is_filled = frame != 0;
    if (!frame)
        frame = ebb__frames_take(&runtime->memory.frames, bytes);
    if (!frame)
        return 0;
    if ((is_filled ? mend(runtime, frame, huge_bytes) : put_units(runtime, frame, huge_bytes)) &&
        put_small(runtime, frame + huge_bytes, bytes & huge_mask))
        return frame;
    runtime->core.device.ops->release(runtime->core.device.state, frame, bytes);
    ebb__frames_give(&runtime->memory.frames, frame, bytes);
    return 0;
}

uint64_t ebb__pages_available(const struct ebb_runtime *runtime)
{
    uint64_t cached = runtime->memory.frames.cached_bytes +
                      runtime->memory.frames.tail_cache_bytes + runtime->memory.page_stack_bytes +
                      runtime->memory.cached_bytes + runtime->placement.cached_bytes;
    uint64_t more = unmade(runtime);
    return more > UINT64_MAX - cached ? UINT64_MAX : more + cached;
}

bool ebb__pages_take(struct ebb_runtime *runtime, uintptr_t target, uint64_t bytes)
{
    return ebb__pages_available(runtime) >= bytes && take(runtime, target, bytes, false);
}

bool ebb__pages_force(struct ebb_runtime *runtime, uintptr_t target, uint64_t bytes)
{
    return take(runtime, target, bytes, true);
}

uintptr_t ebb__pages_take_frame(struct ebb_runtime *runtime, uint64_t bytes)
{
    return ebb__pages_available(runtime) >= bytes ? take_frame(runtime, bytes, false) : 0;
}

uintptr_t ebb__pages_force_frame(struct ebb_runtime *runtime, uint64_t bytes)
{
    return take_frame(runtime, bytes, true);
}

/* Give spare pages back to the system, up to `bytes`; returns how many were. */
static uint64_t give_back(struct ebb_runtime *runtime, uint64_t bytes)
{
    uint64_t given = 0;
    while (given < bytes) {
        uint64_t rest = ebb__whole_pages(bytes - given);
        if (runtime->memory.page_stack_bytes) {
            if (rest > runtime->memory.page_stack_bytes)
                rest = runtime->memory.page_stack_bytes;
            release_small(runtime, rest);
        } else if (runtime->memory.frames.cached_bytes) {
            rest = release_frames(runtime, ebb__whole_units(rest));
        } else if (strip_tail_cache(runtime) || strip(runtime, rest)) {
            continue;
        } else {
            break;
        }
        given += rest;
    }
    return given;
}

void ebb__pages_trim(struct ebb_runtime *runtime)
{
    if (runtime->memory.owed_bytes) {
        uint64_t given = give_back(runtime, runtime->memory.owed_bytes);
        runtime->memory.owed_bytes -=
            given < runtime->memory.owed_bytes ? given : runtime->memory.owed_bytes;
    }
    uint64_t budget = atomic_load(&runtime->core.ledger->budget_bytes);
    uint64_t held = atomic_load(&runtime->core.ledger->held_bytes);
    if (held > budget)
        give_back(runtime, held - budget);
}
