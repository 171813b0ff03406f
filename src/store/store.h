/* A store: where the bytes of absent blocks are.
 *
 * A slot is a run of bytes in the store, a multiple of 4 KiB. Space management (extents.h) is the
 * engine's, under its lock; reading and writing happen outside of it, from several threads.
 * Buffers are page aligned and lengths page multiples, so that a file may bypass the page cache. */
#ifndef EBB_STORE_STORE_H
#define EBB_STORE_STORE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ebb_store_ops {
    /* Write or read exactly `bytes`; 0, or an errno. Short transfers are continued inside. */
    int (*write)(void *store, const void *from, uint64_t bytes, uint64_t offset);
    int (*read)(void *store, void *to, uint64_t bytes, uint64_t offset);
    void (*close)(void *store);
};

struct ebb_store {
    const struct ebb_store_ops *ops;
    void *state;
    uint64_t limit_bytes; /* never grows beyond; UINT64_MAX: no limit */
};

/* A file in `directory` that has no name from the start (O_TMPFILE, or created 0600 and unlinked
 * at once), read and written past the page cache where the file system can (O_DIRECT).
 * EBB_ERR_IO where the directory cannot be used. */
EBB_NODISCARD enum ebb_status ebb__store_file_open(const char *directory, uint64_t limit_bytes,
                                                   struct ebb_store *store,
                                                   struct ebb_error *error);
/* Its descriptor, for the shim that must keep the program from closing it. */
int ebb__store_file_descriptor(const struct ebb_store *store);

/* For tests: memory of `bytes`, with faults that can be set. */
struct ebb_faulty_store {
    unsigned char *memory;
    uint64_t bytes;
    int write_errno; /* answered by writes once `good_writes` have been made */
    uint64_t good_writes;
    int read_errno;
    uint64_t good_reads;
    unsigned delay_us;      /* of each transfer */
    uint64_t writes, reads; /* transfers seen */
};
void ebb__store_faulty_open(struct ebb_faulty_store *faulty, uint64_t limit_bytes,
                            struct ebb_store *store);

#endif
