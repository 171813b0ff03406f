/* Reads a trace without trusting it. Every length is checked against the remaining bytes, every
 * byte is covered by a checksum, and a block can claim at most EBB_TRACE_BLOCK_EVENTS.
 *
 * A tail and damage are distinguished. A tail is an unfinished last block, left by a writer that
 * was killed or whose disk was full. It is dropped, and the trace is not `complete`. Any other
 * error is damage, and the trace is refused: a plan from half a timeline would be worse than none.
 * There are two passes: the first adds up the claimed events, so that they are allocated once and
 * exactly. */
#include "trace/file.h"

#include "base/file.h"
#include "trace/codec.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

struct cursor {
    const uint8_t *bytes;
    size_t size;
    size_t offset; /* offset of the next unit */
    const char *name;
    uint16_t minor;
    uint64_t events; /* before `offset` */
    uint64_t blocks;
};

struct block {
    size_t offset;
    const uint8_t *payload;
    size_t payload_bytes;
    size_t columns_bytes;
    size_t event_count;
    uint64_t payload_checksum;
};

enum unit { UNIT_BLOCK, UNIT_END, UNIT_TAIL };

static const char damaged_remedy[] =
    "Copy it again from where it was recorded, or record it again.";

static enum ebb_status fail_damaged(const char *name, uint64_t offset, const char *why,
                                    struct ebb_error *error)
{
    ebb__fail(error, EBB_ERR_FORMAT, name, "damaged at byte %" PRIu64 ": %s", offset, why);
    ebb__error_set_remedy(error, "%s", damaged_remedy);
    return EBB_ERR_FORMAT;
}

static enum ebb_status fail_not_a_trace(const char *name, struct ebb_error *error)
{
    return ebb__fail(error, EBB_ERR_FORMAT, name, "not an Ebb trace");
}

static enum ebb_status fail_newer(const struct cursor *cursor, unsigned major,
                                  struct ebb_error *error)
{
    ebb__fail(error, EBB_ERR_VERSION, cursor->name,
              "has trace format %u.%u, this Ebb reads up to %u.%u", major, (unsigned)cursor->minor,
              EBB_TRACE_MAJOR, EBB_TRACE_MINOR);
    ebb__error_set_remedy(error, "Use the Ebb that recorded it or a newer one.");
    return EBB_ERR_VERSION;
}

static bool magic_matches(const uint8_t *bytes, size_t size)
{
    size_t shown = size < EBB_TRACE_MAGIC_BYTES ? size : EBB_TRACE_MAGIC_BYTES;
    return !memcmp(bytes, EBB_TRACE_MAGIC, shown);
}

static bool all_zero(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i])
            return false;
    return true;
}

static enum ebb_status read_header(struct cursor *cursor, struct ebb_trace_info *info,
                                   struct ebb_error *error)
{
    const uint8_t *bytes = cursor->bytes;
    if (!cursor->size)
        return ebb__fail(error, EBB_ERR_FORMAT, cursor->name, "is empty, not an Ebb trace");
    if (!magic_matches(bytes, cursor->size))
        return fail_not_a_trace(cursor->name, error);
    if (cursor->size < EBB_TRACE_HEADER_MIN_BYTES)
        return fail_damaged(cursor->name, cursor->size, "ends within its header", error);
    size_t header_bytes = ebb__get_le32(bytes + 12);
    if (header_bytes < EBB_TRACE_HEADER_MIN_BYTES || header_bytes > EBB_TRACE_HEADER_MAX_BYTES)
        return fail_damaged(cursor->name, 12, "impossible header length", error);
    if (header_bytes > cursor->size)
        return fail_damaged(cursor->name, cursor->size, "ends within its header", error);
    if (ebb__get_le64(bytes + header_bytes - 8) != ebb__trace_checksum(bytes, header_bytes - 8))
        return fail_damaged(cursor->name, 0, "the header's checksum does not match", error);
    unsigned major = ebb__get_le16(bytes + 8);
    cursor->minor = ebb__get_le16(bytes + 10);
    if (major > EBB_TRACE_MAJOR)
        return fail_newer(cursor, major, error);
    size_t command_bytes = ebb__get_le32(bytes + 44);
    if (major < EBB_TRACE_MAJOR)
        return fail_damaged(cursor->name, 8, "impossible version", error);
    if (command_bytes >= sizeof info->command ||
        command_bytes > header_bytes - EBB_TRACE_HEADER_MIN_BYTES ||
        memchr(bytes + EBB_TRACE_HEADER_FIXED_BYTES, 0, command_bytes))
        return fail_damaged(cursor->name, 44, "impossible command", error);
    info->threshold_bytes = ebb__get_le64(bytes + 16);
    info->page_bytes = ebb__get_le64(bytes + 24);
    info->start_unix_ns = ebb__get_le64(bytes + 32);
    info->process_id = ebb__get_le32(bytes + 40);
    memcpy(info->command, bytes + EBB_TRACE_HEADER_FIXED_BYTES, command_bytes);
    cursor->offset = header_bytes;
    return EBB_OK;
}

