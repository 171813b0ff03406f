/* The host device for kernels without UFFDIO_MOVE (Linux 5.7 to 6.7): userfaultfd with write
 * protection and UFFDIO_COPY.
 *
 * What leaves the arena is write-protected, copied, and dropped: until it is dropped readers see it,
 * writers wait. What comes back is copied in by the kernel, page by page, each whole before anybody
 * sees it. So only bytes move, in small pages, and nobody can tell a page that direct I/O still
 * writes: calls that take buffers must keep their blocks from leaving (calls_need_pins).
 *
 * Copying spare pages would be waste: they go back to the system and are made anew where they are
 * wanted (anew_is_cheaper). In staging pages appear when they are first touched. */
#include "device/host.h"
#include "device/uffd.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* Bytes that exist twice for a moment while they are copied. */
#define PIECE_BYTES ((uint64_t)1 << 20)

static _Alignas(4096) unsigned char zeros[PIECE_BYTES];

static bool write_protect(uintptr_t address, uint64_t bytes, bool on)
{
    struct uffdio_writeprotect request = {
        .range = {.start = address, .len = bytes},
        .mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0,
    };
    int result;
    do
        result = ioctl(ebb__host.uffd, UFFDIO_WRITEPROTECT, &request);
    while (result != 0 && errno == EAGAIN);
    return result == 0;
}

/* Copy whole pages from `source` into the arena, where nothing is. */
static enum ebb_device_result copy_in(uintptr_t target, uintptr_t source, uint64_t bytes,
                                      uint64_t *copied)
{
    for (*copied = 0; *copied < bytes;) {
        struct uffdio_copy request = {
            .dst = target + *copied, .src = source + *copied, .len = bytes - *copied};
        if (ioctl(ebb__host.uffd, UFFDIO_COPY, &request) == 0)
            request.copy = (__s64)request.len;
        else if (errno != EAGAIN)
            return EBB_DEVICE_FAILED;
        if (request.copy > 0)
            *copied += (uint64_t)request.copy;
    }
    return EBB_DEVICE_OK;
}

static enum ebb_device_result zeros_in(uintptr_t target, uint64_t bytes, uint64_t *copied)
{
    for (*copied = 0; *copied < bytes;) {
        uint64_t piece = bytes - *copied < PIECE_BYTES ? bytes - *copied : PIECE_BYTES, done;
        enum ebb_device_result result = copy_in(target + *copied, (uintptr_t)zeros, piece, &done);
        *copied += done;
        if (result != EBB_DEVICE_OK)
            return result;
    }
    return EBB_DEVICE_OK;
}

static enum ebb_device_result from_staging(uintptr_t target, uintptr_t source, uint64_t bytes,
                                           uint64_t *moved)
{
    for (*moved = 0; *moved < bytes;) {
        uint64_t piece = bytes - *moved < PIECE_BYTES ? bytes - *moved : PIECE_BYTES, done;
        enum ebb_device_result result = copy_in(target + *moved, source + *moved, piece, &done);
        madvise((void *)(source + *moved), done, MADV_DONTNEED);
        *moved += done;
        if (result != EBB_DEVICE_OK)
            return result;
    }
    return EBB_DEVICE_OK;
}

static enum ebb_device_result to_staging(uintptr_t target, uintptr_t source, uint64_t bytes,
                                         uint64_t *moved)
{
    bool there[PIECE_BYTES / EBB_PAGE_BYTES];
    *moved = 0;
    if (!write_protect(source, bytes, true))
        return EBB_DEVICE_FAILED;
    while (*moved < bytes) {
        uint64_t piece = bytes - *moved < PIECE_BYTES ? bytes - *moved : PIECE_BYTES;
        uintptr_t from = source + *moved, to = target + *moved;
        /* Reading a page that is not there would wait for the thread that is to fetch it: this
         * one, as a rule. */
        if (!ebb__host_pages_there(from, piece, there)) {
            write_protect(from, bytes - *moved, false);
            return EBB_DEVICE_BUSY;
        }
        for (uint64_t at = 0; at < piece; at += EBB_PAGE_BYTES)
            if (there[at / EBB_PAGE_BYTES])
                memcpy((void *)(to + at), (const void *)(from + at), EBB_PAGE_BYTES);
        madvise((void *)from, piece, MADV_DONTNEED);
        *moved += piece;
    }
    return EBB_DEVICE_OK;
}

