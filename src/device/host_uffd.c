/* The host device: userfaultfd with UFFDIO_MOVE (Linux >= 6.8).
 *
 * MOVE rewires page table entries: no byte is copied, no mapping changes, the memory map's lock is
 * not taken for writing, and a huge page moves whole where both ends are 2 MiB aligned. A page
 * that is pinned (direct I/O in flight) or shared (after fork) is refused with EBUSY.
 *
 * staging and depot are left out of forks: their pages stay this process's own, so that they can
 * always be moved. Debian 12's headers do not know MOVE: its numbers are defined here, and the
 * kernel is asked at run time. */
#include "device/device.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UFFDIO_MOVE
struct uffdio_move {
    __u64 dst;
    __u64 src;
    __u64 len;
    __u64 mode;
    __s64 move;
};
#define _UFFDIO_MOVE 0x05
#define UFFDIO_MOVE _IOWR(UFFDIO, _UFFDIO_MOVE, struct uffdio_move)
#define UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES ((__u64)1 << 1)
#endif
#ifndef UFFD_FEATURE_MOVE
#define UFFD_FEATURE_MOVE (1 << 16)
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Room to make new pages in before they are moved to where they belong: huge ones, small ones. */
#define NURSERY_BYTES ((uint64_t)64 << 20)
#define SMALL_NURSERY_BYTES ((uint64_t)2 << 20)

struct ebb_host_uffd {
    int uffd;
    int pagemap; /* -1 until needed */
    uintptr_t nursery;
    uintptr_t small_nursery;
    uint64_t all_bytes; /* of the one reservation that holds the ranges, from arena.base */
};

static struct ebb_host_uffd host; /* one a process: the shim's own state */

static int open_uffd(void)
{
    int flags = O_CLOEXEC | O_NONBLOCK;
    int uffd = (int)syscall(SYS_userfaultfd, flags);
    if (uffd < 0) {
        int node = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
        if (node >= 0) {
            uffd = ioctl(node, USERFAULTFD_IOC_NEW, flags);
            close(node);
        }
    }
    return uffd;
}

static int register_range(int uffd, struct ebb_device_range range)
{
    struct uffdio_register request = {
        .range = {.start = range.base, .len = range.bytes},
        .mode = UFFDIO_REGISTER_MODE_MISSING,
    };
    return ioctl(uffd, UFFDIO_REGISTER, &request);
}

static enum ebb_status open_and_register(struct ebb_device *device, struct ebb_error *error)
{
    int uffd = open_uffd();
    if (uffd < 0)
        return ebb__fail(error, EBB_ERR_UNSUPPORTED, "userfaultfd", "%s", strerror(errno));
    /* A high number, out of the way of programs that count descriptors. */
    int high = fcntl(uffd, F_DUPFD_CLOEXEC, 700);
    if (high >= 0) {
        close(uffd);
        uffd = high;
    }
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_MOVE};
    if (ioctl(uffd, UFFDIO_API, &api) != 0 || !(api.features & UFFD_FEATURE_MOVE)) {
        close(uffd);
        return ebb__fail(error, EBB_ERR_UNSUPPORTED, "userfaultfd",
                         "this kernel cannot move pages (UFFDIO_MOVE, Linux 6.8)");
    }
    const struct ebb_device_range ranges[] = {device->layout.arena, device->layout.staging,
                                              device->layout.depot_huge,
                                              device->layout.depot_small};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (register_range(uffd, ranges[i]) != 0) {
            int why = errno;
            close(uffd);
            return ebb__fail(error, EBB_ERR_UNSUPPORTED, "userfaultfd", "register: %s",
                             strerror(why));
        }
    }
    host.uffd = uffd;
    host.pagemap = -1;
    return EBB_OK;
}

/* A page table that small pages have left behind at the target makes the kernel split every huge
 * page that arrives there, for good. Linux >= 6.14 takes empty page tables away here. */
static void clear_page_tables(uintptr_t target, uintptr_t source, uint64_t bytes)
{
    uint64_t huge_bytes = bytes & ~(EBB_HUGE_BYTES - 1);
    if ((target | source) % EBB_HUGE_BYTES == 0 && huge_bytes)
        madvise((void *)target, huge_bytes, MADV_DONTNEED);
}

