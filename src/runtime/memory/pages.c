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
#include "runtime/memory/memory.h"

#include <sys/mman.h>

/* So little is moved to the depot and back as fast. */
#define TAIL_CACHE_LEAST_BYTES ((uint64_t)256 << 10)

/* So much time for exchanges is saved up at most: those of one iteration may come at once. Arbitrary. */
#define MOST_EXCHANGE_NS ((int64_t)50000000)

static const uint64_t huge_mask = EBB_HUGE_BYTES - 1;

static void held_add(struct memory *memory, uint64_t bytes)
{
    atomic_fetch_add(&memory->core->counters->held_bytes, bytes);
}

static void held_release(struct memory *memory, uint64_t bytes)
{
    atomic_fetch_sub(&memory->core->counters->held_bytes, bytes);
    ebb__ledger_release(memory->core->ledger, memory->core->slot, bytes);
}

void ebb__pages_gone(struct memory *memory, uint64_t bytes)
{
    held_release(memory, bytes);
}

static uintptr_t page_stack_top(const struct memory *memory)
{
    return memory->core->device.layout.page_stack.base + memory->page_stack_bytes;
}

static bool has_hint(const struct memory *memory, uintptr_t address)
{
    const struct ebb_device_layout *layout = &memory->core->device.layout;
    return address - layout->arena.base < layout->arena.bytes ||
           address - layout->staging.base < layout->staging.bytes;
}

uint8_t *ebb__pages_fragmented(const struct memory *memory, uintptr_t address)
{
    const struct ebb_device_layout *layout = &memory->core->device.layout;
    if (address - layout->staging.base < layout->staging.bytes)
        return &memory->frames.fragmented[(address - layout->staging.base) / EBB_HUGE_BYTES];
    return &memory->fragmented[(address - layout->arena.base) / EBB_HUGE_BYTES];
}

enum ebb_device_result ebb__pages_move(struct memory *memory, uintptr_t target, uintptr_t source,
                                       uint64_t bytes, uint64_t *moved)
{
    const struct ebb_device_ops *ops = memory->core->device.ops;
    uint64_t rest;
    atomic_fetch_add(&memory->core->counters->page_moves, 1);
    if (has_hint(memory, source) && has_hint(memory, target))
        for (uint64_t at = 0; at + EBB_HUGE_BYTES <= bytes; at += EBB_HUGE_BYTES)
            *ebb__pages_fragmented(memory, target + at) =
                *ebb__pages_fragmented(memory, source + at);
    enum ebb_device_result result =
        ops->move(memory->core->device.state, target, source, bytes, moved);
    if (result != EBB_DEVICE_BUSY || !memory->core->forked)
        return result;
    /* Shared with a child: make the rest ours, then try once more. */
    ops->unshare(memory->core->device.state, source + *moved, bytes - *moved);
    result = ops->move(memory->core->device.state, target + *moved, source + *moved, bytes - *moved,
                       &rest);
    *moved += rest;
    return result;
}

bool ebb__memory_init(struct memory *memory, struct addresses *addresses)
{
    const struct ebb_device_layout *layout = &addresses->core->device.layout;
    memory->core = addresses->core;
    memory->table = addresses->table;
    memory->addresses = addresses;
    memory->fragmented = ebb__core_memory(layout->arena.bytes / EBB_HUGE_BYTES);
    memory->exchange_since_ns = ebb__now_ns();
    return memory->fragmented && ebb__frames_init(&memory->frames, layout->staging);
}

void ebb__memory_fini(struct memory *memory)
{
    if (!memory->core)
        return;
    ebb__core_unmap(memory->fragmented, memory->core->device.layout.arena.bytes / EBB_HUGE_BYTES);
    ebb__frames_fini(&memory->frames);
}

void ebb__memory_forked(struct memory *memory)
{
    memory->owed_bytes = 0;
    memory->page_stack_bytes = 0;
    ebb__frames_reset(&memory->frames);
    while (memory->cached_by_age.first != NO_BLOCK)
        ebb__pages_drop_cached(memory);
    ebb__placed_forked(memory);
}

