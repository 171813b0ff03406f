/* What the host devices share: one reservation of address space and one state per process, which
 * belongs to the shim. */
#ifndef EBB_DEVICE_HOST_H
#define EBB_DEVICE_HOST_H

#include "device/device.h"

/* Address space in which new pages are made before they are moved: huge pages, then small pages. */
#define EBB_HOST_NURSERY_BYTES ((uint64_t)64 << 20)
#define EBB_HOST_SMALL_NURSERY_BYTES EBB_HUGE_BYTES

struct ebb_host {
    int uffd; /* -1: the device uses none */
    uintptr_t nursery;
    uintptr_t small_nursery;
    uintptr_t arena;
    struct ebb_device_range
        fixed;          /* of the arena: blocks in it never move; no bytes if there is none */
    uint64_t all_bytes; /* of the one reservation that holds the ranges, from arena.base */
};

extern struct ebb_host ebb__host;

/* The range that an address lies in. An address in none of the ranges counts as page stack. */
enum ebb_host_place { EBB_HOST_ARENA, EBB_HOST_STAGING, EBB_HOST_PAGE_STACK };
enum ebb_host_place ebb__host_place(const struct ebb_device *device, uintptr_t address);

/* True if blocks at that address never move. */
static inline bool ebb__host_is_fixed(uintptr_t address)
{
    return address - ebb__host.fixed.base < ebb__host.fixed.bytes;
}

#define EBB_HOST_PAGEMAP_MOST 512

/* Reads the kernel's pagemap entries for the first pages of [address, + bytes). Returns how many
 * were read. 0 on failure. */
uint64_t ebb__host_pagemap(uintptr_t address, uint64_t bytes,
                           uint64_t entries[EBB_HOST_PAGEMAP_MOST]);

/* Writes to `there` whether each page of [address, + bytes) is present, one bool per 4 KiB. Without
 * /proc or a descriptor a page that is swapped out counts as absent. Returns false if the kernel
 * does not tell. */
bool ebb__host_pages_there(uintptr_t address, uint64_t bytes, bool *there);

void ebb__host_close_holes(void *device, uintptr_t address, uint64_t bytes);

/* One function per device. It sets up the reserved ranges and sets device->ops, also in the child
 * of a fork. EBB_ERR_UNSUPPORTED if the system lacks what the device needs. */
EBB_NODISCARD enum ebb_status ebb__host_move_open(struct ebb_device *device,
                                                  struct ebb_error *error);
EBB_NODISCARD enum ebb_status ebb__host_remap_open(struct ebb_device *device,
                                                   struct ebb_error *error);
EBB_NODISCARD enum ebb_status ebb__host_protect_open(struct ebb_device *device,
                                                     struct ebb_error *error);

#endif
