/* `ebb run`: runs a program within a memory budget. */
#include "choices.h"
#include "command.h"
#include "gpu.h"
#include "launch.h"
#include "options.h"
#include "store_dir.h"
#include "summary.h"
#include "tune.h"

#include "base/geometry.h"
#include "base/size.h"
#include "store/store.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POLICY_COLUMN 29 /* the column of an option's help */

static const char help_head[] =
    "usage: ebb run [options] [--] CMD...\n\n"
    "Runs CMD unchanged within a memory budget: same results, little time lost.\n\n"
    "  -b, --budget SIZE|PERCENT  4G, 512MiB, 4GB (1000-based), or 60% of what CMD would take\n"
    "                             (default: 90 % of the free memory, or of the GPU's)\n"
    "      --device D             whose memory: auto (default: the GPU's if there is one), cpu, cuda\n"
    "      --store DIR            where evicted blocks go (default: a directory on a disk); given\n"
    "                             several times, they are striped; memory or memory:NODE: a file\n"
    "                             in memory, on that NUMA node\n"
    "                             (what was written stays in a disk's free blocks, as swap does: for\n"
    "                             secret data give a directory on an encrypted disk)\n"
    "      --store-limit SIZE     most bytes there\n"
    "      --compress WHEN        do not store zeros: auto (default: if the\n"
    "                             store is slower than 1 GB/s), on, off\n"
    "      --policy P             how to plan; the first is the default:\n"
    "                             ";
static const char help_tail[] =
    "\n      --record FILE          write a trace as well\n"
    "      --summary=WHEN         never, auto (default: if stderr is a terminal), always\n"
    "      --summary-json FILE    the figures, as one JSON object\n"
    "      --strict               stop (125) if the budget cannot be enforced\n"
    "      --verify               check every fetch from the store by a 128-bit hash\n"
    "      --threshold SIZE       smaller blocks are left alone (default 128 KiB)\n"
    "      --no-cache             neither read nor write a plan cache\n"
    "      --no-env               set nothing in CMD's environment for its framework\n"
    "      --tune NAME=VALUE      another number than the table has, any number of times; help: lists\n"
    "                             them\n"
    "  -q, --quiet                no messages of Ebb's own\n\n"
    "CMD's exit code is passed through; 125: Ebb's own failure, 126: CMD cannot be executed,\n"
    "127: CMD not found.\n";

enum {
    OPTION_STORE = 256,
    OPTION_LIMIT,
    OPTION_COMPRESS,
    OPTION_POLICY,
    OPTION_RECORD,
    OPTION_SUMMARY,
    OPTION_JSON,
    OPTION_STRICT,
    OPTION_VERIFY,
    OPTION_THRESHOLD,
    OPTION_NO_ENV,
    OPTION_NO_CACHE,
    OPTION_TUNE,
    OPTION_DEVICE,
};

struct run_options {
    struct ebb_parent_options serving;
    const char *stores[EBB_STORE_MOST_PLACES];
    size_t store_count;
    enum ebb_summary_when summary;
    const char *summary_json;
    bool strict, quiet, no_env, no_cache;
    enum ebb_device_choice device;
    struct ebb_gpu gpu;
    bool is_cuda;
};

static int set_budget(struct ebb_parent_options *serving, const char *value)
{
    if (ebb_percent_parse(value, &serving->budget_fraction))
        return 0;
    serving->budget_fraction = 0;
    if (ebb_size_parse(value, &serving->budget_bytes) && serving->budget_bytes > 0)
        return 0;
    ebb__command_usage("run", "--budget: '%s' is neither a size (4G, 512MiB) nor a percentage",
                       value);
    return EBB_EXIT_OWN_FAILURE;
}

/* Options without a value. */
static int set_flag(struct run_options *run, int option)
{
    switch (option) {
    case OPTION_STRICT:
        run->strict = true;
        return 0;
    case OPTION_VERIFY:
        run->serving.verify = true;
        return 0;
    case OPTION_NO_ENV:
        run->no_env = true;
        return 0;
    case OPTION_NO_CACHE:
        run->no_cache = true;
        return 0;
    case 'q':
        run->quiet = true;
        run->serving.warn = NULL;
        return 0;
    default:
        return EBB_EXIT_OWN_FAILURE;
    }
}

