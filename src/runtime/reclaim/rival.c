/* LRU in the shadow: a list and a sum. O(1) a use, but for the evictions, each of which an earlier
 * use has brought in. */
#include "runtime/reclaim/rival.h"

#include <string.h>

static struct rival_entry *entry_at(const struct rival *rival, uint32_t index)
{
    return (struct rival_entry *)((char *)rival->entries + (uint64_t)index * rival->stride);
}

void ebb__rival_init(struct rival *rival, void *entries, uint32_t stride)
{
    *rival = (struct rival){.entries = entries, .stride = stride, .capacity_bytes = UINT64_MAX};
}

static void unlink_entry(struct rival *rival, struct rival_entry *entry)
{
    if (entry->newer == RIVAL_NONE)
        rival->newest = entry->older;
    else
        entry_at(rival, entry->newer)->older = entry->older;
    if (entry->older == RIVAL_NONE)
        rival->oldest = entry->newer;
    else
        entry_at(rival, entry->older)->newer = entry->newer;
    rival->resident_bytes -= entry->bytes;
}

static void push(struct rival *rival, uint32_t index, uint64_t bytes)
{
    struct rival_entry *entry = entry_at(rival, index);
    *entry = (struct rival_entry){.bytes = bytes, .older = rival->newest, .place = RIVAL_RESIDENT};
    if (rival->newest == RIVAL_NONE)
        rival->oldest = index;
    else
        entry_at(rival, rival->newest)->newer = index;
    rival->newest = index;
    rival->resident_bytes += bytes;
}

static void make_room(struct rival *rival, uint64_t bytes)
{
    while (rival->oldest != RIVAL_NONE && rival->resident_bytes + bytes > rival->capacity_bytes) {
        struct rival_entry *entry = entry_at(rival, rival->oldest);
        unlink_entry(rival, entry);
        entry->place = RIVAL_ABSENT;
        rival->moved_bytes += entry->bytes;
    }
}

void ebb__rival_used(struct rival *rival, uint32_t index, uint64_t bytes, bool absent)
{
    struct rival_entry *entry = entry_at(rival, index);
    if (absent)
        rival->really_bytes += bytes;
    if (entry->place == RIVAL_RESIDENT)
        unlink_entry(rival, entry);
    else if (entry->place == RIVAL_ABSENT || absent)
        rival->moved_bytes += bytes;
    make_room(rival, bytes);
    push(rival, index, bytes);
}

void ebb__rival_freed(struct rival *rival, uint32_t index)
{
    struct rival_entry *entry = entry_at(rival, index);
    if (entry->place == RIVAL_RESIDENT)
        unlink_entry(rival, entry);
    memset(entry, 0, sizeof *entry);
}

void ebb__rival_evicted(struct rival *rival, uint64_t bytes, uint64_t capacity_bytes)
{
    rival->capacity_bytes = capacity_bytes;
    rival->really_bytes += bytes;
}

void ebb__rival_fetched(struct rival *rival, uint64_t bytes)
{
    rival->really_bytes += bytes;
}

void ebb__rival_recalled(struct rival *rival, uint64_t bytes)
{
    rival->really_bytes -= bytes < rival->really_bytes ? bytes : rival->really_bytes;
}

bool ebb__rival_is_beaten(const struct rival *rival, double excess, uint64_t allowance_divisor)
{
    if (rival->capacity_bytes == UINT64_MAX)
        return true;
    double line = (double)rival->moved_bytes * (1 + excess) +
                  (double)rival->capacity_bytes / (double)allowance_divisor;
    return (double)rival->really_bytes <= line;
}
