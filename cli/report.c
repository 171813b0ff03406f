/* `ebb report`: what a program's memory does, and what a run cost, as a page or in other forms. */
#include "choices.h"
#include "command.h"
#include "inputs.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "report/data.h"
#include "report/escape.h"
#include "report/export.h"
#include "report/page.h"

#include <stdlib.h>
#include <string.h>

#define EXIT_CONDITION 5 /* a condition of --fail-if holds */

static const char text[] =
    "usage: ebb report FILE... -o PAGE.html [options]\n"
    "       ebb report FILE... --text|--json|--csv|--chrome-trace [-o OUT] [options]\n\n"
    "Shows a program's memory and what budgets cost, as one HTML page that needs no network. FILE\n"
    "is a trace, or a summary that 'ebb run --summary-json' wrote; a summary after a trace belongs\n"
    "to the same run. Of two runs and more, the first and the last are compared.\n";
static const char tail[] =
    "conditions: NAME>LIMIT or NAME<LIMIT, separated by commas; +2% is of the change, 4G and 1.5s\n"
    "of the last run. Names: unlimited, peak, time, stall, moved, need (no loss), least.\n"
    "exit codes: as 'ebb plan', and 5 if a condition of --fail-if holds.\n\n"
    "example: ebb record -o run.ebbt -- python3 train.py && ebb report run.ebbt -o run.html\n";

struct options {
    struct ebb_inputs_options inputs;
    const char *out_path, *fail_if;
    bool replaces, text, json, csv, chrome;
};

#define AT(member) .offset = offsetof(struct options, member)

static const struct ebb_option known[] = {
    {.name = "output",
     .letter = 'o',
     .kind = EBB_OPTION_TEXT,
     .argument = "FILE",
     AT(out_path),
     .help = "where to write; needed for the page"},
    {.name = "force", .letter = 'f', .kind = EBB_OPTION_FLAG, AT(replaces), .help = "replace FILE"},
    {.name = "text", .kind = EBB_OPTION_FLAG, AT(text), .help = "for a terminal, 100 columns"},
    {.name = "json",
     .kind = EBB_OPTION_FLAG,
     AT(json),
     .help = "one object, schema ebb.report/1; bytes and nanoseconds as integers"},
    {.name = "csv", .kind = EBB_OPTION_FLAG, AT(csv), .help = "memory over time"},
    {.name = "chrome-trace",
     .kind = EBB_OPTION_FLAG,
     AT(chrome),
     .help = "lanes and memory for Perfetto or chrome://tracing"},
    {.name = "budget",
     .kind = EBB_OPTION_TEXT,
     .argument = "B",
     AT(inputs.budget),
     .help = "of the plan that is shown: 4G, 512MiB, or 60% of the peak (default: that of\n"
             "the summary, or the smallest one that costs 5 %)"},
    {.name = "machine",
     .kind = EBB_OPTION_TEXT,
     .argument = "M",
     AT(inputs.machine),
     .words = ebb__machine_word,
     .help = "host (measured now), a name, or a JSON file (default: host)"},
    {.name = "store",
     .kind = EBB_OPTION_TEXT,
     .argument = "DIR",
     AT(inputs.store),
     .help = "the directory that `host` measures (default: .)"},
    {.name = "fail-if",
     .kind = EBB_OPTION_TEXT,
     .argument = "COND",
     AT(fail_if),
     .help = "exit with 5 if a condition holds, e.g. 'peak>+2%'"},
    {.name = "redact",
     .kind = EBB_OPTION_FLAG,
     AT(inputs.is_redacted),
     .help = "show no names of files, no paths and no command"},
    {.name = "tune",
     .kind = EBB_OPTION_TUNE,
     .argument = "N=V",
     .help = "another number than the table has, any number of times; help: lists them"},
    {0},
};

const struct ebb_usage ebb__usage_report = {.command = "report",
                                            .text = text,
                                            .options = known,
                                            .tail = tail,
                                            .operands = EBB_OPERANDS_FILES};

/* Returns -1 to continue, or the exit code. */
static int options_parse(int argc, char **argv, struct options *options)
{
    *options = (struct options){.inputs = {.machine = "host", .store = "."}};
    int code = ebb__options_parse(&ebb__usage_report, argc, argv, options);
    if (code >= 0)
        return code;
    int forms = options->text + options->json + options->csv + options->chrome;
    if (optind == argc)
        return ebb__command_usage("report", "no FILE given");
    if (forms > 1)
        return ebb__command_usage("report", "give one of --text, --json, --csv, --chrome-trace");
    if (!forms && !options->out_path)
        return ebb__command_usage("report", "give -o PAGE.html, or --text");
    options->inputs.has_one_machine = options->csv || options->chrome;
    options->inputs.has_frontier = !options->inputs.has_one_machine && !options->text;
    return -1;
}

/* Block characters, if the terminal's character set has them. */
static bool has_unicode(void)
{
    const char *terminal = getenv("TERM");
    const char *names[] = {getenv("LC_ALL"), getenv("LC_CTYPE"), getenv("LANG")};
    if (terminal && strcmp(terminal, "dumb") == 0)
        return false;
    for (int i = 0; i < 3; i++)
        if (names[i] && *names[i])
            return strstr(names[i], "UTF-8") || strstr(names[i], "utf8");
    return false;
}

