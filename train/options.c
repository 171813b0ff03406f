#include "train/options.h"

#include "train/base/fail.h"
#include "train/base/size.h"

#include "lab/tier/program.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

/* Batches and images beyond these do not fit into any machine. Arbitrary. */
#define BATCH_MOST 65536
#define SIZE_MOST 16384
#define COUNT_MOST ((uint64_t)1 << 40)

/* Usual first values: SGD with momentum, and Adam for GPT. */
#define SGD_RATE 0.01f
#define ADAM_RATE 3e-4f

enum option_value {
    BATCH = 256,
    SIZE,
    CLASSES,
    BUDGET,
    POLICY,
    ITERATIONS,
    EPOCHS,
    DATA,
    OPTIMIZER,
    RATE,
    HALVE_RATE,
    STORE,
    MACHINE,
    SEED,
    CHECKPOINT,
    CHECKPOINT_EVERY,
    RESUME,
    RECORD,
    TIERS,
    THROTTLE,
    SUMMARY,
    QUIET,
    HELP,
    VERSION
};

static const struct option long_options[] = {
    {"batch", required_argument, NULL, BATCH},
    {"size", required_argument, NULL, SIZE},
    {"classes", required_argument, NULL, CLASSES},
    {"budget", required_argument, NULL, BUDGET},
    {"policy", required_argument, NULL, POLICY},
    {"iterations", required_argument, NULL, ITERATIONS},
    {"epochs", required_argument, NULL, EPOCHS},
    {"data", required_argument, NULL, DATA},
    {"optimizer", required_argument, NULL, OPTIMIZER},
    {"rate", required_argument, NULL, RATE},
    {"halve-rate-every", required_argument, NULL, HALVE_RATE},
    {"store", required_argument, NULL, STORE},
    {"machine", required_argument, NULL, MACHINE},
    {"seed", required_argument, NULL, SEED},
    {"checkpoint", required_argument, NULL, CHECKPOINT},
    {"checkpoint-every", required_argument, NULL, CHECKPOINT_EVERY},
    {"resume", required_argument, NULL, RESUME},
    {"record", required_argument, NULL, RECORD},
    {"tiers", required_argument, NULL, TIERS},
    {"throttle", required_argument, NULL, THROTTLE},
    {"summary-json", required_argument, NULL, SUMMARY},
    {"quiet", no_argument, NULL, QUIET},
    {"help", no_argument, NULL, HELP},
    {"version", no_argument, NULL, VERSION},
    {NULL, 0, NULL, 0},
};

void ebb__train_help(FILE *out)
{
    fprintf(out,
            "usage: ebb-train NET [options]\n\n"
            "Trains a network within a memory budget.\n\nnetworks: %s\n\n",
            ebb__net_names());
    fputs(
        "  --batch N              images or sequences of an iteration\n"
        "  --size N               height and width in pixels, or positions of a sequence\n"
        "  --classes N            classes, or tokens of a vocabulary\n"
        "  --data D               fashion (Fashion-MNIST) or synthetic (default)\n"
        "  --iterations K         stop after so many (default 10)\n"
        "  --epochs E             stop after so many passes over Fashion-MNIST\n"
        "  --optimizer O          sgd or adam (default: sgd, adam for gpt)\n"
        "  --rate R               learning rate (default: 0.01, 0.0003 for adam)\n"
        "  --halve-rate-every K   after each K iterations (default: never)\n"
        "  --seed S               of parameters, data and dropout (default 1)\n\n"
        "  --budget B             bytes of all tensors: 8G, 512M, or 40% of the peak\n"
        "  --policy P             ebb (default), static, layrub:intra, layrub:inter,\n"
        "                         layrub:hybrid, vdnn:all, vdnn:conv\n"
        "  --store DIR            where evicted tensors go: a folder, or memory\n"
        "  --machine M            lanes that plans assume (default: measured)\n\n"
        "  --tiers F:S            two memories: S times as much slow memory, used in place, as fast\n"
        "                         one; or 20% of the peak. --policy deeptm (default), and all of\n"
        "                         ebb compare --tiers; --store: the slow memory, a folder, memory\n"
        "                         (default) or memory:NODE; --machine: optane (default), cxl, a file\n"
        "  --throttle X           steps take X times their time, slow memory what the machine says\n\n"
        "  --checkpoint FILE      save the training here at the end\n"
        "  --checkpoint-every K   and after each K iterations\n"
        "  --resume FILE          go on from a checkpoint, with the same bits\n"
        "  --record TRACE         record a trace for ebb plan and ebb compare\n"
        "  --summary-json FILE    write the figures as JSON; - is the standard output\n"
        "  --quiet                no progress\n"
        "  --help, --version\n\n"
        "example: ebb-train resnet-50 --batch 16 --budget 40%\n",
        out);
}