/* Returns 0, or the exit code if the option is wrong. */
static int set_option(struct run_options *run, int option, const char *value)
{
    static const char *const compress_words[] = {"auto", "on", "off"}; /* enum ebb_compress */
    struct ebb_parent_options *serving = &run->serving;
    int word;
    switch (option) {
    case 'b':
        return set_budget(serving, value);
    case OPTION_STORE:
        if (run->store_count == EBB_STORE_MOST_PLACES) {
            ebb__command_usage("run", "--store: at most %d of them", EBB_STORE_MOST_PLACES);
            return EBB_EXIT_OWN_FAILURE;
        }
        run->stores[run->store_count++] = value;
        return 0;
    case OPTION_LIMIT:
        if (ebb_size_parse(value, &serving->store_limit_bytes))
            return 0;
        ebb__command_usage("run", "--store-limit: '%s' is not a size", value);
        return EBB_EXIT_OWN_FAILURE;
    case OPTION_COMPRESS:
        word = ebb__option_word(value, compress_words, 3);
        if (word >= 0) {
            serving->compress = (enum ebb_compress)word;
            return 0;
        }
        ebb__command_usage("run", "--compress: '%s' is none of auto, on, off", value);
        return EBB_EXIT_OWN_FAILURE;
    case OPTION_THRESHOLD:
        if (ebb_size_parse(value, &serving->threshold_bytes) && serving->threshold_bytes >= 4096)
            return 0;
        ebb__command_usage("run", "--threshold: '%s' is not a size of at least 4 KiB", value);
        return EBB_EXIT_OWN_FAILURE;
    case OPTION_POLICY:
        serving->policy = ebb__policy_choose("run", value);
        return serving->policy ? 0 : EBB_EXIT_OWN_FAILURE;
    case OPTION_DEVICE:
        if (ebb__gpu_choice(value, &run->device))
            return 0;
        ebb__command_usage("run", "--device: '%s' is none of auto, cpu, cuda", value);
        return EBB_EXIT_OWN_FAILURE;
    case OPTION_RECORD:
        serving->record_path = value;
        return 0;
    case OPTION_SUMMARY:
        if (ebb__summary_when(value, &run->summary))
            return 0;
        ebb__command_usage("run", "--summary: '%s' is none of never, auto, always", value);
        return EBB_EXIT_OWN_FAILURE;
    case OPTION_JSON:
        run->summary_json = value;
        return 0;
    default:
        return set_flag(run, option);
    }
}

/* Opens the summary's file before CMD starts, so that a bad path wastes no training. */
static FILE *open_summary(const struct run_options *run, int *failed)
{
    if (!run->summary_json)
        return NULL;
    FILE *file = fopen(run->summary_json, "we");
    if (!file) {
        struct ebb_error error;
        enum ebb_status status =
            ebb__fail(&error, EBB_ERR_IO, run->summary_json, "%s", strerror(errno));
        ebb__command_fail("run", &error);
        *failed = status != EBB_OK;
    }
    return file;
}

/* Returns -1 to continue, or the exit code. */
static int parse(int argc, char **argv, struct run_options *run)
{
    static const struct option options[] = {
        {"budget", required_argument, NULL, 'b'},
        {"device", required_argument, NULL, OPTION_DEVICE},
        {"store", required_argument, NULL, OPTION_STORE},
        {"store-limit", required_argument, NULL, OPTION_LIMIT},
        {"compress", required_argument, NULL, OPTION_COMPRESS},
        {"policy", required_argument, NULL, OPTION_POLICY},
        {"record", required_argument, NULL, OPTION_RECORD},
        {"summary", required_argument, NULL, OPTION_SUMMARY},
        {"summary-json", required_argument, NULL, OPTION_JSON},
        {"strict", no_argument, NULL, OPTION_STRICT},
        {"verify", no_argument, NULL, OPTION_VERIFY},
        {"threshold", required_argument, NULL, OPTION_THRESHOLD},
        {"no-cache", no_argument, NULL, OPTION_NO_CACHE},
        {"no-env", no_argument, NULL, OPTION_NO_ENV},
        {"tune", required_argument, NULL, OPTION_TUNE},
        {"quiet", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "+b:qh", options, NULL)) != -1) {
        if (option == 'h') {
            fputs(help_head, stdout);
            ebb__option_names(ebb__policy_name, POLICY_COLUMN);
            fputs(help_tail, stdout);
            return 0;
        }
        if (option == '?' || option == ':') {
            ebb__command_usage("run", "unknown option or missing value: %s", argv[optind - 1]);
            return EBB_EXIT_OWN_FAILURE;
        }
        if (option == OPTION_TUNE) {
            int code = ebb__tune_take("run", optarg);
            if (code >= 0)
                return code;
            continue;
        }
        int failed = set_option(run, option, optarg);
        if (failed)
            return failed;
    }
    if (optind == argc) {
        ebb__command_usage("run", "no command given");
        return EBB_EXIT_OWN_FAILURE;
    }
    return -1;
}

