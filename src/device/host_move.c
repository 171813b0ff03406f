/* The preferred host device: userfaultfd with UFFDIO_MOVE (Linux >= 6.8).
 *
 * MOVE changes page table entries. It copies no byte, changes no mapping, and does not take the
 * memory map's lock for writing. A huge page moves as a whole if both ends are 2 MiB aligned. MOVE
 * refuses a page that is pinned (direct I/O in flight) or shared (after fork) with EBUSY. Ordinary
 * users may use it with faults of user mode only. Then system calls do not wait for absent
 * pages. */
#include "device/host.h"
#include "device/os.h"
#include "device/uffd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* If the target has a page table from earlier small pages, the kernel splits every huge page that
 * is moved there, permanently. Linux >= 6.14 removes empty page tables here. */
static void clear_page_tables(uintptr_t target, uintptr_t source, uint64_t bytes)
{
    uint64_t huge_bytes = bytes & ~(EBB_HUGE_BYTES - 1);
    if ((target | source) % EBB_HUGE_BYTES == 0 && huge_bytes)
        ebb__os_advise(target, huge_bytes, MADV_DONTNEED);
}

/* A page may have moved without a trace. To go on could replace it by a page of zeros. */
static _Noreturn void end_process(void)
{
    static const char why[] = "ebb: the kernel does not tell which pages it has moved\n";
    ebb__os_call(SYS_write, STDERR_FILENO, (uintptr_t)why, sizeof why - 1, 0, 0, 0);
    abort();
}

/* If a page is migrated during MOVE (memory compaction), Linux 6.18 retries, does not count the
 * moved bytes, and fails with EEXIST. Returns how many bytes from the start are at the target and
 * nowhere else. Wakes all threads that wait for them. */
static uint64_t moved_unsaid(uintptr_t target, uintptr_t source, uint64_t bytes)
{
    bool there[EBB_HOST_PAGEMAP_MOST], here[EBB_HOST_PAGEMAP_MOST];
    struct uffdio_range range = {.start = target};
    if (bytes > EBB_HOST_PAGEMAP_MOST * EBB_PAGE_BYTES)
        bytes = EBB_HOST_PAGEMAP_MOST * EBB_PAGE_BYTES;
    if (!ebb__host_pages_there(target, bytes, there) || !ebb__host_pages_there(source, bytes, here))
        end_process();
    while (range.len < bytes && there[range.len / EBB_PAGE_BYTES] &&
           !here[range.len / EBB_PAGE_BYTES])
        range.len += EBB_PAGE_BYTES;
    if (range.len)
        ioctl(ebb__host.uffd, UFFDIO_WAKE, &range);
    return range.len;
}

/* Handles one page that MOVE refuses because the program has changed the mapping at one end. A
 * fetch copies it; an eviction does not move it. */
static enum ebb_device_result move_refused(void *state, uintptr_t target, uintptr_t source)
{
    uint64_t copied;
    if (ebb__host_place(state, source) == EBB_HOST_ARENA)
        return EBB_DEVICE_BUSY;
    if (!ebb__uffd_copy(ebb__host.uffd, target, source, EBB_PAGE_BYTES, &copied))
        return EBB_DEVICE_FAILED;
    ebb__os_advise(source, EBB_PAGE_BYTES, MADV_DONTNEED);
    return EBB_DEVICE_OK;
}

static enum ebb_device_result host_move(void *state, uintptr_t target, uintptr_t source,
                                        uint64_t bytes, uint64_t *moved)
{
    uint64_t piece = bytes;
    *moved = 0;
    clear_page_tables(target, source, bytes);
    while (*moved < bytes) {
        struct uffdio_move request = {
            .dst = target + *moved,
            .src = source + *moved,
            .len = piece < bytes - *moved ? piece : bytes - *moved,
            .mode = UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES,
        };
        piece = request.len;
        if (ioctl(ebb__host.uffd, UFFDIO_MOVE, &request) == 0) {
            *moved += (uint64_t)(request.move > 0 ? request.move : (__s64)request.len);
            piece = bytes - *moved;
            continue;
        }
        int why = errno;
        if (request.move > 0)
            *moved += (uint64_t)request.move;
        if (why == EAGAIN)
            continue;
        /* There are several mappings, or the program has changed one. Retry in smaller pieces, down
         * to a page. */
        if ((why == EINVAL || why == ENOENT) && piece > EBB_PAGE_BYTES) {
            piece = (piece / 2 + EBB_PAGE_BYTES - 1) & ~(EBB_PAGE_BYTES - 1);
            continue;
        }
        if (why == EINVAL || why == ENOENT) {
            enum ebb_device_result result = move_refused(state, target + *moved, source + *moved);
            if (result != EBB_DEVICE_OK)
                return result;
            *moved += EBB_PAGE_BYTES;
            piece = bytes - *moved;
            continue;
        }
        uint64_t unsaid =
            why == EEXIST ? moved_unsaid(target + *moved, source + *moved, bytes - *moved) : 0;
        *moved += unsaid;
        if (unsaid)
            continue;
        errno = why;
        return why == EBUSY ? EBB_DEVICE_BUSY : EBB_DEVICE_FAILED;
    }
    return EBB_DEVICE_OK;
}

