/* How much address space a device may reserve.
 *
 * Addresses cost nothing, so the reservation is far larger than any memory, unless the system
 * limits them. Under a limit of address space (ulimit -v) or of data (ulimit -d), Ebb's reservation
 * reduces what the program can have. The program could then fail, though it would not fail without
 * Ebb. So enough addresses for all memory of this machine stay unreserved. If the system counts
 * reserved memory as used (vm.overcommit_memory=2), a reservation would take memory from all its
 * processes. Then nothing is reserved. */
#ifndef EBB_DEVICE_ROOM_H
#define EBB_DEVICE_ROOM_H

#include <stdint.h>

/* Three ranges of 16 GiB, the least that is useful, and the device's own addresses. */
#define EBB_ROOM_LEAST_BYTES (((uint64_t)48 << 30) + ((uint64_t)66 << 20))

struct ebb_room {
    uint64_t bytes;      /* that may be reserved; UINT64_MAX: no limit */
    const char *counted; /* the limit that applies; NULL: none */
};

struct ebb_room ebb__room_look(void);

/* What may be reserved under a limit of `limit_bytes`, of which `used_bytes` are taken.
 * `memory_bytes` is the machine's memory with its swap space. */
uint64_t ebb__room_within(uint64_t limit_bytes, uint64_t used_bytes, uint64_t memory_bytes);

#endif