static void tell(const struct run_options *run, const struct ebb_summary *summary, FILE *json)
{
    if (json)
        ebb__summary_json(summary, json);
    if (!run->quiet && (run->summary == EBB_SUMMARY_ALWAYS ||
                        (run->summary == EBB_SUMMARY_AUTO && isatty(STDERR_FILENO))))
        ebb__summary_text(summary, stderr);
}

/* Runs the program under the parent. Returns how it ended. */
static struct ebb_launch_result serve(const struct run_options *run, char **argv,
                                      struct ebb_parent *parent, bool default_budget, FILE *json)
{
    struct ebb_error error = {0};
    struct ebb_setting settings[EBB_MOST_SETTINGS];
    struct ebb_launch launch = {.command_name = "run",
                                .argv = argv,
                                .shim = run->is_cuda ? EBB_SHIM_CUDA : EBB_SHIM_MALLOC,
                                .strict = run->strict,
                                .quiet = run->quiet,
                                .settings = settings};
    if (!run->no_env)
        launch.setting_count = ebb__settings_choose(settings, run->is_cuda);
    struct ebb_launch_result launched = ebb__launch(&launch, parent);
    struct ebb_summary summary = {
        .launch = &launched,
        .policy = run->serving.policy->name,
        .default_budget = default_budget,
        .on_gpu = run->is_cuda,
        .settings = settings,
        .setting_count = launch.setting_count,
    };
    if (ebb__parent_finish(parent, &summary.figures, &error) != EBB_OK) {
        ebb__command_fail("run", &error);
        if (launched.exit_code < 0)
            launched.exit_code = EBB_EXIT_OWN_FAILURE;
    }
    ebb__parent_destroy(parent);
    if (run->is_cuda && !run->quiet && !summary.figures.processes.managing)
        fprintf(stderr, "ebb: run: the program did not use the GPU: nothing was managed; --device "
                        "cpu manages host memory\n");
    if (run->strict && ebb__summary_budget_exceeded(&summary) && launched.exit_code < 0) {
        fprintf(stderr, "ebb: run: the budget could not be kept\n");
        launched.exit_code = EBB_EXIT_OWN_FAILURE;
    }
    tell(run, &summary, json);
    return launched;
}

/* A budget above the GPU's memory is the GPU's memory. */
static void limit_to_gpu(struct run_options *run)
{
    char asked[32], there[32];
    if (!run->is_cuda || run->serving.budget_bytes <= run->gpu.bytes)
        return;
    if (!run->quiet)
        fprintf(stderr, "ebb: run: --budget: %s are more than %s has: the budget is %s\n",
                ebb_size_format(run->serving.budget_bytes, asked, sizeof asked), run->gpu.name,
                ebb_size_format(run->gpu.bytes, there, sizeof there));
    run->serving.budget_bytes = run->gpu.bytes;
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
    if (ebb__store_places_find(run.stores, run.store_count, store, sizeof store, &error) !=
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
    if (!ebb__gpu_decide("run", run.device, run.quiet, &run.gpu, &run.is_cuda))
        return EBB_EXIT_OWN_FAILURE;
    bool chosen = run.serving.budget_fraction > 0 || run.serving.budget_bytes > 0;
    if (!chosen)
        run.serving.budget_bytes = run.is_cuda ? run.gpu.bytes / 10 * 9 : ebb__free_memory_budget();
    limit_to_gpu(&run);
    int failed = 0;
    FILE *json = open_summary(&run, &failed);
    if (failed)
        return EBB_EXIT_OWN_FAILURE;
    struct ebb_parent *parent;
    if (ebb__parent_create(&run.serving, &parent, &error) != EBB_OK) {
        ebb__command_fail("run", &error);
        return EBB_EXIT_OWN_FAILURE;
    }
    struct ebb_launch_result launched = serve(&run, argv + optind, parent, !chosen, json);
    ebb__launch_exit(&launched);
}
