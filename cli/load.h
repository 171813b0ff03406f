/* Loads and analyses a trace of any kind for a command. */
#ifndef EBB_CLI_LOAD_H
#define EBB_CLI_LOAD_H

#include "base/status.h"
#include "model/analyse.h"
#include "trace/file.h"

#include <stdbool.h>

struct ebb_loaded {
    struct ebb_trace trace;
    struct ebb_analysis analysis;
    uint64_t page_bytes; /* of the trace, at least 1 */
};

enum ebb_load_needs {
    EBB_LOAD_TRACE,    /* a trace that can be analysed */
    EBB_LOAD_MODEL,    /* a repeating iteration */
    EBB_LOAD_ACCESSES, /* a repeating iteration with accesses */
};

/* Reads and analyses `path`. EBB_ERR_FORMAT if it lacks what `needs` names. Every error has a
 * remedy. On failure *loaded is empty. Release it with ebb__load_fini(). */
EBB_NODISCARD enum ebb_status ebb__load(const char *path, enum ebb_load_needs needs,
                                        struct ebb_loaded *loaded, struct ebb_error *error);
void ebb__load_fini(struct ebb_loaded *loaded);

#endif
