/* Recurrence: where the iterations begin of a program that allocates nothing in them.
 *
 * Such a program is known by its accesses alone, and they never repeat exactly: what two threads touch
 * comes in any order, and where an operation ends is a matter of time. So an iteration is told by one
 * unit of one block that is used so many times in each, and by the uses between, which are the same
 * ones, but for a few. Not thread-safe. */
#ifndef EBB_MODEL_RECURRENCE_H
#define EBB_MODEL_RECURRENCE_H

#include "base/status.h"
#include "trace/event.h"

#include <stdbool.h>

struct ebb_recurrence;

EBB_NODISCARD enum ebb_status ebb__recurrence_create(struct ebb_recurrence **recurrence);
void ebb__recurrence_destroy(struct ebb_recurrence *recurrence); /* NULL is fine */

/* Take the next event. *begins: an iteration begins with it, the third one of its kind at the
 * earliest. EBB_ERR_MEMORY leaves it good for destroy only. O(1), but where an iteration may have
 * ended; then O(its accesses). */
EBB_NODISCARD enum ebb_status ebb__recurrence_push(struct ebb_recurrence *recurrence,
                                                   const struct ebb_event *event, bool *begins);

#endif
