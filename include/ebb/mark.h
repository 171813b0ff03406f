/* Marks: a program under `ebb run` tells where it is in its training.
 *
 *     for (;;) {
 *         ebb_mark_iteration();
 *         ebb_mark_phase(EBB_PHASE_FORWARD);
 *         ...
 *     }
 *
 * The program allocates its memory as ever. Marks are hints: an iteration that the program marks
 * need not be found. Without `ebb run` they do nothing, and cost some nanoseconds. Thread-safe. */
#ifndef EBB_MARK_H
#define EBB_MARK_H

#include "ebb/iteration.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Does the program run under `ebb run` or `ebb record`? */
EBB_API bool ebb_mark_is_heard(void);
/* An iteration, a phase, or a layer begins, and the one before ends. Layers are numbered from 1; 0:
 * none. Invalid values are ignored. */
EBB_API void ebb_mark_iteration(void);
EBB_API void ebb_mark_phase(enum ebb_phase phase);
EBB_API void ebb_mark_layer(uint32_t layer);

#ifdef __cplusplus
}
#endif

#endif
