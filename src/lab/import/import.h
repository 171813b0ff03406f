/* Reads traces of other tools. Recognises the kind of a trace by its content.
 *
 *     struct ebb_trace trace;
 *     if (ebb__trace_open("run.csv", &trace, &error) != EBB_OK) ...   (.ebbt, or a kind below)
 *     ebb__trace_fini(&trace);
 *
 * docs/formats/import.md describes each kind and its conversion to events. An importer trusts
 * nothing: it refuses a file that contradicts itself, and names the line or byte. */
#ifndef EBB_LAB_IMPORT_IMPORT_H
#define EBB_LAB_IMPORT_IMPORT_H

#include "base/status.h"
#include "trace/file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EBB_IMPORT_NOTES = 6 };

/* What to import, and what is to be said about it. */
struct ebb_import_request {
    const char *name;   /* of the file, for messages */
    const char *device; /* its name in the trace; NULL: the only one */
    /* Set by the importer, one line each: what was left out, or counted in another way. */
    char notes[EBB_IMPORT_NOTES][240];
    size_t note_count;
};

/* Adds a note. Notes beyond EBB_IMPORT_NOTES are dropped. */
EBB_PRINTF(2, 3)
void ebb__import_note(struct ebb_import_request *request, const char *text, ...);

/* One kind of foreign trace. */
struct ebb_importer {
    const char *name; /* as in `ebb import NAME` */
    const char *does; /* describes what it reads, for help texts */
    bool has_devices; /* its traces name devices */
    /* True if a file that begins with these bytes looks like this kind. */
    bool (*recognises)(const uint8_t *bytes, size_t size);
    /* As ebb__import_memory(). */
    enum ebb_status (*read)(const uint8_t *bytes, size_t size, struct ebb_import_request *request,
                            struct ebb_trace *trace, struct ebb_error *error);
};

/* All importers, in the order in which they try a file; *count is their number. */
const struct ebb_importer *ebb__importers(size_t *count);

/* The importer of this name, or NULL. */
const struct ebb_importer *ebb__importer_find(const char *name);

/* Reads the file request->name as that kind; it may be compressed by gzip. On failure *trace is
 * empty, and ebb__trace_fini() may be called:
 *   EBB_ERR_IO      it cannot be opened or read
 *   EBB_ERR_FORMAT  it is not of that kind, or contradicts itself; `why` names the place
 *   EBB_ERR_MEMORY  it does not fit into memory
 *   EBB_ERR_UNSUPPORTED  it has several devices and request->device is NULL; `why` lists them
 *   EBB_ERR_ARGUMENT     request->device is not in the trace
 * The trace is `complete`, and its times begin at 0. Blocks that existed before the trace have no
 * ALLOC; their first access has their size. */
EBB_NODISCARD enum ebb_status ebb__import(const struct ebb_importer *importer,
                                          struct ebb_import_request *request,
                                          struct ebb_trace *trace, struct ebb_error *error);

/* Like ebb__import(), from memory. */
EBB_NODISCARD enum ebb_status ebb__import_memory(const struct ebb_importer *importer,
                                                 const uint8_t *bytes, size_t size,
                                                 struct ebb_import_request *request,
                                                 struct ebb_trace *trace, struct ebb_error *error);

/* Reads any trace: Ebb's own format, or one that an importer recognises, of the only device in it.
 * Notes are not reported. Has the errors of ebb__trace_read() and of ebb__import(). */
EBB_NODISCARD enum ebb_status ebb__trace_open(const char *path, struct ebb_trace *trace,
                                              struct ebb_error *error);

#endif
