/* The settings of a runtime: device, ledger, ring, and tuning. */
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
    struct ebb_ledger_slot *slot; /* this process's slot of the ledger; NULL: the first */
    /* The limit of all processes' stores together, and the slot of it. NULL: only the limit of the
     * store itself. */
    struct ebb_ledger *store_ledger;
    struct ebb_ledger_slot *store_slot;
    struct ebb_ring *ring; /* receives events and counters */
    bool trace;            /* observe accesses from the beginning */
    bool announced;        /* each use is announced by ebb__runtime_acquire(): a copy in
                                     the store stays valid until the block is acquired to write */
    bool verify;           /* compare a 128-bit hash of each fetched block with that of
                                     its write back */
    /* Blocks of at least this size have parts. 0: the tuning's part_from_bytes. */
    uint64_t part_from_bytes;
    /* An operation ends after this time without an event. 0: the tuning's pause_ns. */
    uint64_t pause_ns;
    /* Least time between two looks at the slabs. 0: the tuning's slab_look_ns. */
    uint64_t slab_reclaim_ns;
    /* Time until a failed store is tried again; doubles each time. 0: the tuning's
     * store_pause_ns. */
    uint64_t store_pause_ns;
    uint32_t exchange_share; /* a divisor; 0: the tuning's exchange_divisor */
    uint32_t process_id;
    /* Opens the store before the first write back. May be NULL: nothing is evicted then. Called
     * without the runtime's lock. */
    enum ebb_status (*open_store)(void *context, struct ebb_store *store, struct ebb_error *error);
    /* Shows a message that the person who runs the program must see. */
    void (*warn)(void *context, const char *message);
    /* on: the runtime has opened a descriptor that the program must not close. Otherwise the
     * runtime no longer needs it. May be NULL. */
    void (*protect)(void *context, int descriptor, bool on);
    /* The only copy of a block could not be read. Does not return, or else the block stays
     * absent. */
    void (*lost)(void *context, const char *message);
    void *context;
    unsigned out_workers, in_workers; /* transfers in flight per lane; 0: the tuning's
                                         lane_workers */
};

#endif