/* Pages without value. */
static enum ebb_device_result move(struct memory *memory, uintptr_t target, uintptr_t source,
                                   uint64_t bytes)
{
    if (memory->core->device.ops->anew_is_cheaper) {
        memory->core->device.ops->release(memory->core->device.state, source, bytes);
        if (memory->core->device.ops->fresh(memory->core->device.state, target, bytes) ==
            EBB_DEVICE_OK)
            return EBB_DEVICE_OK;
    }
    uint64_t moved;
    enum ebb_device_result result = ebb__pages_move(memory, target, source, bytes, &moved);
    if (result != EBB_DEVICE_OK) {
        /* Whatever is at the target (a freed block that the program touched) has no value. */
        memory->core->device.ops->release(memory->core->device.state, target + moved,
                                          bytes - moved);
        /* Nothing of value is in spare pages: what cannot be moved goes back to the system and is
         * made anew where it is wanted. */
        memory->core->device.ops->release(memory->core->device.state, source + moved,
                                          bytes - moved);
        if (memory->core->device.ops->fresh(memory->core->device.state, target + moved,
                                            bytes - moved) != EBB_DEVICE_OK)
            return EBB_DEVICE_FAILED;
    }
    return EBB_DEVICE_OK;
}

static void give_small(struct memory *memory, uintptr_t source, uint64_t bytes)
{
    if (bytes && move(memory, page_stack_top(memory), source, bytes) == EBB_DEVICE_OK)
        memory->page_stack_bytes += bytes;
}

void ebb__pages_give(struct memory *memory, uintptr_t source, uint64_t bytes)
{
    uint64_t huge_bytes = bytes & ~huge_mask;
    uintptr_t frame = huge_bytes ? ebb__frames_take(&memory->frames, huge_bytes) : 0;
    if (frame && move(memory, frame, source, huge_bytes) == EBB_DEVICE_OK) {
        ebb__frames_keep(&memory->frames, frame, huge_bytes);
    } else if (huge_bytes) {
        memory->core->device.ops->release(memory->core->device.state, source, huge_bytes);
        held_release(memory, huge_bytes);
        if (frame)
            ebb__frames_give(&memory->frames, frame, huge_bytes);
    }
    give_small(memory, source + huge_bytes, bytes & huge_mask);
}

/* Whole units become spare frames, the rest goes to the depot. */
static void take_apart(struct memory *memory, uintptr_t frame, uint64_t bytes)
{
    uint64_t huge_bytes = bytes & ~huge_mask, small_bytes = bytes & huge_mask;
    give_small(memory, frame + huge_bytes, small_bytes);
    if (small_bytes)
        ebb__frames_give(&memory->frames, frame + huge_bytes, small_bytes);
    if (huge_bytes)
        ebb__frames_keep(&memory->frames, frame, huge_bytes);
}

void ebb__pages_give_frame(struct memory *memory, uintptr_t frame, uint64_t bytes)
{
    if ((bytes & huge_mask) == 0 || bytes < TAIL_CACHE_LEAST_BYTES ||
        !ebb__tail_cache_keep(&memory->frames, frame, bytes))
        take_apart(memory, frame, bytes);
}

static bool strip_tail_cache(struct memory *memory)
{
    struct tail_cache_entry entry = ebb__tail_cache_take_oldest(&memory->frames);
    if (entry.bytes)
        take_apart(memory, entry.address, entry.bytes);
    return entry.bytes != 0;
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
    held_release(memory, bytes);
    return false;
}

static void release_small(struct memory *memory, uint64_t bytes)
{
    memory->page_stack_bytes -= bytes;
    memory->core->device.ops->release(memory->core->device.state, page_stack_top(memory), bytes);
    held_release(memory, bytes);
}

