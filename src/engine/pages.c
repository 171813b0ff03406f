/* Pages: the physical memory that the engine holds, and who has it.
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
#include "engine/internal.h"

#include <sys/mman.h>

/* So little is moved to the depot and back as fast. */
#define LEAST_SHAPE_BYTES ((uint64_t)256 << 10)

/* So much time for exchanges is saved up at most: those of one iteration may come at once. Arbitrary. */
#define MOST_EXCHANGE_NS ((int64_t)50000000)

static const uint64_t huge_mask = EBB_HUGE_BYTES - 1;

static void held_add(struct ebb_engine *engine, uint64_t bytes)
{
    atomic_fetch_add(&engine->counters->held_bytes, bytes);
}

static void held_release(struct ebb_engine *engine, uint64_t bytes)
{
    atomic_fetch_sub(&engine->counters->held_bytes, bytes);
    ebb__ledger_release(engine->ledger, engine->slot, bytes);
}

void ebb__pages_gone(struct ebb_engine *engine, uint64_t bytes)
{
    held_release(engine, bytes);
}

static uintptr_t depot_top(const struct ebb_engine *engine)
{
    return engine->device.layout.depot.base + engine->depot_bytes;
}

static bool has_hint(const struct ebb_engine *engine, uintptr_t address)
{
    const struct ebb_device_layout *layout = &engine->device.layout;
    return address - layout->arena.base < layout->arena.bytes ||
           address - layout->staging.base < layout->staging.bytes;
}

uint8_t *ebb__pages_pieced(const struct ebb_engine *engine, uintptr_t address)
{
    const struct ebb_device_layout *layout = &engine->device.layout;
    if (address - layout->staging.base < layout->staging.bytes)
        return &engine->pieced_frames[(address - layout->staging.base) / EBB_HUGE_BYTES];
    return &engine->pieced[(address - layout->arena.base) / EBB_HUGE_BYTES];
}

enum ebb_device_result ebb__pages_move(struct ebb_engine *engine, uintptr_t target,
                                       uintptr_t source, uint64_t bytes, uint64_t *moved)
{
    const struct ebb_device_ops *ops = engine->device.ops;
    uint64_t rest;
    atomic_fetch_add(&engine->counters->page_moves, 1);
    if (has_hint(engine, source) && has_hint(engine, target))
        for (uint64_t at = 0; at + EBB_HUGE_BYTES <= bytes; at += EBB_HUGE_BYTES)
            *ebb__pages_pieced(engine, target + at) = *ebb__pages_pieced(engine, source + at);
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
    engine->pieced_frames = ebb__engine_memory(layout->staging.bytes / EBB_HUGE_BYTES);
    engine->exchange_since_ns = ebb__now_ns();
    return engine->pieced && engine->pieced_frames && ebb__frames_init(engine);
}

void ebb__pages_fini(struct ebb_engine *engine)
{
    const struct ebb_device_layout *layout = &engine->device.layout;
    ebb__engine_unmap(engine->pieced, layout->arena.bytes / EBB_HUGE_BYTES);
    ebb__engine_unmap(engine->pieced_frames, layout->staging.bytes / EBB_HUGE_BYTES);
    ebb__frames_fini(engine);
}

