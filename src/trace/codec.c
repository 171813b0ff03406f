/* Converts events to columns and back. The four small fields are byte columns; the others are
 * varints. Time is the step from the previous event (it never decreases). Block serial and thread
 * are signed steps. Sizes are stored unchanged: they repeat exactly, and repeated numbers compress
 * better than repeated differences. */
#include "trace/codec.h"

#include <xxhash.h>

uint64_t ebb__trace_checksum(const void *bytes, size_t size)
{
    return XXH3_64bits(bytes, size);
}

bool ebb__trace_event_valid(const struct ebb_event *event)
{
    return event->kind > EBB_EVENT_NONE && event->kind < EBB_EVENT_KIND_COUNT &&
           event->access <= EBB_ACCESS_WRITE && event->mark < EBB_MARK_COUNT;
}

/* Maps signed steps to unsigned numbers, small ones first: 0, -1, 1, -2, ... Steps are modulo 2^64
 * (2^32 for threads), so every pair of values has one. */
static uint64_t zigzag64(uint64_t step)
{
    return step << 1 ^ (0 - (step >> 63));
}

static uint64_t unzigzag64(uint64_t code)
{
    return code >> 1 ^ (0 - (code & 1));
}

static uint32_t zigzag32(uint32_t step)
{
    return step << 1 ^ (0 - (step >> 31));
}

static uint32_t unzigzag32(uint32_t code)
{
    return code >> 1 ^ (0 - (code & 1));
}

static uint8_t *put_varint(uint8_t *out, uint64_t value)
{
    while (value >= 0x80) {
        *out++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *out++ = (uint8_t)value;
    return out;
}

/* NULL if the varint exceeds `end` or 64 bits, or is longer than necessary. */
static const uint8_t *get_varint(const uint8_t *in, const uint8_t *end, uint64_t *value)
{
    uint64_t result = 0;
    for (unsigned shift = 0; shift < 64 && in < end; shift += 7) {
        uint64_t byte = *in++;
        if (shift == 63 && byte > 1)
            return NULL;
        result |= (byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = result;
            return byte || !shift ? in : NULL;
        }
    }
    return NULL;
}

size_t ebb__trace_encode(const struct ebb_event *events, size_t count, uint8_t *out)
{
    uint8_t *kinds = out, *accesses = kinds + count, *marks = accesses + count;
    uint8_t *flags = marks + count, *next = flags + count;
    for (size_t i = 0; i < count; i++) {
        kinds[i] = events[i].kind;
        accesses[i] = events[i].access;
        marks[i] = events[i].mark;
        flags[i] = events[i].flags;
    }
    uint64_t time_ns = 0;
    for (size_t i = 0; i < count; i++) {
        next = put_varint(next, events[i].time_ns - time_ns);
        time_ns = events[i].time_ns;
    }
    uint64_t block = 0;
    for (size_t i = 0; i < count; i++) {
        next = put_varint(next, zigzag64(events[i].block - block));
        block = events[i].block;
    }
    for (size_t i = 0; i < count; i++)
        next = put_varint(next, events[i].size_bytes);
    uint32_t thread = 0;
    for (size_t i = 0; i < count; i++) {
        next = put_varint(next, zigzag32(events[i].thread - thread));
        thread = events[i].thread;
    }
    return (size_t)(next - out);
}

/* Decodes the varint columns; `in` is behind the byte columns. */
static enum ebb_trace_decode decode_numbers(const uint8_t *in, const uint8_t *end, size_t count,
                                            struct ebb_event *events)
{
    uint64_t code = 0;
    uint64_t time_ns = 0;
    for (size_t i = 0; i < count; i++) {
        if (!(in = get_varint(in, end, &code)))
            return EBB_TRACE_DECODE_MALFORMED;
        if (code > UINT64_MAX - time_ns)
            return EBB_TRACE_DECODE_TIME;
        events[i].time_ns = time_ns += code;
    }
    uint64_t block = 0;
    for (size_t i = 0; i < count; i++) {
        if (!(in = get_varint(in, end, &code)))
            return EBB_TRACE_DECODE_MALFORMED;
        events[i].block = block += unzigzag64(code);
    }
    for (size_t i = 0; i < count; i++) {
        if (!(in = get_varint(in, end, &code)))
            return EBB_TRACE_DECODE_MALFORMED;
        events[i].size_bytes = code;
    }
    uint32_t thread = 0;
    for (size_t i = 0; i < count; i++) {
        if (!(in = get_varint(in, end, &code)) || code > UINT32_MAX)
            return EBB_TRACE_DECODE_MALFORMED;
        events[i].thread = thread += unzigzag32((uint32_t)code);
    }
    return in == end ? EBB_TRACE_DECODE_OK : EBB_TRACE_DECODE_MALFORMED;
}

enum ebb_trace_decode ebb__trace_decode(const uint8_t *in, size_t size, size_t count,
                                        struct ebb_event *events)
{
    if (size / EBB_TRACE_EVENT_MIN_BYTES < count)
        return EBB_TRACE_DECODE_MALFORMED;
    const uint8_t *kinds = in, *accesses = kinds + count, *marks = accesses + count;
    const uint8_t *flags = marks + count;
    for (size_t i = 0; i < count; i++) {
        events[i].kind = kinds[i];
        events[i].access = accesses[i];
        events[i].mark = marks[i];
        events[i].flags = flags[i];
        if (!ebb__trace_event_valid(&events[i]))
            return EBB_TRACE_DECODE_VALUE;
    }
    return decode_numbers(flags + count, in + size, count, events);
}
