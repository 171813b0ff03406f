#include "runtime/template.h"

#include "trace/event.h"

bool ebb__template_same(const struct ebb_script *a, const struct ebb_script *b)
{
    if (a->clock_count != b->clock_count || a->alloc_count != b->alloc_count)
        return false;
    const struct ebb_script_event *left = ebb__script_events(a), *right = ebb__script_events(b);
    for (uint32_t i = 0; i < a->clock_count; i++)
        if (left[i].kind != right[i].kind || left[i].size_bytes != right[i].size_bytes)
            return false;
    return true;
}

uint32_t ebb__template_first_alloc(const struct ebb_script *script, uint64_t size_bytes)
{
    const struct ebb_script_event *events = ebb__script_events(script);
    const uint32_t *allocs = ebb__script_allocs(script); /* sorted by size, then by position */
    uint32_t low = 0, high = script->alloc_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (events[allocs[middle]].size_bytes < size_bytes)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t ebb__template_next_alloc(const struct ebb_script *script, uint32_t position,
                                  uint64_t size_bytes)
{
    const struct ebb_script_event *events = ebb__script_events(script);
    const uint32_t *allocs = ebb__script_allocs(script);
    uint32_t first_of_size = ebb__template_first_alloc(script, size_bytes);
    uint32_t low = first_of_size, high = script->alloc_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        const struct ebb_script_event *event = &events[allocs[middle]];
        if (event->size_bytes == size_bytes && allocs[middle] < position)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < script->alloc_count && events[allocs[low]].size_bytes == size_bytes)
        return allocs[low] - position;
    if (first_of_size < script->alloc_count &&
        events[allocs[first_of_size]].size_bytes == size_bytes)
        return allocs[first_of_size] + script->clock_count - position;
    return UINT32_MAX;
}

uint32_t ebb__template_least_placed(const struct ebb_script *script)
{
    const struct ebb_script_event *events = ebb__script_events(script);
    const struct ebb_script_block *blocks = ebb__script_blocks(script);
    int64_t load = 0, least = INT64_MAX;
    uint32_t position = 0;
    for (uint32_t i = 0; i < script->clock_count; i++) {
        const struct ebb_script_block *block = &blocks[events[i].block];
        if (block->place != EBB_SCRIPT_NO_PLACE && events[i].kind != EBB_EVENT_ACCESS)
            load += events[i].kind == EBB_EVENT_ALLOC ? (int64_t)block->size_bytes
                                                      : -(int64_t)block->size_bytes;
        if (load < least) {
            least = load;
            position = (i + 1) % script->clock_count;
        }
    }
    return position;
}

/* Sorts by name. Stable: the parts of a block have one name. Names change together, so few are out
 * of order. */
static void sort(struct ebb_names *names, uint32_t count)
{
    uint32_t *order = names->by_serial;
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    for (uint32_t i = 1; i < count; i++) {
        uint32_t index = order[i], place = i;
        for (; place > 0 && names->serials[order[place - 1]] > names->serials[index]; place--)
            order[place] = order[place - 1];
        order[place] = index;
    }
}

void ebb__names_prepare(struct ebb_names *names, const struct ebb_script *script)
{
    const struct ebb_script_block *blocks = ebb__script_blocks(script);
    for (uint32_t i = 0; i < script->persistent_count; i++)
        names->serials[i] = blocks[i].serial;
    sort(names, script->persistent_count);
}

void ebb__names_rename(struct ebb_names *names, const struct ebb_script *script,
                       const struct ebb_renaming *renamings, size_t count)
{
    for (uint32_t i = 0; i < script->persistent_count; i++)
        names->serials[i] = ebb__renamed(renamings, count, names->serials[i]);
    sort(names, script->persistent_count);
}

uint32_t ebb__names_persistent(const struct ebb_names *names, const struct ebb_script *script,
                               uint64_t serial, uint64_t size_bytes)
{
    const struct ebb_script_block *blocks = ebb__script_blocks(script);
    uint32_t low = 0, high = script->persistent_count, found;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (names->serials[names->by_serial[middle]] < serial)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == script->persistent_count)
        return EBB_SCRIPT_NONE;
    found = names->by_serial[low]; /* of parts, the first */
    return names->serials[found] == serial && blocks[found].size_bytes == size_bytes
               ? found
               : EBB_SCRIPT_NONE;
}
