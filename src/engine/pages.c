/* Pages: the physical memory that the engine holds, and who has it.
 *
 * The number of pages is what the budget limits; they are entered in the ledger before they are
 * made. A page belongs to a block, to a *spare* block (freed, pages in place: the next block of
 * that size takes address and pages without a system call), or to the depot: two stacks, one of
 * huge pages, one of small ones. Stacks, because what is pushed and popped at one end is always
 * one contiguous run: one move call a block, whatever came before. A block takes huge pages for
 * its whole 2 MiB units and small ones for the rest.
 *
 * How much of either is wanted varies within an iteration. A unit is split where small pages are
 * lacking; where units are lacking, small pages are *pieced* together to one, which serves as well, if
 * its addresses take longer to translate, and is the first to be split again. So no page is given to
 * the system only to have another one made. */
#include "engine/internal.h"

#include <sys/mman.h>

static const uint64_t huge_mask = EBB_HUGE_BYTES - 1;

static void held_add(struct ebb_engine *engine, uint64_t bytes)
{
    atomic_fetch_add(&engine->counters->held_bytes, bytes);
}

static void held_release(struct ebb_engine *engine, uint64_t bytes)
{
    atomic_fetch_sub(&engine->counters->held_bytes, bytes);
    ebb__ledger_release(engine->ledger, bytes);
}

static uintptr_t huge_top(const struct ebb_engine *engine)
{
    return engine->device.layout.depot_huge.base + engine->depot_huge_bytes;
}

static uintptr_t small_top(const struct ebb_engine *engine)
{
    return engine->device.layout.depot_small.base + engine->depot_small_bytes;
}

enum ebb_device_result ebb__pages_move(struct ebb_engine *engine, uintptr_t target,
                                       uintptr_t source, uint64_t bytes, uint64_t *moved)
{
    const struct ebb_device_ops *ops = engine->device.ops;
    uint64_t rest;
    atomic_fetch_add(&engine->counters->page_moves, 1);
    enum ebb_device_result result = ops->move(engine->device.state, target, source, bytes, moved);
    if (result != EBB_DEVICE_BUSY || !engine->forked)
        return result;
    /* Shared with a child: make the rest ours, then try once more. */
    ops->unshare(engine->device.state, source + *moved, bytes - *moved);
    result =
        ops->move(engine->device.state, target + *moved, source + *moved, bytes - *moved, &rest);
    *moved += rest;
    return result;
}

bool ebb__pages_init(struct ebb_engine *engine)
{
    const struct ebb_device_layout *layout = &engine->device.layout;
    engine->pieced = ebb__engine_memory(layout->arena.bytes / EBB_HUGE_BYTES);
    engine->pieced_depot = ebb__engine_memory(layout->depot_huge.bytes / EBB_HUGE_BYTES);
    return engine->pieced && engine->pieced_depot;
}

void ebb__pages_fini(struct ebb_engine *engine)
{
    const struct ebb_device_layout *layout = &engine->device.layout;
    munmap(engine->pieced, layout->arena.bytes / EBB_HUGE_BYTES);
    munmap(engine->pieced_depot, layout->depot_huge.bytes / EBB_HUGE_BYTES);
}

/* Is the unit at `address` pieced? A hint: pages of the arena may come to be small otherwise, too. */
static uint8_t *pieced(const struct ebb_engine *engine, uintptr_t address)
{
    const struct ebb_device_layout *layout = &engine->device.layout;
    if (address - layout->depot_huge.base < layout->depot_huge.bytes)
        return &engine->pieced_depot[(address - layout->depot_huge.base) / EBB_HUGE_BYTES];
    bool staged = address - layout->staging.base < layout->staging.bytes;
    uintptr_t base = staged ? layout->staging.base : layout->arena.base;
    return &engine->pieced[(address - base) / EBB_HUGE_BYTES];
}

static enum ebb_device_result move(struct ebb_engine *engine, uintptr_t target, uintptr_t source,
                                   uint64_t bytes)
{
    uint64_t moved;
    enum ebb_device_result result = ebb__pages_move(engine, target, source, bytes, &moved);
    if (result != EBB_DEVICE_OK) {
        /* Whatever is at the target (a freed block that the program touched) has no value. */
        engine->device.ops->release(engine->device.state, target + moved, bytes - moved);
        /* Nothing of value is in spare pages: what cannot be moved goes back to the system and is
         * made anew where it is wanted. */
        engine->device.ops->release(engine->device.state, source + moved, bytes - moved);
        if (engine->device.ops->fresh(engine->device.state, target + moved, bytes - moved) !=
            EBB_DEVICE_OK)
            return EBB_DEVICE_FAILED;
    }
    return EBB_DEVICE_OK;
}