/* The index of `text` among `words`; -1: it is none of them. */
static int word(const char *text, const char *const *words, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(text, words[i]) == 0)
            return i;
    return -1;
}

static enum ebb_status fail_value(struct ebb_error *error, int option, const char *text,
                                  const char *expected)
{
    for (const struct option *row = long_options; row->name; row++)
        if (row->val == option) {
            char what[48];
            snprintf(what, sizeof what, "--%s", row->name);
            return ebb__train_fail(error, EBB_ERR_ARGUMENT, what, "'%s' is not %s", text, expected);
        }
    return EBB_ERR_INTERNAL;
}

static enum ebb_status read_number(struct ebb_error *error, int option, const char *text,
                                   uint64_t least, uint64_t most, uint64_t *number)
{
    char expected[80];
    if (ebb__train_number_parse(text, least, most, number))
        return EBB_OK;
    snprintf(expected, sizeof expected, "a whole number from %llu to %llu",
             (unsigned long long)least, (unsigned long long)most);
    return fail_value(error, option, text, expected);
}

static enum ebb_status read_size(struct ebb_error *error, int option, const char *text,
                                 uint64_t most, uint32_t *size)
{
    uint64_t number = 0;
    enum ebb_status status = read_number(error, option, text, 1, most, &number);
    *size = (uint32_t)number;
    return status;
}

static enum ebb_status read_budget(struct ebb_train_options *options, const char *text,
                                   struct ebb_error *error)
{
    options->budget_bytes = 0;
    options->budget_share = 0;
    if (ebb__train_percent_parse(text, &options->budget_share) ||
        (ebb__train_size_parse(text, &options->budget_bytes) && options->budget_bytes))
        return EBB_OK;
    return fail_value(error, BUDGET, text, "a size (8G, 512M) or a share of the peak (40%)");
}

static enum ebb_status read_rate(struct ebb_train_options *options, const char *text,
                                 struct ebb_error *error)
{
    char *end;
    options->rate = strtof(text, &end);
    if (end == text || *end || !(options->rate > 0 && options->rate <= 100))
        return fail_value(error, RATE, text, "a number above 0, up to 100");
    return EBB_OK;
}

/* `1:4`, or a share of the peak. */
static enum ebb_status read_tiers(struct ebb_train_options *options, const char *text,
                                  struct ebb_error *error)
{
    char *end, *last;
    double share, fast = strtod(text, &end);
    if (ebb__train_percent_parse(text, &share) && share <= 1) {
        options->tiers_share = share;
        return EBB_OK;
    }
    double slow = *end == ':' ? strtod(end + 1, &last) : -1;
    if (end == text || *end != ':' || last == end + 1 || *last || !(fast > 0 && fast < 1e6) ||
        !(slow >= 0 && slow < 1e6))
        return fail_value(error, TIERS, text, "fast to slow (1:4) or a share of the peak (20%)");
    options->tiers_share = fast / (fast + slow);
    return EBB_OK;
}

