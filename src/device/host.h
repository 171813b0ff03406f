/* What the host devices share: one reservation of address space, and one state a process, the
 * shim's own. */
#ifndef EBB_DEVICE_HOST_H
#define EBB_DEVICE_HOST_H

#include "device/device.h"

/* Room to make new pages in before they are moved to where they belong: huge ones, small ones. */
#define EBB_HOST_NURSERY_BYTES ((uint64_t)64 << 20)
#define EBB_HOST_SMALL_NURSERY_BYTES EBB_HUGE_BYTES

struct ebb_host {
    int uffd; /* -1: the device does without */
    uintptr_t nursery;
    uintptr_t small_nursery;
    uintptr_t arena;
    struct ebb_device_range
        fixed;          /* of the arena; its blocks never move. No bytes: there is none */
    uint64_t all_bytes; /* of the one reservation that holds the ranges, from arena.base */
};

extern struct ebb_host ebb__host;

/* Where an address lies; what is no range of the device's own counts as page stack. */
enum ebb_host_place { EBB_HOST_ARENA, EBB_HOST_STAGING, EBB_HOST_PAGE_STACK };
enum ebb_host_place ebb__host_place(const struct ebb_device *device, uintptr_t address);

/* Does it lie where blocks never move? */
static inline bool ebb__host_is_fixed(uintptr_t address)
{
    return address - ebb__host.fixed.base < ebb__host.fixed.bytes;
}

#define EBB_HOST_PAGEMAP_MOST 512

/* What the kernel says of the pages of [address, + bytes), the first ones; how many, 0: nothing. */
uint64_t ebb__host_pagemap(uintptr_t address, uint64_t bytes,
                           uint64_t entries[EBB_HOST_PAGEMAP_MOST]);

/* True where the pages of [address, + bytes) are there, page by page into `there` (bytes / 4 KiB);
 * false: it cannot be told. */
bool ebb__host_pages_there(uintptr_t address, uint64_t bytes, bool *there);

void ebb__host_close_holes(void *device, uintptr_t address, uint64_t bytes);

/* Each device in turn: takes the reserved ranges into use and sets device->ops. Also in the child
 * of a fork. EBB_ERR_UNSUPPORTED where the system has not what it takes. */
EBB_NODISCARD enum ebb_status ebb__host_move_open(struct ebb_device *device,
                                                  struct ebb_error *error);
EBB_NODISCARD enum ebb_status ebb__host_remap_open(struct ebb_device *device,
                                                   struct ebb_error *error);
EBB_NODISCARD enum ebb_status ebb__host_protect_open(struct ebb_device *device,
                                                     struct ebb_error *error);

#endif
