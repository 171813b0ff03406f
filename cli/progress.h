/* What long work is at, as one line on a terminal's stderr that is erased at the end. If stderr is
 * no terminal, or TERM is dumb, nothing is printed.
 *
 *     ebb__progress_begin("plan");
 *     ebb__progress_say("reading %s", path);       (from any file; nothing before begin)
 *     ...
 *     ebb__progress_end();                         (before anything else is printed)
 *
 * A thread prints the line four times a second, the first time after half a second. Say and end are
 * called by the thread that called begin. */
#ifndef EBB_CLI_PROGRESS_H
#define EBB_CLI_PROGRESS_H

#include "base/status.h"

void ebb__progress_begin(const char *command);
EBB_PRINTF(1, 2)
void ebb__progress_say(const char *format, ...);
/* Erases the line. May be called without begin, and twice. */
void ebb__progress_end(void);

#endif
