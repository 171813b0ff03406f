/* What a runtime is created with: device, ledger, ring, and what steers it. */
#ifndef EBB_RUNTIME_CONFIG_H
#define EBB_RUNTIME_CONFIG_H

#include "base/status.h"
#include "device/device.h"
#include "runtime/ledger.h"
#include "store/store.h"
#include "trace/ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Smaller blocks are one piece. Above it the program may well keep many tensors in one block; what it
 * touches as a whole costs 32 faults and more while accesses are observed. */
#define EBB_PART_FROM_BYTES ((uint64_t)64 << 20)

/* Programs that allocate once have no events, and some operations are long: what is touched later than
 * this is taken for another operation. */
#define EBB_PAUSE_NS ((uint64_t)20000000)

/* Memory of small objects: the unit in which it is had, and leaves. Of what a framework has loaded and does
 * not use, pieces of 64 KiB catch 90 %, of 256 KiB 70 % (docs/performance.md, "What is managed"). */
#define EBB_SLAB_BYTES ((uint64_t)64 << 10)
#define EBB_SLAB_RECLAIM_NS ((uint64_t)500000000)

/* A store that could not be written is tried again after so long, and each time that it fails after twice
 * as long, up to so many times it: room on a disk comes and goes, and one block tells. Arbitrary. */
#define EBB_STORE_PAUSE_NS ((uint64_t)1000000000)
#define EBB_STORE_MOST_PAUSES 64

/* Units that consist of small pages are exchanged for huge ones during one part in so many of the time,
 * which is what that costs at most. Arbitrary. */
#define EBB_EXCHANGE_SHARE 64u

struct ebb_runtime_config {
    struct ebb_device device;
    struct ebb_ledger *ledger;
    struct ebb_ledger_slot *slot; /* of it, this process's; NULL: the first */
    struct ebb_ring *ring;        /* events and counters go here */
    bool trace;                   /* observe accesses from the start */
    bool verify;                  /* check what comes back against what left, by a 128-bit hash */
    uint64_t part_from_bytes;     /* blocks from here on have parts; 0: EBB_PART_FROM_BYTES */
    uint64_t pause_ns; /* an operation ends after so long without an event; 0: EBB_PAUSE_NS */
    uint64_t slab_reclaim_ns; /* slabs are looked at so often at most; 0: EBB_SLAB_RECLAIM_NS */
    uint64_t store_pause_ns;  /* a store that failed is tried again after that, doubling; 0:
                                EBB_STORE_PAUSE_NS */
    uint32_t exchange_share;  /* as a divisor; 0: EBB_EXCHANGE_SHARE */
    uint32_t process_id;
    /* Opens the store when something must leave for the first time; may be NULL (nothing moves).
     * Called without the runtime's lock. */
    enum ebb_status (*open_store)(void *context, struct ebb_store *store, struct ebb_error *error);
    /* Tells the person who runs the program something that must not go unsaid. */
    void (*warn)(void *context, const char *message);
    /* The runtime has opened a descriptor that the program must not close, or gives it up. May be NULL. */
    void (*protect)(void *context, int descriptor, bool on);
    /* The only copy of a block could not be read: does not return, or the block stays absent. */
    void (*lost)(void *context, const char *message);
    void *context;
    unsigned out_workers, in_workers; /* transfers in flight a lane; 0: four */
};

#endif
