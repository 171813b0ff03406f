/* `ebb info`: shows the contents of a trace. */
#include "command.h"

#include "base/size.h"
#include "load.h"
#include "options.h"
#include "output.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static json_t *integer(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static bool print_json(const struct ebb_trace *trace, const struct ebb_analysis *analysis)
{
    const struct ebb_model *model = analysis->has_model ? &analysis->model : NULL;
    json_t *root = json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:{s:f, s:f, s:f}}", "schema", "ebb.info/1",
        "events", integer(trace->count), "blocks", integer(analysis->blocks), "iterations",
        integer(analysis->iterations), "period_events", integer(analysis->period_events),
        "first_periodic_event", integer(analysis->first_periodic_event), "peak_bytes",
        integer(analysis->peak_bytes), "peak_tick", integer(model ? model->peak_tick : 0),
        "detect_ns", integer(analysis->detect_ns), "properties", "iterative",
        analysis->properties.iterative, "regularity", analysis->properties.regularity,
        "extremalization", analysis->properties.extremalization);
    if (!root)
        return false;
    bool ok =
        json_object_set_new(root, "iteration_ns",
                            integer(model ? ebb__model_iteration_ns(model) : 0)) == 0 &&
        json_object_set_new(root, "iteration_peak_bytes", integer(model ? model->peak_bytes : 0)) ==
            0 &&
        json_object_set_new(root, "iteration_blocks", integer(model ? model->block_count : 0)) ==
            0 &&
        json_object_set_new(root, "found_at_event", integer(analysis->found_at_event)) == 0 &&
        json_object_set_new(root, "existing_blocks", integer(analysis->existing_blocks)) == 0 &&
        json_object_set_new(root, "existing_bytes", integer(analysis->existing_bytes)) == 0 &&
        json_object_set_new(root, "accesses", json_boolean(analysis->has_accesses)) == 0 &&
        json_object_set_new(root, "complete", json_boolean(trace->complete)) == 0 &&
        json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0 &&
        putchar('\n') != EOF;
    json_decref(root);
    return ok;
}

/* Prints the command in a form that is safe for a terminal. */
static void print_command(const char *command)
{
    printf("command      ");
    for (const char *at = command; *at; at++)
        putchar((unsigned char)*at < 32 || *at == 127 ? '?' : *at);
    putchar('\n');
}

static void print_text(const struct ebb_trace *trace, const struct ebb_analysis *analysis)
{
    char text[32], more[32];
    if (trace->info.command[0])
        print_command(trace->info.command);
    printf("events       %zu%s\n", trace->count,
           trace->complete ? "" : " (the trace was not finished: its end is missing)");
    printf("blocks       %zu", analysis->blocks);
    if (trace->info.threshold_bytes)
        printf(", of %s and more", ebb_size_format(trace->info.threshold_bytes, text, sizeof text));
    if (analysis->existing_blocks)
        printf(", %zu of them (%s) older than the trace", analysis->existing_blocks,
               ebb_size_format(analysis->existing_bytes, text, sizeof text));
    printf("\npeak load    %s\n", ebb_size_format(analysis->peak_bytes, text, sizeof text));
    if (!analysis->has_model) {
        printf("iterations   none found: nothing repeats twice\n");
        return;
    }
    const struct ebb_model *model = &analysis->model;
    uint64_t persistent = 0;
    uint32_t persistent_count = 0;
    for (uint32_t i = 0; i < model->block_count; i++)
        if (model->blocks[i].alloc_tick == EBB_TICK_NONE) {
            persistent += model->blocks[i].size_bytes;
            persistent_count++;
        }
    printf("iterations   %zu, from event %zu on; found in %s\n", analysis->iterations,
           analysis->first_periodic_event,
           ebb_duration_format(analysis->detect_ns, text, sizeof text));
    printf("\none iteration\n");
    printf("  events     %" PRIu32 " in %s%s\n", model->tick_count,
           ebb_duration_format(ebb__model_iteration_ns(model), text, sizeof text),
           model->has_accesses ? "" : " (accesses were not traced)");
    printf("  blocks     %" PRIu32 ", of them %" PRIu32 " persistent with %s\n", model->block_count,
           persistent_count, ebb_size_format(persistent, text, sizeof text));
    printf("  peak load  %s at event %" PRIu32 " (%s into it)\n",
           ebb_size_format(model->peak_bytes, text, sizeof text), model->peak_tick,
           ebb_duration_format(model->time_ns[model->peak_tick], more, sizeof more));
    printf("\nproperties\n");
    printf("  iterative        %6.2f %%\n", 100 * analysis->properties.iterative);
    printf("  regularity       %6.2f %%\n", 100 * analysis->properties.regularity);
    if (model->has_accesses)
        printf("  extremalization  %6.2f %%\n", 100 * analysis->properties.extremalization);
    else
        printf("  extremalization  unknown without accesses\n");
}

struct options {
    bool json;
};

static const struct ebb_option known[] = {
    {.name = "json",
     .kind = EBB_OPTION_FLAG,
     .offset = offsetof(struct options, json),
     .help = "one object, schema ebb.info/1; bytes and nanoseconds as integers"},
    {0}};

const struct ebb_usage ebb__usage_info = {
    .command = "info",
    .text = "usage: ebb info [--json] FILE\n\n"
            "Says what the trace FILE holds (Ebb's own, or any kind of 'ebb import'): "
            "iterations, blocks,\n"
            "load, and three properties that tell how well its memory can be scheduled, each "
            "from 0\n"
            "to 1:\n"
            "  iterative        share of the events that repeat those of one iteration\n"
            "  regularity       share of the blocks that are the same in all iterations\n"
            "  extremalization  share of the idle byte-seconds in the longest tenth of the "
            "gaps\n",
    .options = known,
    .operands = EBB_OPERANDS_FILES,
    .tail = "example: ebb record -o run.ebbt -- python3 train.py && ebb info run.ebbt\n"};

int ebb__cmd_info(int argc, char **argv)
{
    struct options options = {0};
    int usage = ebb__options_parse(&ebb__usage_info, argc, argv, &options);
    if (usage >= 0)
        return usage;
    if (optind + 1 != argc)
        return optind == argc
                   ? ebb__command_usage("info", "no FILE given")
                   : ebb__command_usage("info", "one FILE, not more: '%s'", argv[optind + 1]);
    const char *path = argv[optind];
    struct ebb_error error = {0};
    struct ebb_loaded loaded;
    if (ebb__load(path, EBB_LOAD_TRACE, &loaded, &error) != EBB_OK)
        return ebb__command_fail("info", &error);
    bool written = true;
    if (options.json)
        written = print_json(&loaded.trace, &loaded.analysis);
    else
        print_text(&loaded.trace, &loaded.analysis);
    ebb__load_fini(&loaded);
    return ebb__output_flush(written, &error) ? ebb__command_fail("info", &error) : 0;
}