static enum ebb_device_result host_move(void *state, uintptr_t target, uintptr_t source,
                                        uint64_t bytes, uint64_t *moved)
{
    (void)state;
    *moved = 0;
    clear_page_tables(target, source, bytes);
    while (*moved < bytes) {
        struct uffdio_move request = {
            .dst = target + *moved,
            .src = source + *moved,
            .len = bytes - *moved,
            .mode = UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES,
        };
        if (ioctl(host.uffd, UFFDIO_MOVE, &request) == 0) {
            *moved += (uint64_t)(request.move > 0 ? request.move : (__s64)request.len);
            continue;
        }
        int why = errno;
        if (request.move > 0)
            *moved += (uint64_t)request.move;
        if (why == EAGAIN)
            continue;
        return why == EBUSY ? EBB_DEVICE_BUSY : EBB_DEVICE_FAILED;
    }
    return EBB_DEVICE_OK;
}

static enum ebb_device_result host_fresh(void *state, uintptr_t target, uint64_t bytes)
{
    bool huge = (target | bytes) % EBB_HUGE_BYTES == 0;
    uintptr_t nursery = huge ? host.nursery : host.small_nursery;
    uint64_t most = huge ? NURSERY_BYTES : SMALL_NURSERY_BYTES;
    uint64_t done = 0;
    while (done < bytes) {
        uint64_t piece = bytes - done < most ? bytes - done : most;
        if (madvise((void *)nursery, piece, MADV_POPULATE_WRITE) != 0) {
            if (errno != EINVAL)
                return EBB_DEVICE_FAILED;
            for (uint64_t at = 0; at < piece; at += EBB_PAGE_BYTES) /* before Linux 5.14 */
                *(volatile char *)(nursery + at) = 0;
        }
        uint64_t moved;
        if (host_move(state, target + done, nursery, piece, &moved) != EBB_DEVICE_OK)
            return EBB_DEVICE_FAILED;
        done += piece;
    }
    return EBB_DEVICE_OK;
}

static void host_release(void *state, uintptr_t address, uint64_t bytes)
{
    (void)state;
    madvise((void *)address, bytes, MADV_DONTNEED);
}

static bool host_fill(void *state, uintptr_t address)
{
    (void)state;
    struct uffdio_zeropage zero = {
        .range = {.start = address & ~(EBB_PAGE_BYTES - 1), .len = EBB_PAGE_BYTES}};
    while (ioctl(host.uffd, UFFDIO_ZEROPAGE, &zero) != 0) {
        if (errno == EAGAIN)
            continue;
        ioctl(host.uffd, UFFDIO_WAKE, &zero.range); /* EEXIST: it is there, wake the waiter */
        return false;
    }
    return true;
}

static void host_unshare(void *state, uintptr_t address, uint64_t bytes)
{
    (void)state;
    if (host.pagemap < 0)
        host.pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (host.pagemap < 0)
        return;
    uint64_t entries[512];
    for (uint64_t at = 0; at < bytes;) {
        uint64_t pages = (bytes - at) / EBB_PAGE_BYTES;
        if (pages > 512)
            pages = 512;
        off_t offset = (off_t)((address + at) / EBB_PAGE_BYTES * sizeof entries[0]);
        ssize_t got = pread(host.pagemap, entries, pages * sizeof entries[0], offset);
        if (got <= 0)
            return;
        pages = (uint64_t)got / sizeof entries[0];
        /* An atomic OR with nothing: a write that loses no other thread's write. */
        for (uint64_t i = 0; i < pages; i++)
            if (entries[i] >> 63)
                __atomic_fetch_or((unsigned char *)(address + at + i * EBB_PAGE_BYTES), 0,
                                  __ATOMIC_RELAXED);
        at += pages * EBB_PAGE_BYTES;
    }
}

static const struct ebb_device_ops host_ops = {
    .version = EBB_DEVICE_VERSION,
    .kind = EBB_DEVICE_UFFD_MOVE,
    .move = host_move,
    .fresh = host_fresh,
    .release = host_release,
    .fill = host_fill,
    .unshare = host_unshare,
};

