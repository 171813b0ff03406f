/* The host's devices: chooses the one that this system permits, and reserves the address space that
 * all of them use.
 *
 * The first of three devices that the system permits is used. The file host_move.c moves pages and
 * gets faults by userfaultfd. The second, host_remap.c, remaps pages and gets faults by
 * userfaultfd. The last, host_protect.c, remaps pages and gets faults as signals. Each process has
 * its own staging and page stack: a child maps new ones.
 *
 * None of this is in a core dump. To write it, the kernel would look for each page of the address
 * space, absent or not, for many seconds. */
#include "device/host.h"
#include "device/os.h"
#include "device/room.h"
#include "device/runs.h"
#include "device/uffd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void advise(struct ebb_device *device)
{
    const struct ebb_device_layout *layout = &device->layout;
    ebb__os_advise(layout->arena.base, ebb__host.all_bytes, MADV_HUGEPAGE);
    ebb__os_advise(layout->page_stack.base, layout->page_stack.bytes, MADV_NOHUGEPAGE);
    ebb__os_advise(ebb__host.small_nursery, EBB_HOST_SMALL_NURSERY_BYTES, MADV_NOHUGEPAGE);
    uint64_t private_bytes = ebb__host.all_bytes - layout->arena.bytes;
    ebb__os_advise(layout->staging.base, private_bytes, MADV_DONTFORK);
    ebb__os_advise(layout->arena.base, ebb__host.all_bytes, MADV_DONTDUMP);
}

/* One reservation: arena, staging, page stack (each `arena_bytes`), nurseries. */
static uint64_t all_bytes(uint64_t arena_bytes)
{
    return 3 * arena_bytes + EBB_HOST_NURSERY_BYTES + EBB_HOST_SMALL_NURSERY_BYTES;
}

/* Addresses without memory. A program that has locked its future mappings (mlockall) would get a
 * page for each address that can be accessed, so that comes last. 0: there are none. */
static uintptr_t reserve_addresses(uint64_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uintptr_t address = (uintptr_t)memory;
    if (memory == MAP_FAILED)
        return 0;
    ebb__os_call(SYS_munlock, address, bytes, 0, 0, 0, 0);
    if (ebb__os_protect(address, bytes, PROT_READ | PROT_WRITE) == 0)
        return address;
    munmap(memory, bytes);
    return 0;
}

static bool reserve(uint64_t arena_bytes, struct ebb_device *device)
{
    uint64_t all = all_bytes(arena_bytes);
    uintptr_t memory = reserve_addresses(all + EBB_HUGE_BYTES);
    if (!memory)
        return false;
    uintptr_t base = (memory + EBB_HUGE_BYTES - 1) & ~(uintptr_t)(EBB_HUGE_BYTES - 1);
    struct ebb_device_layout *layout = &device->layout;
    layout->arena = (struct ebb_device_range){base, arena_bytes};
    layout->staging = (struct ebb_device_range){base + arena_bytes, arena_bytes};
    layout->page_stack = (struct ebb_device_range){base + 2 * arena_bytes, arena_bytes};
    ebb__host.nursery = base + 3 * arena_bytes;
    ebb__host.small_nursery = ebb__host.nursery + EBB_HOST_NURSERY_BYTES;
    ebb__host.arena = base;
    ebb__host.all_bytes = all;
    return true;
}

static enum ebb_status open_best(struct ebb_device *device, struct ebb_error *error)
{
    struct ebb_error other;
    enum ebb_status status = ebb__host_move_open(device, error);
    if (status != EBB_OK && ebb__host_remap_open(device, &other) == EBB_OK)
        return EBB_OK;
    if (status != EBB_OK && ebb__host_protect_open(device, &other) == EBB_OK)
        return EBB_OK;
    return status; /* the best device's error says most */
}

