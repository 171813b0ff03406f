/* `ebb import`: converts a trace of another tool to an Ebb trace. */
#include "lab/import/import.h"
#include "command.h"
#include "options.h"
#include "output.h"
#include "progress.h"

#include <stdio.h>

static void print_kinds(FILE *out)
{
    size_t count;
    const struct ebb_importer *importers = ebb__importers(&count);
    for (size_t i = 0; i < count; i++)
        fprintf(out, "  %-14s %s\n", importers[i].name, importers[i].does);
}

static enum ebb_status write_events(const char *path, const struct ebb_trace *trace,
                                    struct ebb_error *error)
{
    struct ebb_trace_writer *writer;
    enum ebb_status status = ebb__trace_writer_open(path, &trace->info, &writer, error);
    if (status)
        return status;
    status = ebb__trace_writer_append(writer, trace->events, trace->count, error);
    struct ebb_error ignored;
    enum ebb_status closed = ebb__trace_writer_close(writer, status ? &ignored : error);
    return status ? status : closed;
}

static enum ebb_status write_trace(const char *path, bool force, const struct ebb_trace *trace,
                                   struct ebb_error *error)
{
    struct ebb_output_part part;
    enum ebb_status status = ebb__output_part_begin(path, &part, error);
    if (status)
        return status;
    status = write_events(part.name, trace, error);
    return ebb__output_part_end(&part, status, force, error);
}

struct options {
    const char *out;
    const char *device;
    bool force;
};

static void print_notes(const struct ebb_import_request *request)
{
    for (size_t i = 0; i < request->note_count; i++)
        fprintf(stderr, "ebb: import: %s: %s\n", request->name, request->notes[i]);
}

static const struct ebb_option known[] = {
    {.name = "output",
     .letter = 'o',
     .kind = EBB_OPTION_TEXT,
     .argument = "FILE",
     .offset = offsetof(struct options, out),
     .help = "where to write"},
    {.name = "force",
     .letter = 'f',
     .kind = EBB_OPTION_FLAG,
     .offset = offsetof(struct options, force),
     .help = "replace a file that exists"},
    {.name = "device",
     .kind = EBB_OPTION_TEXT,
     .argument = "NAME",
     .offset = offsetof(struct options, device),
     .help = "whose memory, if IN has several devices: cpu, cuda:0"},
    {0}};

const struct ebb_usage ebb__usage_import = {
    .command = "import",
    .text = "usage: ebb import KIND IN -o FILE [--device NAME]\n\n"
            "Writes the trace IN of another tool as the Ebb trace FILE. KIND is one of\n",
    .more = print_kinds,
    .options = known,
    .operands = EBB_OPERANDS_FILES,
    .tail = "IN may be compressed (gzip). Commands that read a trace read these kinds, too, "
            "by their content.\n\n"
            "example: ebb import singa vgg.csv -o vgg.ebbt && ebb info vgg.ebbt\n"};

int ebb__cmd_import(int argc, char **argv)
{
    struct options options = {0};
    int code = ebb__options_parse(&ebb__usage_import, argc, argv, &options);
    if (code >= 0)
        return code;
    if (argc - optind != 2)
        return ebb__command_usage("import", "give KIND and one file, not %d arguments",
                                  argc - optind);
    const struct ebb_importer *importer = ebb__importer_find(argv[optind]);
    if (!importer)
        return ebb__command_usage("import", "no kind of trace is called '%s'", argv[optind]);
    if (!options.out)
        return ebb__command_usage("import", "no -o FILE given");
    struct ebb_error error = {0};
    struct ebb_trace trace;
    struct ebb_import_request request = {.name = argv[optind + 1], .device = options.device};
    enum ebb_status status = ebb__output_check(options.out, options.force, &error);
    if (status)
        return ebb__command_fail("import", &error);
    ebb__progress_begin("import");
    ebb__progress_say("reading %s", request.name);
    status = ebb__import(importer, &request, &trace, &error);
    if (!status)
        ebb__progress_say("writing %s", options.out);
    if (!status)
        status = write_trace(options.out, options.force, &trace, &error);
    ebb__progress_end();
    if (!status)
        print_notes(&request);
    ebb__trace_fini(&trace);
    return status ? ebb__command_fail("import", &error) : 0;
}
