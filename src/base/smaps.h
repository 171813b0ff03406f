/* The memory that a process has in an address range, as the kernel counts it. */
#ifndef EBB_BASE_SMAPS_H
#define EBB_BASE_SMAPS_H

#include <stdbool.h>
#include <stdint.h>

struct ebb_smaps {
    uint64_t share_bytes;   /* its share of all pages there: a page of n processes counts 1/n */
    uint64_t private_bytes; /* in pages that no other process shares */
};

/* Sums up `path` (/proc/PID/smaps or similar) over the mappings that begin in [first, last).
 * Returns false if it cannot be read. Allocates nothing. */
bool ebb__smaps_read(const char *path, uint64_t first, uint64_t last, struct ebb_smaps *smaps);

#endif