static bool is_footer(const uint8_t *at, size_t left)
{
    return left >= EBB_TRACE_FOOTER_BYTES && ebb__get_le32(at) == EBB_TRACE_FOOTER_MAGIC &&
           ebb__get_le64(at + 24) == ebb__trace_checksum(at, 24);
}

static enum ebb_status check_footer(const struct cursor *cursor, struct ebb_error *error)
{
    const uint8_t *at = cursor->bytes + cursor->offset;
    if (cursor->size - cursor->offset > EBB_TRACE_FOOTER_BYTES)
        return fail_damaged(cursor->name, cursor->offset + EBB_TRACE_FOOTER_BYTES,
                            "there is more behind the footer", error);
    if (ebb__get_le64(at + 8) != cursor->events || ebb__get_le64(at + 16) != cursor->blocks)
        return fail_damaged(cursor->name, cursor->offset,
                            "the footer counts other events than there are", error);
    return EBB_OK;
}

/* Reads the unit at the cursor. A block is skipped and described in *block. */
static enum ebb_status next_unit(struct cursor *cursor, enum unit *unit, struct block *block,
                                 struct ebb_error *error)
{
    const uint8_t *at = cursor->bytes + cursor->offset;
    size_t left = cursor->size - cursor->offset;
    if (is_footer(at, left)) {
        *unit = UNIT_END;
        return check_footer(cursor, error);
    }
    *unit = UNIT_TAIL;
    if (left < EBB_TRACE_BLOCK_HEADER_BYTES)
        return EBB_OK; /* too short for a block: no events can be lost */
    if (ebb__get_le32(at) != EBB_TRACE_BLOCK_MAGIC ||
        ebb__get_le64(at + 32) != ebb__trace_checksum(at, 32)) {
        /* After a power loss a file may be longer than the data that was written. */
        if (all_zero(at, left))
            return EBB_OK;
        return fail_damaged(cursor->name, cursor->offset, "neither a block nor the footer", error);
    }
    block->offset = cursor->offset;
    block->payload = at + EBB_TRACE_BLOCK_HEADER_BYTES;
    block->payload_bytes = ebb__get_le32(at + 4);
    block->event_count = ebb__get_le32(at + 8);
    block->columns_bytes = ebb__get_le32(at + 12);
    block->payload_checksum = ebb__get_le64(at + 24);
    if (!block->event_count || block->event_count > EBB_TRACE_BLOCK_EVENTS ||
        block->columns_bytes < block->event_count * EBB_TRACE_EVENT_MIN_BYTES ||
        block->columns_bytes > block->event_count * EBB_TRACE_EVENT_MAX_BYTES)
        return fail_damaged(cursor->name, cursor->offset, "impossible block size", error);
    if (ebb__get_le64(at + 16) != cursor->events)
        return fail_damaged(cursor->name, cursor->offset, "a block is missing or moved", error);
    if (block->payload_bytes > left - EBB_TRACE_BLOCK_HEADER_BYTES)
        return EBB_OK;
    *unit = UNIT_BLOCK;
    cursor->offset += EBB_TRACE_BLOCK_HEADER_BYTES + block->payload_bytes;
    cursor->events += block->event_count;
    cursor->blocks++;
    return EBB_OK;
}

/* Allocates all events that the blocks claim; *columns_bytes is the expanded size of the largest
 * block. */
static enum ebb_status allocate_events(struct cursor cursor, struct ebb_trace *trace,
                                       size_t *columns_bytes, struct ebb_error *error)
{
    *columns_bytes = 0;
    for (;;) {
        struct block block;
        enum unit unit;
        enum ebb_status status = next_unit(&cursor, &unit, &block, error);
        if (status != EBB_OK)
            return status;
        if (unit != UNIT_BLOCK)
            break;
        if (block.columns_bytes > *columns_bytes)
            *columns_bytes = block.columns_bytes;
    }
    if (!cursor.events)
        return EBB_OK;
    /* At most 64 Ki events for 40 bytes of file: cannot overflow. */
    uint64_t bytes = cursor.events * sizeof *trace->events;
    if (!ebb__memory_could_hold(bytes) || !(trace->events = malloc((size_t)bytes)))
        return ebb__fail_memory(cursor.name, bytes, error);
    return EBB_OK;
}

