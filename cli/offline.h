/* The options of the commands that plan, simulate and pack recorded programs. All use one table, in
 * offline.c, so that an option has the same meaning and description in each. */
#ifndef EBB_CLI_OFFLINE_H
#define EBB_CLI_OFFLINE_H

#include "options.h"

#include <stdbool.h>
#include <stdint.h>

#define EBB_DEFAULT_BUDGETS "40%,50%,60%,70%,80%,90%"

#define EBB_OFFLINE_TUNED UINT64_MAX /* a default that a --tune may change */

/* Bits of ebb_option.commands. */
enum ebb_offline_command {
    EBB_OFFLINE_PLAN = 1,
    EBB_OFFLINE_COMPARE = 2,
    EBB_OFFLINE_SIMULATE = 4,
    EBB_OFFLINE_PACK = 8,
};

/* The option values. A command reads only the fields of its own options. */
struct ebb_offline {
    const char *machine, *store;   /* as for ebb__planning_machine() */
    const char *budget, *budgets;  /* as for ebb__planning_budget(); several, separated by commas */
    const char *policy, *policies; /* a name; several, separated by commas */
    const char *pool, *pools;      /* likewise */
    const char *budget_at;         /* percentages, separated by commas; NULL: not asked for */
    uint64_t time_billionths;      /* factor for the times of the program, times 10^9; 0: 1 */
    const char *plan_path, *out_path; /* input file, output file */
    const char *csv_path, *plot_path; /* output files */
    struct ebb_option_texts plan_paths;
    uint64_t smallest_block_bytes, capacity_bytes;
    uint64_t time_limit_ns; /* 0: the command's default */
    uint64_t period;        /* 0: none */
    uint64_t seeds;         /* number of them */
    bool zero_stall, json, force;
};

/* The table, for struct ebb_usage. */
extern const struct ebb_option ebb__offline_options[];

/* Reads the options into *options, which holds the defaults. Returns as ebb__options_parse(). */
int ebb__offline_parse(const struct ebb_usage *usage, int argc, char **argv,
                       struct ebb_offline *options);

#endif
