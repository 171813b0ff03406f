/* The commands of `ebb`: one file each, and one row each in the table of main.c. */
#ifndef EBB_CLI_COMMAND_H
#define EBB_CLI_COMMAND_H

#include "base/status.h"

#include <stddef.h>

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
int ebb__cmd_top(int argc, char **argv);

/* What each takes: options.h. */
struct ebb_usage;
extern const struct ebb_usage ebb__usage_run;
extern const struct ebb_usage ebb__usage_record;
extern const struct ebb_usage ebb__usage_info;
extern const struct ebb_usage ebb__usage_plan;
extern const struct ebb_usage ebb__usage_pack;
extern const struct ebb_usage ebb__usage_import;
extern const struct ebb_usage ebb__usage_doctor;
extern const struct ebb_usage ebb__usage_compare;
extern const struct ebb_usage ebb__usage_simulate;
extern const struct ebb_usage ebb__usage_report;
extern const struct ebb_usage ebb__usage_advise;
extern const struct ebb_usage ebb__usage_top;

struct ebb_command {
    const char *name;
    const char *does;
    int (*run)(int argc, char **argv);
    const struct ebb_usage *usage; /* without a name if it is not in this build */
};

/* Prints `ebb: COMMAND: what: why` and the remedy, if any, to stderr. Returns the exit code for
 * error->status. */
int ebb__command_fail(const char *command, const struct ebb_error *error);

/* For usage errors: prints `ebb: COMMAND: <message>` and a hint to --help. Returns 2. */
EBB_PRINTF(2, 3)
int ebb__command_usage(const char *command, const char *message, ...);

#endif
