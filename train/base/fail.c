#include "train/base/fail.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum ebb_status ebb__train_fail(struct ebb_error *error, enum ebb_status status, const char *what,
                                const char *why, ...)
{
    if (!error)
        return status;
    struct ebb_error filled = {.status = status};
    snprintf(filled.what, sizeof filled.what, "%s", what);
    va_list arguments;
    va_start(arguments, why);
    vsnprintf(filled.why, sizeof filled.why, why, arguments);
    va_end(arguments);
    *error = filled;
    return status;
}

void ebb__train_remedy(struct ebb_error *error, const char *remedy, ...)
{
    if (!error)
        return;
    va_list arguments;
    va_start(arguments, remedy);
    vsnprintf(error->remedy, sizeof error->remedy, remedy, arguments);
    va_end(arguments);
}

enum ebb_status ebb__train_fail_memory(struct ebb_error *error, const char *what)
{
    return ebb__train_fail(error, EBB_ERR_MEMORY, what, "out of memory");
}

enum ebb_status ebb__train_fail_io(struct ebb_error *error, const char *path, const char *verb)
{
    return ebb__train_fail(error, EBB_ERR_IO, path, "cannot %s: %s", verb, strerror(errno));
}