/* Pages without value. */
static enum ebb_device_result move(struct ebb_engine *engine, uintptr_t target, uintptr_t source,
                                   uint64_t bytes)
{
    if (engine->device.ops->anew_is_cheaper) {
        engine->device.ops->release(engine->device.state, source, bytes);
        if (engine->device.ops->fresh(engine->device.state, target, bytes) == EBB_DEVICE_OK)
            return EBB_DEVICE_OK;
    }
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

static void give_small(struct ebb_engine *engine, uintptr_t source, uint64_t bytes)
{
    if (bytes && move(engine, depot_top(engine), source, bytes) == EBB_DEVICE_OK)
        engine->depot_bytes += bytes;
}

void ebb__pages_give(struct ebb_engine *engine, uintptr_t source, uint64_t bytes)
{
    uint64_t huge_bytes = bytes & ~huge_mask;
    uintptr_t frame = huge_bytes ? ebb__frames_take(engine, huge_bytes) : 0;
    if (frame && move(engine, frame, source, huge_bytes) == EBB_DEVICE_OK) {
        ebb__frames_keep(engine, frame, huge_bytes);
    } else if (huge_bytes) {
        engine->device.ops->release(engine->device.state, source, huge_bytes);
        held_release(engine, huge_bytes);
        if (frame)
            ebb__frames_give(engine, frame, huge_bytes);
    }
    give_small(engine, source + huge_bytes, bytes & huge_mask);
}

/* Whole units become spare frames, the rest goes to the depot. */
static void take_apart(struct ebb_engine *engine, uintptr_t frame, uint64_t bytes)
{
    uint64_t huge_bytes = bytes & ~huge_mask, small_bytes = bytes & huge_mask;
    give_small(engine, frame + huge_bytes, small_bytes);
    if (small_bytes)
        ebb__frames_give(engine, frame + huge_bytes, small_bytes);
    if (huge_bytes)
        ebb__frames_keep(engine, frame, huge_bytes);
}

void ebb__pages_leave(struct ebb_engine *engine, uintptr_t frame, uint64_t bytes)
{
    if ((bytes & huge_mask) == 0 || bytes < LEAST_SHAPE_BYTES ||
        !ebb__frames_keep_shape(engine, frame, bytes))
        take_apart(engine, frame, bytes);
}

static bool break_shape(struct ebb_engine *engine)
{
    struct frame_shape shape = ebb__frames_break_shape(engine);
    if (shape.bytes)
        take_apart(engine, shape.address, shape.bytes);
    return shape.bytes != 0;
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
    if (!ebb__ledger_reserve(engine->ledger, engine->slot, bytes)) {
        if (!force)
            return false;
        ebb__ledger_force(engine->ledger, engine->slot, bytes);
    }
    held_add(engine, bytes);
    if (engine->device.ops->fresh(engine->device.state, target, bytes) == EBB_DEVICE_OK)
        return true;
    held_release(engine, bytes);
    return false;
}

static void release_small(struct ebb_engine *engine, uint64_t bytes)
{
    engine->depot_bytes -= bytes;
    engine->device.ops->release(engine->device.state, depot_top(engine), bytes);
    held_release(engine, bytes);
}

/* Spare frames, `most_bytes` or as many as lie together; returns how many. */
static uint64_t release_frames(struct ebb_engine *engine, uint64_t most_bytes)
{
    uint64_t bytes;
    uintptr_t frame = ebb__frames_spend(engine, most_bytes, true, &bytes);
    engine->device.ops->release(engine->device.state, frame, bytes);
    held_release(engine, bytes);
    return bytes;
}

/* Bytes of pages that may still be made within the budget. */
static uint64_t unmade(const struct ebb_engine *engine)
{
    uint64_t budget = atomic_load(&engine->ledger->budget_bytes);
    uint64_t held = atomic_load(&engine->ledger->held_bytes);
    return budget > held ? budget - held : 0;
}

/* What is wanted latest, of spare blocks and of spare units of the pool, gives its pages away: about
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

/* Is there time to exchange pages with the system? */
static bool may_exchange(struct ebb_engine *engine)
{
    uint64_t share = engine->config.exchange_share;
    uint64_t part_ns = (ebb__now_ns() - engine->exchange_since_ns) / share;
    engine->exchange_ns += (int64_t)part_ns;
    engine->exchange_since_ns += part_ns * share;
    if (engine->exchange_ns > MOST_EXCHANGE_NS)
        engine->exchange_ns = MOST_EXCHANGE_NS;
    return engine->exchange_ns > 0;
}

/* The small pages at `source`, without value, for a huge one at `target`, where nothing is else. */
static bool exchange(struct ebb_engine *engine, uintptr_t target, uintptr_t source)
{
    uint64_t began = ebb__now_ns();
    engine->device.ops->release(engine->device.state, source, EBB_HUGE_BYTES);
    bool made =
        engine->device.ops->fresh(engine->device.state, target, EBB_HUGE_BYTES) == EBB_DEVICE_OK;
    *ebb__pages_pieced(engine, target) = 0;
    engine->exchange_ns -= (int64_t)(ebb__now_ns() - began);
    return made;
}

/* Pieced units of a frame that is about to be filled become whole, as long as there is time. */
static bool mend(struct ebb_engine *engine, uintptr_t frame, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += EBB_HUGE_BYTES)
        if (*ebb__pages_pieced(engine, frame + at) && may_exchange(engine) &&
            !exchange(engine, frame + at, frame + at))
            return false;
    return true;
}

