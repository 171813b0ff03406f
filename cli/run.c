/* `ebb run`: runs a program within a memory budget. */
#include "choices.h"
#include "command.h"
#include "free_memory.h"
#include "gpu.h"
#include "launch.h"
#include "options.h"
#include "output.h"
#include "store_dir.h"
#include "summary.h"

#include "base/geometry.h"
#include "base/size.h"
#include "store/store.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEAST_THRESHOLD_BYTES 4096 /* a page */

struct run_options {
    struct ebb_parent_options serving;
    struct ebb_option_texts stores;
    const char *budget, *policy, *summary_json;
    int summary;  /* enum ebb_summary_when */
    int compress; /* enum ebb_compress */
    int device;   /* enum ebb_device_choice */
    int backing;  /* enum ebb_gpu_backing */
    bool strict, quiet, no_env, no_cache;
    struct ebb_gpu gpu;
    struct ebb_shims shims;
};

#define AT(member) .offset = offsetof(struct run_options, member)

static const char *compress_word(size_t index)
{
    static const char *const words[] = {"auto", "on", "off"}; /* enum ebb_compress */
    return index < sizeof words / sizeof words[0] ? words[index] : NULL;
}

static const struct ebb_option known[] = {
    {.name = "budget",
     .letter = 'b',
     .kind = EBB_OPTION_TEXT,
     .argument = "SIZE|PERCENT",
     AT(budget),
     .help = "4G, 512MiB, 4GB (1000-based), or 60% of what CMD would take\n"
             "(default: 90 % of the free memory, or of the GPU's)"},
    {.name = "device",
     .kind = EBB_OPTION_WORD,
     .argument = "D",
     AT(device),
     .words = ebb__gpu_choice_name,
     .help = "whose memory: auto (default: the GPU's of processes that use it,\n"
             "the host's of others), cpu, cuda"},
    {.name = "cuda-backing",
     .kind = EBB_OPTION_WORD,
     .argument = "B",
     AT(backing),
     .words = ebb__gpu_backing_name,
     .help = "how blocks leave a GPU: managed (default), vmm-host, vmm-trusting\n"
             "(the last one relies on kernels that name what they use)"},
    {.name = "store",
     .kind = EBB_OPTION_TEXTS,
     .argument = "DIR",
     AT(stores),
     .help = "where evicted blocks go (default: a directory on a disk); given\n"
             "several times, they are striped; memory or memory:NODE: a file\n"
             "in memory, on that NUMA node\n"
             "(what was written stays in a disk's free blocks, as swap does: for\n"
             "secret data give a directory on an encrypted disk)"},
    {.name = "store-limit",
     .kind = EBB_OPTION_SIZE,
     .argument = "SIZE",
     AT(serving.store_limit_bytes),
     .help = "most bytes there; on GPUs: most bytes of host memory for what\n"
             "leaves them. Of all processes together"},
    {.name = "compress",
     .kind = EBB_OPTION_WORD,
     .argument = "WHEN",
     AT(compress),
     .words = compress_word,
     .help = "do not store zeros: auto (default: if the\n"
             "store is slower than 1 GB/s), on, off"},
    {.name = "policy",
     .kind = EBB_OPTION_TEXT,
     .argument = "P",
     AT(policy),
     .help = "how to plan; the first is the default:",
     .names = ebb__policy_name},
    {.name = "record",
     .kind = EBB_OPTION_TEXT,
     .argument = "FILE",
     AT(serving.record_path),
     .help = "write a trace as well; a file that exists is replaced"},
    {.name = "summary",
     .kind = EBB_OPTION_WORD,
     .argument = "WHEN",
     AT(summary),
     .words = ebb__summary_when_name,
     .help = "never, auto (default: if stderr is a terminal), always"},
    {.name = "summary-json",
     .kind = EBB_OPTION_TEXT,
     .argument = "FILE",
     AT(summary_json),
     .help = "the figures, as one JSON object; a file that exists is replaced"},
    {.name = "strict",
     .kind = EBB_OPTION_FLAG,
     AT(strict),
     .help = "stop (125) if the budget cannot be enforced"},
    {.name = "verify",
     .kind = EBB_OPTION_FLAG,
     AT(serving.verify),
     .help = "check every fetch from the store by a 128-bit hash"},
    {.name = "threshold",
     .kind = EBB_OPTION_SIZE,
     .argument = "SIZE",
     AT(serving.threshold_bytes),
     .help = "smaller blocks are left alone (default 128 KiB)"},
    {.name = "no-cache",
     .kind = EBB_OPTION_FLAG,
     AT(no_cache),
     .help = "neither read nor write a plan cache"},
    {.name = "no-env",
     .kind = EBB_OPTION_FLAG,
     AT(no_env),
     .help = "set nothing in CMD's environment for its framework"},
    {.name = "tune",
     .kind = EBB_OPTION_TUNE,
     .argument = "NAME=VALUE",
     .help = "another number than the table has, any number of times; help: lists\n"
             "them"},
    {.name = "quiet",
     .letter = 'q',
     .kind = EBB_OPTION_FLAG,
     AT(quiet),
     .help = "no messages of Ebb's own"},
    {0},
};

