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

/* One kind of foreign trace. */
struct ebb_importer {
    const char *name; /* as in `ebb import NAME` */
    const char *does; /* describes what it reads, for help texts */
    /* True if a file that begins with these bytes looks like this kind. */
    bool (*recognises)(const uint8_t *bytes, size_t size);
    /* As ebb__import_memory(). */
    enum ebb_status (*read)(const uint8_t *bytes, size_t size, const char *name,
                            struct ebb_trace *trace, struct ebb_error *error);
};

/* All importers, in the order in which they try a file; *count is their number. */
const struct ebb_importer *ebb__importers(size_t *count);

/* The importer of this name, or NULL. */
const struct ebb_importer *ebb__importer_find(const char *name);

/* Reads `path` as that kind. On failure *trace is empty, and ebb__trace_fini() may be called:
 *   EBB_ERR_IO      it cannot be opened or read
 *   EBB_ERR_FORMAT  it is not of that kind, or contradicts itself; `why` names the place
 *   EBB_ERR_MEMORY  it does not fit into memory
 * The trace is `complete`, and its times begin at 0. Blocks that existed before the trace have no
 * ALLOC; their first access has their size. */
EBB_NODISCARD enum ebb_status ebb__import(const struct ebb_importer *importer, const char *path,
                                          struct ebb_trace *trace, struct ebb_error *error);

/* Like ebb__import(), from memory. Errors call the file `name`. */
EBB_NODISCARD enum ebb_status ebb__import_memory(const struct ebb_importer *importer,
                                                 const uint8_t *bytes, size_t size,
                                                 const char *name, struct ebb_trace *trace,
                                                 struct ebb_error *error);

/* Reads any trace: Ebb's own format, or one that an importer recognises. Has the errors of
 * ebb__trace_read() and of ebb__import(). */
EBB_NODISCARD enum ebb_status ebb__trace_open(const char *path, struct ebb_trace *trace,
                                              struct ebb_error *error);

#endif
