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
    /* Writes or reads exactly `bytes`. Returns 0 or an errno. Continues short transfers. */
    int (*write)(void *store, const void *from, uint64_t bytes, uint64_t offset);
    int (*read)(void *store, void *to, uint64_t bytes, uint64_t offset);
    void (*close)(void *store);
    /* Lists the store's files, up to `most` descriptors. Returns how many. */
    size_t (*descriptors)(void *store, int *descriptors, size_t most);
};

struct ebb_store {
    const struct ebb_store_ops *ops;
    void *state;
    uint64_t limit_bytes; /* the store never exceeds it; UINT64_MAX: no limit */
};

#define EBB_STORE_MOST_PLACES 8
/* Most stores open at a time in one process: its own and those that it inherited and reads. */
#define EBB_STORE_MOST 256

/* Opens the store at `places`, a list with one place a line. A place is an absolute directory (for
 * a file in it), "memory" or "memory:NODE". The store is striped over several places. The limit
 * applies to all together. EBB_ERR_IO, EBB_ERR_ARGUMENT, EBB_ERR_LIMIT. */
EBB_NODISCARD enum ebb_status ebb__store_open(const char *places, uint64_t limit_bytes,
                                              struct ebb_store *store, struct ebb_error *error);
/* Puts a compressing store before *store. A read must begin where a write began or a multiple of 2
 * MiB after that. It must end at such a place or where the write ended. While *wanted, writes leave
 * out words of zeros; reads restore them. *saved_bytes counts the bytes not written. The caller
 * owns both, and keeps them as long as the store is used. EBB_ERR_MEMORY, EBB_ERR_LIMIT: *store is
 * unchanged. */
EBB_NODISCARD enum ebb_status ebb__store_compress(struct ebb_store *store,
                                                  const atomic_bool *wanted,
                                                  _Atomic uint64_t *saved_bytes);

/* Opens a file in `directory` without a name. It is created by O_TMPFILE, or with mode 0600 under a
 * random name and unlinked at once. It bypasses the page cache if the file system can (O_DIRECT).
 * On persistent memory (DAX) it is mapped. EBB_ERR_IO if the directory cannot be used. */
EBB_NODISCARD enum ebb_status ebb__store_file_open(const char *directory, uint64_t limit_bytes,
                                                   struct ebb_store *store,
                                                   struct ebb_error *error);
/* Opens only its descriptor. Returns -1 and sets errno on failure. */
int ebb__store_open_nameless(const char *directory);
/* Opens a store in memory, without a disk. `place` as above. */
EBB_NODISCARD enum ebb_status ebb__store_memory_open(const char *place, uint64_t limit_bytes,
                                                     struct ebb_store *store,
                                                     struct ebb_error *error);
/* Makes a store of the file behind `descriptor`, and takes ownership of it. The mapped variant
 * expects a file that is memory, and maps it if address space allows. */
EBB_NODISCARD enum ebb_status ebb__store_descriptor_open(int descriptor, const char *place,
                                                         uint64_t limit_bytes,
                                                         struct ebb_store *store,
                                                         struct ebb_error *error);
EBB_NODISCARD enum ebb_status ebb__store_mapped_open(int descriptor, const char *place,
                                                     uint64_t limit_bytes, struct ebb_store *store,
                                                     struct ebb_error *error);
/* For tests: a store of `bytes` of memory, with faults that can be set. */
struct ebb_faulty_store {
    unsigned char *memory;
    uint64_t bytes;
    int write_errno; /* result of all writes after the first `good_writes` */
    uint64_t good_writes;
    int read_errno;
    uint64_t good_reads;
    _Atomic unsigned delay_us; /* of each transfer; may be set during transfers */
    uint64_t writes, reads;    /* transfers counted */
};
void ebb__store_faulty_open(struct ebb_faulty_store *faulty, uint64_t limit_bytes,
                            struct ebb_store *store);

#endif
