/* A device for tests: ordinary memory, memcpy for a move, a presence bit per page.
 *
 * A moved page is poisoned at its source, so that a test that reads an absent block notices. */
#include "device/device.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define RANGES 3

struct fake {
    uintptr_t base;
    uint64_t bytes; /* of all ranges */
    unsigned char *present;
    struct ebb_device_range pinned;
};

static size_t page_of(const struct fake *fake, uintptr_t address)
{
    return (size_t)((address - fake->base) / EBB_PAGE_BYTES);
}

static bool is_pinned(const struct fake *fake, uintptr_t address)
{
    return address - fake->pinned.base < fake->pinned.bytes;
}

static enum ebb_device_result fake_move(void *state, uintptr_t target, uintptr_t source,
                                        uint64_t bytes, uint64_t *moved)
{
    struct fake *fake = state;
    for (*moved = 0; *moved < bytes; *moved += EBB_PAGE_BYTES) {
        uintptr_t from = source + *moved, to = target + *moved;
        if (is_pinned(fake, from) && *moved >= bytes / 2)
            return EBB_DEVICE_BUSY;
        if (!fake->present[page_of(fake, from)])
            continue;
        if (fake->present[page_of(fake, to)])
            return EBB_DEVICE_FAILED;
        memcpy((void *)to, (void *)from, EBB_PAGE_BYTES);
        memset((void *)from, 0xdb, EBB_PAGE_BYTES);
        fake->present[page_of(fake, from)] = 0;
        fake->present[page_of(fake, to)] = 1;
    }
    return EBB_DEVICE_OK;
}

static enum ebb_device_result fake_fresh(void *state, uintptr_t target, uint64_t bytes)
{
    struct fake *fake = state;
    for (uint64_t at = 0; at < bytes; at += EBB_PAGE_BYTES) {
        if (fake->present[page_of(fake, target + at)])
            return EBB_DEVICE_FAILED;
        memset((void *)(target + at), 0, EBB_PAGE_BYTES);
        fake->present[page_of(fake, target + at)] = 1;
    }
    return EBB_DEVICE_OK;
}

static void fake_release(void *state, uintptr_t address, uint64_t bytes)
{
    struct fake *fake = state;
    memset(fake->present + page_of(fake, address), 0, bytes / EBB_PAGE_BYTES);
    madvise((void *)address, bytes, MADV_DONTNEED);
}

static bool fake_fill(void *state, uintptr_t address)
{
    return fake_fresh(state, address & ~(uintptr_t)(EBB_PAGE_BYTES - 1), EBB_PAGE_BYTES) ==
           EBB_DEVICE_OK;
}

static void fake_unshare(void *state, uintptr_t address, uint64_t bytes)
{
    (void)state;
    (void)address;
    (void)bytes;
}

static bool fake_renew(void *state, uintptr_t address, uint64_t bytes)
{
    fake_release(state, address, bytes);
    return true;
}

static const struct ebb_device_ops fake_ops = {
    .version = EBB_DEVICE_VERSION,
    .kind = EBB_DEVICE_FAKE,
    .move = fake_move,
    .fresh = fake_fresh,
    .release = fake_release,
    .fill = fake_fill,
    .unshare = fake_unshare,
    .renew = fake_renew,
};

enum ebb_status ebb__fake_create(uint64_t arena_bytes, struct ebb_device *device)
{
    struct fake *fake = calloc(1, sizeof *fake);
    if (!fake)
        return EBB_ERR_MEMORY;
    fake->bytes = RANGES * arena_bytes;
    char *memory = mmap(NULL, fake->bytes + EBB_HUGE_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    fake->present = calloc(fake->bytes / EBB_PAGE_BYTES, 1);
    if (memory == MAP_FAILED || !fake->present) {
        free(fake->present);
        free(fake);
        return EBB_ERR_MEMORY;
    }
    fake->base = ((uintptr_t)memory + EBB_HUGE_BYTES - 1) & ~(uintptr_t)(EBB_HUGE_BYTES - 1);
    struct ebb_device_range *ranges[RANGES] = {&device->layout.arena, &device->layout.staging,
                                               &device->layout.page_stack};
    for (uint64_t i = 0; i < RANGES; i++)
        *ranges[i] = (struct ebb_device_range){fake->base + i * arena_bytes, arena_bytes};
    device->ops = &fake_ops;
    device->state = fake;
    return EBB_OK;
}

void ebb__fake_destroy(struct ebb_device *device)
{
    struct fake *fake = device->state;
    munmap((void *)fake->base, fake->bytes);
    free(fake->present);
    free(fake);
}

bool ebb__fake_present(const struct ebb_device *device, uintptr_t address)
{
    const struct fake *fake = device->state;
    return fake->present[page_of(fake, address)];
}

void ebb__fake_pin(struct ebb_device *device, uintptr_t base, uint64_t bytes, bool pinned)
{
    struct fake *fake = device->state;
    fake->pinned = (struct ebb_device_range){base, pinned ? bytes : 0};
}
