/* Reads profiles. A file may be damaged or made by others. So every number is checked before it is
 * an index, and an accepted profile is one that a builder could have made. */
#include "parent/profile.h"

#include "base/geometry.h"

#include "parent/profile_format.h"
#include "trace/codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define MOST_BYTES ((uint64_t)1 << 60)
#define MOST_NS ((uint64_t)1 << 58)
#define MOST_FIXED_NS ((uint64_t)1000000000000)

struct cursor {
    const uint8_t *at, *end;
    bool short_of; /* a read has exceeded the end */
};

static const uint8_t *take(struct cursor *cursor, size_t bytes)
{
    static const uint8_t zeros[64];
    if ((size_t)(cursor->end - cursor->at) < bytes) {
        cursor->short_of = true;
        cursor->at = cursor->end;
        return zeros;
    }
    cursor->at += bytes;
    return cursor->at - bytes;
}

static uint64_t take64(struct cursor *cursor)
{
    return ebb__get_le64(take(cursor, 8));
}

static uint32_t take32(struct cursor *cursor)
{
    return ebb__get_le32(take(cursor, 4));
}

static uint8_t take8(struct cursor *cursor)
{
    return *take(cursor, 1);
}

static double take_double(struct cursor *cursor)
{
    uint64_t bits = take64(cursor);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static bool take_lane(struct cursor *cursor, struct ebb_lane *lane)
{
    lane->ns_per_byte = take_double(cursor);
    lane->fixed_ns = take64(cursor);
    return isfinite(lane->ns_per_byte) && lane->ns_per_byte > 0 && lane->ns_per_byte < 1e6 &&
           lane->fixed_ns <= MOST_FIXED_NS;
}

static bool is_cost(double ns)
{
    return isfinite(ns) && ns >= 0 && ns <= (double)MOST_FIXED_NS;
}

static bool take_costs(struct cursor *cursor, struct ebb_transfer_costs *costs)
{
    costs->huge_page_ns = take_double(cursor);
    costs->small_page_ns = take_double(cursor);
    costs->ns_per_byte = take_double(cursor);
    costs->fixed_ns = take64(cursor);
    return is_cost(costs->huge_page_ns) && is_cost(costs->small_page_ns) &&
           is_cost(costs->ns_per_byte) && costs->fixed_ns <= MOST_FIXED_NS;
}

static bool is_of_persistent(const struct ebb_model *model, const struct ebb_model_event *event)
{
    return event->block < model->block_count &&
           model->blocks[event->block].alloc_tick == EBB_TICK_NONE;
}

static const char *check_events(const struct ebb_model *model)
{
    bool has_allocs = ebb__model_has_clock_allocs(model);
    bool by_accesses = ebb__model_announced(model) && !has_allocs; /* the access clock */
    for (uint32_t tick = 0; tick < model->tick_count; tick++) {
        const struct ebb_model_event *event = &model->events[tick];
        bool of_block = event->kind == EBB_EVENT_ALLOC || event->kind == EBB_EVENT_FREE ||
                        event->kind == EBB_EVENT_ACCESS;
        if (event->kind == EBB_EVENT_NONE || event->kind >= EBB_EVENT_KIND_COUNT ||
            event->access > EBB_ACCESS_WRITE || event->mark >= EBB_MARK_COUNT)
            return "an event of no known kind";
        if (of_block ? event->block >= model->block_count : event->block != EBB_TICK_NONE)
            return "an event of no block";
        const struct ebb_model_block *block = of_block ? &model->blocks[event->block] : NULL;
        if ((event->kind == EBB_EVENT_ALLOC && block->alloc_tick != tick) ||
            (event->kind == EBB_EVENT_FREE && block->free_tick != tick))
            return "an event that is not its block's";
        bool later_part = block && block->part_count && block->part_first;
        bool clock = event->kind == EBB_EVENT_ACCESS
                         ? event->clock && (has_allocs || is_of_persistent(model, event))
                         : !by_accesses && !later_part &&
                               (event->kind == EBB_EVENT_ALLOC || event->kind == EBB_EVENT_FREE);
        if (event->clock != clock)
            return "a wrong clock flag on an event";
    }
    return NULL;
}

/* Parts are in order in their allocation, and the first begins at its start. */
static const char *check_part(const struct ebb_model *model, uint32_t index)
{
    const struct ebb_model_block *block = &model->blocks[index];
    uint64_t first = block->part_first * EBB_HUGE_BYTES;
    if (block->part_count == 0)
        return block->part_first || block->allocated_bytes ? "a part that is none" : NULL;
    uint64_t most = block->part_count * EBB_HUGE_BYTES;
    if (block->allocated_bytes > MOST_BYTES || first >= block->allocated_bytes)
        return "a part outside its block";
    uint64_t rest = block->allocated_bytes - first;
    if (block->size_bytes != (most < rest ? most : rest))
        return "a part that is not its units";
    if (block->part_first == 0)
        return NULL;
    const struct ebb_model_block *before = index ? block - 1 : block;
    bool follows = index && before->part_count && before->serial == block->serial &&
                   before->allocated_bytes == block->allocated_bytes &&
                   before->part_first + (uint64_t)before->part_count <= block->part_first &&
                   (before->alloc_tick == EBB_TICK_NONE) == (block->alloc_tick == EBB_TICK_NONE);
    return follows ? NULL : "a part without the one before it";
}

static const char *check_block(const struct ebb_model *model, const struct ebb_model_block *block,
                               uint32_t index)
{
    uint32_t ticks = model->tick_count;
    bool persistent = block->alloc_tick == EBB_TICK_NONE;
    if (block->size_bytes == 0 || block->size_bytes > MOST_BYTES || block->serial == 0)
        return "a block without a size or a name";
    if (persistent ? block->free_tick != EBB_TICK_NONE || block->span_ticks != ticks
                   : block->alloc_tick >= ticks || block->free_tick >= ticks)
        return "a block's lifetime is none";
    if (!persistent && (model->events[block->alloc_tick].kind != EBB_EVENT_ALLOC ||
                        model->events[block->alloc_tick].block != index ||
                        model->events[block->free_tick].kind != EBB_EVENT_FREE ||
                        model->events[block->free_tick].block != index))
        return "a block without its events";
    /* Sorted by occurrence, each within its lifetime. */
    uint64_t walked = 0, last = persistent ? 0 : block->alloc_tick;
    for (uint32_t i = 0; i < block->access_count; i++) {
        uint32_t tick = model->accesses[block->first_access + i].tick;
        if (tick >= ticks || model->events[tick].kind != EBB_EVENT_ACCESS ||
            model->events[tick].block != index)
            return "a use without its event";
        walked += (tick + ticks - last) % ticks;
        if (walked >= block->span_ticks || (i > 0 && tick == last))
            return "a use outside its block's life";
        last = tick;
    }
    return NULL;
}

static const char *check_model(const struct ebb_model *model)
{
    uint64_t bytes = 0;
    const char *why = check_events(model);
    for (uint32_t i = 0; !why && i < model->block_count; i++) {
        why = check_part(model, i);
        if (!why)
            why = check_block(model, &model->blocks[i], i);
        if (why)
            break;
        uint64_t copies = (uint64_t)model->blocks[i].span_ticks / model->tick_count + 1;
        if (copies > (MOST_BYTES - bytes) / model->blocks[i].size_bytes)
            return "more bytes than there are";
        bytes += copies * model->blocks[i].size_bytes;
    }
    if (!why && model->time_ns[model->tick_count] > MOST_NS)
        why = "an iteration longer than any";
    return why;
}

/* Returns NULL, or what is wrong. *model may be filled in part. */
static const char *take_events(struct cursor *cursor, struct ebb_model *model)
{
    for (uint32_t i = 0; i < model->tick_count; i++) {
        struct ebb_model_event *event = &model->events[i];
        event->block = take32(cursor);
        event->kind = take8(cursor);
        event->access = take8(cursor);
        event->mark = take8(cursor);
        uint8_t clock = take8(cursor);
        if (clock > 1)
            return "a wrong clock flag on an event";
        event->clock = clock;
    }
    for (uint32_t i = 0; i <= model->tick_count; i++)
        model->time_ns[i] = take64(cursor);
    return NULL;
}

static const char *take_blocks(struct cursor *cursor, struct ebb_model *model)
{
    uint64_t accesses = 0;
    for (uint32_t i = 0; i < model->block_count; i++) {
        struct ebb_model_block *block = &model->blocks[i];
        block->serial = take64(cursor);
        block->size_bytes = take64(cursor);
        block->allocated_bytes = take64(cursor);
        block->part_first = take32(cursor);
        block->part_count = take32(cursor);
        block->alloc_tick = take32(cursor);
        block->free_tick = take32(cursor);
        block->span_ticks = take32(cursor);
        block->access_count = take32(cursor);
        uint8_t varies = take8(cursor);
        if (varies > 1)
            return "a wrong flag on a block";
        block->varies = varies;
        model->varies |= block->varies;
        block->first_access = (uint32_t)accesses;
        accesses += block->access_count;
        if (accesses > (uint64_t)(cursor->end - cursor->at) / EBB_PROFILE_ACCESS_BYTES)
            return "an impossible number of uses";
    }
    model->access_count = (uint32_t)accesses;
    return NULL;
}

static const char *take_accesses(struct cursor *cursor, struct ebb_model *model)
{
    model->accesses = calloc((size_t)model->access_count + 1, sizeof *model->accesses);
    if (!model->accesses)
        return "no memory for it";
    for (uint32_t i = 0; i < model->access_count; i++) {
        model->accesses[i].tick = take32(cursor);
        uint8_t access = take8(cursor);
        model->accesses[i].held = access & EBB_PROFILE_HELD;
        model->accesses[i].access = access & (uint8_t)~EBB_PROFILE_HELD;
        if (model->accesses[i].access > EBB_ACCESS_WRITE)
            return "a use of no known kind";
    }
    return NULL;
}

static const char *take_marks(struct cursor *cursor, struct ebb_model *model)
{
    uint32_t count = take32(cursor);
    if (count > (uint64_t)(cursor->end - cursor->at) / EBB_PROFILE_MARK_BYTES)
        return "an impossible number of marks";
    model->marks = count ? calloc(count, sizeof *model->marks) : NULL;
    if (count && !model->marks)
        return "no memory for it";
    model->mark_count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct ebb_model_mark *mark = &model->marks[i];
        mark->tick = take32(cursor);
        mark->value = take32(cursor);
        if (mark->tick >= model->tick_count || model->events[mark->tick].kind != EBB_EVENT_MARK ||
            (i && mark->tick <= mark[-1].tick))
            return "a mark that is no event";
    }
    return NULL;
}

