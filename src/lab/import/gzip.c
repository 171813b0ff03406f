#include "lab/import/gzip.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { GZIP_WINDOW = 15 + 16 }; /* zlib: the largest window, and gzip alone */

bool ebb__gzip_recognises(const uint8_t *bytes, size_t size)
{
    return size > 2 && bytes[0] == 0x1f && bytes[1] == 0x8b && bytes[2] == 8;
}

struct unpacking {
    const uint8_t *bytes;
    size_t size;
    size_t at; /* the next byte that zlib does not have */
    size_t capacity;
    struct ebb_file_content *plain;
};

/* Makes memory for more plain bytes, at least one more than there are. */
static enum ebb_status grow(struct unpacking *u, const char *name, struct ebb_error *error)
{
    if (u->plain->size < u->capacity)
        return EBB_OK;
    size_t wanted = u->capacity ? 2 * u->capacity : 4 * u->size + 4096;
    uint8_t *moved = ebb__memory_could_hold(wanted) ? realloc(u->plain->bytes, wanted) : NULL;
    if (!moved)
        return ebb__fail_memory(name, wanted, error);
    u->plain->bytes = moved;
    u->capacity = wanted;
    return EBB_OK;
}

/* Unpacks the member that begins at u->at. */
static enum ebb_status unpack_member(struct unpacking *u, z_stream *stream, const char *name,
                                     struct ebb_error *error)
{
    enum ebb_status status;
    int code = Z_OK;
    while (code != Z_STREAM_END) {
        if ((status = grow(u, name, error)) != EBB_OK)
            return status;
        size_t left = u->size - u->at, room = u->capacity - u->plain->size;
        stream->next_in = (Bytef *)(uintptr_t)(u->bytes + u->at); /* zlib only reads it */
        stream->avail_in = left < UINT32_MAX ? (uInt)left : UINT32_MAX;
        stream->next_out = u->plain->bytes + u->plain->size;
        stream->avail_out = room < UINT32_MAX ? (uInt)room : UINT32_MAX;
        code = inflate(stream, Z_NO_FLUSH);
        u->at = (size_t)(stream->next_in - u->bytes);
        u->plain->size = (size_t)(stream->next_out - u->plain->bytes);
        if (code == Z_MEM_ERROR)
            return ebb__fail(error, EBB_ERR_MEMORY, name, "no memory to unpack it");
        if (code == Z_BUF_ERROR && u->at == u->size)
            return ebb__fail(error, EBB_ERR_FORMAT, name,
                             "byte %zu: the file ends within its compressed data (gzip)", u->at);
        if (code != Z_OK && code != Z_STREAM_END)
            return ebb__fail(error, EBB_ERR_FORMAT, name,
                             "byte %zu: its compressed data (gzip) is damaged", u->at);
    }
    return EBB_OK;
}

enum ebb_status ebb__gzip_read(const uint8_t *bytes, size_t size, const char *name,
                               struct ebb_file_content *plain, struct ebb_error *error)
{
    memset(plain, 0, sizeof *plain);
    struct unpacking u = {.bytes = bytes, .size = size, .plain = plain};
    z_stream stream = {0};
    if (inflateInit2(&stream, GZIP_WINDOW) != Z_OK)
        return ebb__fail(error, EBB_ERR_MEMORY, name, "no memory to unpack it");
    enum ebb_status status = EBB_OK;
    while (!status && u.at < size) {
        if (u.at && !ebb__gzip_recognises(bytes + u.at, size - u.at))
            status =
                ebb__fail(error, EBB_ERR_FORMAT, name,
                          "byte %zu: its compressed data (gzip) is followed by other data", u.at);
        else if (inflateReset(&stream) != Z_OK)
            status = ebb__fail(error, EBB_ERR_INTERNAL, name, "zlib cannot begin again");
        else
            status = unpack_member(&u, &stream, name, error);
    }
    inflateEnd(&stream);
    if (status) {
        free(plain->bytes);
        memset(plain, 0, sizeof *plain);
    }
    return status;
}
