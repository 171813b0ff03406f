/* The three properties of AppObMem, measured. */
#ifndef EBB_MODEL_PROPERTIES_H
#define EBB_MODEL_PROPERTIES_H

#include "model/windows.h"

/* Compares the iterations `windows` (at least one, in order) with each other, as far as their
 * traces permit. An untraced one has only its ALLOCs and FREEs. If there are three or more, the
 * first is excluded, and so are the events after the last. `model` is that of window `own`. Returns
 * EBB_ERR_MEMORY with *properties untouched. O(events log gaps). */
EBB_NODISCARD enum ebb_status ebb__properties_measure(const struct ebb_stream *stream,
                                                      const struct ebb_window *windows,
                                                      size_t window_count, size_t own,
                                                      const struct ebb_model *model,
                                                      struct ebb_properties *properties);

#endif
