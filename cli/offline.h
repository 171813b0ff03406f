/* The options of the commands that plan, simulate and pack what was recorded: one table for all of
 * them, in offline.c, so that an option means the same and is described alike wherever it is known. */
#ifndef EBB_CLI_OFFLINE_H
#define EBB_CLI_OFFLINE_H

#include <stdbool.h>
#include <stdint.h>

#define EBB_DEFAULT_BUDGETS "40%,50%,60%,70%,80%,90%"

#define EBB_OFFLINE_TUNED UINT64_MAX /* a default that a --tune may still change */

/* Bits of ebb_option.commands. */
enum ebb_offline_command {
    EBB_OFFLINE_PLAN = 1,
    EBB_OFFLINE_COMPARE = 2,
    EBB_OFFLINE_SIMULATE = 4,
    EBB_OFFLINE_PACK = 8,
};

/* What was given; a command reads the fields of its own options. */
struct ebb_offline {
    const char *machine, *store;      /* as of ebb__planning_machine() */
    const char *budget, *budgets;     /* as of ebb__planning_budget(); several, with commas */
    const char *policy, *policies;    /* a name; several, with commas */
    const char *pool;                 /* a name */
    const char *plan_path, *out_path; /* to read, to write */
    uint64_t smallest_block_bytes, capacity_bytes;
    uint64_t time_limit_ns; /* 0: the command's own */
    uint64_t period;        /* 0: none */
    bool zero_stall, json;
};

/* Read the options of `command` into *options, which has the defaults. `text` and `tail` stand
 * above and below the options in its help; tail may be NULL. Returns as ebb__options_parse(). */
int ebb__offline_parse(enum ebb_offline_command command, const char *name, const char *text,
                       const char *tail, int argc, char **argv, struct ebb_offline *options);

#endif
