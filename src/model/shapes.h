/* Steps of one shape: they allocate and free in the same order, but other sizes.
 *
 * Batches padded to their longest sequence are like that, and a last batch that is smaller. The
 * *shape* of an allocation is which blocks are freed until the next one, each told by its age in
 * allocations. Sizes have no part in it, so the shapes of steps are equal whatever their lengths
 * are. Not thread-safe. */
#ifndef EBB_MODEL_SHAPES_H
#define EBB_MODEL_SHAPES_H

#include "model/stream.h"

/* From now on the stream has symbols of the kind EBB_SYMBOL_SHAPE, one for each ALLOC. Call it
 * while the stream is empty. EBB_ERR_MEMORY. 12 bytes an ALLOC. */
EBB_NODISCARD enum ebb_status ebb__shapes_follow(struct ebb_stream *stream);
void ebb__shapes_fini(struct ebb_stream *stream);

/* The block of the stream's allocation `alloc` has been freed. */
void ebb__shapes_note_free(struct ebb_stream *stream, size_t alloc);
/* The newest event is an ALLOC: adds the symbol of the one before it. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__shapes_push(struct ebb_stream *stream);

#endif
