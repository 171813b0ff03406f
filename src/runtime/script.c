#include "runtime/script.h"

#include "base/geometry.h"

#include "trace/event.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_MASK (EBB_PAGE_BYTES - 1)

static bool array_fits(uint64_t bytes, uint64_t offset, uint64_t count, uint64_t item_bytes)
{
    return offset % 8 == 0 && offset <= bytes && count <= (bytes - offset) / item_bytes;
}

static bool clock_ok(const struct ebb_script *script, uint32_t clock, bool may_lack)
{
    return clock < script->clock_count || (may_lack && clock == EBB_SCRIPT_NONE);
}

/* Checks the parts of one block, from `first` on. They are in order and do not overlap; the first
 * one starts at unit 0. */
static bool parts_ok(const struct ebb_script *script, uint32_t first)
{
    const struct ebb_script_block *blocks = ebb__script_blocks(script), *head = &blocks[first];
    if (head->parts > script->block_count - first || head->part_first ||
        (head->parts > 1 && !head->part_count))
        return false;
    uint64_t units = (head->size_bytes + EBB_HUGE_BYTES - 1) / EBB_HUGE_BYTES, end = 0;
    for (uint32_t i = first; i < first + head->parts; i++) {
        if ((i > first && blocks[i].parts) || blocks[i].serial != head->serial ||
            (first < script->persistent_count) != (i < script->persistent_count) ||
            blocks[i].size_bytes != head->size_bytes || blocks[i].part_first < end)
            return false;
        end = (uint64_t)blocks[i].part_first + blocks[i].part_count;
        if (end > units || (head->parts > 1 && !blocks[i].part_count))
            return false;
    }
    return true;
}

static bool place_ok(const struct ebb_script *script, uint32_t index)
{
    const struct ebb_script_block *block = &ebb__script_blocks(script)[index];
    if (block->place == EBB_SCRIPT_NO_PLACE)
        return true;
    uint64_t pages = (block->size_bytes + PAGE_MASK) & ~PAGE_MASK;
    return index >= script->persistent_count && block->parts == 1 && !block->part_count &&
           pages >= block->size_bytes && pages > 0 && (block->place & PAGE_MASK) == 0 &&
           block->place <= script->placement_bytes &&
           pages <= script->placement_bytes - block->place;
}

/* by_accesses: uses of persistent blocks are the only events. */
static bool event_ok(const struct ebb_script *script, const struct ebb_script_event *event,
                     bool by_accesses)
{
    if (by_accesses)
        return event->kind == EBB_EVENT_ACCESS && event->block < script->persistent_count;
    bool announced = script->flags & EBB_SCRIPT_ANNOUNCED && event->kind == EBB_EVENT_ACCESS;
    return event->block < script->block_count &&
           (event->kind == EBB_EVENT_ALLOC || event->kind == EBB_EVENT_FREE || announced);
}