/* 2 MiB of small pages of the depot become a spare frame. */
static bool piece_unit(struct ebb_engine *engine)
{
    uintptr_t frame = ebb__frames_take(engine, EBB_HUGE_BYTES);
    if (!frame)
        return false;
    engine->depot_bytes -= EBB_HUGE_BYTES;
    uintptr_t source = depot_top(engine);
    bool is_whole = engine->device.ops->anew_is_cheaper || may_exchange(engine);
    if (is_whole ? !exchange(engine, frame, source)
                 : move(engine, frame, source, EBB_HUGE_BYTES) != EBB_DEVICE_OK) {
        ebb__frames_give(engine, frame, EBB_HUGE_BYTES);
        return false;
    }
    *ebb__pages_pieced(engine, frame) = !is_whole;
    ebb__frames_keep(engine, frame, EBB_HUGE_BYTES);
    return true;
}

/* A spare frame becomes small pages: a pieced one, where there is one. What has been split otherwise
 * is never whole again. */
static bool split_unit(struct ebb_engine *engine)
{
    uint64_t bytes;
    uintptr_t frame = ebb__frames_spend(engine, EBB_HUGE_BYTES, true, &bytes);
    if (move(engine, depot_top(engine), frame, EBB_HUGE_BYTES) != EBB_DEVICE_OK)
        return false;
    engine->depot_bytes += EBB_HUGE_BYTES;
    return true;
}

/* New spare frames. */
static bool make_units(struct ebb_engine *engine, uint64_t bytes, bool force)
{
    uintptr_t frame = ebb__frames_take(engine, bytes);
    if (!frame)
        return false;
    if (!make(engine, frame, bytes, force)) {
        ebb__frames_give(engine, frame, bytes);
        return false;
    }
    for (uint64_t at = 0; at < bytes; at += EBB_HUGE_BYTES)
        *ebb__pages_pieced(engine, frame + at) = 0;
    ebb__frames_keep(engine, frame, bytes);
    return true;
}

