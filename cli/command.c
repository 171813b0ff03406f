/* Error messages of all commands. */
#include "command.h"

#include "progress.h"

#include <stdarg.h>
#include <stdio.h>

int ebb__command_fail(const char *command, const struct ebb_error *error)
{
    ebb__progress_end();
    fprintf(stderr, "ebb: %s: %s%s%s\n", command, error->what, error->what[0] ? ": " : "",
            error->why[0] ? error->why : ebb_status_text(error->status));
    if (error->remedy[0])
        fprintf(stderr, "ebb: %s\n", error->remedy);
    return ebb_status_exit_code(error->status);
}

int ebb__command_usage(const char *command, const char *message, ...)
{
    fprintf(stderr, "ebb: %s: ", command);
    va_list arguments;
    va_start(arguments, message);
    vfprintf(stderr, message, arguments);
    va_end(arguments);
    fprintf(stderr, "\nebb: see 'ebb %s --help'\n", command);
    return 2;
}
