#include "base/file.h"

#include "base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool ebb__memory_could_hold(uint64_t bytes)
{
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    return bytes <= SIZE_MAX &&
           (pages <= 0 || page_bytes <= 0 || bytes / (uint64_t)page_bytes < (uint64_t)pages);
}

enum ebb_status ebb__fail_memory(const char *name, uint64_t bytes, struct ebb_error *error)
{
    char size[32];
    return ebb__fail(error, EBB_ERR_MEMORY, name, "needs %s of memory to be read",
                     ebb_size_format(bytes, size, sizeof size));
}

struct request {
    const char *path, *kind;
    size_t head_bytes;
    bool (*accepts)(const uint8_t *bytes, size_t size);
};

static bool grow(struct ebb_file_content *content, size_t *capacity, size_t wanted)
{
    uint8_t *moved = realloc(content->bytes, wanted);
    if (!moved)
        return false;
    content->bytes = moved;
    *capacity = wanted;
    return true;
}

/* `expected_bytes` is only a hint: a file may grow while it is read, and a pipe has no size. */
static enum ebb_status read_content(int file, const struct request *request,
                                    uint64_t expected_bytes, struct ebb_file_content *content,
                                    struct ebb_error *error)
{
    size_t capacity = 0;
    bool checked = !request->accepts;
    if (!grow(content, &capacity, 4096))
        return ebb__fail_memory(request->path, 4096, error);
    for (;;) {
        if (!checked && content->size >= request->head_bytes) {
            if (!request->accepts(content->bytes, content->size))
                return ebb__fail(error, EBB_ERR_FORMAT, request->path, "not %s", request->kind);
            checked = true;
        }
        if (content->size == capacity) {
            uint64_t wanted = (uint64_t)capacity * 2;
            if (wanted <= expected_bytes)
                wanted = expected_bytes + 1; /* one byte more detects the end without growing */
            if (!ebb__memory_could_hold(wanted) || !grow(content, &capacity, (size_t)wanted))
                return ebb__fail_memory(request->path, wanted, error);
        }
        ssize_t got = read(file, content->bytes + content->size, capacity - content->size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ebb__fail(error, EBB_ERR_IO, request->path, "cannot be read: %s",
                             strerror(errno));
        if (got)
            content->size += (size_t)got;
        else if (checked || request->accepts(content->bytes, content->size))
            return EBB_OK;
        else
            return ebb__fail(error, EBB_ERR_FORMAT, request->path, "not %s", request->kind);
    }
}

enum ebb_status ebb__file_read(const char *path, const char *kind, size_t head_bytes,
                               bool (*accepts)(const uint8_t *bytes, size_t size),
                               struct ebb_file_content *content, struct ebb_error *error)
{
    memset(content, 0, sizeof *content);
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (file < 0)
        return ebb__fail(error, EBB_ERR_IO, path, "cannot be opened: %s", strerror(errno));
    const struct request request = {path, kind, head_bytes, accepts};
    struct stat found;
    enum ebb_status status;
    if (fstat(file, &found))
        status = ebb__fail(error, EBB_ERR_IO, path, "cannot be read: %s", strerror(errno));
    else if (S_ISDIR(found.st_mode))
        status = ebb__fail(error, EBB_ERR_IO, path, "is a directory, not %s", kind);
    else if (!S_ISREG(found.st_mode) && !S_ISFIFO(found.st_mode))
        status = ebb__fail(error, EBB_ERR_IO, path, "is neither a file nor a pipe");
    else
        status = read_content(file, &request, (uint64_t)found.st_size, content, error);
    close(file);
    if (status) {
        free(content->bytes);
        memset(content, 0, sizeof *content);
    }
    return status;
}
