/* The option --tune: changes a row of the tuning (base/tuning.def), or lists all rows. */
#ifndef EBB_CLI_TUNE_H
#define EBB_CLI_TUNE_H

#include <jansson.h>

/* Processes the value of a --tune of `command`: `name=value`, or `help`, which prints all rows.
 * Returns -1 to continue. Otherwise returns the exit code: 0 for help, 2 after an error. */
int ebb__tune_take(const char *command, const char *value);

/* The tuning in force: {"table": hash of the table, "changed": {name: value} of changed rows}.
 * Returns a new reference. */
json_t *ebb__tune_json(void);

#endif
