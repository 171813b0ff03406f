/* Reads whole files into memory. Two threads must not use the same content at once; there is no
 * other shared state. */
#ifndef EBB_BASE_FILE_H
#define EBB_BASE_FILE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `bytes` is never NULL after success; the owner frees it with free(). */
struct ebb_file_content {
    uint8_t *bytes;
    size_t size;
};

/* Reads the file or pipe `path` to its end. `kind` names the expected kind for messages, with its
 * article ("an Ebb trace"). Calls accepts() (may be NULL) with the first `head_bytes`, or fewer if
 * the file is shorter, as soon as they are read. If it returns false, the rest is not read: a large
 * file of another kind costs nothing. On failure *content is empty:
 *   EBB_ERR_IO      it cannot be opened or read, or is a directory or a device
 *   EBB_ERR_FORMAT  accepts() returned false: "not <kind>"
 *   EBB_ERR_MEMORY  it does not fit into memory */
EBB_NODISCARD
enum ebb_status ebb__file_read(const char *path, const char *kind, size_t head_bytes,
                               bool (*accepts)(const uint8_t *bytes, size_t size),
                               struct ebb_file_content *content, struct ebb_error *error);

/* True if the machine could hold that many bytes at all. A larger request should be refused: the
 * system might grant it and fail later. */
bool ebb__memory_could_hold(uint64_t bytes);

/* Reports EBB_ERR_MEMORY: reading `name` needs that many bytes. */
enum ebb_status ebb__fail_memory(const char *name, uint64_t bytes, struct ebb_error *error);

#endif