/* Whole units, between the depot and a block, or within the depot. */
static enum ebb_device_result move_units(struct ebb_engine *engine, uintptr_t target,
                                         uintptr_t source, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += EBB_HUGE_BYTES)
        *pieced(engine, target + at) = *pieced(engine, source + at);
    return move(engine, target, source, bytes);
}

void ebb__pages_give(struct ebb_engine *engine, uintptr_t source, uint64_t bytes)
{
    uint64_t huge_bytes = bytes & ~huge_mask, small_bytes = bytes & huge_mask;
    if (huge_bytes && move_units(engine, huge_top(engine), source, huge_bytes) == EBB_DEVICE_OK)
        engine->depot_huge_bytes += huge_bytes;
    if (small_bytes &&
        move(engine, small_top(engine), source + huge_bytes, small_bytes) == EBB_DEVICE_OK)
        engine->depot_small_bytes += small_bytes;
}

static uint32_t bucket_of(uint64_t page_bytes)
{
    return (uint32_t)((page_bytes / EBB_PAGE_BYTES * 0x9E3779B97F4A7C15ull) >> 54);
}

static void spare_remove(struct ebb_engine *engine, struct block *block)
{
    uint32_t index = ebb__block_index(engine, block);
    ebb__list_remove(engine, &engine->spare_buckets[bucket_of(block->page_bytes)], index,
                     LINK_LIST);
    ebb__list_remove(engine, &engine->spare_ages, index, LINK_AGE);
    engine->spare_bytes -= block->page_bytes;
}

struct block *ebb__pages_spare(struct ebb_engine *engine, uint64_t page_bytes)
{
    uint32_t index = engine->spare_buckets[bucket_of(page_bytes)].first;
    while (index != NO_BLOCK && engine->blocks[index].page_bytes != page_bytes)
        index = engine->blocks[index].list.next;
    if (index == NO_BLOCK)
        return NULL;
    spare_remove(engine, &engine->blocks[index]);
    return &engine->blocks[index];
}

void ebb__pages_keep_spare(struct ebb_engine *engine, struct block *block)
{
    uint32_t index = ebb__block_index(engine, block);
    block->state = BLOCK_SPARE;
    ebb__list_push_front(engine, &engine->spare_buckets[bucket_of(block->page_bytes)], index,
                         LINK_LIST);
    ebb__list_push_back(engine, &engine->spare_ages, index, LINK_AGE);
    engine->spare_bytes += block->page_bytes;
}

/* The spare block to take pages from: where the template is known, the one whose size is asked for
 * last from now on, so that most requests find address and pages as they left them; else the oldest.
 * NO_BLOCK: there is none. O(spare blocks * log allocations). */
static uint32_t choose_spare(const struct ebb_engine *engine)
{
    uint32_t best = engine->spare_ages.first;
    if (!engine->playing)
        return best;
    uint32_t farthest = 0;
    for (uint32_t i = best; i != NO_BLOCK; i = engine->blocks[i].age.next) {
        uint32_t distance = ebb__clock_next_alloc(engine, engine->blocks[i].size_bytes);
        if (distance > farthest) {
            farthest = distance;
            best = i;
        }
    }
    return best;
}

static bool strip_block(struct ebb_engine *engine, uint32_t index)
{
    if (index == NO_BLOCK)
        return false;
    struct block *block = &engine->blocks[index];
    spare_remove(engine, block);
    ebb__pages_give(engine, block->address, block->page_bytes);
    ebb__space_give(engine, block);
    return true;
}

bool ebb__pages_strip_spare(struct ebb_engine *engine)
{
    return strip_block(engine, choose_spare(engine));
}

void ebb__pages_drop_spare(struct ebb_engine *engine)
{
    struct block *block = &engine->blocks[engine->spare_ages.first];
    spare_remove(engine, block);
    engine->device.ops->release(engine->device.state, block->address, block->page_bytes);
    block->inherited = false;
    ebb__space_give(engine, block);
}

