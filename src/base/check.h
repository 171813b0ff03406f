/* Invariant checks for builds with EBB_CHECK. A check that fails prints a line to stderr and aborts
 * the process. In all other builds checks cost nothing. Async-signal-safe; allocates nothing. */
#ifndef EBB_BASE_CHECK_H
#define EBB_BASE_CHECK_H

#ifdef EBB_CHECK
#define EBB_CHECKS 1
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void ebb__check_that(int holds, const char *what, const char *file, int line)
{
    char text[240];
    if (holds)
        return;
    int length = snprintf(text, sizeof text, "ebb: check failed: %s (%s:%d)\n", what, file, line);
    ssize_t written = write(STDERR_FILENO, text, length > 0 ? (size_t)length : 0);
    (void)written;
    abort();
}
#define EBB_CHECK_THAT(holds) ebb__check_that(!!(holds), #holds, __FILE__, __LINE__)
#else
#define EBB_CHECKS 0
#define EBB_CHECK_THAT(holds) ((void)0)
#endif

#endif
