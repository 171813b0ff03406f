/* `ebb`: finds the command and calls it. */
#include "command.h"
#include "describe.h"
#include "lab.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <zstd.h>

static const struct ebb_command commands[] = {
    {"run", "run a program within a memory budget", ebb__cmd_run, &ebb__usage_run},
    {"record", "run a program and record its memory behaviour", ebb__cmd_record,
     &ebb__usage_record},
    {"info", "say what a trace holds: iterations, blocks, load", ebb__cmd_info, &ebb__usage_info},
    {"advise", "say which budgets a program needs, from a trace", ebb__cmd_advise,
     &ebb__usage_advise},
    {"report", "show a trace or a run as one HTML page, or as text", ebb__cmd_report,
     &ebb__usage_report},
    {"plan", "plan, check and simulate a budget for a trace", ebb__cmd_plan, &ebb__usage_plan},
    {"simulate", "replay a trace under a plan and a machine", ebb__cmd_simulate,
     &ebb__usage_simulate},
    {"compare", "compare policies and budgets, and allocators, on traces", ebb__cmd_compare,
     &ebb__usage_compare},
    {"pack", "give blocks addresses: a CSV file of lifetimes, or a trace", ebb__cmd_pack,
     &ebb__usage_pack},
    {"top", "show the programs that run under Ebb, live", ebb__cmd_top, &ebb__usage_top},
    {"doctor", "say what this machine supports", ebb__cmd_doctor, &ebb__usage_doctor},
    {"import", "turn a trace of another tool into an Ebb trace", ebb__cmd_import,
     &ebb__usage_import},
};

static const size_t command_count = sizeof commands / sizeof commands[0];

static void print_help(FILE *out)
{
    fputs("usage: ebb COMMAND [options] ...\n\n"
          "Ebb runs a training program in less memory than it asks for:\n"
          "no code change, the same numbers, little time lost.\n\ncommands:\n",
          out);
    for (size_t i = 0; i < command_count; i++)
        fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].does);
    fputs("\n  ebb COMMAND --help    options of one command\n"
          "  ebb --version [-v]    version, with -v the libraries it was built with\n"
          "  ebb --describe        all commands and options, as JSON (ebb.describe/1)\n\n"
          "example: ebb run --budget 8G -- python3 train.py\n",
          out);
}

/* If ebb is called without stdin, stdout or stderr, opens these numbers. Otherwise a file of Ebb
 * could take the number and receive that output. The started program still lacks them. */
static void keep_standard_descriptors(void)
{
    for (int descriptor = 0; descriptor <= 2; descriptor++)
        if (fcntl(descriptor, F_GETFD) < 0 && open("/dev/null", O_RDWR | O_CLOEXEC) != descriptor)
            return;
}

int main(int argc, char **argv)
{
    keep_standard_descriptors();
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("ebb %s\n", EBB_VERSION);
        if (argc > 2 && strcmp(argv[2], "-v") == 0)
            printf("zstd %s\njansson %s\nsrc/lab %s\n", ZSTD_versionString(), jansson_version_str(),
                   ebb__lab_is_here() ? "yes" : "no");
        return 0;
    }
    if (strcmp(argv[1], "--describe") == 0)
        return ebb__describe(commands, command_count);
    for (size_t i = 0; i < command_count; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "ebb: unknown command '%s'\nebb: see 'ebb --help'\n", argv[1]);
    return 2;
}
