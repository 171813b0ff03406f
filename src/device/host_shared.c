/* What the host devices share: one state per process, and the kernel's information about pages. */
#include "device/host.h"
#include "device/os.h"

#include <fcntl.h>
#include <unistd.h>

struct ebb_host ebb__host = {.uffd = -1};

enum ebb_host_place ebb__host_place(const struct ebb_device *device, uintptr_t address)
{
    const struct ebb_device_layout *layout = &device->layout;
    if (address - layout->arena.base < layout->arena.bytes)
        return EBB_HOST_ARENA;
    if (address - layout->staging.base < layout->staging.bytes)
        return EBB_HOST_STAGING;
    return EBB_HOST_PAGE_STACK;
}

uint64_t ebb__host_pagemap(uintptr_t address, uint64_t bytes,
                           uint64_t entries[EBB_HOST_PAGEMAP_MOST])
{
    /* It is not kept open: a program may close descriptors that it does not know. */
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    uint64_t pages = bytes / EBB_PAGE_BYTES;
    if (pages > EBB_HOST_PAGEMAP_MOST)
        pages = EBB_HOST_PAGEMAP_MOST;
    uint64_t offset = address / EBB_PAGE_BYTES * sizeof entries[0];
    ssize_t got = ebb__os_read_at(pagemap, entries, pages * sizeof entries[0], offset);
    if (pagemap >= 0)
        close(pagemap);
    return got > 0 ? (uint64_t)got / sizeof entries[0] : 0;
}

/* The same by mincore(), one page per call, which needs neither a descriptor nor /proc. A page that
 * is swapped out counts as absent, and so does one that is not mapped. */
static bool pages_in_memory(uintptr_t address, uint64_t bytes, bool *there)
{
    for (uint64_t at = 0; at < bytes; at += EBB_PAGE_BYTES) {
        unsigned char is_in_memory = 0;
        while (ebb__os_call(SYS_mincore, address + at, EBB_PAGE_BYTES, (uintptr_t)&is_in_memory, 0,
                            0, 0) != 0 &&
               errno != ENOMEM)
            if (errno != EAGAIN)
                return false;
        there[at / EBB_PAGE_BYTES] = (is_in_memory & 1) != 0;
    }
    return true;
}

bool ebb__host_pages_there(uintptr_t address, uint64_t bytes, bool *there)
{
    uint64_t entries[EBB_HOST_PAGEMAP_MOST];
    for (uint64_t at = 0; at < bytes;) {
        uint64_t pages = ebb__host_pagemap(address + at, bytes - at, entries);
        if (pages == 0)
            return pages_in_memory(address + at, bytes - at, there + at / EBB_PAGE_BYTES);
        for (uint64_t i = 0; i < pages; i++) /* present, or swapped out */
            there[at / EBB_PAGE_BYTES + i] = entries[i] >> 62 != 0;
        at += pages * EBB_PAGE_BYTES;
    }
    return true;
}

void ebb__host_close_holes(void *device, uintptr_t address, uint64_t bytes)
{
    if (ebb__os_is_mapped(address, bytes) || ebb__os_map_in_hole(address, bytes) ||
        bytes <= EBB_PAGE_BYTES)
        return;
    uint64_t half = bytes / 2 / EBB_PAGE_BYTES * EBB_PAGE_BYTES;
    ebb__host_close_holes(device, address, half);
    ebb__host_close_holes(device, address + half, bytes - half);
}
