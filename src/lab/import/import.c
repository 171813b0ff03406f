#include "lab/import/import.h"

#include "base/file.h"
#include "lab/import/kinds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ebb_importer importers[] = {
    {"singa", "SINGA's block log: op, pointer, size and time, or without sizes of frees",
     ebb__singa_recognises, ebb__singa_read},
    {"rmm", "RMM's log: CSV of Thread,Time,Action,Pointer,Size,Stream", ebb__rmm_recognises,
     ebb__rmm_read},
    {"stalloc", "STAlloc's trace: mem_log_dev*.txt", ebb__stalloc_recognises, ebb__stalloc_read},
    {"torch-snapshot", "PyTorch's memory snapshot (pickle, read without executing it)",
     ebb__torch_snapshot_recognises, ebb__torch_snapshot_read},
};

static const size_t importer_count = sizeof importers / sizeof importers[0];

const struct ebb_importer *ebb__importers(size_t *count)
{
    *count = importer_count;
    return importers;
}

const struct ebb_importer *ebb__importer_find(const char *name)
{
    for (size_t i = 0; i < importer_count; i++)
        if (strcmp(importers[i].name, name) == 0)
            return &importers[i];
    return NULL;
}

enum ebb_status ebb__import_memory(const struct ebb_importer *importer, const uint8_t *bytes,
                                   size_t size, const char *name, struct ebb_trace *trace,
                                   struct ebb_error *error)
{
    memset(trace, 0, sizeof *trace);
    if (!size)
        return ebb__fail(error, EBB_ERR_FORMAT, name, "is empty, no trace");
    enum ebb_status status = importer->read(bytes, size, name, trace, error);
    if (status) {
        if (status == EBB_ERR_FORMAT && error && !error->remedy[0])
            ebb__error_set_remedy(error, "docs/formats/import.md says what '%s' reads",
                                  importer->name);
        return status;
    }
    const char *slash = strrchr(name, '/');
    snprintf(trace->info.command, sizeof trace->info.command, "%s trace %s", importer->name,
             slash ? slash + 1 : name);
    trace->info.page_bytes = 1;
    trace->complete = true;
    return EBB_OK;
}

enum ebb_status ebb__import(const struct ebb_importer *importer, const char *path,
                            struct ebb_trace *trace, struct ebb_error *error)
{
    struct ebb_file_content content;
    memset(trace, 0, sizeof *trace);
    enum ebb_status status = ebb__file_read(path, "a trace", 0, NULL, &content, error);
    if (!status)
        status = ebb__import_memory(importer, content.bytes, content.size, path, trace, error);
    free(content.bytes);
    return status;
}

static enum ebb_status read_any(const struct ebb_file_content *content, const char *path,
                                struct ebb_trace *trace, struct ebb_error *error)
{
    if (!content->size)
        return ebb__fail(error, EBB_ERR_FORMAT, path, "is empty, no trace");
    if (ebb__trace_recognises(content->bytes, content->size))
        return ebb__trace_read_memory(content->bytes, content->size, path, trace, error);
    for (size_t i = 0; i < importer_count; i++)
        if (importers[i].recognises(content->bytes, content->size))
            return ebb__import_memory(&importers[i], content->bytes, content->size, path, trace,
                                      error);
    ebb__fail(error, EBB_ERR_FORMAT, path, "not an Ebb trace, nor one that Ebb imports");
    ebb__error_set_remedy(error, "make a trace with 'ebb record -o FILE -- CMD'; 'ebb import "
                                 "--help' lists what else is read");
    return EBB_ERR_FORMAT;
}

enum ebb_status ebb__trace_open(const char *path, struct ebb_trace *trace, struct ebb_error *error)
{
    struct ebb_file_content content;
    memset(trace, 0, sizeof *trace);
    enum ebb_status status = ebb__file_read(path, "a trace", 0, NULL, &content, error);
    if (!status)
        status = read_any(&content, path, trace, error);
    free(content.bytes);
    return status;
}
