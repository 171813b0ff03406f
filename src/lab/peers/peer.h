/* Emulated allocators of others: how much memory each would hold for what a program asks.
 *
 *     struct ebb_footprint footprint;
 *     status = ebb__peer_footprint("cnmem", trace, &footprint, &error);
 *     ... footprint.peak_held_bytes against footprint.peak_load_bytes ...
 *
 * A peer is a rule: where a block goes, when more memory is taken from the device, when it is given
 * back. Only sizes and order matter; nothing is allocated, and the device never runs out. One file a
 * peer in src/lab/peers/, with the source of its rules; the table is in peer.c. Thread-safe. */
#ifndef EBB_LAB_PEERS_PEER_H
#define EBB_LAB_PEERS_PEER_H

#include "base/status.h"
#include "model/model.h"

#include <stddef.h>
#include <stdint.h>

struct ebb_footprint {
    uint64_t peak_held_bytes; /* most that the peer had from the device */
    uint64_t peak_load_bytes; /* most that the program had from the peer, as asked for */
    uint64_t last_held_bytes; /* at the end */
};

/* The names of the peers, in the order in which they are listed; NULL from the last one on. */
const char *ebb__peer_name(size_t index);

/* Replay the allocations and frees of a trace. Blocks that are older than the trace are allocated
 * before it, in the order in which they occur. EBB_ERR_ARGUMENT where there is no such peer,
 * EBB_ERR_FORMAT where a block is allocated or freed twice, EBB_ERR_LIMIT where the load is 2^56
 * bytes or more, EBB_ERR_MEMORY. O(n log n) expected. */
EBB_NODISCARD enum ebb_status ebb__peer_footprint(const char *peer, struct ebb_event_span trace,
                                                  struct ebb_footprint *footprint,
                                                  struct ebb_error *error);

#endif
