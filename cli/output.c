#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum ebb_status fail(const char *path, const char *why, struct ebb_error *error)
{
    ebb__fail(error, EBB_ERR_IO, path, "cannot be written: %s", why);
    ebb__error_set_remedy(error, "see that its folder exists and that its disk is not full");
    return EBB_ERR_IO;
}

static enum ebb_status refuse(const char *path, struct ebb_error *error)
{
    ebb__fail(error, EBB_ERR_IO, path, "exists");
    ebb__error_set_remedy(error, "give another name, or -f to replace it");
    return EBB_ERR_IO;
}

/* A device, a pipe or a socket: renaming another file to its name would destroy it. */
static bool is_special(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode);
}

enum ebb_status ebb__output_check(const char *path, bool force, struct ebb_error *error)
{
    struct stat found;
    if (is_special(path))
        return EBB_OK;
    if (stat(path, &found) == 0 && S_ISDIR(found.st_mode))
        return fail(path, "it is a folder", error);
    if (lstat(path, &found) == 0 && !force)
        return refuse(path, error);
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX] = ".";
    if (slash)
        snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    if (access(folder, W_OK | X_OK) != 0)
        return fail(path, strerror(errno), error);
    return EBB_OK;
}

enum ebb_status ebb__output_open(const char *path, struct ebb_output *output,
                                 struct ebb_error *error)
{
    *output = (struct ebb_output){.path = path};
    signal(SIGXFSZ, SIG_IGN);
    output->stream = path ? open_memstream(&output->text, &output->size) : stdout;
    return output->stream ? EBB_OK : ebb__fail(error, EBB_ERR_MEMORY, path, "no memory for it");
}

void ebb__output_discard(struct ebb_output *output)
{
    if (output->stream && output->path)
        fclose(output->stream);
    free(output->text);
    *output = (struct ebb_output){0};
}

/* Returns 0, or the error number. */
static int write_all(int descriptor, const char *text, size_t size)
{
    while (size) {
        ssize_t wrote = write(descriptor, text, size);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return errno;
        text += wrote;
        size -= (size_t)wrote;
    }
    return 0;
}

static int write_special(const struct ebb_output *output)
{
    int descriptor = open(output->path, O_WRONLY | O_CLOEXEC);
    if (descriptor < 0)
        return errno;
    int failed = write_all(descriptor, output->text, output->size);
    return close(descriptor) != 0 && !failed ? errno : failed;
}

/* Gives the finished file its name. Without `force` it must be free. */
static int rename_to(const char *part, const char *path, bool force)
{
    if (force)
        return rename(part, path) ? errno : 0;
    if (renameat2(AT_FDCWD, part, AT_FDCWD, path, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    if (access(path, F_OK) == 0) /* a file system that cannot rename without replacing */
        return EEXIST;
    return rename(part, path) ? errno : 0;
}

static int write_beside(const struct ebb_output *output, bool force)
{
    char part[PATH_MAX];
    if (snprintf(part, sizeof part, "%s.%ld.part", output->path, (long)getpid()) >=
        (int)sizeof part)
        return ENAMETOOLONG;
    int descriptor = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0)
        return errno;
    int failed = write_all(descriptor, output->text, output->size);
    if (close(descriptor) != 0 && !failed)
        failed = errno;
    if (!failed)
        failed = rename_to(part, output->path, force);
    if (failed)
        unlink(part);
    return failed;
}

enum ebb_status ebb__output_flush(bool written, struct ebb_error *error)
{
    if (written && fflush(stdout) == 0 && !ferror(stdout))
        return EBB_OK;
    ebb__fail(error, EBB_ERR_IO, "standard output", "cannot be written");
    ebb__error_set_remedy(error, "see that its disk is not full");
    return EBB_ERR_IO;
}

enum ebb_status ebb__output_close(struct ebb_output *output, bool force, struct ebb_error *error)
{
    const char *path = output->path;
    if (!path)
        return ebb__output_flush(true, error);
    bool whole = fflush(output->stream) == 0 && !ferror(output->stream);
    int failed = !whole             ? ENOMEM
                 : is_special(path) ? write_special(output)
                                    : write_beside(output, force);
    ebb__output_discard(output);
    if (failed == EEXIST)
        return refuse(path, error);
    return failed ? fail(path, strerror(failed), error) : EBB_OK;
}