/* Spare frames, `most_bytes` or as many as lie together; returns how many. */
static uint64_t release_frames(struct memory *memory, uint64_t most_bytes)
{
    uint64_t bytes;
    uintptr_t frame = ebb__frames_spend(&memory->frames, most_bytes, true, &bytes);
    memory->core->device.ops->release(memory->core->device.state, frame, bytes);
    held_release(memory, bytes);
    return bytes;
}

/* Bytes of pages that may still be made within the budget. */
static uint64_t unmade(const struct memory *memory)
{
    uint64_t budget = atomic_load(&memory->core->ledger->budget_bytes);
    uint64_t held = atomic_load(&memory->core->ledger->held_bytes);
    return budget > held ? budget - held : 0;
}

/* What is wanted latest, of spare blocks and of spare units of the pool, gives its pages away: about
 * `bytes`, at least one of either; false: there is none. */
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
    if (memory->exchange_ns > MOST_EXCHANGE_NS)
        memory->exchange_ns = MOST_EXCHANGE_NS;
    return memory->exchange_ns > 0;
}

/* The small pages at `source`, without value, for a huge one at `target`, where nothing is else. */
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

/* Pieced units of a frame that is about to be filled become whole, as long as there is time. */
static bool mend(struct memory *memory, uintptr_t frame, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += EBB_HUGE_BYTES)
        if (*ebb__pages_fragmented(memory, frame + at) && may_exchange(memory) &&
            !exchange(memory, frame + at, frame + at))
            return false;
    return true;
}

/* 2 MiB of small pages of the depot become a spare frame. */
static bool assemble_unit(struct memory *memory)
{
    uintptr_t frame = ebb__frames_take(&memory->frames, EBB_HUGE_BYTES);
    if (!frame)
        return false;
    memory->page_stack_bytes -= EBB_HUGE_BYTES;
    uintptr_t source = page_stack_top(memory);
    bool is_whole = memory->core->device.ops->anew_is_cheaper || may_exchange(memory);
    if (is_whole ? !exchange(memory, frame, source)
                 : move(memory, frame, source, EBB_HUGE_BYTES) != EBB_DEVICE_OK) {
        ebb__frames_give(&memory->frames, frame, EBB_HUGE_BYTES);
        return false;
    }
    *ebb__pages_fragmented(memory, frame) = !is_whole;
    ebb__frames_keep(&memory->frames, frame, EBB_HUGE_BYTES);
    return true;
}

/* A spare frame becomes small pages: a pieced one, where there is one. What has been split otherwise
 * is never whole again. */
static bool split_unit(struct memory *memory)
{
    uint64_t bytes;
    uintptr_t frame = ebb__frames_spend(&memory->frames, EBB_HUGE_BYTES, true, &bytes);
    if (move(memory, page_stack_top(memory), frame, EBB_HUGE_BYTES) != EBB_DEVICE_OK)
        return false;
    memory->page_stack_bytes += EBB_HUGE_BYTES;
    return true;
}

/* New spare frames. */
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
        if (strip_tail_cache(memory) || strip(memory, lacking))
            continue;
        if (make_units(memory, lacking, false))
            break;
        if (memory->page_stack_bytes >= small_wanted + EBB_HUGE_BYTES) {
            if (!assemble_unit(memory))
                return false;
        } else if (memory->page_stack_bytes > small_wanted &&
                   memory->page_stack_bytes - small_wanted + unmade(memory) >= lacking) {
            /* Too few for a unit: exchange them with the system. */
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
        if (make(memory, page_stack_top(memory), lacking, false)) {
            memory->page_stack_bytes += lacking;
        } else if (strip_tail_cache(memory) || ebb__pages_strip_cached(memory)) {
            continue;
        } else if (memory->frames.cached_bytes >= huge_wanted + EBB_HUGE_BYTES) {
            if (!split_unit(memory))
                return false;
        } else if (strip(memory, lacking)) {
            continue;
        } else if (force && make(memory, page_stack_top(memory), lacking, true)) {
            memory->page_stack_bytes += lacking;
        } else {
            return false;
        }
    }
    return true;
}

