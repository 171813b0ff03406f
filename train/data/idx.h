/* IDX: the file format of MNIST and its successors, compressed by gzip.
 *
 * Two zero bytes, the type (8: unsigned byte), the number of dimensions, then each dimension as a
 * big-endian 32-bit number, then the values. Thread-safe: no state. */
#ifndef EBB_TRAIN_DATA_IDX_H
#define EBB_TRAIN_DATA_IDX_H

#include "ebb/status.h"

#include <stdint.h>

#define EBB_IDX_DIMENSIONS_MOST 3

struct ebb_idx {
    uint32_t dimensions;
    uint32_t size[EBB_IDX_DIMENSIONS_MOST];
    uint8_t *values; /* freed by ebb__idx_fini() */
};

/* Reads `path`, compressed or not. It must have that many dimensions.
 * EBB_ERR_IO: it cannot be opened or read. EBB_ERR_FORMAT: it is another kind of file, ends too
 * early, or does not end where it should. EBB_ERR_MEMORY. *idx is only filled on success. */
EBB_NODISCARD enum ebb_status ebb__idx_read(const char *path, uint32_t dimensions,
                                            struct ebb_idx *idx, struct ebb_error *error);
void ebb__idx_fini(struct ebb_idx *idx);

#endif