static const char *take_model(struct cursor *cursor, struct ebb_model *model)
{
    model->tick_count = take32(cursor);
    model->block_count = take32(cursor);
    uint8_t flags = take8(cursor);
    uint64_t slack_bytes = take64(cursor);
    uint64_t left = (uint64_t)(cursor->end - cursor->at);
    if (cursor->short_of || flags > (EBB_PROFILE_HAS_ACCESSES | EBB_PROFILE_UNORDERED) ||
        slack_bytes > MOST_BYTES || model->tick_count == 0 || model->tick_count == EBB_TICK_NONE ||
        model->tick_count > left / (EBB_PROFILE_EVENT_BYTES + 8) ||
        model->block_count > left / EBB_PROFILE_BLOCK_BYTES)
        return "an impossible number of events";
    model->has_accesses = flags & EBB_PROFILE_HAS_ACCESSES;
    model->unordered = flags & EBB_PROFILE_UNORDERED;
    model->slack_bytes = slack_bytes;
    model->events = calloc(model->tick_count, sizeof *model->events);
    model->time_ns = calloc((size_t)model->tick_count + 1, sizeof *model->time_ns);
    model->blocks = calloc((size_t)model->block_count + 1, sizeof *model->blocks);
    if (!model->events || !model->time_ns || !model->blocks)
        return "no memory for it";
    const char *why = take_events(cursor, model);
    if (!why)
        why = take_blocks(cursor, model);
    if (!why)
        why = take_accesses(cursor, model);
    if (!why)
        why = take_marks(cursor, model);
    if (why)
        return why;
    return cursor->short_of ? "it ends within an iteration" : check_model(model);
}