const struct ebb_usage ebb__usage_run = {
    .command = "run",
    .text = "usage: ebb run [options] [--] CMD...\n\n"
            "Runs CMD unchanged within a memory budget: same results, little time lost.\n",
    .options = known,
    .tail = "CMD's exit code is passed through; 125: Ebb's own failure, 126: CMD cannot be "
            "executed,\n127: CMD not found.\n",
    .operands = EBB_OPERANDS_COMMAND,
    .column = 29,
    .exit_code = EBB_EXIT_OWN_FAILURE,
};

static int wrong(const char *message, const char *value)
{
    ebb__command_usage("run", message, value);
    return EBB_EXIT_OWN_FAILURE;
}

static bool set_budget(struct run_options *run)
{
    if (!run->budget || ebb_percent_parse(run->budget, &run->serving.budget_fraction))
        return true;
    run->serving.budget_fraction = 0;
    return ebb_size_parse(run->budget, &run->serving.budget_bytes) && run->serving.budget_bytes > 0;
}

/* Returns -1 to continue, or the exit code. */
static int parse(int argc, char **argv, struct run_options *run)
{
    int code = ebb__options_parse(&ebb__usage_run, argc, argv, run);
    if (code >= 0)
        return code;
    if (!set_budget(run))
        return wrong("--budget: '%s' is neither a size (4G, 512MiB) nor a percentage", run->budget);
    if (run->stores.count > EBB_STORE_MOST_PLACES) {
        ebb__command_usage("run", "--store: at most %d of them", EBB_STORE_MOST_PLACES);
        return EBB_EXIT_OWN_FAILURE;
    }
    if (run->serving.threshold_bytes < LEAST_THRESHOLD_BYTES)
        return wrong("--threshold: not a size of at least %s", "4 KiB");
    if (run->policy && !(run->serving.policy = ebb__policy_choose("run", run->policy)))
        return EBB_EXIT_OWN_FAILURE;
    run->serving.compress = (enum ebb_compress)run->compress;
    run->serving.gpu_backing = (enum ebb_gpu_backing)run->backing;
    if (run->quiet)
        run->serving.warn = NULL;
    return optind == argc ? wrong("%s", "no command given") : -1;
}

static void write_summary(const struct ebb_summary *summary, const char *path)
{
    struct ebb_output output;
    struct ebb_error error;
    enum ebb_status status = ebb__output_open(path, &output, &error);
    if (!status) {
        output.in_place = true;
        ebb__summary_json(summary, output.stream);
        status = ebb__output_close(&output, true, &error);
    }
    if (status)
        ebb__command_fail("run", &error); /* the exit code is that of CMD */
}

static void tell(const struct run_options *run, const struct ebb_summary *summary)
{
    if (run->summary_json)
        write_summary(summary, run->summary_json);
    if (!run->quiet && (run->summary == EBB_SUMMARY_ALWAYS ||
                        (run->summary == EBB_SUMMARY_AUTO && isatty(STDERR_FILENO))))
        ebb__summary_text(summary, stderr);
}

/* Says why nothing was managed, if that is not plain. */
static void tell_unmanaged(const struct run_options *run, struct ebb_summary *summary)
{
    const struct ebb_process_figures *processes = &summary->figures.processes;
    bool only_gpu = !run->shims.has[EBB_SHIM_MALLOC];
    summary->is_told = !processes->managing && (only_gpu || processes->retired);
    if (summary->is_told && !run->quiet)
        fprintf(stderr,
                "ebb: run: the program %s: nothing was managed; --device cpu manages host "
                "memory\n",
                only_gpu ? "did not use the GPU" : "used the GPU, but in no way that Ebb manages");
}