static enum ebb_status print_json(const struct ebb_report_run *runs, uint32_t count,
                                  const struct ebb_difference *difference, FILE *out)
{
    json_t *list = json_array(), *changes = json_object();
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(list, ebb__report_figures_json(&runs[i]));
    for (size_t i = 0; difference && i < EBB_DIFFERENCE_ROWS; i++) {
        double percent;
        if (ebb__difference_percent(&difference->rows[i], &percent))
            json_object_set_new(changes, difference->rows[i].name, json_real(percent));
    }
    json_t *root = json_pack("{s:s, s:o, s:o}", "schema", "ebb.report/1", "runs", list,
                             "change_percent", changes);
    bool ok = root && json_dumpf(root, out, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0 &&
              putc('\n', out) != EOF;
    json_decref(root);
    return ok ? EBB_OK : EBB_ERR_IO;
}

static enum ebb_status check_form(const struct options *options, const struct ebb_inputs *inputs,
                                  struct ebb_error *error)
{
    if ((options->csv || options->chrome) &&
        (inputs->count != 1 || !inputs->items[0].run.has_model)) {
        ebb__fail(error, EBB_ERR_ARGUMENT, options->csv ? "--csv" : "--chrome-trace",
                  "is of one trace");
        ebb__error_set_remedy(error, "give one trace, without others");
        return EBB_ERR_ARGUMENT;
    }
    if (options->fail_if && inputs->count < 1)
        return ebb__fail(error, EBB_ERR_ARGUMENT, "--fail-if", "needs a run");
    return EBB_OK;
}

static enum ebb_status print(const struct options *options, const struct ebb_inputs *inputs,
                             const struct ebb_report_run *runs,
                             const struct ebb_difference *difference, FILE *out,
                             struct ebb_error *error)
{
    const struct ebb_difference *shown = inputs->count > 1 ? difference : NULL;
    if (options->json)
        return print_json(runs, inputs->count, shown, out);
    if (options->text)
        ebb__report_text(runs, inputs->count, shown, has_unicode(), out);
    else if (options->csv)
        ebb__report_csv(&runs[0], out);
    else if (options->chrome)
        ebb__report_chrome_trace(&runs[0], out);
    else
        return ebb__report_page(runs, inputs->count, shown, out, error);
    return EBB_OK;
}

/* Writes the report, then evaluates the conditions. */
static enum ebb_status report(const struct options *options, struct ebb_inputs *inputs,
                              struct ebb_output *output, bool *fails, struct ebb_error *error)
{
    struct ebb_report_run *runs = calloc(inputs->count, sizeof *runs);
    struct ebb_difference difference;
    char reason[256];
    enum ebb_status status = check_form(options, inputs, error);
    if (!runs)
        status = ebb__fail(error, EBB_ERR_MEMORY, "the report", "out of memory");
    if (!status) {
        for (uint32_t i = 0; i < inputs->count; i++)
            memcpy(&runs[i], &inputs->items[i].run, sizeof *runs); /* to look at, not to own */
        ebb__difference_make(&runs[0], &runs[inputs->count - 1], &difference);
        status = print(options, inputs, runs, &difference, output->stream, error);
    }
    if (!status && options->fail_if)
        status = ebb__difference_fails(&difference, options->fail_if, fails, reason, sizeof reason,
                                       error);
    free(runs);
    if (!status && *fails)
        fprintf(stderr, "ebb: report: %s\n", reason);
    return status;
}

int ebb__cmd_report(int argc, char **argv)
{
    struct options options;
    int exit_code = options_parse(argc, argv, &options);
    if (exit_code >= 0)
        return exit_code;
    struct ebb_error error = {0};
    struct ebb_output output;
    struct ebb_inputs *inputs = calloc(1, sizeof *inputs);
    ebb__progress_begin("report");
    enum ebb_report_depth depth = options.text || options.json || options.csv || options.chrome
                                      ? EBB_REPORT_FIGURES
                                      : EBB_REPORT_ALL;
    bool fails = false;
    enum ebb_status status =
        inputs ? EBB_OK : ebb__fail(&error, EBB_ERR_MEMORY, "the report", "out of memory");
    if (!status && options.out_path)
        status = ebb__output_check(options.out_path, options.replaces, &error);
    if (!status)
        status = ebb__output_open(options.out_path, &output, &error);
    if (!status) {
        status =
            ebb__inputs_read(&options.inputs, argv + optind, argc - optind, depth, inputs, &error);
        ebb__progress_end();
        if (!status)
            status = report(&options, inputs, &output, &fails, &error);
        if (!status)
            status = ebb__output_close(&output, options.replaces, &error);
        else
            ebb__output_discard(&output);
    }
    if (inputs)
        ebb__inputs_fini(inputs);
    free(inputs);
    if (status)
        return ebb__command_fail("report", &error);
    return fails ? EXIT_CONDITION : 0;
}
