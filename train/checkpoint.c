#include "train/checkpoint.h"

#include "train/base/fail.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define MAGIC "EBBTRAIN"
#define VERSION 1u
#define BUFFER_BYTES ((size_t)1 << 20)
#define PATH_MOST 4096

/* The file begins with this, little-endian. It has no padding. */
struct file_head {
    char magic[8];
    uint32_t version;
    uint32_t tensor_count;
    char net[32];
    uint32_t batch, size, channels, classes;
    uint32_t data, optimizer;
    uint64_t seed, iteration;
};

/* Before the bytes of each tensor. */
struct tensor_head {
    uint64_t bytes;
    uint64_t description;
};

/* A file with the checksum of all that was read or written so far. */
struct stream {
    FILE *file;
    const char *path;
    XXH64_state_t *sum;
};

static enum ebb_status stream_init(struct stream *stream, FILE *file, const char *path,
                                   struct ebb_error *error)
{
    *stream = (struct stream){.file = file, .path = path, .sum = XXH64_createState()};
    if (!stream->sum)
        return ebb__train_fail_memory(error, path);
    XXH64_reset(stream->sum, 0);
    return EBB_OK;
}

/* --- saving ----------------------------------------------------------------------------------- */

static enum ebb_status put(struct stream *stream, const void *bytes, size_t count,
                           struct ebb_error *error)
{
    XXH64_update(stream->sum, bytes, count);
    if (fwrite(bytes, 1, count, stream->file) != count)
        return ebb__train_fail_io(error, stream->path, "be written");
    return EBB_OK;
}

static enum ebb_status put_tensor(struct stream *stream,
                                  const struct ebb_checkpoint_tensors *tensors, uint32_t tensor,
                                  struct ebb_error *error)
{
    struct tensor_head head = {.bytes = tensors->bytes(tensors->own, tensor),
                               .description = tensors->description(tensors->own, tensor)};
    enum ebb_status status = put(stream, &head, sizeof head, error);
    if (status)
        return status;
    void *address;
    status = tensors->open(tensors->own, tensor, EBB_USE_READ, &address, error);
    if (status)
        return status;
    status = put(stream, address, head.bytes, error);
    enum ebb_status closed = tensors->close(tensors->own, tensor, status ? NULL : error);
    return status ? status : closed;
}

static enum ebb_status put_all(struct stream *stream, const struct ebb_checkpoint_head *head,
                               const struct ebb_checkpoint_tensors *tensors,
                               struct ebb_error *error)
{
    struct file_head file = {.version = VERSION,
                             .tensor_count = tensors->count,
                             .batch = head->batch,
                             .size = head->size,
                             .channels = head->channels,
                             .classes = head->classes,
                             .data = head->data,
                             .optimizer = head->optimizer,
                             .seed = head->seed,
                             .iteration = head->iteration};
    memcpy(file.magic, MAGIC, sizeof file.magic);
    snprintf(file.net, sizeof file.net, "%s", head->net);
    enum ebb_status status = put(stream, &file, sizeof file, error);
    for (uint32_t t = 0; !status && t < tensors->count; t++)
        status = put_tensor(stream, tensors, t, error);
    if (status)
        return status;
    uint64_t sum = XXH64_digest(stream->sum);
    status = put(stream, &sum, sizeof sum, error);
    if (!status && (fflush(stream->file) || fsync(fileno(stream->file))))
        status = ebb__train_fail_io(error, stream->path, "be written");
    return status;
}

/* A new name is on the disk only once its folder is. Some file systems cannot do that: then the
 * name may be lost with the machine, but no file is damaged. */
static void sync_folder(const char *path)
{
    char folder[PATH_MOST];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    int descriptor = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0)
        return;
    (void)!fsync(descriptor);
    close(descriptor);
}

