/* `ebb record`: runs a program and records its memory behaviour, without a change to it. */
#include "command.h"
#include "gpu.h"
#include "launch.h"
#include "options.h"

#include "base/geometry.h"
#include "base/size.h"
#include "plan/plan.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct options {
    struct ebb_parent_options serving;
    bool quiet;
    int device; /* enum ebb_device_choice */
};

#define AT(member) .offset = offsetof(struct options, member)

static const struct ebb_option known[] = {
    {.name = "output",
     .letter = 'o',
     .kind = EBB_OPTION_TEXT,
     .argument = "FILE",
     AT(serving.record_path),
     .help = "the trace (.ebbt), written as CMD runs; a file that exists is replaced"},
    {.name = "device",
     .kind = EBB_OPTION_WORD,
     .argument = "D",
     AT(device),
     .words = ebb__gpu_choice_name,
     .help = "whose memory: auto (default: the GPU's of processes that use it,\n"
             "the host's of others), cpu, cuda"},
    {.name = "threshold",
     .kind = EBB_OPTION_SIZE,
     .argument = "SIZE",
     AT(serving.threshold_bytes),
     .help = "smaller blocks are not recorded (default 128 KiB)"},
    {.name = "quiet",
     .letter = 'q',
     .kind = EBB_OPTION_FLAG,
     AT(quiet),
     .help = "no messages of Ebb's own"},
    {0},
};

const struct ebb_usage ebb__usage_record = {
    .command = "record",
    .text = "usage: ebb record -o FILE [options] -- CMD...\n\n"
            "Runs CMD and writes every managed allocation and free of the whole run to FILE, with\n"
            "the accesses of at least two whole iterations. CMD's exit code is passed through.\n",
    .options = known,
    .tail = "example: ebb record -o run.ebbt -- python3 train.py\n",
    .operands = EBB_OPERANDS_COMMAND,
    .column = 25,
    .exit_code = EBB_EXIT_OWN_FAILURE,
};

/* Returns -1 to continue, or the exit code. */
static int parse(int argc, char **argv, struct options *options)
{
    int code = ebb__options_parse(&ebb__usage_record, argc, argv, options);
    if (code >= 0)
        return code;
    const char *wrong = options->serving.threshold_bytes == 0 ? "--threshold: not a size above 0"
                        : !options->serving.record_path       ? "no -o FILE"
                        : optind == argc                      ? "no command given"
                                                              : NULL;
    if (wrong) {
        ebb__command_usage("record", "%s", wrong);
        return EBB_EXIT_OWN_FAILURE;
    }
    if (options->quiet)
        options->serving.warn = NULL;
    return -1;
}

int ebb__cmd_record(int argc, char **argv)
{
    struct options options = {.serving = {
                                  .record = true,
                                  .policy = ebb__plan_policy("none"),
                                  .budget_bytes = UINT64_MAX,
                                  .threshold_bytes = EBB_THRESHOLD_BYTES,
                                  .warn = ebb__launch_warn,
                              }};
    int code = parse(argc, argv, &options);
    if (code >= 0)
        return code;
    struct ebb_gpu gpu;
    struct ebb_shims shims;
    if (!ebb__gpu_decide("record", (enum ebb_device_choice)options.device, options.quiet, &gpu,
                         &shims))
        return EBB_EXIT_OWN_FAILURE;
    char command[256];
    ebb__launch_command_text(argv + optind, command, sizeof command);
    options.serving.command = command;
    struct ebb_parent *parent;
    struct ebb_error error = {0};
    if (ebb__parent_create(&options.serving, &parent, &error) != EBB_OK) {
        ebb__command_fail("record", &error);
        return EBB_EXIT_OWN_FAILURE;
    }
    struct ebb_setting settings[EBB_MOST_SETTINGS];
    struct ebb_launch launch = {.command_name = "record",
                                .argv = argv + optind,
                                .shims = shims,
                                .quiet = options.quiet,
                                .settings = settings};
    /* Without them, the trace of a GPU has regions in place of tensors. */
    launch.setting_count = ebb__settings_choose(settings, false, shims.has[EBB_SHIM_CUDA]);
    struct ebb_launch_result result = ebb__launch(&launch, parent);
    struct ebb_parent_result figures;
    if (ebb__parent_finish(parent, &figures, &error) != EBB_OK) {
        ebb__command_fail("record", &error);
        if (result.exit_code < 0)
            result.exit_code = EBB_EXIT_OWN_FAILURE;
    }
    ebb__parent_destroy(parent);
    ebb__launch_exit(&result);
}