static bool make(struct ebb_engine *engine, uintptr_t target, uint64_t bytes, bool force)
{
    if (!ebb__ledger_reserve(engine->ledger, bytes)) {
        if (!force)
            return false;
        ebb__ledger_force(engine->ledger, bytes);
    }
    held_add(engine, bytes);
    if (engine->device.ops->fresh(engine->device.state, target, bytes) == EBB_DEVICE_OK)
        return true;
    held_release(engine, bytes);
    return false;
}

static void release_small(struct ebb_engine *engine, uint64_t bytes)
{
    engine->depot_small_bytes -= bytes;
    engine->device.ops->release(engine->device.state, small_top(engine), bytes);
    held_release(engine, bytes);
}

static void release_huge(struct ebb_engine *engine, uint64_t bytes)
{
    engine->depot_huge_bytes -= bytes;
    engine->device.ops->release(engine->device.state, huge_top(engine), bytes);
    held_release(engine, bytes);
}

/* Bytes of pages that may still be made within the budget. */
static uint64_t unmade(const struct ebb_engine *engine)
{
    uint64_t budget = atomic_load(&engine->ledger->budget_bytes);
    uint64_t held = atomic_load(&engine->ledger->held_bytes);
    return budget > held ? budget - held : 0;
}

/* What is wanted latest, of spare blocks and of spare units of the pool, goes to the depot: about
 * `bytes`, at least one of either; false: there is none. */
static bool strip(struct ebb_engine *engine, uint64_t bytes)
{
    struct spare_run run = ebb__placed_spare(engine, bytes);
    uint32_t index = choose_spare(engine);
    if (run.units &&
        (index == NO_BLOCK || !engine->playing ||
         run.distance >= ebb__clock_next_alloc(engine, engine->blocks[index].size_bytes))) {
        ebb__placed_strip(engine, run);
        return true;
    }
    return strip_block(engine, index);
}

/* 2 MiB of small pages of the depot become a unit of it. */
static bool piece_unit(struct ebb_engine *engine)
{
    uintptr_t target = huge_top(engine), source = small_top(engine) - EBB_HUGE_BYTES;
    if (move(engine, target, source, EBB_HUGE_BYTES) != EBB_DEVICE_OK)
        return false;
    *pieced(engine, target) = 1;
    engine->depot_small_bytes -= EBB_HUGE_BYTES;
    engine->depot_huge_bytes += EBB_HUGE_BYTES;
    return true;
}

/* A unit of the depot becomes small pages: a pieced one, where there is one. What has been split
 * otherwise is never whole again. */
static bool split_unit(struct ebb_engine *engine)
{
    uintptr_t top = huge_top(engine) - EBB_HUGE_BYTES, chosen = top;
    while (chosen > engine->device.layout.depot_huge.base && !*pieced(engine, chosen))
        chosen -= EBB_HUGE_BYTES;
    if (!*pieced(engine, chosen))
        chosen = top;
    if (move(engine, small_top(engine), chosen, EBB_HUGE_BYTES) != EBB_DEVICE_OK ||
        (chosen != top && move_units(engine, chosen, top, EBB_HUGE_BYTES) != EBB_DEVICE_OK))
        return false;
    engine->depot_huge_bytes -= EBB_HUGE_BYTES;
    engine->depot_small_bytes += EBB_HUGE_BYTES;
    return true;
}

/* New units for the depot. */
static bool make_units(struct ebb_engine *engine, uint64_t bytes, bool force)
{
    uintptr_t target = huge_top(engine);
    if (!make(engine, target, bytes, force))
        return false;
    for (uint64_t at = 0; at < bytes; at += EBB_HUGE_BYTES)
        *pieced(engine, target + at) = 0;
    engine->depot_huge_bytes += bytes;
    return true;
}

static bool gather_huge(struct ebb_engine *engine, uint64_t wanted, uint64_t small_wanted,
                        bool force)
{
    while (engine->depot_huge_bytes < wanted) {
        uint64_t lacking = wanted - engine->depot_huge_bytes;
        if (strip(engine, lacking))
            continue;
        if (make_units(engine, lacking, false))
            break;
        if (engine->depot_small_bytes >= small_wanted + EBB_HUGE_BYTES) {
            if (!piece_unit(engine))
                return false;
        } else if (engine->depot_small_bytes > small_wanted &&
                   engine->depot_small_bytes - small_wanted + unmade(engine) >= lacking) {
            /* Too few for a unit: exchange them with the system. */
            uint64_t spare = engine->depot_small_bytes - small_wanted;
            release_small(engine, spare < lacking ? spare : lacking);
        } else {
            return force && make_units(engine, lacking, true);
        }
    }
    return true;
}