enum ebb_status ebb__checkpoint_save(const char *path, const struct ebb_checkpoint_head *head,
                                     const struct ebb_checkpoint_tensors *tensors,
                                     struct ebb_error *error)
{
    char temporary[PATH_MOST];
    if (snprintf(temporary, sizeof temporary, "%s.XXXXXX", path) >= (int)sizeof temporary)
        return ebb__train_fail(error, EBB_ERR_ARGUMENT, path, "the path is too long");
    int descriptor = mkstemp(temporary);
    if (descriptor < 0)
        return ebb__train_fail_io(error, path, "be written");
    /* mkstemp() gives no rights to others. A checkpoint is a file like any other. */
    mode_t mask = umask(0);
    umask(mask);
    (void)!fchmod(descriptor, 0666 & ~mask);
    FILE *file = fdopen(descriptor, "wb");
    struct stream stream = {0};
    enum ebb_status status = EBB_OK;
    if (file)
        status = stream_init(&stream, file, path, error);
    else
        status = ebb__train_fail_memory(error, path);
    if (!status)
        status = put_all(&stream, head, tensors, error);
    XXH64_freeState(stream.sum);
    bool is_closed = file ? fclose(file) == 0 : close(descriptor) == 0;
    if (!status && (!is_closed || rename(temporary, path)))
        status = ebb__train_fail_io(error, path, "be written");
    if (status)
        unlink(temporary);
    else
        sync_folder(path);
    return status;
}

/* --- loading ---------------------------------------------------------------------------------- */

static enum ebb_status get(struct stream *stream, void *bytes, size_t count,
                           struct ebb_error *error)
{
    if (fread(bytes, 1, count, stream->file) != count) {
        if (ferror(stream->file))
            return ebb__train_fail_io(error, stream->path, "be read");
        return ebb__train_fail(error, EBB_ERR_FORMAT, stream->path, "ends too early");
    }
    XXH64_update(stream->sum, bytes, count);
    return EBB_OK;
}

static enum ebb_status fail_other(struct ebb_error *error, const char *path, const char *what,
                                  uint64_t found, uint64_t expected)
{
    return ebb__train_fail(error, EBB_ERR_ARGUMENT, path,
                           "is of a training with %s %" PRIu64 ", not %" PRIu64, what, found,
                           expected);
}

static enum ebb_status compare(const char *path, const struct file_head *file,
                               const struct ebb_checkpoint_head *head, uint32_t tensor_count,
                               struct ebb_error *error)
{
    if (memcmp(file->magic, MAGIC, sizeof file->magic) != 0)
        return ebb__train_fail(error, EBB_ERR_FORMAT, path, "not a checkpoint");
    if (file->version != VERSION)
        return ebb__train_fail(error, EBB_ERR_VERSION, path, "has version %" PRIu32 ", not %u",
                               file->version, VERSION);
    if (strncmp(file->net, head->net, sizeof file->net) != 0)
        return ebb__train_fail(error, EBB_ERR_ARGUMENT, path, "is of the network %.32s, not %s",
                               file->net, head->net);
    const struct {
        const char *what;
        uint64_t found, expected;
    } rows[] = {
        {"batch", file->batch, head->batch},
        {"size", file->size, head->size},
        {"channels", file->channels, head->channels},
        {"classes", file->classes, head->classes},
        {"data of kind", file->data, head->data},
        {"optimizer", file->optimizer, head->optimizer},
        {"seed", file->seed, head->seed},
        {"tensors:", file->tensor_count, tensor_count},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].found != rows[i].expected)
            return fail_other(error, path, rows[i].what, rows[i].found, rows[i].expected);
    return EBB_OK;
}

/* Reads the rest of the file, up to its checksum. */
static enum ebb_status verify_rest(struct stream *stream, uint64_t bytes, struct ebb_error *error)
{
    uint8_t *buffer = malloc(BUFFER_BYTES);
    if (!buffer)
        return ebb__train_fail_memory(error, stream->path);
    enum ebb_status status = EBB_OK;
    while (!status && bytes) {
        size_t part = bytes < BUFFER_BYTES ? (size_t)bytes : BUFFER_BYTES;
        status = get(stream, buffer, part, error);
        bytes -= part;
    }
    free(buffer);
    if (status)
        return status;
    uint64_t expected = XXH64_digest(stream->sum), found;
    status = get(stream, &found, sizeof found, error);
    if (!status && found != expected)
        status = ebb__train_fail(error, EBB_ERR_FORMAT, stream->path, "damaged: wrong checksum");
    return status;
}