bool ebb__script_valid(const struct ebb_script *script, uint64_t bytes)
{
    if (bytes < sizeof *script || script->magic != EBB_SCRIPT_MAGIC || script->bytes > bytes)
        return false;
    if (script->clock_count == 0 || script->iteration_ns == 0 ||
        script->persistent_count > script->block_count)
        return false;
    uint64_t all = script->bytes;
    if (!array_fits(all, script->events_offset, script->clock_count,
                    sizeof(struct ebb_script_event)) ||
        !array_fits(all, script->blocks_offset, script->block_count,
                    sizeof(struct ebb_script_block)) ||
        !array_fits(all, script->uses_offset, script->use_count, sizeof(struct ebb_script_use)) ||
        !array_fits(all, script->absences_offset, script->absence_count,
                    sizeof(struct ebb_script_absence)) ||
        !array_fits(all, script->allocs_offset, script->alloc_count, sizeof(uint32_t)))
        return false;
    const struct ebb_script_event *events = ebb__script_events(script);
    bool by_accesses = script->alloc_count == 0 && !(script->flags & EBB_SCRIPT_ANNOUNCED);
    for (uint32_t i = 0; i < script->clock_count; i++)
        if (!event_ok(script, &events[i], by_accesses))
            return false;
    if ((script->flags & EBB_SCRIPT_UNORDERED) &&
        (events[0].kind != EBB_EVENT_ALLOC || script->flags & EBB_SCRIPT_ANNOUNCED))
        return false;
    const struct ebb_script_block *blocks = ebb__script_blocks(script);
    for (uint32_t i = 0, parts = 0; i < script->block_count; i++) {
        if (blocks[i].first_use > script->use_count ||
            blocks[i].use_count > script->use_count - blocks[i].first_use || !place_ok(script, i))
            return false;
        if ((parts == 0) != (blocks[i].parts > 0) || (parts == 0 && !parts_ok(script, i)))
            return false;
        parts = (parts ? parts : blocks[i].parts) - 1;
    }
    for (uint32_t i = 0; i < script->clock_count; i++)
        if (!by_accesses && blocks[events[i].block].parts == 0)
            return false;
    const struct ebb_script_use *uses = ebb__script_uses(script);
    for (uint32_t i = 0; i < script->use_count; i++)
        if (uses[i].clock >= script->clock_count)
            return false;
    const uint32_t *allocs = ebb__script_allocs(script);
    for (uint32_t i = 0; i < script->alloc_count; i++)
        if (allocs[i] >= script->clock_count || events[allocs[i]].kind != EBB_EVENT_ALLOC)
            return false;
    const struct ebb_script_absence *absences = ebb__script_absences(script);
    for (uint32_t i = 0; i < script->absence_count; i++)
        if (absences[i].block >= script->block_count ||
            blocks[absences[i].block].place != EBB_SCRIPT_NO_PLACE ||
            !clock_ok(script, absences[i].out_clock, false) ||
            !clock_ok(script, absences[i].in_clock, true) ||
            !clock_ok(script, absences[i].due_clock, true))
            return false;
    return true;
}

static void *copy_of(int descriptor, uint64_t bytes, uint64_t least_bytes)
{
    if (bytes < least_bytes || bytes > EBB_SCRIPT_MOST_BYTES)
        return NULL;
    char *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return NULL;
    for (uint64_t done = 0; done < bytes;) {
        ssize_t got = pread(descriptor, copy + done, bytes - done, (off_t)done);
        if (got > 0) {
            done += (uint64_t)got;
        } else if (got == 0 || errno != EINTR) {
            munmap(copy, bytes);
            return NULL;
        }
    }
    mprotect(copy, bytes, PROT_READ);
    return copy;
}

struct ebb_script *ebb__script_copy(int descriptor, uint64_t bytes)
{
    return copy_of(descriptor, bytes, sizeof(struct ebb_script));
}

uint64_t ebb__renamed(const struct ebb_renaming *renamings, size_t count, uint64_t serial)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (renamings[middle].from < serial)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && renamings[low].from == serial ? renamings[low].to : serial;
}

void ebb__script_rename(struct ebb_script *script, const struct ebb_renaming *renamings,
                        size_t count)
{
    struct ebb_script_block *blocks = (void *)((char *)script + script->blocks_offset);
    for (uint32_t i = 0; i < script->persistent_count; i++)
        blocks[i].serial = ebb__renamed(renamings, count, blocks[i].serial);
}

struct ebb_renaming *ebb__renamings_copy(int descriptor, uint64_t bytes)
{
    struct ebb_renaming *renamings = copy_of(descriptor, bytes, sizeof *renamings);
    for (uint64_t i = 1; renamings && i < bytes / sizeof *renamings; i++)
        if (renamings[i - 1].from >= renamings[i].from) {
            munmap(renamings, bytes);
            return NULL;
        }
    return renamings;
}
