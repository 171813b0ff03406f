/* What writer and reader of the trace format share: sizes, offsets, byte order, and the coding of
 * events in columns. docs/formats/trace.md explains the format.
 *
 * The events of a training loop repeat field by field: the same kinds in the same order, small
 * steps in time and in serials. Columns of differences are runs of small numbers. zstd compresses
 * these far better than 32-byte records. */
#ifndef EBB_TRACE_CODEC_H
#define EBB_TRACE_CODEC_H

#include "trace/event.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EBB_TRACE_MAJOR 1u
#define EBB_TRACE_MINOR 1u

/* A byte over 127 and both line endings, so that a transfer in text mode is detected (from PNG). */
#define EBB_TRACE_MAGIC                                                                            \
    "\x89"                                                                                         \
    "EBBT\r\n\x1a"
#define EBB_TRACE_MAGIC_BYTES 8u
#define EBB_TRACE_BLOCK_MAGIC 0x4b4c4265u  /* "eBLK" */
#define EBB_TRACE_FOOTER_MAGIC 0x444e4565u /* "eEND" */

#define EBB_TRACE_HEADER_FIXED_BYTES 48u /* without the command */
#define EBB_TRACE_HEADER_MIN_BYTES (EBB_TRACE_HEADER_FIXED_BYTES + 8u)
#define EBB_TRACE_HEADER_MAX_BYTES 4096u /* space for later minor versions */
#define EBB_TRACE_BLOCK_HEADER_BYTES 40u
#define EBB_TRACE_FOOTER_BYTES 32u /* less than a block header: see the reader's rule for tails */

/* 64 Ki events are 2 MiB of records: enough for good compression, little to lose. */
#define EBB_TRACE_BLOCK_EVENTS 65536u
/* An event in columns has at most four bytes, three varints of 10 bytes and one of 5. */
#define EBB_TRACE_EVENT_MIN_BYTES 8u
#define EBB_TRACE_EVENT_MAX_BYTES 39u

static inline void ebb__put_le16(uint8_t *out, uint16_t value)
{
    out[0] = (uint8_t)value;
    out[1] = (uint8_t)(value >> 8);
}

static inline void ebb__put_le32(uint8_t *out, uint32_t value)
{
    ebb__put_le16(out, (uint16_t)value);
    ebb__put_le16(out + 2, (uint16_t)(value >> 16));
}

static inline void ebb__put_le64(uint8_t *out, uint64_t value)
{
    ebb__put_le32(out, (uint32_t)value);
    ebb__put_le32(out + 4, (uint32_t)(value >> 32));
}

static inline uint16_t ebb__get_le16(const uint8_t *in)
{
    return (uint16_t)(in[0] | (uint32_t)in[1] << 8);
}

static inline uint32_t ebb__get_le32(const uint8_t *in)
{
    return (uint32_t)ebb__get_le16(in) | (uint32_t)ebb__get_le16(in + 2) << 16;
}

static inline uint64_t ebb__get_le64(const uint8_t *in)
{
    return (uint64_t)ebb__get_le32(in) | (uint64_t)ebb__get_le32(in + 4) << 32;
}

/* The checksum of the format: XXH3, 64 bits, seed 0. */
uint64_t ebb__trace_checksum(const void *bytes, size_t size);

/* True if kind, access and mark are in their enums and the kind is not NONE. */
bool ebb__trace_event_valid(const struct ebb_event *event);

/* Writes `count` events in columns; times must not decrease. `out` must hold count *
 * EBB_TRACE_EVENT_MAX_BYTES. Returns the bytes written. */
size_t ebb__trace_encode(const struct ebb_event *events, size_t count, uint8_t *out);

enum ebb_trace_decode {
    EBB_TRACE_DECODE_OK,
    EBB_TRACE_DECODE_MALFORMED, /* no writer produces it */
    EBB_TRACE_DECODE_VALUE,     /* a kind, access or mark that this version does not know */
    EBB_TRACE_DECODE_TIME       /* a time exceeds 2^64 */
};

/* Decodes exactly `count` events from exactly `size` bytes. Safe with any input. Every list of
 * events has one encoding: encoding the result gives the same bytes. */
enum ebb_trace_decode ebb__trace_decode(const uint8_t *in, size_t size, size_t count,
                                        struct ebb_event *events);

#endif