static enum ebb_status read_throttle(struct ebb_train_options *options, const char *text,
                                     struct ebb_error *error)
{
    char *end;
    options->throttle = strtod(text, &end);
    if (end == text || *end || !(options->throttle > 0 && options->throttle <= 1000))
        return fail_value(error, THROTTLE, text, "a number above 0, up to 1000");
    return EBB_OK;
}

/* Options whose value is one of some words. */
static enum ebb_status read_word(struct ebb_train_options *options, int option, const char *text,
                                 struct ebb_error *error)
{
    static const char *const data[] = {"fashion", "synthetic"};
    static const char *const optimizers[] = {"sgd", "adam"};
    int found;
    switch (option) {
    case DATA:
        found = word(text, data, 2);
        if (found < 0)
            return fail_value(error, option, text, "fashion or synthetic");
        options->data = found ? EBB_DATA_SYNTHETIC : EBB_DATA_FASHION;
        return EBB_OK;
    default:
        found = word(text, optimizers, 2);
        if (found < 0)
            return fail_value(error, option, text, "sgd or adam");
        options->optimizer = (enum ebb_optimizer)found;
        return EBB_OK;
    }
}

static enum ebb_status read_option(struct ebb_train_options *options, int option, char *text,
                                   struct ebb_error *error)
{
    switch (option) {
    case BATCH:
        return read_size(error, option, text, BATCH_MOST, &options->shape.batch);
    case SIZE:
        return read_size(error, option, text, SIZE_MOST, &options->shape.size);
    case CLASSES:
        return read_size(error, option, text, 1u << 20, &options->shape.classes);
    case BUDGET:
        return read_budget(options, text, error);
    case ITERATIONS:
        return read_number(error, option, text, 1, COUNT_MOST, &options->iterations);
    case EPOCHS:
        return read_number(error, option, text, 1, COUNT_MOST, &options->epochs);
    case SEED:
        return read_number(error, option, text, 0, UINT64_MAX, &options->seed);
    case CHECKPOINT_EVERY:
        return read_number(error, option, text, 1, COUNT_MOST, &options->checkpoint_iterations);
    case HALVE_RATE:
        return read_number(error, option, text, 1, COUNT_MOST, &options->halving_iterations);
    case RATE:
        return read_rate(options, text, error);
    case TIERS:
        return read_tiers(options, text, error);
    case THROTTLE:
        return read_throttle(options, text, error);
    case POLICY:
        options->policy = text;
        return EBB_OK;
    case STORE:
        options->store = text;
        return EBB_OK;
    case MACHINE:
        options->machine = text;
        return EBB_OK;
    case CHECKPOINT:
        options->checkpoint = text;
        return EBB_OK;
    case RESUME:
        options->resume = text;
        return EBB_OK;
    case RECORD:
        options->record = text;
        return EBB_OK;
    case SUMMARY:
        options->summary = text;
        return EBB_OK;
    default:
        return read_word(options, option, text, error);
    }
}

/* With two tiers the policy is one of the laboratory's, which says so if it is none. */
static enum ebb_status settle_policy(struct ebb_train_options *options, struct ebb_error *error)
{
    static const char *const policies[] = {
        "ebb", "static", "layrub:intra", "layrub:inter", "layrub:hybrid", "vdnn:all", "vdnn:conv"};
    bool is_tiered = options->tiers_share > 0;
    if (!options->policy)
        options->policy = is_tiered ? "deeptm" : "ebb";
    int found = is_tiered ? 0 : word(options->policy, policies, EBB_MODE_COUNT);
    if (found < 0)
        return fail_value(error, POLICY, options->policy,
                          "ebb, static, layrub:intra, layrub:inter, layrub:hybrid, vdnn:all or "
                          "vdnn:conv");
    options->mode = (enum ebb_mode)found;
    return EBB_OK;
}

