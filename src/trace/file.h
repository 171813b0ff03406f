/* The trace file, `.ebbt`: the events of one process, written as they happen, read as a whole.
 *
 *     struct ebb_trace_writer *writer;
 *     if (ebb__trace_writer_open("run.ebbt", &info, &writer, &error) != EBB_OK) ...
 *     status = ebb__trace_writer_append(writer, events, count, &error);   (as often as need be)
 *     status = ebb__trace_writer_close(writer, &error);
 *
 *     struct ebb_trace trace;
 *     if (ebb__trace_read("run.ebbt", &trace, &error) != EBB_OK) ...
 *     use(trace.events, trace.count);
 *     ebb__trace_fini(&trace);
 *
 * docs/formats/trace.md is the format. A writer belongs to one thread at a time; reading has no
 * shared state. Neither is for the shim: both allocate. */
#ifndef EBB_TRACE_FILE_H
#define EBB_TRACE_FILE_H

#include "base/status.h"
#include "trace/event.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a trace says about itself. `command` is NUL-terminated; any other byte may occur in it, so
 * escape it before it goes to a terminal or a page. */
struct ebb_trace_info {
    char command[256];
    uint64_t threshold_bytes; /* smaller allocations are not in the trace */
    uint64_t page_bytes;
    uint64_t start_unix_ns; /* wall-clock time of time_ns 0 */
    uint32_t process_id;
};

struct ebb_trace_writer;

/* Create `path`, or empty it where it exists, and write the header. On failure *writer is NULL. */
EBB_NODISCARD
enum ebb_status ebb__trace_writer_open(const char *path, const struct ebb_trace_info *info,
                                       struct ebb_trace_writer **writer, struct ebb_error *error);

/* Append `count` events. A time_ns below that of the event before is raised to it. An event with a
 * kind, access or mark outside its enum is EBB_ERR_ARGUMENT, and none of this call is appended.
 * EBB_ERR_IO is final: every later call on the writer returns it again, and the file ends with the
 * last block that was written whole. */
EBB_NODISCARD
enum ebb_status ebb__trace_writer_append(struct ebb_trace_writer *writer,
                                         const struct ebb_event *events, size_t count,
                                         struct ebb_error *error);

/* Hand everything appended so far to the system as a whole block: it then outlives this process,
 * whatever ends it (not a loss of power: nothing is synchronised to the disk). Each flush ends a
 * block, and short blocks compress worse. */
EBB_NODISCARD
enum ebb_status ebb__trace_writer_flush(struct ebb_trace_writer *writer, struct ebb_error *error);

/* Flush, write the footer, close. Always frees `writer` (may be NULL), also where it fails. */
EBB_NODISCARD
enum ebb_status ebb__trace_writer_close(struct ebb_trace_writer *writer, struct ebb_error *error);

struct ebb_trace {
    struct ebb_trace_info info;
    struct ebb_event *events; /* NULL where count is 0 */
    size_t count;
    bool complete;          /* has its footer: the writer closed it, nothing is missing */
    uint64_t damaged_bytes; /* of an unfinished last block, dropped */
};

/* Read a whole trace into memory. A file that its writer could not finish is read up to its last
 * whole block, with `complete` false. On failure *trace is empty (and may go to fini):
 *   EBB_ERR_IO       it cannot be opened or read, or is a directory or a device
 *   EBB_ERR_FORMAT   it is no trace, or is damaged; `why` gives the byte offset
 *   EBB_ERR_VERSION  a newer Ebb wrote it
 *   EBB_ERR_MEMORY   its events do not fit into memory */
EBB_NODISCARD
enum ebb_status ebb__trace_read(const char *path, struct ebb_trace *trace, struct ebb_error *error);

/* The same from memory; `name` stands for the file in errors. */
EBB_NODISCARD
enum ebb_status ebb__trace_read_memory(const void *bytes, size_t size, const char *name,
                                       struct ebb_trace *trace, struct ebb_error *error);

/* Does it begin as a trace does, whatever follows? */
bool ebb__trace_recognises(const uint8_t *bytes, size_t size);

/* Free the events; *trace is empty then. */
void ebb__trace_fini(struct ebb_trace *trace);

#endif
