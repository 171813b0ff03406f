#include "lab/import/import.h"

#include "base/file.h"
#include "lab/import/gzip.h"
#include "lab/import/kinds.h"
#include "lab/import/lifeless.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ebb_importer importers[] = {
    {"singa", "SINGA's block log: op, pointer, size and time, or without sizes of frees", false,
     ebb__singa_recognises, ebb__singa_read},
    {"rmm", "RMM's log: CSV of Thread,Time,Action,Pointer,Size,Stream", false, ebb__rmm_recognises,
     ebb__rmm_read},
    {"stalloc", "STAlloc's trace: mem_log_dev*.txt", false, ebb__stalloc_recognises,
     ebb__stalloc_read},
    {"torch-snapshot", "PyTorch's memory snapshot (pickle, read without executing it)", true,
     ebb__torch_snapshot_recognises, ebb__torch_snapshot_read},
    {"torch-profile", "PyTorch's profile with its memory: Chrome trace (JSON) of torch.profiler",
     true, ebb__torch_profile_recognises, ebb__torch_profile_read},
    {"xplane", "TensorFlow's or JAX's profile with its memory: *.xplane.pb", true,
     ebb__xplane_recognises, ebb__xplane_read},
    {"xla", "XLA's buffer assignment with live ranges, as --xla_dump_to writes it", false,
     ebb__xla_recognises, ebb__xla_read},
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

void ebb__import_note(struct ebb_import_request *request, const char *text, ...)
{
    if (request->note_count == EBB_IMPORT_NOTES)
        return;
    va_list arguments;
    va_start(arguments, text);
    vsnprintf(request->notes[request->note_count++], sizeof request->notes[0], text, arguments);
    va_end(arguments);
}

/* A trace as it was before compression. `bytes` is either `owned`, or the caller's. */
struct plain {
    const uint8_t *bytes;
    size_t size;
    uint8_t *owned;
};

static enum ebb_status unpack(const uint8_t *bytes, size_t size, const char *name,
                              struct plain *plain, struct ebb_error *error)
{
    *plain = (struct plain){.bytes = bytes, .size = size};
    if (ebb__gzip_recognises(bytes, size)) {
        struct ebb_file_content content;
        enum ebb_status status = ebb__gzip_read(bytes, size, name, &content, error);
        if (status)
            return status;
        *plain = (struct plain){content.bytes, content.size, content.bytes};
    }
    if (plain->size)
        return EBB_OK;
    free(plain->owned);
    plain->owned = NULL;
    return ebb__fail(error, EBB_ERR_FORMAT, name, "is empty, no trace");
}

/* Refuses a memory profile without lifetimes. */
static enum ebb_status check_lifetimes(const struct plain *plain, const char *name,
                                       struct ebb_error *error)
{
    const struct ebb_lifeless *lifeless = ebb__lifeless_find(plain->bytes, plain->size);
    if (!lifeless)
        return EBB_OK;
    ebb__fail(error, EBB_ERR_UNSUPPORTED, name, "%s", lifeless->why);
    if (error)
        ebb__error_set_remedy(error, "%s", lifeless->remedy);
    return EBB_ERR_UNSUPPORTED;
}

/* Reads what is not compressed. */
static enum ebb_status import_plain(const struct ebb_importer *importer, const struct plain *plain,
                                    struct ebb_import_request *request, struct ebb_trace *trace,
                                    struct ebb_error *error)
{
    const char *name = request->name;
    if (request->device && !importer->has_devices)
        return ebb__fail(error, EBB_ERR_ARGUMENT, name, "a trace of kind '%s' names no devices",
                         importer->name);
    enum ebb_status status = check_lifetimes(plain, name, error);
    if (!status)
        status = importer->read(plain->bytes, plain->size, request, trace, error);
    if (status) {
        if (status == EBB_ERR_FORMAT && error && !error->remedy[0])
            ebb__error_set_remedy(error, "docs/formats/import.md says what '%s' reads",
                                  importer->name);
        return status;
    }
    snprintf(trace->info.command, sizeof trace->info.command, "%s trace %s", importer->name,
             basename(name));
    trace->info.page_bytes = 1;
    trace->complete = true;
    return EBB_OK;
}

enum ebb_status ebb__import_memory(const struct ebb_importer *importer, const uint8_t *bytes,
                                   size_t size, struct ebb_import_request *request,
                                   struct ebb_trace *trace, struct ebb_error *error)
{
    memset(trace, 0, sizeof *trace);
    struct plain plain;
    enum ebb_status status = unpack(bytes, size, request->name, &plain, error);
    if (!status)
        status = import_plain(importer, &plain, request, trace, error);
    free(plain.owned);
    return status;
}

enum ebb_status ebb__import(const struct ebb_importer *importer, struct ebb_import_request *request,
                            struct ebb_trace *trace, struct ebb_error *error)
{
    struct ebb_file_content content;
    memset(trace, 0, sizeof *trace);
    enum ebb_status status = ebb__file_read(request->name, "a trace", 0, NULL, &content, error);
    if (!status)
        status = ebb__import_memory(importer, content.bytes, content.size, request, trace, error);
    free(content.bytes);
    return status;
}

static enum ebb_status read_any(const struct plain *plain, const char *path,
                                struct ebb_trace *trace, struct ebb_error *error)
{
    struct ebb_import_request request = {.name = path};
    if (ebb__trace_recognises(plain->bytes, plain->size))
        return ebb__trace_read_memory(plain->bytes, plain->size, path, trace, error);
    for (size_t i = 0; i < importer_count; i++)
        if (importers[i].recognises(plain->bytes, plain->size))
            return import_plain(&importers[i], plain, &request, trace, error);
    if (check_lifetimes(plain, path, error))
        return EBB_ERR_UNSUPPORTED;
    ebb__fail(error, EBB_ERR_FORMAT, path, "not an Ebb trace, nor one that Ebb imports");
    ebb__error_set_remedy(error, "make a trace with 'ebb record -o FILE -- CMD'; 'ebb import "
                                 "--help' lists what else is read");
    return EBB_ERR_FORMAT;
}

enum ebb_status ebb__trace_open(const char *path, struct ebb_trace *trace, struct ebb_error *error)
{
    struct ebb_file_content content;
    struct plain plain = {0};
    memset(trace, 0, sizeof *trace);
    enum ebb_status status = ebb__file_read(path, "a trace", 0, NULL, &content, error);
    if (!status)
        status = unpack(content.bytes, content.size, path, &plain, error);
    if (!status)
        status = read_any(&plain, path, trace, error);
    free(plain.owned);
    free(content.bytes);
    return status;
}
