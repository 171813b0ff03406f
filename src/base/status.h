/* Failures inside of Ebb. The codes and the struct are public: include/ebb/status.h. */
#ifndef EBB_BASE_STATUS_H
#define EBB_BASE_STATUS_H

#include "ebb/status.h"

#if defined(__GNUC__)
#define EBB_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define EBB_PRINTF(format, first)
#endif

/* Fills `error` (ignored if NULL) and returns `status`, so that `return ebb__fail(...)` is one
 * statement. `why` is a printf format. */
EBB_PRINTF(4, 5)
enum ebb_status ebb__fail(struct ebb_error *error, enum ebb_status status, const char *what,
                          const char *why, ...);

/* Sets the remedy of an error that ebb__fail() has filled. */
EBB_PRINTF(2, 3)
void ebb__error_set_remedy(struct ebb_error *error, const char *remedy, ...);

#endif
