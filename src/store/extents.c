#include "store/extents.h"

#include <string.h>

void ebb__extents_init(struct ebb_extents *extents, struct ebb_extent *table, size_t capacity,
                       uint64_t limit_bytes)
{
    *extents =
        (struct ebb_extents){.free = table, .capacity = capacity, .limit_bytes = limit_bytes};
}

static void remove_at(struct ebb_extents *extents, size_t at)
{
    extents->count--;
    memmove(extents->free + at, extents->free + at + 1,
            (extents->count - at) * sizeof extents->free[0]);
}

static void count_use(struct ebb_extents *extents, uint64_t bytes)
{
    extents->used_bytes += bytes;
    if (extents->used_bytes > extents->peak_bytes)
        extents->peak_bytes = extents->used_bytes;
}

bool ebb__extents_have(const struct ebb_extents *extents, uint64_t bytes)
{
    for (size_t i = 0; i < extents->count; i++)
        if (extents->free[i].bytes >= bytes)
            return true;
    return false;
}

bool ebb__extents_take(struct ebb_extents *extents, uint64_t bytes, uint64_t *offset)
{
    for (size_t i = 0; i < extents->count; i++) {
        struct ebb_extent *extent = &extents->free[i];
        if (extent->bytes < bytes)
            continue;
        *offset = extent->offset;
        extent->offset += bytes;
        extent->bytes -= bytes;
        if (extent->bytes == 0)
            remove_at(extents, i);
        count_use(extents, bytes);
        return true;
    }
    if (bytes > extents->limit_bytes || extents->end_bytes > extents->limit_bytes - bytes)
        return false;
    *offset = extents->end_bytes;
    extents->end_bytes += bytes;
    count_use(extents, bytes);
    return true;
}

void ebb__extents_give(struct ebb_extents *extents, uint64_t offset, uint64_t bytes)
{
    extents->used_bytes -= bytes;
    size_t low = 0, high = extents->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (extents->free[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    struct ebb_extent *before = low > 0 ? &extents->free[low - 1] : NULL;
    struct ebb_extent *after = low < extents->count ? &extents->free[low] : NULL;
    bool joins_before = before && before->offset + before->bytes == offset;
    bool joins_after = after && offset + bytes == after->offset;
    if (joins_before) {
        before->bytes += bytes;
        if (joins_after) {
            before->bytes += after->bytes;
            remove_at(extents, low);
        }
    } else if (joins_after) {
        after->offset = offset;
        after->bytes += bytes;
    } else if (extents->count < extents->capacity) {
        memmove(extents->free + low + 1, extents->free + low,
                (extents->count - low) * sizeof extents->free[0]);
        extents->free[low] = (struct ebb_extent){offset, bytes};
        extents->count++;
    }
}
