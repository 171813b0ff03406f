/* The commands of `ebb`: one file each, one row each in the table of main.c. */
#ifndef EBB_CLI_COMMAND_H
#define EBB_CLI_COMMAND_H

#include "base/status.h"

/* Each gets argv with argv[0] its own name and returns the exit code of `ebb`. */
int ebb__cmd_run(int argc, char **argv);
int ebb__cmd_record(int argc, char **argv);
int ebb__cmd_info(int argc, char **argv);
int ebb__cmd_plan(int argc, char **argv);
int ebb__cmd_pack(int argc, char **argv);
int ebb__cmd_import(int argc, char **argv);
int ebb__cmd_doctor(int argc, char **argv);
int ebb__cmd_compare(int argc, char **argv);
int ebb__cmd_simulate(int argc, char **argv);

/* Print `ebb: COMMAND: what: why` and the remedy, if any, to stderr; returns the exit code that
 * belongs to error->status. */
int ebb__command_fail(const char *command, const struct ebb_error *error);

/* A usage error: prints `ebb: COMMAND: <message>` and a pointer to --help; returns 2. */
EBB_PRINTF(2, 3)
int ebb__command_usage(const char *command, const char *message, ...);

#endif