static void copy_release(void *state, uintptr_t address, uint64_t bytes)
{
    if (ebb__host_place(state, address) != EBB_HOST_DEPOT)
        madvise((void *)address, bytes, MADV_DONTNEED);
}

static enum ebb_device_result copy_move(void *state, uintptr_t target, uintptr_t source,
                                        uint64_t bytes, uint64_t *moved)
{
    enum ebb_host_place to = ebb__host_place(state, target), from = ebb__host_place(state, source);
    if (from == EBB_HOST_ARENA && to == EBB_HOST_STAGING)
        return to_staging(target, source, bytes, moved);
    if (from == EBB_HOST_STAGING && to == EBB_HOST_ARENA)
        return from_staging(target, source, bytes, moved);
    if (from == EBB_HOST_DEPOT && to == EBB_HOST_ARENA)
        return zeros_in(target, bytes, moved);
    copy_release(state, source, bytes);
    *moved = bytes;
    return EBB_DEVICE_OK;
}

static enum ebb_device_result copy_fresh(void *state, uintptr_t target, uint64_t bytes)
{
    uint64_t done;
    return ebb__host_place(state, target) == EBB_HOST_ARENA ? zeros_in(target, bytes, &done)
                                                            : EBB_DEVICE_OK;
}

static bool copy_fill(void *state, uintptr_t address)
{
    (void)state;
    if (ebb__uffd_fill(ebb__host.uffd, address))
        return true;
    /* There, but perhaps still protected from a move that did not come about. */
    write_protect(address & ~(EBB_PAGE_BYTES - 1), EBB_PAGE_BYTES, false);
    return false;
}

static void copy_unshare(void *state, uintptr_t address, uint64_t bytes)
{
    (void)state; /* shared pages can be copied like any other */
    (void)address;
    (void)bytes;
}

#define OPS(name, its_kind)                                                                        \
    static const struct ebb_device_ops name = {                                                    \
        .version = EBB_DEVICE_VERSION,                                                             \
        .kind = its_kind,                                                                          \
        .calls_need_pins = true,                                                                   \
        .anew_is_cheaper = true,                                                                   \
        .move = copy_move,                                                                         \
        .fresh = copy_fresh,                                                                       \
        .release = copy_release,                                                                   \
        .fill = copy_fill,                                                                         \
        .unshare = copy_unshare,                                                                   \
    }

OPS(kernel_ops, EBB_DEVICE_UFFD_COPY);
OPS(user_ops, EBB_DEVICE_UFFD_COPY_USER);

enum ebb_status ebb__host_copy_open(struct ebb_device *device, struct ebb_error *error)
{
    uint64_t features;
    bool kernel_faults;
    int uffd = ebb__uffd_open(UFFD_FEATURE_PAGEFAULT_FLAG_WP, &features, &kernel_faults);
    if (uffd < 0)
        return ebb__fail(error, EBB_ERR_UNSUPPORTED, "userfaultfd", "%s", strerror(errno));
    bool good = (features & UFFD_FEATURE_PAGEFAULT_FLAG_WP) &&
                ebb__uffd_register(uffd, device->layout.arena,
                                   UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP);
    if (!good) {
        close(uffd);
        return ebb__fail(error, EBB_ERR_UNSUPPORTED, "userfaultfd",
                         "this kernel cannot write-protect (Linux 5.7)");
    }
    /* Small pages are all that can be put in: larger ones would come by collapsing only. */
    madvise((void *)device->layout.arena.base, device->layout.arena.bytes, MADV_NOHUGEPAGE);
    ebb__host.uffd = uffd;
    device->ops = kernel_faults ? &kernel_ops : &user_ops;
    return EBB_OK;
}
