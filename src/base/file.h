/* Whole files into memory. Not thread-safe towards the same content; no other state. */
#ifndef EBB_BASE_FILE_H
#define EBB_BASE_FILE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `bytes` is never NULL after a success; it is the owner's to free(). */
struct ebb_file_content {
    uint8_t *bytes;
    size_t size;
};

/* Read the file or pipe `path` to its end. `kind` says what it should be, with its article ("an Ebb
 * trace"), for messages. accepts() (may be NULL) sees the first `head_bytes`, or fewer where the
 * file is shorter, as soon as they are there: false refuses the rest, so that a large file of
 * another kind is not read. On failure *content is empty:
 *   EBB_ERR_IO      it cannot be opened or read, or is a directory or a device
 *   EBB_ERR_FORMAT  accepts() said no: "not <kind>"
 *   EBB_ERR_MEMORY  it does not fit into memory */
EBB_NODISCARD
enum ebb_status ebb__file_read(const char *path, const char *kind, size_t head_bytes,
                               bool (*accepts)(const uint8_t *bytes, size_t size),
                               struct ebb_file_content *content, struct ebb_error *error);

/* Could the machine's memory hold so many bytes at all? What could not is better refused than
 * promised by the system and paid for later. */
bool ebb__memory_could_hold(uint64_t bytes);

/* EBB_ERR_MEMORY: `name` needs so many bytes to be read. */
enum ebb_status ebb__fail_memory(const char *name, uint64_t bytes, struct ebb_error *error);

#endif