static void advise(struct ebb_device *device)
{
    const struct ebb_device_layout *layout = &device->layout;
    madvise((void *)layout->arena.base, host.all_bytes, MADV_HUGEPAGE);
    madvise((void *)layout->depot_small.base, layout->depot_small.bytes, MADV_NOHUGEPAGE);
    madvise((void *)host.small_nursery, SMALL_NURSERY_BYTES, MADV_NOHUGEPAGE);
    uint64_t private_bytes = host.all_bytes - layout->arena.bytes;
    madvise((void *)layout->staging.base, private_bytes, MADV_DONTFORK);
    madvise((void *)layout->staging.base, private_bytes, MADV_DONTDUMP);
}

/* One reservation: arena, staging, huge depot, small depot (each `arena_bytes`), nursery. */
static bool reserve(uint64_t arena_bytes, struct ebb_device *device)
{
    uint64_t all = 4 * arena_bytes + NURSERY_BYTES + SMALL_NURSERY_BYTES;
    char *memory = mmap(NULL, all + EBB_HUGE_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    uintptr_t base = ((uintptr_t)memory + EBB_HUGE_BYTES - 1) & ~(uintptr_t)(EBB_HUGE_BYTES - 1);
    struct ebb_device_layout *layout = &device->layout;
    layout->arena = (struct ebb_device_range){base, arena_bytes};
    layout->staging = (struct ebb_device_range){base + arena_bytes, arena_bytes};
    layout->depot_huge = (struct ebb_device_range){base + 2 * arena_bytes, arena_bytes};
    layout->depot_small = (struct ebb_device_range){base + 3 * arena_bytes, arena_bytes};
    host.nursery = base + 4 * arena_bytes;
    host.small_nursery = host.nursery + NURSERY_BYTES;
    host.all_bytes = all;
    return true;
}

enum ebb_status ebb__host_uffd_create(uint64_t least_bytes, struct ebb_device *device,
                                      struct ebb_error *error)
{
    uint64_t arena_bytes = (uint64_t)1 << 40;
    while (!reserve(arena_bytes, device)) {
        arena_bytes /= 2;
        if (arena_bytes < least_bytes || arena_bytes < EBB_HUGE_BYTES * 64)
            return ebb__fail(error, EBB_ERR_MEMORY, "address space", "%s", strerror(errno));
    }
    device->ops = &host_ops;
    device->state = &host;
    advise(device);
    enum ebb_status status = open_and_register(device, error);
    if (status != EBB_OK)
        munmap((void *)device->layout.arena.base, host.all_bytes);
    return status;
}

enum ebb_status ebb__host_uffd_after_fork(struct ebb_device *device, struct ebb_error *error)
{
    close(host.uffd);
    if (host.pagemap >= 0)
        close(host.pagemap);
    const struct ebb_device_layout *layout = &device->layout;
    void *again = mmap((void *)layout->staging.base, host.all_bytes - layout->arena.bytes,
                       PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (again == MAP_FAILED)
        return ebb__fail(error, EBB_ERR_MEMORY, "address space", "%s", strerror(errno));
    advise(device);
    return open_and_register(device, error);
}

int ebb__host_uffd_descriptor(const struct ebb_device *device)
{
    (void)device;
    return host.uffd;
}

size_t ebb__host_uffd_faults(const struct ebb_device *device, struct ebb_fault *faults, size_t most)
{
    (void)device;
    struct uffd_msg messages[64];
    if (most > sizeof messages / sizeof messages[0])
        most = sizeof messages / sizeof messages[0];
    ssize_t got = read(host.uffd, messages, most * sizeof messages[0]);
    if (got <= 0)
        return 0;
    size_t count = 0;
    for (size_t i = 0; i < (size_t)got / sizeof messages[0]; i++) {
        if (messages[i].event != UFFD_EVENT_PAGEFAULT)
            continue;
        faults[count].address = messages[i].arg.pagefault.address;
        faults[count].write = messages[i].arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WRITE;
        count++;
    }
    return count;
}