enum ebb_status ebb__profile_decode_body(const uint8_t *bytes, size_t size, const char *name,
                                         struct ebb_profile *profile, struct ebb_error *error)
{
    struct cursor cursor = {.at = bytes, .end = bytes + size};
    struct ebb_profile read = {0};
    const char *why = NULL;
    read.unmanaged_peak_bytes = take64(&cursor);
    read.small_bytes = take64(&cursor);
    read.store_id = take64(&cursor);
    memcpy(read.machine.name, take(&cursor, sizeof read.machine.name), sizeof read.machine.name);
    bool lanes = take_lane(&cursor, &read.machine.out);
    lanes &= take_lane(&cursor, &read.machine.in);
    lanes &= take_costs(&cursor, &read.machine.costs);
    uint8_t flags = take8(&cursor);
    uint32_t count = take32(&cursor);
    read.machine.duplex = flags & 1;
    read.compressed = flags & 2;
    if (cursor.short_of)
        why = "it ends too early";
    else if (!lanes || flags > 3 || read.machine.name[sizeof read.machine.name - 1])
        why = "impossible lanes";
    else if (count > EBB_PROFILE_ITERATIONS || read.unmanaged_peak_bytes > MOST_BYTES ||
             read.small_bytes > MOST_BYTES)
        why = "impossible figures";
    for (uint32_t i = 0; !why && i < count; i++) {
        struct ebb_profile_iteration *iteration = &read.iterations[read.iteration_count++];
        struct ebb_error detail;
        iteration->first_serial = take64(&cursor);
        why = take_model(&cursor, &iteration->model);
        if (!why && ebb__model_derive(&iteration->model, &detail) != EBB_OK)
            why = "its times fall";
    }
    if (!why && cursor.at != cursor.end)
        why = "something follows it";
    if (why) {
        ebb__profile_fini(&read);
        memset(profile, 0, sizeof *profile);
        return ebb__fail(error, EBB_ERR_FORMAT, name, "%s", why);
    }
    *profile = read;
    return EBB_OK;
}

