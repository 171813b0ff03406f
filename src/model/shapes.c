#include "shapes.h"

#include <stdlib.h>

enum ebb_status ebb__shapes_follow(struct ebb_stream *stream)
{
    stream->shapes = calloc(1, sizeof *stream->shapes);
    stream->symbols[EBB_SYMBOL_SHAPE].rolling = stream->shapes;
    return stream->shapes ? EBB_OK : EBB_ERR_MEMORY;
}

void ebb__shapes_fini(struct ebb_stream *stream)
{
    if (stream->shapes)
        ebb__rolling_fini(stream->shapes);
    free(stream->shapes);
    stream->shapes = NULL;
}

void ebb__shapes_note_free(struct ebb_stream *stream, size_t alloc)
{
    if (stream->shapes) /* a sum: blocks that are freed together may be so in any order */
        stream->shape += ebb__hash_mix(stream->allocs.count - alloc);
}

enum ebb_status ebb__shapes_push(struct ebb_stream *stream)
{
    size_t count = stream->allocs.count;
    uint64_t shape = stream->shape;
    stream->shape = 0;
    if (!stream->shapes || count < 2)
        return EBB_OK;
    return ebb__rolling_push(stream->shapes, shape) &&
                   ebb_vec_push(&stream->symbols[EBB_SYMBOL_SHAPE].events,
                                stream->allocs.items[count - 2].event)
               ? EBB_OK
               : EBB_ERR_MEMORY;
}