/* Runs the program under the parent. Returns how it ended. */
static struct ebb_launch_result serve(const struct run_options *run, char **argv,
                                      struct ebb_parent *parent, bool default_budget)
{
    struct ebb_error error = {0};
    struct ebb_setting settings[EBB_MOST_SETTINGS];
    struct ebb_launch launch = {.command_name = "run",
                                .argv = argv,
                                .shims = run->shims,
                                .strict = run->strict,
                                .quiet = run->quiet,
                                .settings = settings};
    if (!run->no_env)
        launch.setting_count = ebb__settings_choose(settings, run->shims.has[EBB_SHIM_MALLOC],
                                                    run->shims.has[EBB_SHIM_CUDA]);
    struct ebb_launch_result launched = ebb__launch(&launch, parent);
    struct ebb_summary summary = {
        .launch = &launched,
        .policy = run->serving.policy->name,
        .default_budget = default_budget,
        .settings = settings,
        .setting_count = launch.setting_count,
    };
    if (ebb__parent_finish(parent, &summary.figures, &error) != EBB_OK) {
        ebb__command_fail("run", &error);
        if (launched.exit_code < 0)
            launched.exit_code = EBB_EXIT_OWN_FAILURE;
    }
    ebb__parent_destroy(parent);
    tell_unmanaged(run, &summary);
    if (run->strict && ebb__summary_budget_exceeded(&summary) && launched.exit_code < 0) {
        fprintf(stderr, "ebb: run: the budget could not be kept\n");
        launched.exit_code = EBB_EXIT_OWN_FAILURE;
    }
    tell(run, &summary);
    return launched;
}

/* A budget above the memory of all GPUs is that of the largest one. It holds for each of them, and
 * the parent limits it to what each has. The host's memory may have more. */
static void limit_to_gpu(struct run_options *run)
{
    char asked[32], there[32];
    if (run->shims.has[EBB_SHIM_MALLOC] || run->serving.budget_bytes <= run->gpu.most_bytes)
        return;
    if (!run->quiet)
        fprintf(stderr, "ebb: run: --budget: %s are more than %s has: the budget is %s\n",
                ebb_size_format(run->serving.budget_bytes, asked, sizeof asked), run->gpu.most_name,
                ebb_size_format(run->gpu.most_bytes, there, sizeof there));
    run->serving.budget_bytes = run->gpu.most_bytes;
}

/* The system would kill the program that takes more host memory than there is. */
static void limit_to_free_memory(struct run_options *run)
{
    if (run->shims.has[EBB_SHIM_CUDA] && run->serving.store_limit_bytes == UINT64_MAX)
        run->serving.device_store_limit_bytes = ebb__free_memory_budget();
}

int ebb__cmd_run(int argc, char **argv)
{
    struct run_options run = {
        .serving = {.policy = ebb__policy_at(0),
                    .budget_bytes = 0,
                    .store_limit_bytes = UINT64_MAX,
                    .threshold_bytes = EBB_THRESHOLD_BYTES,
                    .warn = ebb__launch_warn},
        .summary = EBB_SUMMARY_AUTO,
    };
    int code = parse(argc, argv, &run);
    if (code >= 0)
        return code;
    struct ebb_error error = {0};
    char store[PATH_MAX];
    if (ebb__store_places_find(run.stores.items, run.stores.count, store, sizeof store, &error) !=
        EBB_OK) {
        ebb__command_fail("run", &error);
        return EBB_EXIT_OWN_FAILURE;
    }
    run.serving.store = store;
    char cache[PATH_MAX];
    if (!run.no_cache && ebb__cache_dir_find(cache, sizeof cache))
        run.serving.cache = cache;
    char command[256]; /* as much as a trace's header holds */
    ebb__launch_command_text(argv + optind, command, sizeof command);
    run.serving.command = command;
    if (!ebb__gpu_decide("run", (enum ebb_device_choice)run.device, run.quiet, &run.gpu,
                         &run.shims))
        return EBB_EXIT_OWN_FAILURE;
    bool chosen = run.serving.budget_fraction > 0 || run.serving.budget_bytes > 0;
    if (!chosen && run.shims.has[EBB_SHIM_CUDA])
        run.serving.budget_bytes = run.serving.device_budget_bytes = run.gpu.bytes / 10 * 9;
    if (!chosen && run.shims.has[EBB_SHIM_MALLOC])
        run.serving.budget_bytes = ebb__free_memory_budget();
    limit_to_gpu(&run);
    limit_to_free_memory(&run);
    struct ebb_parent *parent;
    /* A bad path of the summary is told before CMD starts, so that it wastes no training. */
    if ((run.summary_json && ebb__output_check_in_place(run.summary_json, &error)) ||
        ebb__parent_create(&run.serving, &parent, &error) != EBB_OK) {
        ebb__command_fail("run", &error);
        return EBB_EXIT_OWN_FAILURE;
    }
    struct ebb_launch_result launched = serve(&run, argv + optind, parent, !chosen);
    ebb__launch_exit(&launched);
}
