/* From a window of a stream to the model of an iteration. Not thread-safe. */
#ifndef EBB_MODEL_ITERATION_H
#define EBB_MODEL_ITERATION_H

#include "model/windows.h"

/* Models the window. Its times are medians of the last untraced iterations of the same template,
 * preferably those without a plan; if there are none, its own. If the template has a landmark, the
 * accesses of neighbouring traced iterations are merged in (unordered.h). Errors as in
 * ebb__model_build(). */
EBB_NODISCARD enum ebb_status ebb__stream_model(const struct ebb_stream *stream,
                                                const struct ebb_template *template,
                                                const struct ebb_window *window,
                                                struct ebb_model *model, struct ebb_error *error);

#endif
