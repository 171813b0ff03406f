/* Writes a trace so that it is readable however the writer ends. Events are collected in memory
 * until they fill a block. A block is written by one write with its own length and checksums. If a
 * write fails, the file is truncated to the last complete block and the writer stops. All memory is
 * allocated at the start, so that a program that is out of memory can still be recorded. */
#include "trace/file.h"

#include "trace/codec.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

/* zstd's own default. On a synthetic training loop level 6 takes nearly twice the time and saves
 * one per cent. */
#define COMPRESSION_LEVEL 3

struct ebb_trace_writer {
    int file;
    char *path;
    struct ebb_event *pending; /* EBB_TRACE_BLOCK_EVENTS of them */
    size_t pending_count;
    uint8_t *columns; /* scratch for one block, encoded */
    uint8_t *packed;  /* scratch for one compressed block */
    size_t packed_capacity_bytes;
    ZSTD_CCtx *compressor;
    uint64_t written_bytes; /* the file is valid up to here */
    uint64_t written_events;
    uint64_t written_blocks;
    uint64_t last_time_ns;
    struct ebb_error failure; /* the status is OK if there is none */
};

static void writer_free(struct ebb_trace_writer *writer)
{
    free(writer->path);
    free(writer->pending);
    free(writer->columns);
    free(writer->packed);
    ZSTD_freeCCtx(writer->compressor);
    free(writer);
}

static struct ebb_trace_writer *writer_new(const char *path)
{
    struct ebb_trace_writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return NULL;
    size_t columns_bytes = (size_t)EBB_TRACE_BLOCK_EVENTS * EBB_TRACE_EVENT_MAX_BYTES;
    writer->file = -1;
    writer->path = strdup(path);
    writer->pending = malloc(EBB_TRACE_BLOCK_EVENTS * sizeof *writer->pending);
    writer->columns = malloc(columns_bytes);
    writer->packed_capacity_bytes =
        EBB_TRACE_BLOCK_HEADER_BYTES + ZSTD_compressBound(columns_bytes);
    writer->packed = malloc(writer->packed_capacity_bytes);
    writer->compressor = ZSTD_createCCtx();
    if (writer->path && writer->pending && writer->columns && writer->packed && writer->compressor)
        return writer;
    writer_free(writer);
    return NULL;
}

/* Reports a system error on `path`, from errno. */
static enum ebb_status fail_io(struct ebb_error *error, const char *path, const char *step)
{
    int code = errno;
    ebb__fail(error, EBB_ERR_IO, path, "cannot be %s: %s", step, strerror(code));
    if (code == ENOSPC || code == EDQUOT)
        ebb__error_set_remedy(error, "Free some space there, or write the trace elsewhere.");
    return EBB_ERR_IO;
}

static enum ebb_status report(const struct ebb_trace_writer *writer, struct ebb_error *error)
{
    if (error)
        *error = writer->failure;
    return writer->failure.status;
}

/* Writes all bytes, or none and records a permanent failure. */
static enum ebb_status write_out(struct ebb_trace_writer *writer, const uint8_t *bytes, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t wrote = write(writer->file, bytes + done, size - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0) {
            if (!wrote)
                errno = ENOSPC;
            fail_io(&writer->failure, writer->path, "written");
            /* If even this fails the incomplete block remains, and readers drop it. */
            int ignored = ftruncate(writer->file, (off_t)writer->written_bytes);
            (void)ignored;
            return EBB_ERR_IO;
        }
        done += (size_t)wrote;
    }
    writer->written_bytes += size;
    return EBB_OK;
}

static enum ebb_status write_header(struct ebb_trace_writer *writer,
                                    const struct ebb_trace_info *info)
{
    uint8_t header[EBB_TRACE_HEADER_MIN_BYTES + sizeof info->command];
    size_t command_bytes = strnlen(info->command, sizeof info->command - 1);
    size_t size = EBB_TRACE_HEADER_MIN_BYTES + command_bytes;
    memcpy(header, EBB_TRACE_MAGIC, EBB_TRACE_MAGIC_BYTES);
    ebb__put_le16(header + 8, EBB_TRACE_MAJOR);
    ebb__put_le16(header + 10, EBB_TRACE_MINOR);
    ebb__put_le32(header + 12, (uint32_t)size);
    ebb__put_le64(header + 16, info->threshold_bytes);
    ebb__put_le64(header + 24, info->page_bytes);
    ebb__put_le64(header + 32, info->start_unix_ns);
    ebb__put_le32(header + 40, info->process_id);
    ebb__put_le32(header + 44, (uint32_t)command_bytes);
    memcpy(header + EBB_TRACE_HEADER_FIXED_BYTES, info->command, command_bytes);
    ebb__put_le64(header + size - 8, ebb__trace_checksum(header, size - 8));
    return write_out(writer, header, size);
}

