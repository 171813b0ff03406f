/* The times of a model, taken from other iterations than its own. */
#ifndef EBB_MODEL_TIMES_H
#define EBB_MODEL_TIMES_H

#include "windows.h"

/* Sets the times of the model of window `own` to medians of other iterations. These are the
 * untraced ones, if there are any; else the planned ones; else those traced in the same way; else
 * all traced ones. If uses are announced, they are those with the same events, or none. Waits of
 * the program for the runtime, and what observation has cost, are always excluded. EBB_ERR_MEMORY.
 * Not thread-safe. */
EBB_NODISCARD enum ebb_status ebb__times_retime(const struct ebb_stream *stream,
                                                const struct ebb_template *template,
                                                const struct ebb_window *own,
                                                struct ebb_model *model);

#endif