static enum ebb_device_result host_fresh(void *state, uintptr_t target, uint64_t bytes)
{
    bool huge = (target | bytes) % EBB_HUGE_BYTES == 0;
    uintptr_t nursery = huge ? ebb__host.nursery : ebb__host.small_nursery;
    uint64_t most = huge ? EBB_HOST_NURSERY_BYTES : EBB_HOST_SMALL_NURSERY_BYTES;
    uint64_t done = 0;
    while (done < bytes) {
        uint64_t piece = bytes - done < most ? bytes - done : most;
        if (ebb__os_advise(nursery, piece, MADV_POPULATE_WRITE) != 0) {
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
    ebb__os_advise(address, bytes, MADV_DONTNEED);
}

static bool host_fill(void *state, uintptr_t address)
{
    (void)state;
    return ebb__uffd_fill(ebb__host.uffd, address);
}

/* Causes write faults by system calls, which fail if the program has made a page read-only. */
static void write_to_pages(uintptr_t address, uint64_t bytes)
{
    if (bytes == 0 || ebb__os_advise(address, bytes, MADV_POPULATE_WRITE) == 0)
        return;
    for (uint64_t at = 0; bytes > EBB_PAGE_BYTES && at < bytes; at += EBB_PAGE_BYTES)
        ebb__os_advise(address + at, EBB_PAGE_BYTES, MADV_POPULATE_WRITE);
}

static void host_unshare(void *state, uintptr_t address, uint64_t bytes)
{
    (void)state;
    uint64_t entries[EBB_HOST_PAGEMAP_MOST];
    for (uint64_t at = 0; at < bytes;) {
        uint64_t pages = ebb__host_pagemap(address + at, bytes - at, entries), behind;
        if (pages == 0)
            return;
        for (uint64_t first = 0; first < pages; first = behind + 1) {
            for (behind = first; behind < pages && entries[behind] >> 63;)
                behind++;
            write_to_pages(address + at + first * EBB_PAGE_BYTES,
                           (behind - first) * EBB_PAGE_BYTES);
        }
        at += pages * EBB_PAGE_BYTES;
    }
}

static void host_let(void *state, uintptr_t address, uint64_t bytes)
{
    (void)state;
    ebb__uffd_unregister(ebb__host.uffd, (struct ebb_device_range){address, bytes});
}

static bool host_renew(void *state, uintptr_t address, uint64_t bytes)
{
    (void)state;
    return ebb__uffd_renew(ebb__host.uffd, address, bytes);
}

/* The two differ in whether faults of the kernel's own accesses are served. */
#define OPS(name, its_kind, pins)                                                                  \
    static const struct ebb_device_ops name = {                                                    \
        .version = EBB_DEVICE_VERSION,                                                             \
        .kind = its_kind,                                                                          \
        .calls_need_pins = pins,                                                                   \
        .move = host_move,                                                                         \
        .fresh = host_fresh,                                                                       \
        .release = host_release,                                                                   \
        .fill = host_fill,                                                                         \
        .unshare = host_unshare,                                                                   \
        .let = host_let,                                                                           \
        .renew = host_renew,                                                                       \
        .close_holes = ebb__host_close_holes,                                                      \
    }

OPS(kernel_ops, EBB_DEVICE_UFFD_MOVE, false);
OPS(user_ops, EBB_DEVICE_UFFD_MOVE_USER, true);

enum ebb_status ebb__host_move_open(struct ebb_device *device, struct ebb_error *error)
{
    uint64_t features;
    bool kernel_faults;
    int uffd = ebb__uffd_open(UFFD_FEATURE_MOVE, &features, &kernel_faults);
    if (uffd < 0)
        return ebb__fail(error, EBB_ERR_UNSUPPORTED, "userfaultfd", "%s", strerror(errno));
    if (!(features & UFFD_FEATURE_MOVE)) {
        close(uffd);
        return ebb__fail(error, EBB_ERR_UNSUPPORTED, "userfaultfd",
                         "this kernel cannot move pages (UFFDIO_MOVE, Linux 6.8)");
    }
    const struct ebb_device_range ranges[] = {device->layout.arena, device->layout.staging,
                                              device->layout.page_stack};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (!ebb__uffd_register_all(uffd, ranges[i], UFFDIO_REGISTER_MODE_MISSING)) {
            int why = errno;
            close(uffd);
            return ebb__fail(error, EBB_ERR_UNSUPPORTED, "userfaultfd", "register: %s",
                             strerror(why));
        }
    }
    ebb__host.uffd = uffd;
    device->ops = kernel_faults ? &kernel_ops : &user_ops;
    return EBB_OK;
}
