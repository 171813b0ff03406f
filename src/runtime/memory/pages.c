/* Pages: the physical memory that the runtime holds, and its owners.
 *
 * The budget limits the number of pages. They are entered in the ledger before they are created. A
 * page belongs to one of four:
 *     a block
 *     a *cached* block: freed, its pages in place; the next block of that size makes no system call
 *     a cached frame (frames.c): huge pages
 *     the small-page stack, whose end is always one contiguous run
 * A block takes huge pages for its whole 2 MiB units and small ones for the rest. */
#include "runtime/memory/memory.h"

#include <sys/mman.h>

static const uint64_t huge_mask = EBB_HUGE_BYTES - 1;

/* A smaller tail of a block goes to the small-page stack and back as fast. */
#define TAIL_LEAST_BYTES ((size_t)256 << 10)

/* The cost of a page is counted in runs of so many and more. In shorter ones the call itself counts
 * more, and plans do not move such blocks. */
#define SMALL_RUN_BYTES (64 * EBB_PAGE_BYTES)

void ebb__pages_gone(struct memory *memory, uint64_t bytes)
{
    atomic_fetch_sub(&memory->core->counters->held_bytes, bytes);
    ebb__ledger_release(memory->core->ledger, memory->core->slot, bytes);
}

void ebb__pages_came(struct memory *memory, uint64_t bytes)
{
    atomic_fetch_add(&memory->core->counters->held_bytes, bytes);
    ebb__ledger_force(memory->core->ledger, memory->core->slot, bytes);
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

/* Moves pages by the device. Counts what it takes, so that plans can tell what moves cost. */
static enum ebb_device_result move_timed(struct memory *memory, uintptr_t target, uintptr_t source,
                                         uint64_t bytes, uint64_t *moved)
{
    const struct ebb_device_ops *ops = memory->core->device.ops;
    struct ebb_counters *counters = memory->core->counters;
    uint64_t began_ns = ebb__now_ns();
    enum ebb_device_result result =
        ops->move(memory->core->device.state, target, source, bytes, moved);
    uint64_t took_ns = ebb__now_ns() - began_ns;
    bool aligned = ((target | source) & huge_mask) == 0;
    if (aligned && (bytes & huge_mask) == 0) {
        atomic_fetch_add(&counters->moved_huge_pages, bytes / EBB_HUGE_BYTES);
        atomic_fetch_add(&counters->moved_huge_ns, took_ns);
    } else if (bytes >= SMALL_RUN_BYTES && (!aligned || bytes < EBB_HUGE_BYTES)) {
        atomic_fetch_add(&counters->moved_small_pages, bytes / EBB_PAGE_BYTES);
        atomic_fetch_add(&counters->moved_small_ns, took_ns);
    }
    return result;
}

static enum ebb_device_result move(struct memory *memory, uintptr_t target, uintptr_t source,
                                   uint64_t bytes, uint64_t *moved)
{
    atomic_fetch_add(&memory->core->counters->page_moves, 1);
    if (has_hint(memory, source) && has_hint(memory, target))
        for (uint64_t at = 0; at + EBB_HUGE_BYTES <= bytes; at += EBB_HUGE_BYTES)
            *ebb__pages_fragmented(memory, target + at) =
                *ebb__pages_fragmented(memory, source + at);
    return move_timed(memory, target, source, bytes, moved);
}

enum ebb_device_result ebb__pages_move(struct memory *memory, uintptr_t target, uintptr_t source,
                                       uint64_t bytes, uint64_t *moved)
{
    const struct ebb_device_ops *ops = memory->core->device.ops;
    uint64_t more;
    enum ebb_device_result result = move(memory, target, source, bytes, moved);
    while (result == EBB_DEVICE_BUSY) {
        uint64_t left = bytes - *moved;
        /* Shared: all with a child, or some by the kernel, which merges equal pages. */
        bool all = memory->core->forked || left < EBB_HUGE_BYTES;
        ops->unshare(memory->core->device.state, source + *moved, all ? left : EBB_HUGE_BYTES);
        result =
            ops->move(memory->core->device.state, target + *moved, source + *moved, left, &more);
        *moved += more;
        if (all || more == 0)
            break; /* pinned, as far as can be told */
    }
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

void ebb__memory_before_fork(struct memory *memory)
{
    while (ebb__pages_strip_block(memory, memory->cached_by_age.first))
        continue;
    ebb__placement_strip_all(memory);
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

/* Writes to each page, so that it is not all zeros. If the kernel splits a huge page, it replaces
 * each part that is by the shared zero page (Linux >= 6.12). The next write there is then a page
 * fault, which interrupts the other processors. */
static void keep_pages(uintptr_t address, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += EBB_PAGE_BYTES)
        *(volatile char *)(address + at) = 1;
}

/* Moves pages without content. */
enum ebb_device_result ebb__pages_move_empty(struct memory *memory, uintptr_t target,
                                             uintptr_t source, uint64_t bytes)
{
    if (memory->core->device.ops->anew_is_cheaper) {
        memory->core->device.ops->release(memory->core->device.state, source, bytes);
        if (memory->core->device.ops->fresh(memory->core->device.state, target, bytes) ==
            EBB_DEVICE_OK)
            return EBB_DEVICE_OK;
    }
    uint64_t moved;
    /* Pages shared with a child are not copied, as they have no content. */
    enum ebb_device_result result = move(memory, target, source, bytes, &moved);
    if (result != EBB_DEVICE_OK) {
        /* Pages at the target are worthless: the program has touched a freed block. */
        memory->core->device.ops->release(memory->core->device.state, target + moved,
                                          bytes - moved);
        /* Cached pages are worthless. If they cannot be moved, they are released to the system and
         * created again at the target. */
        memory->core->device.ops->release(memory->core->device.state, source + moved,
                                          bytes - moved);
        if (memory->core->device.ops->fresh(memory->core->device.state, target + moved,
                                            bytes - moved) != EBB_DEVICE_OK)
            return EBB_DEVICE_FAILED;
        keep_pages(target + moved, bytes - moved);
    }
    return EBB_DEVICE_OK;
}

static void give_small(struct memory *memory, uintptr_t source, uint64_t bytes)
{
    if (bytes &&
        ebb__pages_move_empty(memory, ebb__pages_stack_top(memory), source, bytes) == EBB_DEVICE_OK)
        memory->page_stack_bytes += bytes;
}

void ebb__pages_give(struct memory *memory, uintptr_t source, uint64_t bytes)
{
    uint64_t huge_bytes = bytes & ~huge_mask;
    uintptr_t frame = huge_bytes ? ebb__frames_take(&memory->frames, huge_bytes) : 0;
    if (frame && ebb__pages_move_empty(memory, frame, source, huge_bytes) == EBB_DEVICE_OK) {
        ebb__frames_keep(&memory->frames, frame, huge_bytes);
    } else if (huge_bytes) {
        memory->core->device.ops->release(memory->core->device.state, source, huge_bytes);
        ebb__pages_gone(memory, huge_bytes);
        if (frame)
            ebb__frames_give(&memory->frames, frame, huge_bytes);
    }
    give_small(memory, source + huge_bytes, bytes & huge_mask);
}

/* Makes whole units cached frames, and pushes the rest on the small-page stack. */
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
    if ((bytes & huge_mask) == 0 || bytes < TAIL_LEAST_BYTES ||
        !ebb__tail_cache_keep(&memory->frames, frame, bytes))
        take_apart(memory, frame, bytes);
}

bool ebb__pages_strip_tail_cache(struct memory *memory)
{
    struct tail_cache_entry entry = ebb__tail_cache_take_oldest(&memory->frames);
    if (entry.bytes)
        take_apart(memory, entry.address, entry.bytes);
    return entry.bytes != 0;
}

/* Moves gathered units to `target`. */
static bool put_units(struct memory *memory, uintptr_t target, uint64_t bytes)
{
    uint64_t got;
    for (uint64_t at = 0; at < bytes; at += got) {
        uintptr_t frame = ebb__frames_spend(&memory->frames, bytes - at, false, &got);
        if (!ebb__pages_mend(memory, frame, got) ||
            ebb__pages_move_empty(memory, target + at, frame, got) != EBB_DEVICE_OK)
            return false;
    }
    return true;
}

static bool put_small(struct memory *memory, uintptr_t target, uint64_t bytes)
{
    memory->page_stack_bytes -= bytes;
    return bytes == 0 || ebb__pages_move_empty(memory, target, ebb__pages_stack_top(memory),
                                               bytes) == EBB_DEVICE_OK;
}

static bool take(struct memory *memory, uintptr_t target, uint64_t bytes, bool force)
{
    uint64_t huge_bytes = bytes & ~huge_mask;
    uintptr_t entry = ebb__tail_cache_claim(&memory->frames, bytes);
    if (entry) {
        ebb__frames_give(&memory->frames, entry, bytes);
        return ebb__pages_move_empty(memory, target, entry, bytes) == EBB_DEVICE_OK;
    }
    return ebb__pages_gather(memory, bytes, force) && put_units(memory, target, huge_bytes) &&
           put_small(memory, target + huge_bytes, bytes & huge_mask);
}

static uintptr_t take_frame(struct memory *memory, uint64_t bytes, bool force)
{
    uint64_t huge_bytes = bytes & ~huge_mask;
    uintptr_t frame = ebb__tail_cache_claim(&memory->frames, bytes);
    if (frame)
        return frame;
    if (!ebb__pages_gather(memory, bytes, force))
        return 0;
    frame = ebb__frames_claim(&memory->frames, bytes);
    bool is_filled = frame != 0;
    if (!frame)
        frame = ebb__frames_take(&memory->frames, bytes);
    if (!frame)
        return 0;
    if ((is_filled ? ebb__pages_mend(memory, frame, huge_bytes)
                   : put_units(memory, frame, huge_bytes)) &&
        put_small(memory, frame + huge_bytes, bytes & huge_mask))
        return frame;
    memory->core->device.ops->release(memory->core->device.state, frame, bytes);
    ebb__frames_give(&memory->frames, frame, bytes);
    return 0;
}

uint64_t ebb__pages_idle(const struct memory *memory)
{
    return memory->frames.cached_bytes + memory->frames.tail_cache_bytes +
           memory->page_stack_bytes + memory->cached_bytes +
           memory->addresses->placement.cached_bytes;
}

uint64_t ebb__pages_available(const struct memory *memory)
{
    uint64_t idle = ebb__pages_idle(memory), more = ebb__pages_unmade(memory);
    return more > UINT64_MAX - idle ? UINT64_MAX : more + idle;
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