/* Decodes one block into the events after trace->count. `columns` is scratch memory. */
static enum ebb_status read_block(const struct cursor *cursor, const struct block *block,
                                  ZSTD_DCtx *expander, uint8_t *columns, struct ebb_trace *trace,
                                  struct ebb_error *error)
{
    size_t expanded = ZSTD_decompressDCtx(expander, columns, block->columns_bytes, block->payload,
                                          block->payload_bytes);
    if (expanded != block->columns_bytes)
        return fail_damaged(cursor->name, block->offset, "the block does not decompress", error);
    struct ebb_event *events = trace->events + trace->count;
    switch (ebb__trace_decode(columns, block->columns_bytes, block->event_count, events)) {
    case EBB_TRACE_DECODE_OK:
        break;
    case EBB_TRACE_DECODE_VALUE:
        if (cursor->minor > EBB_TRACE_MINOR)
            return fail_newer(cursor, EBB_TRACE_MAJOR, error);
        return fail_damaged(cursor->name, block->offset, "the block has an unknown event", error);
    case EBB_TRACE_DECODE_TIME:
        return fail_damaged(cursor->name, block->offset, "the time overflows in the block", error);
    case EBB_TRACE_DECODE_MALFORMED:
        return fail_damaged(cursor->name, block->offset, "the block does not decode", error);
    }
    if (trace->count && events[0].time_ns < events[-1].time_ns)
        return fail_damaged(cursor->name, block->offset, "the time falls at the block", error);
    trace->count += block->event_count;
    return EBB_OK;
}

static enum ebb_status read_units(struct cursor cursor, ZSTD_DCtx *expander, uint8_t *columns,
                                  struct ebb_trace *trace, struct ebb_error *error)
{
    for (;;) {
        struct block block;
        enum unit unit;
        enum ebb_status status = next_unit(&cursor, &unit, &block, error);
        if (status != EBB_OK)
            return status;
        if (unit != UNIT_BLOCK) {
            trace->complete = unit == UNIT_END;
            trace->damaged_bytes = unit == UNIT_TAIL ? cursor.size - cursor.offset : 0;
            return EBB_OK;
        }
        if (block.payload_checksum != ebb__trace_checksum(block.payload, block.payload_bytes)) {
            if (cursor.offset < cursor.size)
                return fail_damaged(cursor.name, block.offset,
                                    "the block's checksum does not match", error);
            trace->damaged_bytes = cursor.size - block.offset;
            return EBB_OK;
        }
        status = read_block(&cursor, &block, expander, columns, trace, error);
        if (status != EBB_OK)
            return status;
    }
}

static enum ebb_status read_all(const struct cursor *start, struct ebb_trace *trace,
                                struct ebb_error *error)
{
    struct cursor cursor = *start;
    size_t columns_bytes = 0;
    enum ebb_status status = read_header(&cursor, &trace->info, error);
    if (status == EBB_OK)
        status = allocate_events(cursor, trace, &columns_bytes, error);
    if (status != EBB_OK)
        return status;
    ZSTD_DCtx *expander = ZSTD_createDCtx();
    uint8_t *columns = malloc(columns_bytes + 1); /* never empty, even without a block */
    if (expander && columns)
        status = read_units(cursor, expander, columns, trace, error);
    else
        status = ebb__fail_memory(cursor.name, columns_bytes, error);
    ZSTD_freeDCtx(expander);
    free(columns);
    return status;
}

enum ebb_status ebb__trace_read_memory(const void *bytes, size_t size, const char *name,
                                       struct ebb_trace *trace, struct ebb_error *error)
{
    memset(trace, 0, sizeof *trace);
    struct cursor cursor = {.bytes = bytes, .size = size, .name = name};
    enum ebb_status status = read_all(&cursor, trace, error);
    if (status != EBB_OK) {
        ebb__trace_fini(trace);
    } else if (!trace->count) { /* the only block was incomplete */
        free(trace->events);
        trace->events = NULL;
    }
    return status;
}

bool ebb__trace_recognises(const uint8_t *bytes, size_t size)
{
    return size >= EBB_TRACE_MAGIC_BYTES && magic_matches(bytes, size);
}

/* A file too short for the magic is passed to the reader, which reports why it is no trace. */
static bool could_be_trace(const uint8_t *bytes, size_t size)
{
    return magic_matches(bytes, size);
}

enum ebb_status ebb__trace_read(const char *path, struct ebb_trace *trace, struct ebb_error *error)
{
    memset(trace, 0, sizeof *trace);
    struct ebb_file_content content;
    enum ebb_status status = ebb__file_read(path, "an Ebb trace", EBB_TRACE_MAGIC_BYTES,
                                            could_be_trace, &content, error);
    if (status == EBB_OK)
        status = ebb__trace_read_memory(content.bytes, content.size, path, trace, error);
    free(content.bytes);
    return status;
}

void ebb__trace_fini(struct ebb_trace *trace)
{
    free(trace->events);
    memset(trace, 0, sizeof *trace);
}
