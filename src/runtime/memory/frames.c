/* Frames: the 2 MiB units of staging, for blocks that are parked, written back or fetched. Pages
 * without a block are cached here.
 *
 * A block has no permanent frames. It takes some when it is parked or fetched. It gives them up
 * when it is in the arena again or written back. The pages of a written-back block become *cached*
 * in their frames; the next block is read into them. So an absence costs two page moves, one out of
 * the arena and one into it, however many blocks share the memory. Each page move interrupts every
 * core that runs the program. This is most of the cost of an absence apart from its input and
 * output.
 *
 * A unit that is assembled from small pages (pages.c) is *fragmented*. Blocks get fragmented units
 * last, and small pages are taken from them first. So few units are ever split.
 *
 * Address space is much larger than memory, so frames are found by next fit in a small window. If a
 * block ends in small pages, its frames are kept whole in the *tail cache*. The next block of its
 * size takes them, unless their pages are needed elsewhere first. */
#include "runtime/memory/memory.h"

#include <string.h>
#include <sys/mman.h>

enum { FRAME_EMPTY = 0, FRAME_TAKEN = 1, FRAME_CACHED = 2 };

#define TAIL_CACHE_MOST 1024u               /* most entries, a limit */
#define FIRST_WINDOW_UNITS ((uint64_t)1024) /* doubles if too small; has no influence */

static uint64_t units_of(uint64_t bytes)
{
    return ebb__whole_units(bytes) / EBB_HUGE_BYTES;
}

static uint64_t unit_at(const struct frames *frames, uintptr_t address)
{
    return (address - frames->base) / EBB_HUGE_BYTES;
}

static uintptr_t address_of(const struct frames *frames, uint64_t unit)
{
    return frames->base + unit * EBB_HUGE_BYTES;
}

bool ebb__frames_init(struct frames *frames, struct ebb_device_range staging)
{
    frames->base = staging.base;
    frames->units_total = staging.bytes / EBB_HUGE_BYTES;
    frames->states = ebb__core_memory(frames->units_total);
    frames->runs = ebb__core_memory(frames->units_total * sizeof *frames->runs);
    ebb__frames_reset(frames);
    frames->fragmented = ebb__core_memory(frames->units_total);
    frames->tail_cache = ebb__core_memory(TAIL_CACHE_MOST * sizeof *frames->tail_cache);
    return frames->states && frames->runs && frames->fragmented && frames->tail_cache;
}

void ebb__frames_fini(struct frames *frames)
{
    ebb__core_unmap(frames->states, frames->units_total);
    ebb__core_unmap(frames->runs, frames->units_total * sizeof *frames->runs);
    ebb__core_unmap(frames->fragmented, frames->units_total);
    ebb__core_unmap(frames->tail_cache, TAIL_CACHE_MOST * sizeof *frames->tail_cache);
}

void ebb__frames_reset(struct frames *frames)
{
    if (frames->states && frames->window)
        memset(frames->states, FRAME_EMPTY, frames->window);
    frames->window =
        frames->units_total < FIRST_WINDOW_UNITS ? frames->units_total : FIRST_WINDOW_UNITS;
    frames->cursor = frames->cached_bytes = frames->fragmented_bytes = 0;
    frames->run_count = frames->tail_cache_count = 0;
    frames->tail_cache_bytes = 0;
}

static void mark(struct frames *frames, uint64_t first, uint64_t units, uint8_t state)
{
    memset(frames->states + first, state, units);
}

/* The first of `units` adjacent empty units in [from, to). `to`: there are none. */
static uint64_t find_empty(const struct frames *frames, uint64_t from, uint64_t to, uint64_t units)
{
    uint64_t found = 0;
    for (uint64_t unit = from; unit < to; unit++) {
        found = frames->states[unit] == FRAME_EMPTY ? found + 1 : 0;
        if (found == units)
            return unit + 1 - units;
    }
    return to;
}

uintptr_t ebb__frames_take(struct frames *frames, uint64_t bytes)
{
    uint64_t units = units_of(bytes), first;
    while ((first = find_empty(frames, frames->cursor, frames->window, units)) == frames->window &&
           (first = find_empty(frames, 0, frames->window, units)) == frames->window) {
        if (frames->window == frames->units_total)
            return 0;
        frames->cursor = frames->window > units ? frames->window - units : 0;
        frames->window *= 2;
        if (frames->window > frames->units_total)
            frames->window = frames->units_total;
    }
    mark(frames, first, units, FRAME_TAKEN);
    frames->cursor = first + units;
    return address_of(frames, first);
}

void ebb__frames_give(struct frames *frames, uintptr_t address, uint64_t bytes)
{
    mark(frames, unit_at(frames, address), units_of(bytes), FRAME_EMPTY);
}

static bool is_fragmented(const struct frames *frames, uint64_t unit)
{
    return frames->fragmented[unit];
}

/* Makes the units of `kept`, all of one kind, cached. */
static void keep_run(struct frames *frames, struct frame_run kept)
{
    uint64_t bytes = (kept.behind - kept.first) * EBB_HUGE_BYTES;
    frames->cached_bytes += bytes;
    frames->fragmented_bytes += kept.is_fragmented ? bytes : 0;
    for (uint32_t i = 0; i < frames->run_count;) {
        const struct frame_run *run = &frames->runs[i];
        if (run->is_fragmented != kept.is_fragmented ||
            (run->behind != kept.first && run->first != kept.behind)) {
            i++;
            continue;
        }
        kept.first = run->first < kept.first ? run->first : kept.first;
        kept.behind = run->behind > kept.behind ? run->behind : kept.behind;
        frames->runs[i] = frames->runs[--frames->run_count];
    }
    frames->runs[frames->run_count++] = kept;
}

