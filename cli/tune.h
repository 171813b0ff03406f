/* --tune: a row of the tuning (base/tuning.def) other than the table has it, or all of them listed. */
#ifndef EBB_CLI_TUNE_H
#define EBB_CLI_TUNE_H

#include <jansson.h>

/* Take the value of a --tune of `command`: `name=value`, or `help`, which prints all rows. -1: go on;
 * else the exit code: 0 for help, 2 where it was complained about. */
int ebb__tune_take(const char *command, const char *value);

/* The tuning in force: {"table": hash of the table, "changed": {name: value} of what differs from it}.
 * A new reference. */
json_t *ebb__tune_json(void);

#endif