static enum ebb_status reserve_most(uint64_t least_bytes, struct ebb_device *device,
                                    struct ebb_error *error)
{
    uint64_t arena_bytes = (uint64_t)1 << 40;
    struct ebb_room room = ebb__room_look();
    while (all_bytes(arena_bytes) > room.bytes || !reserve(arena_bytes, device)) {
        bool is_counted = all_bytes(arena_bytes) > room.bytes;
        arena_bytes /= 2;
        bool is_little = arena_bytes < least_bytes || arena_bytes < EBB_HUGE_BYTES * 64;
        if (is_little && is_counted) {
            ebb__fail(error, EBB_ERR_MEMORY, "address space", "there is %s", room.counted);
            ebb__error_set_remedy(error, "`ebb doctor` says what helps");
            return EBB_ERR_MEMORY;
        }
        if (is_little)
            return ebb__fail(error, EBB_ERR_MEMORY, "address space", "%s", strerror(errno));
    }
    device->state = device;
    advise(device);
    return EBB_OK;
}

static void unreserve(const struct ebb_device *device)
{
    ebb__os_call(SYS_munmap, device->layout.arena.base, ebb__host.all_bytes, 0, 0, 0, 0);
}

enum ebb_status ebb__host_create_explicit(uint64_t least_bytes, struct ebb_device *device,
                                          struct ebb_error *error)
{
    enum ebb_status status = reserve_most(least_bytes, device, error);
    if (status)
        return status;
    status = ebb__host_protect_open(device, error);
    if (status)
        unreserve(device);
    return status;
}

enum ebb_status ebb__host_create(uint64_t least_bytes, struct ebb_device *device,
                                 struct ebb_error *error)
{
    enum ebb_status status = reserve_most(least_bytes, device, error);
    if (status)
        return status;
    status = open_best(device, error);
    if (ebb__host.uffd < 0)
        ebb__uffd_close_node();
    ebb__host_settle_refusals();
    if (status != EBB_OK)
        unreserve(device);
    return status;
}

void ebb__host_destroy(struct ebb_device *device)
{
    if (ebb__host.uffd >= 0)
        close(ebb__host.uffd);
    ebb__host.uffd = -1;
    ebb__host.fixed = (struct ebb_device_range){0};
    ebb__runs_close();
    munmap((void *)device->layout.arena.base, ebb__host.all_bytes);
}

enum ebb_status ebb__host_after_fork(struct ebb_device *device, struct ebb_error *error)
{
    enum ebb_device_kind kind = device->ops->kind;
    if (ebb__host.uffd >= 0)
        close(ebb__host.uffd);
    ebb__host.uffd = -1;
    const struct ebb_device_layout *layout = &device->layout;
    bool remaps = kind == EBB_DEVICE_UFFD_REMAP || kind == EBB_DEVICE_UFFD_REMAP_USER;
    uint64_t private_bytes = ebb__host.all_bytes - layout->arena.bytes;
    uintptr_t private_base = layout->staging.base;
    if (remaps) { /* the fork has copied staging, which is harmless */
        if (!ebb__os_map_anew(layout->staging.base, layout->staging.bytes, PROT_READ | PROT_WRITE))
            return ebb__fail(error, EBB_ERR_MEMORY, "address space", "%s", strerror(errno));
        private_base = layout->page_stack.base;
        private_bytes -= layout->staging.bytes;
    }
    void *again = mmap((void *)private_base, private_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (again == MAP_FAILED)
        return ebb__fail(error, EBB_ERR_MEMORY, "address space", "%s", strerror(errno));
    if (kind == EBB_DEVICE_PROTECT) { /* its arena already consists of mappings of its own */
        ebb__os_advise(private_base, private_bytes, MADV_DONTFORK);
        ebb__os_advise(private_base, private_bytes, MADV_DONTDUMP);
        return ebb__host_protect_open(device, error);
    }
    advise(device);
    return remaps ? ebb__host_remap_open(device, error) : ebb__host_move_open(device, error);
}

int ebb__host_descriptor(const struct ebb_device *device)
{
    (void)device;
    return ebb__host.uffd;
}

void ebb__host_reserved(uintptr_t *first, uintptr_t *last)
{
    *first = ebb__host.arena;
    *last = ebb__host.arena + ebb__host.all_bytes;
}

size_t ebb__host_faults(const struct ebb_device *device, struct ebb_fault *faults, size_t most)
{
    (void)device;
    return ebb__uffd_faults(ebb__host.uffd, faults, most);
}
