/* The commands of `ebb`: one file each, and one row each in the table of main.c. */
#ifndef EBB_CLI_COMMAND_H
#define EBB_CLI_COMMAND_H

#include "base/status.h"

/* Each is called with its own name as argv[0] and returns the exit code of `ebb`. */
int ebb__cmd_run(int argc, char **argv);
int ebb__cmd_record(int argc, char **argv);
int ebb__cmd_info(int argc, char **argv);
int ebb__cmd_plan(int argc, char **argv);
int ebb__cmd_pack(int argc, char **argv);
int ebb__cmd_import(int argc, char **argv);
int ebb__cmd_doctor(int argc, char **argv);
int ebb__cmd_compare(int argc, char **argv);
int ebb__cmd_simulate(int argc, char **argv);
int ebb__cmd_report(int argc, char **argv);
int ebb__cmd_advise(int argc, char **argv);

/* Prints `ebb: COMMAND: what: why` and the remedy, if any, to stderr. Returns the exit code for
 * error->status. */
int ebb__command_fail(const char *command, const struct ebb_error *error);

/* For usage errors: prints `ebb: COMMAND: <message>` and a hint to --help. Returns 2. */
EBB_PRINTF(2, 3)
int ebb__command_usage(const char *command, const char *message, ...);

#endif
