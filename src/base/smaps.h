/* What a process has in a range of its memory, by the kernel's account. */
#ifndef EBB_BASE_SMAPS_H
#define EBB_BASE_SMAPS_H

#include <stdbool.h>
#include <stdint.h>

struct ebb_smaps {
    uint64_t
        share_bytes; /* its share of all pages there: one that n processes have counts as 1/n */
    uint64_t private_bytes; /* of pages that it alone has */
};

/* From `path`, /proc/PID/smaps or alike: mappings that begin in [first, last). False: it cannot be read.
 * Allocates nothing. */
bool ebb__smaps_read(const char *path, uint64_t first, uint64_t last, struct ebb_smaps *smaps);

#endif