static bool gather_huge(struct ebb_engine *engine, uint64_t wanted, uint64_t small_wanted,
                        bool force)
{
    while (engine->frames.spare_bytes < wanted) {
        uint64_t lacking = wanted - engine->frames.spare_bytes;
        if (break_shape(engine) || strip(engine, lacking))
            continue;
        if (make_units(engine, lacking, false))
            break;
        if (engine->depot_bytes >= small_wanted + EBB_HUGE_BYTES) {
            if (!piece_unit(engine))
                return false;
        } else if (engine->depot_bytes > small_wanted &&
                   engine->depot_bytes - small_wanted + unmade(engine) >= lacking) {
            /* Too few for a unit: exchange them with the system. */
            uint64_t spare = engine->depot_bytes - small_wanted;
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
    while (engine->depot_bytes < wanted) {
        uint64_t lacking = wanted - engine->depot_bytes;
        if (make(engine, depot_top(engine), lacking, false)) {
            engine->depot_bytes += lacking;
        } else if (break_shape(engine) || ebb__pages_strip_spare(engine)) {
            continue;
        } else if (engine->frames.spare_bytes >= huge_wanted + EBB_HUGE_BYTES) {
            if (!split_unit(engine))
                return false;
        } else if (strip(engine, lacking)) {
            continue;
        } else if (force && make(engine, depot_top(engine), lacking, true)) {
            engine->depot_bytes += lacking;
        } else {
            return false;
        }
    }
    return true;
}

static bool gather(struct ebb_engine *engine, uint64_t bytes, bool force)
{
    uint64_t huge_bytes = bytes & ~huge_mask, small_bytes = bytes & huge_mask;
    /* Each may draw on what the other has gathered, so look twice. */
    return gather_huge(engine, huge_bytes, small_bytes, force) &&
           gather_small(engine, small_bytes, huge_bytes, force) &&
           gather_huge(engine, huge_bytes, small_bytes, force);
}

/* What has been gathered, at `target`. */
static bool put_units(struct ebb_engine *engine, uintptr_t target, uint64_t bytes)
{
    uint64_t got;
    for (uint64_t at = 0; at < bytes; at += got) {
        uintptr_t frame = ebb__frames_spend(engine, bytes - at, false, &got);
        if (!mend(engine, frame, got) || move(engine, target + at, frame, got) != EBB_DEVICE_OK)
            return false;
    }
    return true;
}

static bool put_small(struct ebb_engine *engine, uintptr_t target, uint64_t bytes)
{
    engine->depot_bytes -= bytes;
    return bytes == 0 || move(engine, target, depot_top(engine), bytes) == EBB_DEVICE_OK;
}

static bool take(struct ebb_engine *engine, uintptr_t target, uint64_t bytes, bool force)
{
    uint64_t huge_bytes = bytes & ~huge_mask;
    uintptr_t shape = ebb__frames_claim_shape(engine, bytes);
    if (shape) {
        ebb__frames_give(engine, shape, bytes);
        return move(engine, target, shape, bytes) == EBB_DEVICE_OK;
    }
    return gather(engine, bytes, force) && put_units(engine, target, huge_bytes) &&
           put_small(engine, target + huge_bytes, bytes & huge_mask);
}

static uintptr_t take_frame(struct ebb_engine *engine, uint64_t bytes, bool force)
{
    uint64_t huge_bytes = bytes & ~huge_mask;
    uintptr_t frame = ebb__frames_claim_shape(engine, bytes);
    if (frame)
        return frame;
    if (!gather(engine, bytes, force))
        return 0;
    frame = ebb__frames_claim(engine, bytes);
    bool is_filled = frame != 0;
    if (!frame)
        frame = ebb__frames_take(engine, bytes);
    if (!frame)
        return 0;
    if ((is_filled ? mend(engine, frame, huge_bytes) : put_units(engine, frame, huge_bytes)) &&
        put_small(engine, frame + huge_bytes, bytes & huge_mask))
        return frame;
    engine->device.ops->release(engine->device.state, frame, bytes);
    ebb__frames_give(engine, frame, bytes);
    return 0;
}

uint64_t ebb__pages_available(const struct ebb_engine *engine)
{
    uint64_t spare = engine->frames.spare_bytes + engine->frames.shape_bytes + engine->depot_bytes +
                     engine->spare_bytes + engine->pool.spare_bytes;
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

uintptr_t ebb__pages_take_frame(struct ebb_engine *engine, uint64_t bytes)
{
    return ebb__pages_available(engine) >= bytes ? take_frame(engine, bytes, false) : 0;
}

uintptr_t ebb__pages_force_frame(struct ebb_engine *engine, uint64_t bytes)
{
    return take_frame(engine, bytes, true);
}

/* Give spare pages back to the system, up to `bytes`; returns how many were. */
static uint64_t give_back(struct ebb_engine *engine, uint64_t bytes)
{
    uint64_t given = 0;
    while (given < bytes) {
        uint64_t rest = ebb__whole_pages(bytes - given);
        if (engine->depot_bytes) {
            if (rest > engine->depot_bytes)
                rest = engine->depot_bytes;
            release_small(engine, rest);
        } else if (engine->frames.spare_bytes) {
            rest = release_frames(engine, ebb__whole_units(rest));
        } else if (break_shape(engine) || strip(engine, rest)) {
            continue;
        } else {
            break;
        }
        given += rest;
    }
    return given;
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
