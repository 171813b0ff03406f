/* All commands and options as JSON, from the tables that --help prints. cmake/manual.py makes manual
 * pages and completions of it, so there is no second list. */
#ifndef EBB_CLI_DESCRIBE_H
#define EBB_CLI_DESCRIBE_H

#include "command.h"

/* Prints ebb.describe/1 to stdout. Returns the exit code. */
int ebb__describe(const struct ebb_command *commands, size_t count);

#endif
