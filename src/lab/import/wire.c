#include "lab/import/wire.h"

#include <stddef.h>

/* Seven bits a byte, the lowest first. The highest bit says that another byte follows. */
static bool take_varint(struct ebb_wire *message, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 64 && message->at < message->end; shift += 7) {
        uint8_t byte = *message->at++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

static bool take_fixed(struct ebb_wire *message, size_t bytes, uint64_t *value)
{
    if ((size_t)(message->end - message->at) < bytes)
        return false;
    *value = 0;
    for (size_t i = 0; i < bytes; i++)
        *value |= (uint64_t)message->at[i] << (8 * i);
    message->at += bytes;
    return true;
}

static bool take_value(struct ebb_wire *message, struct ebb_wire_field *field)
{
    switch (field->kind) {
    case EBB_WIRE_VARINT:
        return take_varint(message, &field->value);
    case EBB_WIRE_FIXED64:
        return take_fixed(message, 8, &field->value);
    case EBB_WIRE_FIXED32:
        return take_fixed(message, 4, &field->value);
    case EBB_WIRE_BYTES:
        break;
    default:
        return false;
    }
    uint64_t length;
    if (!take_varint(message, &length) || length > (uint64_t)(message->end - message->at))
        return false;
    field->bytes = (struct ebb_wire){message->at, message->at + length, false};
    message->at += length;
    return true;
}

bool ebb__wire_next(struct ebb_wire *message, struct ebb_wire_field *field)
{
    uint64_t key;
    const uint8_t *begin = message->at;
    if (begin == message->end || message->damaged)
        return false;
    if (take_varint(message, &key) && key >> 3) {
        *field = (struct ebb_wire_field){.number = key >> 3, .kind = (enum ebb_wire_kind)(key & 7)};
        if (take_value(message, field))
            return true;
    }
    message->at = begin;
    message->damaged = true;
    return false;
}

struct ebb_text ebb__wire_text(const struct ebb_wire_field *field)
{
    return (struct ebb_text){(const char *)field->bytes.at,
                             (size_t)(field->bytes.end - field->bytes.at)};
}
