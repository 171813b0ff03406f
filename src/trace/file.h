/* The trace file, `.ebbt`: the events of one process, written as they happen, read as a whole.
 *
 *     struct ebb_trace_writer *writer;
 *     if (ebb__trace_writer_open("run.ebbt", &info, &writer, &error) != EBB_OK) ...
 *     status = ebb__trace_writer_append(writer, events, count, &error);   (repeatedly)
 *     status = ebb__trace_writer_close(writer, &error);
 *
 *     struct ebb_trace trace;
 *     if (ebb__trace_read("run.ebbt", &trace, &error) != EBB_OK) ...
 *     use(trace.events, trace.count);
 *     ebb__trace_fini(&trace);
 *
 * docs/formats/trace.md is the format. Only one thread at a time may use a writer; reading has no
 * shared state. The shim can use neither: both allocate. */
#ifndef EBB_TRACE_FILE_H
#define EBB_TRACE_FILE_H

#include "base/status.h"
#include "trace/event.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Metadata of a trace. `command` is NUL-terminated and may contain any other byte: escape it before
 * printing. */
struct ebb_trace_info {
    char command[256];
    uint64_t threshold_bytes; /* smaller allocations are not in the trace */
    uint64_t page_bytes;
    uint64_t start_unix_ns; /* wall-clock time of time_ns 0 */
    uint32_t process_id;
};

struct ebb_trace_writer;

/* Creates `path`, or truncates it if it exists, and writes the header. On failure *writer is
 * NULL. */
EBB_NODISCARD
enum ebb_status ebb__trace_writer_open(const char *path, const struct ebb_trace_info *info,
                                       struct ebb_trace_writer **writer, struct ebb_error *error);

/* Appends `count` events. A time_ns below that of the previous event is raised to it. An event with
 * a kind, access or mark outside its enum is EBB_ERR_ARGUMENT, and none of the events is appended.
 * EBB_ERR_IO is final: every later call on the writer returns it again, and the file ends with the
 * last completely written block. */
EBB_NODISCARD
enum ebb_status ebb__trace_writer_append(struct ebb_trace_writer *writer,
                                         const struct ebb_event *events, size_t count,
                                         struct ebb_error *error);

/* Writes all appended events to the system as a complete block. They then survive any end of this
 * process, but not a loss of power, since nothing is synchronised to the disk. Each flush ends a
 * block, and short blocks compress worse. */
EBB_NODISCARD
enum ebb_status ebb__trace_writer_flush(struct ebb_trace_writer *writer, struct ebb_error *error);

/* Flushes, writes the footer, closes. Always frees `writer` (may be NULL), even on failure. */
EBB_NODISCARD
enum ebb_status ebb__trace_writer_close(struct ebb_trace_writer *writer, struct ebb_error *error);

struct ebb_trace {
    struct ebb_trace_info info;
    struct ebb_event *events; /* NULL if count is 0 */
    size_t count;
    bool complete;          /* has its footer: the writer closed it, nothing is missing */
    uint64_t damaged_bytes; /* of an unfinished last block, which was dropped */
};

/* Reads a whole trace into memory. A file that its writer did not finish is read up to its last
 * complete block, with `complete` false. On failure *trace is empty (fini is allowed):
 *   EBB_ERR_IO       it cannot be opened or read, or is a directory or a device
 *   EBB_ERR_FORMAT   it is not a trace, or is damaged; `why` gives the byte offset
 *   EBB_ERR_VERSION  a newer Ebb wrote it
 *   EBB_ERR_MEMORY   its events do not fit into memory */
EBB_NODISCARD
enum ebb_status ebb__trace_read(const char *path, struct ebb_trace *trace, struct ebb_error *error);

/* The same from memory; errors use `name` as the file name. */
EBB_NODISCARD
enum ebb_status ebb__trace_read_memory(const void *bytes, size_t size, const char *name,
                                       struct ebb_trace *trace, struct ebb_error *error);

/* True if the bytes begin like a trace; the rest is not examined. */
bool ebb__trace_recognises(const uint8_t *bytes, size_t size);

/* Frees the events; *trace is then empty. */
void ebb__trace_fini(struct ebb_trace *trace);

#endif