/* The length is compared before the checksum: "truncated" says more than "damaged". */
static enum ebb_status verify(struct stream *stream, const struct ebb_checkpoint_head *head,
                              const struct ebb_checkpoint_tensors *tensors, struct file_head *file,
                              struct ebb_error *error)
{
    enum ebb_status status = get(stream, file, sizeof *file, error);
    if (!status)
        status = compare(stream->path, file, head, tensors->count, error);
    if (status)
        return status;
    uint64_t rest = 0;
    for (uint32_t t = 0; t < tensors->count; t++)
        rest += sizeof(struct tensor_head) + tensors->bytes(tensors->own, t);
    struct stat found;
    uint64_t expected = sizeof *file + rest + sizeof(uint64_t);
    if (fstat(fileno(stream->file), &found))
        return ebb__train_fail_io(error, stream->path, "be read");
    if ((uint64_t)found.st_size != expected)
        return ebb__train_fail(error, EBB_ERR_FORMAT, stream->path,
                               "has %" PRIu64 " bytes, not %" PRIu64 ": %s",
                               (uint64_t)found.st_size, expected,
                               (uint64_t)found.st_size < expected ? "truncated" : "too long");
    return verify_rest(stream, rest, error);
}

static enum ebb_status get_tensor(struct stream *stream,
                                  const struct ebb_checkpoint_tensors *tensors, uint32_t tensor,
                                  struct ebb_error *error)
{
    void *address;
    enum ebb_status status =
        tensors->open(tensors->own, tensor, EBB_USE_OVERWRITE, &address, error);
    if (status)
        return status;
    status = get(stream, address, tensors->bytes(tensors->own, tensor), error);
    enum ebb_status closed = tensors->close(tensors->own, tensor, status ? NULL : error);
    return status ? status : closed;
}

/* Two passes over the tensors: first all descriptions are compared, then all bytes are read. */
static enum ebb_status get_all(struct stream *stream, const struct ebb_checkpoint_tensors *tensors,
                               struct ebb_error *error)
{
    enum ebb_status status = EBB_OK;
    for (int pass = 0; pass < 2; pass++) {
        if (fseeko(stream->file, sizeof(struct file_head), SEEK_SET))
            return ebb__train_fail_io(error, stream->path, "be read");
        for (uint32_t t = 0; !status && t < tensors->count; t++) {
            struct tensor_head head;
            status = get(stream, &head, sizeof head, error);
            if (status)
                return status;
            if (head.bytes != tensors->bytes(tensors->own, t) ||
                head.description != tensors->description(tensors->own, t))
                return ebb__train_fail(error, EBB_ERR_ARGUMENT, stream->path,
                                       "tensor %" PRIu32 " is laid out for another processor or "
                                       "version",
                                       t);
            if (pass)
                status = get_tensor(stream, tensors, t, error);
            else if (fseeko(stream->file, (off_t)head.bytes, SEEK_CUR))
                return ebb__train_fail_io(error, stream->path, "be read");
        }
    }
    return status;
}

enum ebb_status ebb__checkpoint_load(const char *path, struct ebb_checkpoint_head *head,
                                     const struct ebb_checkpoint_tensors *tensors,
                                     struct ebb_error *error)
{
    FILE *file = fopen(path, "rbe");
    if (!file)
        return ebb__train_fail_io(error, path, "be opened");
    struct stream stream;
    struct file_head found;
    enum ebb_status status = stream_init(&stream, file, path, error);
    if (!status)
        status = verify(&stream, head, tensors, &found, error);
    if (!status)
        status = get_all(&stream, tensors, error);
    XXH64_freeState(stream.sum);
    fclose(file);
    if (!status)
        head->iteration = found.iteration;
    return status;
}
