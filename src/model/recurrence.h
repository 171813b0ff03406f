/* Recurrence: finds the iterations of a program that allocates nothing in them.
 *
 * Only the accesses of such a program are known, and they never repeat exactly. The order of
 * accesses of two threads varies, and the end of an operation depends on time. So an iteration is
 * identified by one unit of one block that is used equally often in each. The uses in between must
 * be the same, with few exceptions. Not thread-safe. */
#ifndef EBB_MODEL_RECURRENCE_H
#define EBB_MODEL_RECURRENCE_H

#include "base/status.h"
#include "trace/event.h"

#include <stdbool.h>

struct ebb_recurrence;

EBB_NODISCARD enum ebb_status ebb__recurrence_create(struct ebb_recurrence **recurrence);
void ebb__recurrence_destroy(struct ebb_recurrence *recurrence); /* may be NULL */

/* Processes the next event. *begins is true if an iteration begins with it, at the earliest the
 * third one of its kind. After EBB_ERR_MEMORY only destroy is allowed. O(1), except at a possible
 * end of an iteration: there O(its accesses). */
EBB_NODISCARD enum ebb_status ebb__recurrence_push(struct ebb_recurrence *recurrence,
                                                   const struct ebb_event *event, bool *begins);
/* True if the iteration that began last does not follow another one: what recurs was found there,
 * for the first time or once more. */
bool ebb__recurrence_is_anew(const struct ebb_recurrence *recurrence);

#endif
