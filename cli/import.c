/* `ebb import`: converts a trace of another tool to an Ebb trace. */
#include "lab/import/import.h"
#include "command.h"
#include "options.h"

#include <stdio.h>

static void print_kinds(void)
{
    size_t count;
    const struct ebb_importer *importers = ebb__importers(&count);
    for (size_t i = 0; i < count; i++)
        printf("  %-14s %s\n", importers[i].name, importers[i].does);
}

static enum ebb_status write_trace(const char *path, const struct ebb_trace *trace,
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

struct options {
    const char *out;
};

int ebb__cmd_import(int argc, char **argv)
{
    static const struct ebb_option known[] = {
        {.name = "output",
         .letter = 'o',
         .kind = EBB_OPTION_TEXT,
         .argument = "FILE",
         .offset = offsetof(struct options, out),
         .help = "where to write; an existing file is replaced"}};
    static const struct ebb_usage usage = {
        .command = "import",
        .text = "usage: ebb import KIND IN -o FILE\n\n"
                "Writes the trace IN of another tool as the Ebb trace FILE. KIND is one of\n",
        .more = print_kinds,
        .options = known,
        .count = 1,
        .tail = "Commands that read a trace read these kinds, too, by their content.\n\n"
                "example: ebb import singa vgg.csv -o vgg.ebbt && ebb info vgg.ebbt\n"};
    struct options options = {0};
    int code = ebb__options_parse(&usage, argc, argv, &options);
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
    enum ebb_status status = ebb__import(importer, argv[optind + 1], &trace, &error);
    if (!status)
        status = write_trace(options.out, &trace, &error);
    ebb__trace_fini(&trace);
    return status ? ebb__command_fail("import", &error) : 0;
}
