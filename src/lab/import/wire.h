/* Reads protocol buffers: the fields of a message, one after the other, without a schema.
 *
 *     struct ebb_wire message = {bytes, bytes + size};
 *     struct ebb_wire_field field;
 *     while (ebb__wire_next(&message, &field)) ...
 *     if (message.damaged) ...
 *
 * A field of any length refers to the source, and may be read as a message in turn. Source: the
 * encoding in protobuf's documentation. */
#ifndef EBB_LAB_IMPORT_WIRE_H
#define EBB_LAB_IMPORT_WIRE_H

#include "base/text.h"

enum ebb_wire_kind {
    EBB_WIRE_VARINT = 0,
    EBB_WIRE_FIXED64 = 1,
    EBB_WIRE_BYTES = 2, /* a string, bytes or a message */
    EBB_WIRE_FIXED32 = 5
};

struct ebb_wire {
    const uint8_t *at, *end;
    bool damaged; /* `at` is the place */
};

struct ebb_wire_field {
    uint64_t number; /* of the schema */
    enum ebb_wire_kind kind;
    uint64_t value;        /* if it is a number */
    struct ebb_wire bytes; /* if it is EBB_WIRE_BYTES, else empty */
};

/* Reads the next field. False at the end, or if the message is damaged. */
bool ebb__wire_next(struct ebb_wire *message, struct ebb_wire_field *field);

/* The bytes of a field as text. */
struct ebb_text ebb__wire_text(const struct ebb_wire_field *field);

#endif
