/* Traces of other tools, and any trace by its content.
 *
 *     struct ebb_trace trace;
 *     if (ebb__trace_open("run.csv", &trace, &error) != EBB_OK) ...   (.ebbt, or a kind below)
 *     ebb__trace_fini(&trace);
 *
 * docs/formats/import.md says what each kind is and how it becomes events. An importer trusts
 * nothing: what contradicts itself is refused, with the line (or the byte) that does. */
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
    const char *does; /* what it reads, for people */
    /* Does it look like this kind, by its beginning? */
    bool (*recognises)(const uint8_t *bytes, size_t size);
    /* As ebb__import_memory(). */
    enum ebb_status (*read)(const uint8_t *bytes, size_t size, const char *name,
                            struct ebb_trace *trace, struct ebb_error *error);
};

/* All importers, in the order in which they are asked; *count is their number. */
const struct ebb_importer *ebb__importers(size_t *count);

/* The importer of this name, or NULL. */
const struct ebb_importer *ebb__importer_find(const char *name);

/* Read `path` as that kind. On failure *trace is empty (and may go to fini):
 *   EBB_ERR_IO      it cannot be opened or read
 *   EBB_ERR_FORMAT  it is not of that kind, or contradicts itself; `why` says where
 *   EBB_ERR_MEMORY  it does not fit into memory
 * The trace is `complete`; its times begin at 0; blocks that existed before it have no ALLOC, and
 * their first access carries their size. */
EBB_NODISCARD enum ebb_status ebb__import(const struct ebb_importer *importer, const char *path,
                                          struct ebb_trace *trace, struct ebb_error *error);

/* The same from memory; `name` stands for the file in errors. */
EBB_NODISCARD enum ebb_status ebb__import_memory(const struct ebb_importer *importer,
                                                 const uint8_t *bytes, size_t size,
                                                 const char *name, struct ebb_trace *trace,
                                                 struct ebb_error *error);

/* Read any trace, ours or one that an importer recognises. Errors of ebb__trace_read() and of
 * ebb__import(). */
EBB_NODISCARD enum ebb_status ebb__trace_open(const char *path, struct ebb_trace *trace,
                                              struct ebb_error *error);

#endif
