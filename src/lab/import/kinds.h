/* Declares the importers for the table in import.c. Each has its own file. */
#ifndef EBB_LAB_IMPORT_KINDS_H
#define EBB_LAB_IMPORT_KINDS_H

#include "lab/import/import.h"

#define EBB_IMPORTER(kind)                                                                         \
    bool ebb__##kind##_recognises(const uint8_t *bytes, size_t size);                              \
    enum ebb_status ebb__##kind##_read(const uint8_t *bytes, size_t size,                          \
                                       struct ebb_import_request *request,                         \
                                       struct ebb_trace *trace, struct ebb_error *error)

EBB_IMPORTER(singa);
EBB_IMPORTER(rmm);
EBB_IMPORTER(stalloc);
EBB_IMPORTER(torch_snapshot);
EBB_IMPORTER(torch_profile);
EBB_IMPORTER(xplane);
EBB_IMPORTER(xla);

#endif
