/* The model of steps of one shape (shapes.h), with the sizes of the largest. Not thread-safe. */
#ifndef EBB_MODEL_WIDEST_H
#define EBB_MODEL_WIDEST_H

#include "model/windows.h"

/* The model of an iteration of the template, whose kind is EBB_SYMBOL_SHAPE. A block whose size
 * differs between the iterations of the stream has the largest one, and is marked as one that
 * varies. It has no parts. Times are left as they are in the window. Errors as in
 * ebb__model_build(). O(events of the stream) time and memory. */
EBB_NODISCARD enum ebb_status ebb__widest_model(const struct ebb_stream *stream,
                                                const struct ebb_template *template,
                                                const struct ebb_window *window,
                                                struct ebb_model *model, struct ebb_error *error);

#endif
