/* `ebb advise`: which budgets a program needs, and what to type next. */
#include "choices.h"
#include "command.h"
#include "inputs.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "report/data.h"
#include "report/export.h"

#include <stdlib.h>

static const char text[] =
    "usage: ebb advise TRACE [options]\n\n"
    "Says what the program needs at no loss, at 5 % and 20 % more time, and at least: with this\n"
    "machine's disk, and on named machines. All figures are predicted.\n";
static const char tail[] =
    "example: ebb record -o run.ebbt -- python3 train.py && ebb advise run.ebbt\n";

struct options {
    struct ebb_inputs_options inputs;
    bool json;
};

#define AT(member) .offset = offsetof(struct options, member)

static const struct ebb_option known[] = {
    {.name = "machine",
     .kind = EBB_OPTION_TEXT,
     .argument = "M",
     AT(inputs.machine),
     .words = ebb__machine_word,
     .help = "the first one: host (measured now), a name, or a JSON file (default: host)"},
    {.name = "store",
     .kind = EBB_OPTION_TEXT,
     .argument = "DIR",
     AT(inputs.store),
     .help = "the directory that `host` measures (default: .)"},
    {.name = "redact", .kind = EBB_OPTION_FLAG, AT(inputs.is_redacted), .help = "no command"},
    {.name = "tune",
     .kind = EBB_OPTION_TUNE,
     .argument = "N=V",
     .help = "another number than the table has, any number of times; help: lists them"},
    {.name = "json",
     .kind = EBB_OPTION_FLAG,
     AT(json),
     .help = "one object, schema ebb.advise/1; bytes and nanoseconds as integers"},
    {0},
};

const struct ebb_usage ebb__usage_advise = {.command = "advise",
                                            .text = text,
                                            .options = known,
                                            .tail = tail,
                                            .operands = EBB_OPERANDS_FILES};

static void print_json(const struct ebb_report_run *run, FILE *out)
{
    json_t *figures = ebb__report_figures_json(run);
    json_t *root =
        json_pack("{s:s, s:O, s:O?}", "schema", "ebb.advise/1", "needs",
                  json_object_get(figures, "needs"), "next", json_object_get(figures, "next"));
    json_dumpf(root, out, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    putc('\n', out);
    json_decref(root);
    json_decref(figures);
}

int ebb__cmd_advise(int argc, char **argv)
{
    struct options options = {.inputs = {.machine = "host", .store = "."}};
    int code = ebb__options_parse(&ebb__usage_advise, argc, argv, &options);
    if (code >= 0)
        return code;
    if (optind + 1 != argc)
        return ebb__command_usage("advise",
                                  optind < argc ? "one TRACE at a time" : "no TRACE given");
    struct ebb_error error = {0};
    struct ebb_output output;
    struct ebb_inputs *inputs = calloc(1, sizeof *inputs);
    ebb__progress_begin("advise");
    enum ebb_status status = inputs ? ebb__output_open(NULL, &output, &error)
                                    : ebb__fail(&error, EBB_ERR_MEMORY, "advise", "out of memory");
    if (!status)
        status =
            ebb__inputs_read(&options.inputs, argv + optind, 1, EBB_REPORT_NEEDS, inputs, &error);
    ebb__progress_end();
    if (!status && !inputs->items[0].run.need_count) {
        status = ebb__fail(&error, EBB_ERR_UNSUPPORTED, argv[optind],
                           "no forecast can be made: it has no accesses");
        ebb__error_set_remedy(&error, "record it with accesses: ebb record -o FILE -- CMD");
    }
    if (!status) {
        if (options.json)
            print_json(&inputs->items[0].run, stdout);
        else
            ebb__report_text_needs(&inputs->items[0].run, stdout);
        status = ebb__output_close(&output, false, &error);
    }
    if (inputs)
        ebb__inputs_fini(inputs);
    free(inputs);
    return status ? ebb__command_fail("advise", &error) : 0;
}
