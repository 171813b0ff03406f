/* Corrects the checksums of a trace after a test has changed its bytes, so that the reader's later
 * checks are tested, too. Stops at the first unit that is not whole. */
#ifndef EBB_TESTS_TRACE_REPAIR_H
#define EBB_TESTS_TRACE_REPAIR_H

#include "trace/codec.h"

static inline void trace_repair(uint8_t *bytes, size_t size)
{
    if (size < EBB_TRACE_HEADER_MIN_BYTES)
        return;
    size_t at = ebb__get_le32(bytes + 12);
    if (at < EBB_TRACE_HEADER_MIN_BYTES || at > size || at > EBB_TRACE_HEADER_MAX_BYTES)
        return;
    ebb__put_le64(bytes + at - 8, ebb__trace_checksum(bytes, at - 8));
    while (size - at >= EBB_TRACE_FOOTER_BYTES) {
        uint8_t *unit = bytes + at;
        size_t left = size - at;
        if (ebb__get_le32(unit) == EBB_TRACE_FOOTER_MAGIC) {
            ebb__put_le64(unit + 24, ebb__trace_checksum(unit, 24));
            return;
        }
        if (ebb__get_le32(unit) != EBB_TRACE_BLOCK_MAGIC || left < EBB_TRACE_BLOCK_HEADER_BYTES)
            return;
        size_t payload_bytes = ebb__get_le32(unit + 4);
        bool whole = payload_bytes <= left - EBB_TRACE_BLOCK_HEADER_BYTES;
        if (whole)
            ebb__put_le64(unit + 24,
                          ebb__trace_checksum(unit + EBB_TRACE_BLOCK_HEADER_BYTES, payload_bytes));
        ebb__put_le64(unit + 32, ebb__trace_checksum(unit, 32));
        if (!whole)
            return;
        at += EBB_TRACE_BLOCK_HEADER_BYTES + payload_bytes;
    }
}

#endif