static enum ebb_status write_block(struct ebb_trace_writer *writer)
{
    size_t columns_bytes =
        ebb__trace_encode(writer->pending, writer->pending_count, writer->columns);
    uint8_t *header = writer->packed;
    uint8_t *payload = header + EBB_TRACE_BLOCK_HEADER_BYTES;
    size_t payload_bytes = ZSTD_compressCCtx(
        writer->compressor, payload, writer->packed_capacity_bytes - EBB_TRACE_BLOCK_HEADER_BYTES,
        writer->columns, columns_bytes, COMPRESSION_LEVEL);
    if (ZSTD_isError(payload_bytes))
        return ebb__fail(&writer->failure, EBB_ERR_MEMORY, writer->path, "cannot compress: %s",
                         ZSTD_getErrorName(payload_bytes));
    ebb__put_le32(header, EBB_TRACE_BLOCK_MAGIC);
    ebb__put_le32(header + 4, (uint32_t)payload_bytes);
    ebb__put_le32(header + 8, (uint32_t)writer->pending_count);
    ebb__put_le32(header + 12, (uint32_t)columns_bytes);
    ebb__put_le64(header + 16, writer->written_events);
    ebb__put_le64(header + 24, ebb__trace_checksum(payload, payload_bytes));
    ebb__put_le64(header + 32, ebb__trace_checksum(header, 32));
    enum ebb_status status =
        write_out(writer, header, EBB_TRACE_BLOCK_HEADER_BYTES + payload_bytes);
    if (status != EBB_OK)
        return status;
    writer->written_events += writer->pending_count;
    writer->written_blocks++;
    writer->pending_count = 0;
    return EBB_OK;
}

static enum ebb_status write_footer(struct ebb_trace_writer *writer)
{
    uint8_t footer[EBB_TRACE_FOOTER_BYTES];
    ebb__put_le32(footer, EBB_TRACE_FOOTER_MAGIC);
    ebb__put_le32(footer + 4, 0);
    ebb__put_le64(footer + 8, writer->written_events);
    ebb__put_le64(footer + 16, writer->written_blocks);
    ebb__put_le64(footer + 24, ebb__trace_checksum(footer, 24));
    return write_out(writer, footer, sizeof footer);
}

enum ebb_status ebb__trace_writer_open(const char *path, const struct ebb_trace_info *info,
                                       struct ebb_trace_writer **writer, struct ebb_error *error)
{
    *writer = NULL;
    struct ebb_trace_writer *opened = writer_new(path);
    if (!opened)
        return ebb__fail(error, EBB_ERR_MEMORY, path, "no memory for writing a trace");
    opened->file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666);
    if (opened->file < 0) {
        fail_io(error, path, "created");
        writer_free(opened);
        return EBB_ERR_IO;
    }
    if (write_header(opened, info) != EBB_OK) {
        enum ebb_status status = report(opened, error);
        struct stat found;
        if (!lstat(path, &found) && S_ISREG(found.st_mode))
            unlink(path);
        close(opened->file);
        writer_free(opened);
        return status;
    }
    *writer = opened;
    return EBB_OK;
}

enum ebb_status ebb__trace_writer_append(struct ebb_trace_writer *writer,
                                         const struct ebb_event *events, size_t count,
                                         struct ebb_error *error)
{
    if (writer->failure.status != EBB_OK)
        return report(writer, error);
    for (size_t i = 0; i < count; i++)
        if (!ebb__trace_event_valid(&events[i]))
            return ebb__fail(error, EBB_ERR_ARGUMENT, writer->path,
                             "event %zu of %zu is none: kind %u, access %u, mark %u", i, count,
                             events[i].kind, events[i].access, events[i].mark);
    for (size_t i = 0; i < count; i++) {
        struct ebb_event *event = &writer->pending[writer->pending_count++];
        *event = events[i];
        if (event->time_ns < writer->last_time_ns)
            event->time_ns = writer->last_time_ns;
        writer->last_time_ns = event->time_ns;
        if (writer->pending_count == EBB_TRACE_BLOCK_EVENTS && write_block(writer) != EBB_OK)
            return report(writer, error);
    }
    return EBB_OK;
}

enum ebb_status ebb__trace_writer_flush(struct ebb_trace_writer *writer, struct ebb_error *error)
{
    if (writer->failure.status == EBB_OK && writer->pending_count)
        write_block(writer);
    return report(writer, error);
}

enum ebb_status ebb__trace_writer_close(struct ebb_trace_writer *writer, struct ebb_error *error)
{
    if (!writer)
        return EBB_OK;
    if (ebb__trace_writer_flush(writer, NULL) == EBB_OK)
        write_footer(writer);
    /* Some file systems report an earlier write error only here. */
    if (close(writer->file) && writer->failure.status == EBB_OK)
        fail_io(&writer->failure, writer->path, "closed");
    enum ebb_status status = report(writer, error);
    writer_free(writer);
    return status;
}
