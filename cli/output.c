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

static bool begins(const char *path, const char *head)
{
    return strncmp(path, head, strlen(head)) == 0;
}

/* A device, a pipe or a socket: renaming another file to its name would destroy it. The names of
 * descriptors, /dev/stdout too, may be links to a file, which somebody has opened. */
static bool is_special(const char *path)
{
    struct stat found;
    if (begins(path, "/dev/std") || begins(path, "/dev/fd/") || begins(path, "/proc/"))
        return stat(path, &found) == 0;
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

enum ebb_status ebb__output_check_in_place(const char *path, struct ebb_error *error)
{
    struct stat found;
    if (is_special(path) || stat(path, &found) != 0 || S_ISDIR(found.st_mode))
        return ebb__output_check(path, true, error);
    return access(path, W_OK) ? fail(path, strerror(errno), error) : EBB_OK;
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

/* Returns 0, or the error number. */
static int part_begin(const char *path, struct ebb_output_part *part)
{
    sigset_t signals;
    bool special = is_special(path);
    /* A link to a file stays a link. What does not exist, or is no link, has its own name. */
    if (special || !realpath(path, part->path))
        if (snprintf(part->path, sizeof part->path, "%s", path) >= (int)sizeof part->path)
            return ENAMETOOLONG;
    if (special)
        memcpy(part->name, part->path, sizeof part->name);
    else if (snprintf(part->name, sizeof part->name, "%s.%ld.part", part->path, (long)getpid()) >=
             (int)sizeof part->name)
        return ENAMETOOLONG;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, &part->signals);
    return 0;
}

static int part_end(struct ebb_output_part *part, bool whole, bool force)
{
    int failed = 0;
    if (strcmp(part->name, part->path) != 0) {
        failed = whole ? rename_to(part->name, part->path, force) : 0;
        if (failed || !whole)
            unlink(part->name);
    }
    sigprocmask(SIG_SETMASK, &part->signals, NULL);
    return failed;
}

/* Returns 0, or the error number. */
static int write_part(const struct ebb_output_part *part, const char *text, size_t size)
{
    bool in_place = strcmp(part->name, part->path) == 0;
    int descriptor =
        open(part->name, O_WRONLY | O_CLOEXEC | (in_place ? O_APPEND : O_CREAT | O_EXCL), 0666);
    if (descriptor < 0)
        return errno;
    int failed = write_all(descriptor, text, size);
    return close(descriptor) != 0 && !failed ? errno : failed;
}

/* Returns 0, or the error number. */
static int overwrite(const struct ebb_output *output)
{
    int descriptor = open(output->path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (descriptor < 0)
        return errno;
    int failed = write_all(descriptor, output->text, output->size);
    if (failed && ftruncate(descriptor, 0) != 0)
        failed = errno;
    return close(descriptor) != 0 && !failed ? errno : failed;
}

static int write_output(const struct ebb_output *output, bool force)
{
    struct ebb_output_part part;
    if (output->in_place && !is_special(output->path) && access(output->path, F_OK) == 0)
        return overwrite(output);
    int failed = part_begin(output->path, &part);
    if (failed)
        return failed;
    failed = write_part(&part, output->text, output->size);
    int renamed = part_end(&part, !failed, force);
    return failed ? failed : renamed;
}

enum ebb_status ebb__output_part_begin(const char *path, struct ebb_output_part *part,
                                       struct ebb_error *error)
{
    int failed = part_begin(path, part);
    signal(SIGXFSZ, SIG_IGN);
    return failed ? fail(path, strerror(failed), error) : EBB_OK;
}

enum ebb_status ebb__output_part_end(struct ebb_output_part *part, enum ebb_status status,
                                     bool force, struct ebb_error *error)
{
    int failed = part_end(part, status == EBB_OK, force);
    if (failed == EEXIST)
        return refuse(part->path, error);
    if (failed)
        return fail(part->path, strerror(failed), error);
    if (status && error && begins(part->name, error->what)) /* who wrote it knows no other name */
        snprintf(error->what, sizeof error->what, "%.*s", (int)sizeof error->what - 1, part->path);
    return status;
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
    int failed = whole ? write_output(output, force) : ENOMEM;
    ebb__output_discard(output);
    if (failed == EEXIST)
        return refuse(path, error);
    return failed ? fail(path, strerror(failed), error) : EBB_OK;
}
