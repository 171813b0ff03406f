/* From a window of a stream to the model of an iteration. Not thread-safe. */
#ifndef EBB_MODEL_ITERATION_H
#define EBB_MODEL_ITERATION_H

#include "model/windows.h"

/* Model the window, with the median times of the last untraced iterations of the same template
 * (those without a plan, if there are any), else its own. Of a template with a landmark: the window
 * with what neighbouring traced iterations did (unordered.h). As ebb__model_build() for errors. */
EBB_NODISCARD enum ebb_status ebb__stream_model(const struct ebb_stream *stream,
                                                const struct ebb_template *template,
                                                const struct ebb_window *window,
                                                struct ebb_model *model, struct ebb_error *error);

#endif
