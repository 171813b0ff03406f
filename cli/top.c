/* `ebb top`: the programs that run under Ebb, live. */
#include "top.h"
#include "command.h"
#include "interrupt.h"
#include "options.h"
#include "output.h"

#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct options {
    const char *prometheus;
    bool once, json;
};

#define AT(member) .offset = offsetof(struct options, member)

static const struct ebb_option known[] = {
    {.name = "once",
     .kind = EBB_OPTION_FLAG,
     AT(once),
     .help = "look once (for half a second) and print, as without a terminal"},
    {.name = "json",
     .kind = EBB_OPTION_FLAG,
     AT(json),
     .help = "one object, schema ebb.top/1; bytes and nanoseconds as integers;\n"
             "only with --once"},
    {.name = "prom",
     .kind = EBB_OPTION_TEXT,
     .argument = "FILE",
     AT(prometheus),
     .help = "no view: write the figures for Prometheus to FILE, twice a second, or\n"
             "once with --once. FILE is replaced whole"},
    {0},
};

const struct ebb_usage ebb__usage_top = {
    .command = "top",
    .text =
        "usage: ebb top [PID] [options]\n\n"
        "Shows the programs of this user that run under Ebb (of all users, for root): resident\n"
        "bytes against the budget, lanes, stalls, iterations. Updates twice a second. PID is\n"
        "that of 'ebb run', or of its program.\n",
    .options = known,
    .tail = "Exit code: 0, or 1 if no run has this PID.\n",
};

static void pause_for_rates(void)
{
    const struct timespec interval = {.tv_nsec = EBB_TOP_INTERVAL_MS * 1000000l};
    nanosleep(&interval, NULL);
}

static enum ebb_status write_prometheus(const struct ebb_top *top, const char *path,
                                        struct ebb_error *error)
{
    struct ebb_output output;
    enum ebb_status status = ebb__output_open(path, &output, error);
    if (status)
        return status;
    ebb__top_prometheus(top, output.stream);
    return ebb__output_close(&output, true, error);
}

static enum ebb_status print(const struct ebb_top *top, const struct options *options,
                             struct ebb_error *error)
{
    struct ebb_output output;
    enum ebb_status status = ebb__output_open(NULL, &output, error);
    if (status)
        return status;
    if (options->json) {
        json_t *root = ebb__top_json(top);
        json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
        putchar('\n');
        json_decref(root);
    } else {
        ebb__top_text(top, EBB_TOP_COLUMNS, stdout);
    }
    return ebb__output_close(&output, false, error);
}

/* Two looks, half a second apart. */
static enum ebb_status look_once(struct ebb_top *top, const struct options *options,
                                 struct ebb_error *error)
{
    enum ebb_status status = ebb__top_look(top, error);
    if (!status && top->count)
        pause_for_rates();
    if (!status && top->count)
        status = ebb__top_look(top, error);
    if (!status)
        status = options->prometheus ? write_prometheus(top, options->prometheus, error)
                                     : print(top, options, error);
    return status;
}

static enum ebb_status export_always(struct ebb_top *top, const char *path, struct ebb_error *error)
{
    enum ebb_status status = EBB_OK;
    ebb__interrupt_expect();
    while (!status && !ebb__interrupt_seen()) {
        status = ebb__top_look(top, error);
        if (!status)
            status = write_prometheus(top, path, error);
        if (!status)
            pause_for_rates();
    }
    return status;
}

static bool has_screen(void)
{
    const char *terminal = getenv("TERM");
    return isatty(STDOUT_FILENO) && isatty(STDIN_FILENO) && terminal && *terminal &&
           strcmp(terminal, "dumb") != 0;
}

static int parse(int argc, char **argv, struct options *options, struct ebb_top *top)
{
    int code = ebb__options_parse(&ebb__usage_top, argc, argv, options);
    if (code >= 0)
        return code;
    if (argc - optind > 1)
        return ebb__command_usage("top", "one PID at a time");
    if (options->json && (!options->once || options->prometheus))
        return ebb__command_usage("top", "--json is given with --once alone");
    uint64_t number = 0;
    if (optind == argc)
        return -1;
    struct ebb_text text = {argv[optind], strlen(argv[optind])};
    if (ebb__text_number(text, &number) || !number || number > INT32_MAX)
        return ebb__command_usage("top", "'%s' is not a process id", argv[optind]);
    top->only = (int)number;
    return -1;
}

int ebb__cmd_top(int argc, char **argv)
{
    static struct ebb_top top; /* 64 runs are too large for a stack */
    struct options options = {0};
    int code = parse(argc, argv, &options, &top);
    if (code >= 0)
        return code;
    struct ebb_error error = {0};
    enum ebb_status status;
    if (options.once || (!options.prometheus && !has_screen()))
        status = look_once(&top, &options, &error);
    else if (options.prometheus)
        status = export_always(&top, options.prometheus, &error);
    else
        status = ebb__top_view(&top, &error);
    if (status)
        return ebb__command_fail("top", &error);
    ebb__interrupt_die();
    if (!top.only || top.count)
        return 0;
    if (top.silent.why[0])
        fprintf(stderr, "ebb: top: %s: %s\n", top.silent.what, top.silent.why);
    else
        fprintf(stderr, "ebb: top: no run that you may see has the process id %d\n", top.only);
    return 1;
}