static enum ebb_status settle_tiers(struct ebb_train_options *options, struct ebb_error *error)
{
    if (!(options->tiers_share > 0))
        return options->throttle > 0
                   ? ebb__train_fail(error, EBB_ERR_ARGUMENT, "--throttle", "needs --tiers")
                   : EBB_OK;
    if (options->budget_bytes || options->budget_share > 0)
        return ebb__train_fail(error, EBB_ERR_ARGUMENT, "--budget",
                               "cannot be given with --tiers, which says how much is fast");
    if (options->record)
        return ebb__train_fail(error, EBB_ERR_ARGUMENT, "--record", "cannot be given with --tiers");
    if (options->iterations && options->iterations <= EBB_TIER_PROFILED)
        return ebb__train_fail(error, EBB_ERR_ARGUMENT, "--iterations",
                               "--tiers plans after %d: give more", EBB_TIER_PROFILED);
    if (!options->store)
        options->store = "memory";
    if (!options->machine)
        options->machine = "optane";
    return EBB_OK;
}

/* What options mean together. */
static enum ebb_status settle(struct ebb_train_options *options, bool has_optimizer,
                              struct ebb_error *error)
{
    bool is_gpt = strncmp(options->net, "gpt", 3) == 0;
    if (is_gpt && options->data == EBB_DATA_FASHION)
        return ebb__train_fail(error, EBB_ERR_ARGUMENT, "--data", "%s has no use for images",
                               options->net);
    if (is_gpt)
        options->data = EBB_DATA_TOKENS;
    if (options->data == EBB_DATA_FASHION && (options->shape.size || options->shape.classes))
        return ebb__train_fail(error, EBB_ERR_ARGUMENT, "--data",
                               "fashion has a size and classes of its own");
    if (options->epochs && options->data != EBB_DATA_FASHION)
        return ebb__train_fail(error, EBB_ERR_ARGUMENT, "--epochs", "synthetic data have none");
    if (options->epochs && options->iterations)
        return ebb__train_fail(error, EBB_ERR_ARGUMENT, "--epochs",
                               "cannot be given with --iterations");
    if (options->checkpoint_iterations && !options->checkpoint)
        return ebb__train_fail(error, EBB_ERR_ARGUMENT, "--checkpoint-every", "needs --checkpoint");
    enum ebb_status status = settle_policy(options, error);
    if (!status)
        status = settle_tiers(options, error);
    if (status)
        return status;
    if (options->mode != EBB_MODE_EBB && (options->budget_bytes || options->budget_share > 0))
        return ebb__train_fail(error, EBB_ERR_ARGUMENT, "--budget", "policy %s has none",
                               options->policy);
    if (!has_optimizer)
        options->optimizer = is_gpt ? EBB_OPTIMIZER_ADAM : EBB_OPTIMIZER_SGD;
    if (!(options->rate > 0))
        options->rate = options->optimizer == EBB_OPTIMIZER_ADAM ? ADAM_RATE : SGD_RATE;
    if (!options->epochs && !options->iterations)
        options->iterations = 10;
    return EBB_OK;
}

enum ebb_status ebb__train_options(int argc, char **argv, struct ebb_train_options *options,
                                   struct ebb_error *error)
{
    *options = (struct ebb_train_options){.seed = 1, .data = EBB_DATA_SYNTHETIC};
    bool has_optimizer = false;
    opterr = 0;
    for (int found; (found = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        if (found == '?')
            return ebb__train_fail(error, EBB_ERR_ARGUMENT, argv[optind - 1],
                                   "unknown option, or its value is missing");
        options->wants_help = found == HELP;
        options->wants_version = found == VERSION;
        if (found == HELP || found == VERSION)
            return EBB_OK;
        if (found == QUIET) {
            options->is_quiet = true;
            continue;
        }
        has_optimizer = has_optimizer || found == OPTIMIZER;
        enum ebb_status status = read_option(options, found, optarg, error);
        if (status)
            return status;
    }
    if (optind + 1 != argc)
        return ebb__train_fail(error, EBB_ERR_ARGUMENT, optind < argc ? argv[optind + 1] : "NET",
                               optind < argc ? "one network is enough" : "no network is named");
    options->net = argv[optind];
    return settle(options, has_optimizer, error);
}
