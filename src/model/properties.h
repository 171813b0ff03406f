/* The three properties of AppObMem, measured. */
#ifndef EBB_MODEL_PROPERTIES_H
#define EBB_MODEL_PROPERTIES_H

#include "model/windows.h"

/* Compare the iterations `windows` (at least one, in order) with each other, on what each of them
 * can tell: events of an untraced one are its ALLOCs and FREEs. Of three or more the first one is
 * left out, and so is what the program does behind the last. `model` is that of window `own`.
 * Returns EBB_ERR_MEMORY with *properties untouched. O(events log gaps). */
EBB_NODISCARD enum ebb_status ebb__properties_measure(const struct ebb_stream *stream,
                                                      const struct ebb_window *windows,
                                                      size_t window_count, size_t own,
                                                      const struct ebb_model *model,
                                                      struct ebb_properties *properties);

#endif