static bool gather(struct memory *memory, uint64_t bytes, bool force)
{
    uint64_t huge_bytes = bytes & ~huge_mask, small_bytes = bytes & huge_mask;
    /* Each may draw on what the other has gathered, so look twice. */
    return gather_huge(memory, huge_bytes, small_bytes, force) &&
           gather_small(memory, small_bytes, huge_bytes, force) &&
           gather_huge(memory, huge_bytes, small_bytes, force);
}

/* What has been gathered, at `target`. */
static bool put_units(struct memory *memory, uintptr_t target, uint64_t bytes)
{
    uint64_t got;
    for (uint64_t at = 0; at < bytes; at += got) {
        uintptr_t frame = ebb__frames_spend(&memory->frames, bytes - at, false, &got);
        if (!mend(memory, frame, got) || move(memory, target + at, frame, got) != EBB_DEVICE_OK)
            return false;
    }
    return true;
}

static bool put_small(struct memory *memory, uintptr_t target, uint64_t bytes)
{
    memory->page_stack_bytes -= bytes;
    return bytes == 0 || move(memory, target, page_stack_top(memory), bytes) == EBB_DEVICE_OK;
}

static bool take(struct memory *memory, uintptr_t target, uint64_t bytes, bool force)
{
    uint64_t huge_bytes = bytes & ~huge_mask;
    uintptr_t entry = ebb__tail_cache_claim(&memory->frames, bytes);
    if (entry) {
        ebb__frames_give(&memory->frames, entry, bytes);
        return move(memory, target, entry, bytes) == EBB_DEVICE_OK;
    }
    return gather(memory, bytes, force) && put_units(memory, target, huge_bytes) &&
           put_small(memory, target + huge_bytes, bytes & huge_mask);
}

static uintptr_t take_frame(struct memory *memory, uint64_t bytes, bool force)
{
    uint64_t huge_bytes = bytes & ~huge_mask;
    uintptr_t frame = ebb__tail_cache_claim(&memory->frames, bytes);
    if (frame)
        return frame;
    if (!gather(memory, bytes, force))
        return 0;
    frame = ebb__frames_claim(&memory->frames, bytes);
    bool is_filled = frame != 0;
    if (!frame)
        frame = ebb__frames_take(&memory->frames, bytes);
    if (!frame)
        return 0;
    if ((is_filled ? mend(memory, frame, huge_bytes) : put_units(memory, frame, huge_bytes)) &&
        put_small(memory, frame + huge_bytes, bytes & huge_mask))
        return frame;
    memory->core->device.ops->release(memory->core->device.state, frame, bytes);
    ebb__frames_give(&memory->frames, frame, bytes);
    return 0;
}

uint64_t ebb__pages_available(const struct memory *memory)
{
    uint64_t cached = memory->frames.cached_bytes + memory->frames.tail_cache_bytes +
                      memory->page_stack_bytes + memory->cached_bytes +
                      memory->addresses->placement.cached_bytes;
    uint64_t more = unmade(memory);
    return more > UINT64_MAX - cached ? UINT64_MAX : more + cached;
}

bool ebb__pages_take(struct memory *memory, uintptr_t target, uint64_t bytes)
{
    return ebb__pages_available(memory) >= bytes && take(memory, target, bytes, false);
}

bool ebb__pages_force(struct memory *memory, uintptr_t target, uint64_t bytes)
{
    return take(memory, target, bytes, true);
}

uintptr_t ebb__pages_take_frame(struct memory *memory, uint64_t bytes)
{
    return ebb__pages_available(memory) >= bytes ? take_frame(memory, bytes, false) : 0;
}

uintptr_t ebb__pages_force_frame(struct memory *memory, uint64_t bytes)
{
    return take_frame(memory, bytes, true);
}

/* Give spare pages back to the system, up to `bytes`; returns how many were. */
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
        } else if (strip_tail_cache(memory) || strip(memory, rest)) {
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
