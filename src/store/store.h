/* A store: where the bytes of absent blocks are.
 *
 * A slot is a run of bytes in the store, a multiple of 4 KiB. Space management (extents.h) is the
 * runtime's, under its lock; reading and writing happen outside of it, from several threads.
 * Buffers are page aligned and lengths page multiples, so that a file may bypass the page cache. */
#ifndef EBB_STORE_STORE_H
#define EBB_STORE_STORE_H

#include "base/status.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ebb_store_ops {
    /* Write or read exactly `bytes`; 0, or an errno. Short transfers are continued inside. */
    int (*write)(void *store, const void *from, uint64_t bytes, uint64_t offset);
    int (*read)(void *store, void *to, uint64_t bytes, uint64_t offset);
    void (*close)(void *store);
    /* The files behind it, up to `most`; returns how many. */
    size_t (*descriptors)(void *store, int *descriptors, size_t most);
};

struct ebb_store {
    const struct ebb_store_ops *ops;
    void *state;
    uint64_t limit_bytes; /* never grows beyond; UINT64_MAX: no limit */
};

#define EBB_STORE_MOST_PLACES 8
/* Open at a time in one process: its own, and those of its ancestors that it reads. */
#define EBB_STORE_MOST 256

/* The store at `places`, a list with one place a line: an absolute directory (a file there), or
 * "memory" or "memory:NODE"; over several it is striped. The limit is that of all together.
 * EBB_ERR_IO, EBB_ERR_ARGUMENT, EBB_ERR_LIMIT. */
EBB_NODISCARD enum ebb_status ebb__store_open(const char *places, uint64_t limit_bytes,
                                              struct ebb_store *store, struct ebb_error *error);
/* Put another before *store, which expects that a read begins where a write did or a multiple of 2 MiB
 * behind, and ends so or where the write ended. It leaves out words of zeros in what is
 * written while *wanted, and brings them back in what is read; *saved_bytes: what did not have to be
 * written. Both the caller's, for as
 * long as the store is used. EBB_ERR_MEMORY, EBB_ERR_LIMIT: *store is as it was. */
EBB_NODISCARD enum ebb_status ebb__store_compress(struct ebb_store *store,
                                                  const atomic_bool *wanted,
                                                  _Atomic uint64_t *saved_bytes);

/* A file in `directory` that has no name from the start (O_TMPFILE, or created 0600 under a
 * random name and unlinked at once), read and written past the page cache where the file system can (O_DIRECT), mapped where it
 * is on persistent memory (DAX).
 * EBB_ERR_IO where the directory cannot be used. */
EBB_NODISCARD enum ebb_status ebb__store_file_open(const char *directory, uint64_t limit_bytes,
                                                   struct ebb_store *store,
                                                   struct ebb_error *error);
/* Its descriptor alone; -1: errno says why. */
int ebb__store_open_nameless(const char *directory);
/* A file without a disk; `place` as above. */
EBB_NODISCARD enum ebb_status ebb__store_memory_open(const char *place, uint64_t limit_bytes,
                                                     struct ebb_store *store,
                                                     struct ebb_error *error);
/* The file behind `descriptor`, which is the store's from here on; mapped: it is memory, and mapped
 * where address space allows. */
EBB_NODISCARD enum ebb_status ebb__store_descriptor_open(int descriptor, const char *place,
                                                         uint64_t limit_bytes,
                                                         struct ebb_store *store,
                                                         struct ebb_error *error);
EBB_NODISCARD enum ebb_status ebb__store_mapped_open(int descriptor, const char *place,
                                                     uint64_t limit_bytes, struct ebb_store *store,
                                                     struct ebb_error *error);
/* For tests: memory of `bytes`, with faults that can be set. */
struct ebb_faulty_store {
    unsigned char *memory;
    uint64_t bytes;
    int write_errno; /* answered by writes once `good_writes` have been made */
    uint64_t good_writes;
    int read_errno;
    uint64_t good_reads;
    _Atomic unsigned delay_us; /* of each transfer; may be set while some are under way */
    uint64_t writes, reads;    /* transfers seen */
};
void ebb__store_faulty_open(struct ebb_faulty_store *faulty, uint64_t limit_bytes,
                            struct ebb_store *store);

#endif
