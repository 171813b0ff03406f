/* How much address space a device may reserve.
 *
 * Addresses cost nothing, so the reservation is far larger than any memory, except where somebody counts
 * them. Under a limit of address space (ulimit -v) or of data (ulimit -d) what Ebb reserves is what the
 * program can no longer have: it would fail where it would not without Ebb. So enough for all memory of
 * this machine must be left to it. And where the system counts every promise
 * (vm.overcommit_memory=2) a reservation would take memory from all its processes: nothing is reserved. */
#ifndef EBB_DEVICE_ROOM_H
#define EBB_DEVICE_ROOM_H

#include <stdint.h>

/* Three ranges of 16 GiB, the least that is worth it, and the device's own. */
#define EBB_ROOM_LEAST_BYTES (((uint64_t)48 << 30) + ((uint64_t)66 << 20))

struct ebb_room {
    uint64_t bytes;      /* that may be reserved; UINT64_MAX: nobody counts */
    const char *counted; /* by what; NULL: nobody counts */
};

struct ebb_room ebb__room_look(void);

/* What may be reserved under a limit of `limit_bytes`, of which `used_bytes` are taken, on a machine of
 * `memory_bytes`, swap space included. */
uint64_t ebb__room_within(uint64_t limit_bytes, uint64_t used_bytes, uint64_t memory_bytes);

#endif
