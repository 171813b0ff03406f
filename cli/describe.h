/* All commands and options as JSON, from the tables that --help prints. There is no second list:
 * cmake/manual.py makes the manual pages and the completions of it. */
#ifndef EBB_CLI_DESCRIBE_H
#define EBB_CLI_DESCRIBE_H

#include "command.h"

/* Prints ebb.describe/1 to stdout. Returns the exit code. */
int ebb__describe(const struct ebb_command *commands, size_t count);

#endif