enum ebb_status ebb__profile_decode(const uint8_t *bytes, size_t size, struct ebb_profile_key key,
                                    const char *name, struct ebb_profile *profile,
                                    struct ebb_error *error)
{
    memset(profile, 0, sizeof *profile);
    if (size < EBB_PROFILE_HEADER_BYTES ||
        memcmp(bytes, EBB_PROFILE_MAGIC, EBB_PROFILE_MAGIC_BYTES) != 0)
        return ebb__fail(error, EBB_ERR_FORMAT, name, "not a profile");
    if (ebb__get_le64(bytes + EBB_PROFILE_HEADER_BYTES - 8) !=
        ebb__trace_checksum(bytes, EBB_PROFILE_HEADER_BYTES - 8))
        return ebb__fail(error, EBB_ERR_FORMAT, name, "its header is damaged");
    if (ebb__get_le32(bytes + 8) != EBB_PROFILE_MAJOR)
        return ebb__fail(error, EBB_ERR_VERSION, name, "version %lu",
                         (unsigned long)ebb__get_le32(bytes + 8));
    if (ebb__get_le64(bytes + 16) != key.words[0] || ebb__get_le64(bytes + 24) != key.words[1] ||
        ebb__get_le64(bytes + 32) != key.program[0] || ebb__get_le64(bytes + 40) != key.program[1])
        return ebb__fail(error, EBB_ERR_FORMAT, name, "it belongs to another program");
    uint64_t body_bytes = ebb__get_le64(bytes + 48), packed_bytes = ebb__get_le64(bytes + 56);
    const uint8_t *packed = bytes + EBB_PROFILE_HEADER_BYTES;
    if (packed_bytes != size - EBB_PROFILE_HEADER_BYTES ||
        body_bytes > EBB_PROFILE_MOST_BODY_BYTES ||
        ebb__get_le64(bytes + 64) != ebb__trace_checksum(packed, size - EBB_PROFILE_HEADER_BYTES) ||
        ZSTD_getFrameContentSize(packed, size - EBB_PROFILE_HEADER_BYTES) != body_bytes)
        return ebb__fail(error, EBB_ERR_FORMAT, name, "it is damaged");
    uint8_t *body = malloc((size_t)body_bytes + 1);
    if (!body)
        return ebb__fail(error, EBB_ERR_MEMORY, name, "no memory for it");
    size_t got = ZSTD_decompress(body, (size_t)body_bytes, packed, size - EBB_PROFILE_HEADER_BYTES);
    enum ebb_status status = EBB_ERR_FORMAT;
    if (ZSTD_isError(got) || got != body_bytes)
        status = ebb__fail(error, EBB_ERR_FORMAT, name, "it is damaged");
    else
        status = ebb__profile_decode_body(body, (size_t)body_bytes, name, profile, error);
    free(body);
    return status;
}
