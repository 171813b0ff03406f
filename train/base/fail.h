/* How the trainer reports failures: values of ebb/status.h, with detail for a person.
 *
 * The trainer uses Ebb only through include/ebb/. Its helpers have names of their own, so that a
 * test can link them beside Ebb's internal code. Thread-safe: no state. */
#ifndef EBB_TRAIN_BASE_FAIL_H
#define EBB_TRAIN_BASE_FAIL_H

#include "ebb/status.h"

#if defined(__GNUC__)
#define EBB_TRAIN_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define EBB_TRAIN_PRINTF(text, first)
#endif

/* Fills `error` (ignored if NULL) and returns `status`. `why` is a printf format. */
EBB_TRAIN_PRINTF(4, 5)
enum ebb_status ebb__train_fail(struct ebb_error *error, enum ebb_status status, const char *what,
                                const char *why, ...);

/* Sets the remedy of an error that has been filled. Ignored if `error` is NULL. */
EBB_TRAIN_PRINTF(2, 3)
void ebb__train_remedy(struct ebb_error *error, const char *remedy, ...);

/* Reports EBB_ERR_MEMORY for `what`. */
enum ebb_status ebb__train_fail_memory(struct ebb_error *error, const char *what);

/* Reports EBB_ERR_IO for the file `path`, with the text of errno. */
enum ebb_status ebb__train_fail_io(struct ebb_error *error, const char *path, const char *verb);

#endif
