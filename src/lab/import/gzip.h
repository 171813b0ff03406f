/* Unpacks gzip, in which profilers write their traces. A file may consist of several members. */
#ifndef EBB_LAB_IMPORT_GZIP_H
#define EBB_LAB_IMPORT_GZIP_H

#include "base/file.h"

/* True if the bytes begin like gzip. */
bool ebb__gzip_recognises(const uint8_t *bytes, size_t size);

/* Unpacks all members to *plain, which the caller frees. EBB_ERR_FORMAT names the byte at which the
 * data is damaged or ends too early. EBB_ERR_MEMORY if the result does not fit into memory. On
 * failure *plain is empty. */
EBB_NODISCARD enum ebb_status ebb__gzip_read(const uint8_t *bytes, size_t size, const char *name,
                                             struct ebb_file_content *plain,
                                             struct ebb_error *error);

#endif
