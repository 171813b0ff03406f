#include "output.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum ebb_status fail(const char *path, const char *why, struct ebb_error *error)
{
    ebb__fail(error, EBB_ERR_IO, path, "%s", why);
    ebb__error_set_remedy(error, "see that its disk is not full and that you may write there");
    return EBB_ERR_IO;
}

enum ebb_status ebb__output_open(const char *path, bool replaces, struct ebb_output *output,
                                 struct ebb_error *error)
{
    *output = (struct ebb_output){.path = path, .file = path ? NULL : stdout};
    signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is then an error of write() */
    if (!path)
        return EBB_OK;
    struct stat there;
    if (!replaces && lstat(path, &there) == 0) {
        ebb__fail(error, EBB_ERR_IO, path, "exists");
        ebb__error_set_remedy(error, "give -f to replace it, or another name");
        return EBB_ERR_IO;
    }
    if (stat(path, &there) == 0 && S_ISDIR(there.st_mode))
        return fail(path, strerror(EISDIR), error);
    int length = snprintf(output->beside, sizeof output->beside, "%s.XXXXXX", path);
    if (length < 0 || (size_t)length >= sizeof output->beside)
        return fail(path, strerror(ENAMETOOLONG), error);
    int descriptor = mkstemp(output->beside);
    if (descriptor < 0)
        return fail(path, strerror(errno), error);
    mode_t mask = umask(0);
    umask(mask);
    fchmod(descriptor, 0666 & ~mask);
    output->file = fdopen(descriptor, "w");
    if (!output->file) {
        close(descriptor);
        unlink(output->beside);
        return fail(path, strerror(errno), error);
    }
    return EBB_OK;
}

enum ebb_status ebb__output_close(struct ebb_output *output, enum ebb_status status,
                                  struct ebb_error *error)
{
    errno = 0;
    bool failed = fflush(output->file) != 0 || ferror(output->file);
    int cause = errno;
    if (!output->path) {
        if (!failed)
            return status;
        return fail("standard output", cause ? strerror(cause) : "cannot be written", error);
    }
    if (fclose(output->file) != 0 && !failed) {
        failed = true;
        cause = errno;
    }
    if (!failed && !status && rename(output->beside, output->path) == 0)
        return EBB_OK;
    if (!failed && !status)
        cause = errno;
    unlink(output->beside);
    if (status && !failed)
        return status;
    return fail(output->path, cause ? strerror(cause) : "cannot be written", error);
}
