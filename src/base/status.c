#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct status_row {
    const char *text;
    int exit_code;
};

static const struct status_row status_rows[] = {
#define EBB_STATUS_ROW(name, text, code) {text, code},
    EBB_STATUS_TABLE(EBB_STATUS_ROW)
#undef EBB_STATUS_ROW
};

static const size_t status_count = sizeof status_rows / sizeof status_rows[0];

const char *ebb_status_text(enum ebb_status status)
{
    return (size_t)status < status_count ? status_rows[status].text : "unknown status";
}

int ebb_status_exit_code(enum ebb_status status)
{
    return (size_t)status < status_count ? status_rows[status].exit_code : 1;
}

enum ebb_status ebb__fail(struct ebb_error *error, enum ebb_status status, const char *what,
                          const char *why, ...)
{
    if (error) {
        memset(error, 0, sizeof *error);
        error->status = status;
        snprintf(error->what, sizeof error->what, "%s", what);
        va_list arguments;
        va_start(arguments, why);
        vsnprintf(error->why, sizeof error->why, why, arguments);
        va_end(arguments);
    }
    return status;
}

void ebb__error_set_remedy(struct ebb_error *error, const char *remedy, ...)
{
    if (!error)
        return;
    va_list arguments;
    va_start(arguments, remedy);
    vsnprintf(error->remedy, sizeof error->remedy, remedy, arguments);
    va_end(arguments);
}
