/* The times of a model, from other iterations than the one it was made of. */
#ifndef EBB_MODEL_TIMES_H
#define EBB_MODEL_TIMES_H

#include "windows.h"

/* Give the model, made of the window `own`, the median times of the untraced iterations, if there are
 * any; else of the planned ones, else of those that were traced alike, else of all that were traced.
 * Always without the time that the program waited for the runtime. EBB_ERR_MEMORY. Not thread-safe. */
EBB_NODISCARD enum ebb_status ebb__times_retime(const struct ebb_stream *stream,
                                                const struct ebb_template *template,
                                                const struct ebb_window *own,
                                                struct ebb_model *model);

#endif