static bool gather_small(struct ebb_engine *engine, uint64_t wanted, uint64_t huge_wanted,
                         bool force)
{
    while (engine->depot_small_bytes < wanted) {
        uint64_t lacking = wanted - engine->depot_small_bytes;
        if (make(engine, small_top(engine), lacking, false)) {
            engine->depot_small_bytes += lacking;
        } else if (ebb__pages_strip_spare(engine)) {
            continue;
        } else if (engine->depot_huge_bytes >= huge_wanted + EBB_HUGE_BYTES) {
            if (!split_unit(engine))
                return false;
        } else if (strip(engine, lacking)) {
            continue;
        } else if (force && make(engine, small_top(engine), lacking, true)) {
            engine->depot_small_bytes += lacking;
        } else {
            return false;
        }
    }
    return true;
}

static bool take(struct ebb_engine *engine, uintptr_t target, uint64_t bytes, bool force)
{
    uint64_t huge_bytes = bytes & ~huge_mask, small_bytes = bytes & huge_mask;
    /* Each may draw on what the other has gathered, so look twice. */
    if (!gather_huge(engine, huge_bytes, small_bytes, force) ||
        !gather_small(engine, small_bytes, huge_bytes, force) ||
        !gather_huge(engine, huge_bytes, small_bytes, force))
        return false;
    if (huge_bytes) {
        if (move_units(engine, target, huge_top(engine) - huge_bytes, huge_bytes) != EBB_DEVICE_OK)
            return false;
        engine->depot_huge_bytes -= huge_bytes;
    }
    if (small_bytes) {
        if (move(engine, target + huge_bytes, small_top(engine) - small_bytes, small_bytes) !=
            EBB_DEVICE_OK)
            return false;
        engine->depot_small_bytes -= small_bytes;
    }
    return true;
}

uint64_t ebb__pages_available(const struct ebb_engine *engine)
{
    uint64_t spare = engine->depot_huge_bytes + engine->depot_small_bytes + engine->spare_bytes +
                     engine->pool.spare_bytes;
    uint64_t more = unmade(engine);
    return more > UINT64_MAX - spare ? UINT64_MAX : more + spare;
}

bool ebb__pages_take(struct ebb_engine *engine, uintptr_t target, uint64_t bytes)
{
    return ebb__pages_available(engine) >= bytes && take(engine, target, bytes, false);
}

bool ebb__pages_force(struct ebb_engine *engine, uintptr_t target, uint64_t bytes)
{
    return take(engine, target, bytes, true);
}

/* Give spare pages back to the system, up to `bytes`; returns how many were. */
static uint64_t give_back(struct ebb_engine *engine, uint64_t bytes)
{
    uint64_t given = 0;
    while (given < bytes) {
        uint64_t rest = ebb__whole_pages(bytes - given);
        if (engine->depot_small_bytes) {
            if (rest > engine->depot_small_bytes)
                rest = engine->depot_small_bytes;
            release_small(engine, rest);
        } else if (engine->depot_huge_bytes) {
            rest = (rest + huge_mask) & ~huge_mask;
            if (rest > engine->depot_huge_bytes)
                rest = engine->depot_huge_bytes;
            release_huge(engine, rest);
        } else if (strip(engine, rest)) {
            continue;
        } else {
            break;
        }
        given += rest;
    }
    return given;
}

bool ebb__pages_hold(struct ebb_engine *engine, uint64_t bytes, bool force)
{
    while (!ebb__ledger_reserve(engine->ledger, bytes)) {
        if (give_back(engine, bytes))
            continue;
        if (!force)
            return false;
        ebb__ledger_force(engine->ledger, bytes);
        break;
    }
    held_add(engine, bytes);
    return true;
}

void ebb__pages_unhold(struct ebb_engine *engine, uint64_t bytes)
{
    held_release(engine, bytes);
}

void ebb__pages_trim(struct ebb_engine *engine)
{
    if (engine->owed_bytes) {
        uint64_t given = give_back(engine, engine->owed_bytes);
        engine->owed_bytes -= given < engine->owed_bytes ? given : engine->owed_bytes;
    }
    uint64_t budget = atomic_load(&engine->ledger->budget_bytes);
    uint64_t held = atomic_load(&engine->ledger->held_bytes);
    if (held > budget)
        give_back(engine, held - budget);
}
