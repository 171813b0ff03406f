#include "offline.h"

#include "base/tuning.h"
#include "choices.h"
#include "options.h"
#include "plan/pool/pool.h"
#include "planning.h"

#include <stddef.h>

#define PLAN EBB_OFFLINE_PLAN
#define COMPARE EBB_OFFLINE_COMPARE
#define SIMULATE EBB_OFFLINE_SIMULATE
#define PACK EBB_OFFLINE_PACK

#define AT(member) .offset = offsetof(struct ebb_offline, member)

static const struct ebb_option options[] = {
    {.name = "budget",
     .kind = EBB_OPTION_TEXT,
     .argument = "B",
     AT(budget),
     .commands = PLAN | SIMULATE,
     .help = "most bytes in fast memory: 4G, 512MiB, or 60% of the peak"},
    {.name = "zero-stall",
     .kind = EBB_OPTION_FLAG,
     AT(zero_stall),
     .commands = PLAN,
     .help = "find the smallest budget at which nothing waits"},
    {.name = "budgets",
     .kind = EBB_OPTION_TEXT,
     .argument = "B,...",
     AT(budgets),
     .commands = COMPARE,
     .help = "sizes, percentages of the peak, or zero-stall for the smallest budget\n"
             "at which nothing waits (default " EBB_DEFAULT_BUDGETS ")"},
    {.name = "policy",
     .kind = EBB_OPTION_TEXT,
     .argument = "P",
     AT(policy),
     .commands = PLAN,
     .help = "how to plan; the first is the default:",
     .names = ebb__policy_name},
    {.name = "policies",
     .kind = EBB_OPTION_TEXT,
     .argument = "P,...",
     AT(policies),
     .commands = COMPARE,
     .help = "default all:",
     .names = ebb__policy_name},
    {.name = "pools",
     .kind = EBB_OPTION_TEXT,
     .argument = "P,...",
     AT(pools),
     .commands = COMPARE,
     .help = "pack what is resident under each plan, too (default: no plan):",
     .names = ebb__pool_name},
    {.name = "plan",
     .kind = EBB_OPTION_TEXTS,
     .argument = "PLAN",
     AT(plan_paths),
     .commands = COMPARE,
     .help = "a plan of your own as a row, checked and simulated (docs/formats/plan.md);\n"
             "any number of times. Without --budgets, its budget is the one compared"},
    {.name = "machine",
     .kind = EBB_OPTION_TEXT,
     .argument = "M,...",
     AT(machine),
     .commands = COMPARE,
     .help = "host (measured now, the default), autoswap-paper, pcie3, pcie4, pcie5,\n"
             "h200, nvlink, optane, cxl, nvme, hdd, or JSON files"},
    {.name = "machine",
     .kind = EBB_OPTION_TEXT,
     .argument = "M",
     AT(machine),
     .commands = PLAN | SIMULATE,
     .help = "host (measured now), autoswap-paper, pcie3, pcie4, pcie5, h200, nvlink,\n"
             "optane, cxl, nvme, hdd, or a JSON file\n"
             "(default: host, or that of a given plan)"},
    {.name = "scale-time",
     .kind = EBB_OPTION_SECONDS,
     .argument = "F",
     AT(time_billionths),
     .commands = PLAN | COMPARE | SIMULATE,
     .help = "times of the program are F times as long: 0.05 for a processor 20 times\n"
             "as fast as the one that was recorded"},
    {.name = "at-slowdown",
     .kind = EBB_OPTION_TEXT,
     .argument = "S,...",
     AT(budget_at),
     .commands = COMPARE,
     .help = "instead: the smallest budget at which an iteration is at most S percent\n"
             "longer than without one, as 0,5,20"},
    {.name = "store",
     .kind = EBB_OPTION_TEXT,
     .argument = "DIR",
     AT(store),
     .commands = PLAN | COMPARE | SIMULATE,
     .help = "the directory that `host` measures (default: .)"},
    {.name = "smallest-block",
     .kind = EBB_OPTION_SIZE,
     .argument = "B",
     AT(smallest_block_bytes),
     .commands = PLAN | COMPARE | SIMULATE,
     .help = "smaller blocks stay resident (default 256K)"},
    {.name = "plan",
     .kind = EBB_OPTION_TEXT,
     .argument = "PLAN",
     AT(plan_path),
     .commands = PACK,
     .help = "of a trace: under a plan that 'ebb plan -o' wrote; a block may be fetched\n"
             "to another address"},
    {.name = "capacity",
     .kind = EBB_OPTION_SIZE,
     .argument = "N",
     AT(capacity_bytes),
     .commands = PACK,
     .help = "is there a packing within N (bytes, 4G, 512MiB)? Without it: the lowest\n"
             "that is found"},
    {.name = "pool",
     .kind = EBB_OPTION_TEXT,
     .argument = "P",
     AT(pool),
     .commands = PACK,
     .help = "how to pack; the first is the default:",
     .names = ebb__pool_name},
    {.name = "period",
     .kind = EBB_OPTION_COUNT,
     .argument = "T",
     AT(period),
     .commands = PACK,
     .help = "lifetimes of the CSV file are on a circle of T"},
    {.name = "seeds",
     .kind = EBB_OPTION_COUNT,
     .argument = "N",
     AT(seeds),
     .commands = COMPARE,
     .help = "plan with N seeds where chance decides, and show the spread (default 1)"},
    {.name = "time-limit",
     .kind = EBB_OPTION_SECONDS,
     .argument = "S",
     AT(time_limit_ns),
     .commands = PLAN | COMPARE | PACK,
     .help = "seconds that a plan or packing may take; what is found then depends on\n"
             "the machine (default: as many as its effort, a number of steps, takes)"},
    {.name = "output",
     .letter = 'o',
     .kind = EBB_OPTION_TEXT,
     .argument = "FILE",
     AT(out_path),
     .commands = PLAN | PACK,
     .help = "write the plan (JSON), or the addresses (CSV)"},
    {.name = "csv",
     .kind = EBB_OPTION_TEXT,
     .argument = "FILE",
     AT(csv_path),
     .commands = COMPARE,
     .help = "write a line for each plan"},
    {.name = "plot",
     .kind = EBB_OPTION_TEXT,
     .argument = "FILE",
     AT(plot_path),
     .commands = COMPARE,
     .help = "draw budget against slow-down (SVG)"},
    {.name = "force",
     .letter = 'f',
     .kind = EBB_OPTION_FLAG,
     AT(force),
     .commands = COMPARE,
     .help = "replace files that exist"},
    {.name = "tune",
     .kind = EBB_OPTION_TUNE,
     .argument = "N=V",
     .help = "another number than the table has, any number of times; help: lists them"},
    {.name = "json",
     .kind = EBB_OPTION_FLAG,
     AT(json),
     .help = "one JSON object on stdout; bytes and nanoseconds as integers"},
};

int ebb__offline_parse(enum ebb_offline_command command, const char *name, const char *text,
                       const char *tail, int argc, char **argv, struct ebb_offline *values)
{
    const struct ebb_usage usage = {.command = name,
                                    .text = text,
                                    .options = options,
                                    .count = sizeof options / sizeof options[0],
                                    .commands = command,
                                    .tail = tail};
    int code = ebb__options_parse(&usage, argc, argv, values);
    if (values->smallest_block_bytes == EBB_OFFLINE_TUNED)
        values->smallest_block_bytes = ebb__tuning()->plan_smallest_block_bytes;
    return code;
}
