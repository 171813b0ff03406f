/* `ebb record`: runs a program and records its memory behaviour, without a change to it. */
#include "command.h"
#include "gpu.h"
#include "launch.h"

#include "base/geometry.h"
#include "base/size.h"
#include "plan/plan.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "usage: ebb record -o FILE [options] -- CMD...\n\n"
    "Runs CMD and writes every managed allocation and free of the whole run to FILE, with\n"
    "the accesses of at least two whole iterations. CMD's exit code is passed through.\n\n"
    "  -o, --output FILE      the trace (.ebbt)\n"
    "      --device D         whose memory: auto (default: the GPU's if there is one), cpu, cuda\n"
    "      --threshold SIZE   smaller blocks are not recorded (default 128 KiB)\n"
    "  -q, --quiet            no messages of Ebb's own\n";

/* Returns -1 to continue, or the exit code. */
static int parse(int argc, char **argv, struct ebb_parent_options *serving, bool *quiet,
                 enum ebb_device_choice *device)
{
    static const struct option options[] = {
        {"output", required_argument, NULL, 'o'}, {"threshold", required_argument, NULL, 't'},
        {"device", required_argument, NULL, 'd'}, {"quiet", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "+o:qh", options, NULL)) != -1) {
        switch (option) {
        case 'o':
            serving->record_path = optarg;
            break;
        case 't':
            if (!ebb_size_parse(optarg, &serving->threshold_bytes) ||
                serving->threshold_bytes == 0) {
                ebb__command_usage("record", "--threshold: '%s' is not a size", optarg);
                return EBB_EXIT_OWN_FAILURE;
            }
            break;
        case 'd':
            if (!ebb__gpu_choice(optarg, device)) {
                ebb__command_usage("record", "--device: '%s' is none of auto, cpu, cuda", optarg);
                return EBB_EXIT_OWN_FAILURE;
            }
            break;
        case 'q':
            *quiet = true;
            serving->warn = NULL;
            break;
        case 'h':
            fputs(help, stdout);
            return 0;
        default:
            ebb__command_usage("record", "unknown option or missing value: %s", argv[optind - 1]);
            return EBB_EXIT_OWN_FAILURE;
        }
    }
    if (!serving->record_path || optind == argc) {
        ebb__command_usage("record", "%s",
                           serving->record_path ? "no command given" : "no -o FILE");
        return EBB_EXIT_OWN_FAILURE;
    }
    return -1;
}

int ebb__cmd_record(int argc, char **argv)
{
    struct ebb_parent_options serving = {
        .record = true,
        .policy = ebb__plan_policy("none"),
        .budget_bytes = UINT64_MAX,
        .threshold_bytes = EBB_THRESHOLD_BYTES,
        .warn = ebb__launch_warn,
    };
    bool quiet = false;
    enum ebb_device_choice device = EBB_CHOOSE_AUTO;
    int code = parse(argc, argv, &serving, &quiet, &device);
    if (code >= 0)
        return code;
    struct ebb_gpu gpu;
    bool is_cuda;
    if (!ebb__gpu_decide("record", device, quiet, &gpu, &is_cuda))
        return EBB_EXIT_OWN_FAILURE;
    char command[256];
    ebb__launch_command_text(argv + optind, command, sizeof command);
    serving.command = command;
    struct ebb_parent *parent;
    struct ebb_error error = {0};
    if (ebb__parent_create(&serving, &parent, &error) != EBB_OK) {
        ebb__command_fail("record", &error);
        return EBB_EXIT_OWN_FAILURE;
    }
    struct ebb_setting settings[EBB_MOST_SETTINGS];
    struct ebb_launch launch = {.command_name = "record",
                                .argv = argv + optind,
                                .shim = is_cuda ? EBB_SHIM_CUDA : EBB_SHIM_MALLOC,
                                .quiet = quiet,
                                .settings = settings};
    if (is_cuda) /* without them, the trace has regions in place of tensors */
        launch.setting_count = ebb__settings_choose(settings, true);
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