void ebb__frames_keep(struct frames *frames, uintptr_t address, uint64_t bytes)
{
    uint64_t first = unit_at(frames, address), behind = first + bytes / EBB_HUGE_BYTES;
    mark(frames, first, behind - first, FRAME_CACHED);
    for (uint64_t unit = first; unit < behind;) {
        struct frame_run run = {unit, unit + 1, is_fragmented(frames, unit)};
        while (run.behind < behind && is_fragmented(frames, run.behind) == run.is_fragmented)
            run.behind++;
        keep_run(frames, run);
        unit = run.behind;
    }
}

/* Takes [first, first + units) out of run `index`, at its beginning or its end. */
static void cut(struct frames *frames, uint32_t index, uint64_t first, uint64_t units)
{
    struct frame_run *run = &frames->runs[index];
    frames->cached_bytes -= units * EBB_HUGE_BYTES;
    frames->fragmented_bytes -= run->is_fragmented ? units * EBB_HUGE_BYTES : 0;
    if (run->first == first)
        run->first += units;
    else
        run->behind -= units;
    if (run->first == run->behind)
        *run = frames->runs[--frames->run_count];
}

/* The shortest run of this kind with at least `units`. space_behind: an empty unit must follow it.
 * run_count: there is none. */
static uint32_t best_fit(const struct frames *frames, uint64_t units, bool fragmented,
                         bool space_behind)
{
    uint32_t best = frames->run_count;
    for (uint32_t i = 0; i < frames->run_count; i++) {
        const struct frame_run *run = &frames->runs[i];
        uint64_t length = run->behind - run->first;
        if (length < units || run->is_fragmented != fragmented ||
            (space_behind &&
             (run->behind >= frames->window || frames->states[run->behind] != FRAME_EMPTY)))
            continue;
        if (best == frames->run_count ||
            length < frames->runs[best].behind - frames->runs[best].first)
            best = i;
    }
    return best;
}

static uint32_t longest_run(const struct frames *frames, bool fragmented)
{
    uint32_t longest = frames->run_count;
    uint64_t most = 0;
    for (uint32_t i = 0; i < frames->run_count; i++) {
        const struct frame_run *run = &frames->runs[i];
        if (run->is_fragmented == fragmented && run->behind - run->first > most) {
            most = run->behind - run->first;
            longest = i;
        }
    }
    return longest;
}

uintptr_t ebb__frames_claim(struct frames *frames, uint64_t bytes)
{
    uint64_t units = bytes / EBB_HUGE_BYTES;
    bool has_tail = bytes % EBB_HUGE_BYTES != 0;
    if (units == 0)
        return 0;
    bool fragmented = frames->cached_bytes - frames->fragmented_bytes < units * EBB_HUGE_BYTES;
    uint32_t index = best_fit(frames, units, fragmented, has_tail);
    if (index == frames->run_count)
        return 0;
    uint64_t first = frames->runs[index].behind - units;
    cut(frames, index, first, units);
    mark(frames, first, units + has_tail, FRAME_TAKEN);
    return address_of(frames, first);
}

bool ebb__tail_cache_keep(struct frames *frames, uintptr_t address, uint64_t bytes)
{
    if (frames->tail_cache_count == TAIL_CACHE_MOST)
        return false;
    frames->tail_cache[frames->tail_cache_count++] = (struct tail_cache_entry){address, bytes};
    frames->tail_cache_bytes += bytes;
    return true;
}

static struct tail_cache_entry tail_cache_take(struct frames *frames, uint32_t index)
{
    struct tail_cache_entry entry = frames->tail_cache[index];
    frames->tail_cache_bytes -= entry.bytes;
    frames->tail_cache_count--;
    memmove(&frames->tail_cache[index], &frames->tail_cache[index + 1],
            (frames->tail_cache_count - index) * sizeof *frames->tail_cache);
    return entry;
}

uintptr_t ebb__tail_cache_claim(struct frames *frames, uint64_t bytes)
{
    for (uint32_t i = frames->tail_cache_count; i-- > 0;)
        if (frames->tail_cache[i].bytes == bytes)
            return tail_cache_take(frames, i).address;
    return 0;
}

struct tail_cache_entry ebb__tail_cache_take_oldest(struct frames *frames)
{
    return frames->tail_cache_count ? tail_cache_take(frames, 0) : (struct tail_cache_entry){0, 0};
}

uintptr_t ebb__frames_spend(struct frames *frames, uint64_t most_bytes, bool fragmented,
                            uint64_t *bytes)
{
    uint64_t units = most_bytes / EBB_HUGE_BYTES;
    if (fragmented ? frames->fragmented_bytes == 0
                   : frames->fragmented_bytes == frames->cached_bytes)
        fragmented = !fragmented;
    uint32_t index = best_fit(frames, units, fragmented, false);
    if (index == frames->run_count)
        index = longest_run(frames, fragmented);
    struct frame_run run = frames->runs[index];
    if (units > run.behind - run.first)
        units = run.behind - run.first;
    cut(frames, index, run.first, units);
    mark(frames, run.first, units, FRAME_EMPTY);
    *bytes = units * EBB_HUGE_BYTES;
    return address_of(frames, run.first);
}
