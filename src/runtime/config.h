/* What a runtime is created with: device, ledger, ring, and what steers it. */
#ifndef EBB_RUNTIME_CONFIG_H
#define EBB_RUNTIME_CONFIG_H

#include "base/geometry.h"
#include "base/status.h"
#include "device/device.h"
#include "runtime/ledger.h"
#include "store/store.h"
#include "trace/ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ebb_runtime_config {
    struct ebb_device device;
    struct ebb_ledger *ledger;
    struct ebb_ledger_slot *slot; /* of it, this process's; NULL: the first */
    struct ebb_ring *ring;        /* events and counters go here */
    bool trace;                   /* observe accesses from the start */
    bool verify;                  /* check what comes back against what left, by a 128-bit hash */
    uint64_t part_from_bytes; /* blocks from here on have parts; 0: part_from_bytes of the tuning */
    uint64_t pause_ns; /* an operation ends after so long without an event; 0: that of the tuning */
    uint64_t slab_reclaim_ns; /* slabs are looked at so often at most; 0: slab_look_ns of it */
    uint64_t store_pause_ns;  /* a store that failed is tried again after that, doubling; 0: that of
                                it */
    uint32_t exchange_share;  /* as a divisor; 0: exchange_divisor of it */
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
    unsigned out_workers, in_workers; /* transfers in flight a lane; 0: lane_workers of it */
};

#endif
