/* `ebb import`: a trace of another tool becomes an Ebb trace. */
#include "trace/import/import.h"
#include "command.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static void print_help(void)
{
    size_t count;
    const struct ebb_importer *importers = ebb__importers(&count);
    fputs("usage: ebb import KIND IN -o FILE\n\n"
          "Writes the trace IN of another tool as the Ebb trace FILE. KIND is one of\n",
          stdout);
    for (size_t i = 0; i < count; i++)
        printf("  %-14s %s\n", importers[i].name, importers[i].does);
    fputs("\n  -o FILE        where to write; an existing file is replaced\n\n"
          "Commands that read a trace read these kinds, too, by their content.\n\n"
          "example: ebb import singa vgg.csv -o vgg.ebbt && ebb info vgg.ebbt\n",
          stdout);
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

int ebb__cmd_import(int argc, char **argv)
{
    static const struct option known[] = {{"output", required_argument, NULL, 'o'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    const char *out = NULL;
    opterr = 0;
    optind = 1;
    for (int option; (option = getopt_long(argc, argv, ":o:h", known, NULL)) != -1;) {
        switch (option) {
        case 'o':
            out = optarg;
            break;
        case 'h':
            print_help();
            return 0;
        case ':':
            return ebb__command_usage("import", "%s needs a value", argv[optind - 1]);
        default:
            return ebb__command_usage("import", "unknown option '%s'", argv[optind - 1]);
        }
    }
    if (argc - optind != 2)
        return ebb__command_usage("import", "give KIND and one file, not %d arguments",
                                  argc - optind);
    const struct ebb_importer *importer = ebb__importer_find(argv[optind]);
    if (!importer)
        return ebb__command_usage("import", "no kind of trace is called '%s'", argv[optind]);
    if (!out)
        return ebb__command_usage("import", "no -o FILE given");
    struct ebb_error error = {0};
    struct ebb_trace trace;
    enum ebb_status status = ebb__import(importer, argv[optind + 1], &trace, &error);
    if (!status)
        status = write_trace(out, &trace, &error);
    ebb__trace_fini(&trace);
    return status ? ebb__command_fail("import", &error) : 0;
}
