/* Emulates other allocators, to tell how much memory each would hold for a program's requests.
 *
 *     struct ebb_footprint footprint;
 *     status = ebb__peer_footprint("cnmem", trace, &footprint, &error);
 *     ... footprint.peak_held_bytes against footprint.peak_load_bytes ...
 *
 * A peer's rules say which addresses a block gets, and when the peer takes memory from the device
 * or returns it. Only sizes and order matter: nothing is allocated, and the device is unlimited.
 * Each peer has a file in src/lab/peers/, with the source of its rules. The table is in peer.c.
 * Thread-safe. */
#ifndef EBB_LAB_PEERS_PEER_H
#define EBB_LAB_PEERS_PEER_H

#include "base/status.h"
#include "model/model.h"

#include <stddef.h>
#include <stdint.h>

struct ebb_footprint {
    uint64_t peak_held_bytes; /* peak of the memory that the peer held of the device */
    uint64_t peak_load_bytes; /* peak of the live bytes, by requested sizes */
    uint64_t last_held_bytes; /* held at the end */
};

/* The name of a peer, in the order of lists; NULL if `index` is past the last peer. */
const char *ebb__peer_name(size_t index);

/* Replays the allocations and frees of a trace. Blocks that are older than the trace are allocated
 * first, in the order in which they occur. O(n log n) expected.
 *   EBB_ERR_ARGUMENT  no peer has this name
 *   EBB_ERR_FORMAT    a block is allocated or freed twice
 *   EBB_ERR_LIMIT     the load is 2^56 bytes or more
 *   EBB_ERR_MEMORY */
EBB_NODISCARD enum ebb_status ebb__peer_footprint(const char *peer, struct ebb_event_span trace,
                                                  struct ebb_footprint *footprint,
                                                  struct ebb_error *error);

#endif
