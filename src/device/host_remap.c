/* The host device for kernels without UFFDIO_MOVE (Linux 5.7 to 6.7): faults by userfaultfd, moves
 * by mremap(), which keeps an empty mapping at the source. Nothing is copied, and huge pages stay
 * huge. Each move changes mappings, which takes the memory map's lock for writing.
 *
 * Absent ranges are registered with the userfaultfd, so that an access waits. Resident ranges are
 * ordinary mappings, in which the kernel makes pages at the first touch. If the system permits no
 * more mappings, a resident block is not moved, and a fetch copies instead.
 *
 * Each run of resident pages is a mapping of its own, and their number is limited (runs.h). At the
 * limit a new block gets small zero pages inside the registered range instead.
 *
 * The device cannot recognise a page that the kernel is still writing to. So calls that take
 * buffers must pin their blocks (calls_need_pins). Cached pages are released to the system, and new
 * ones are made where they are needed (anew_is_cheaper). */
#include "device/host.h"
#include "device/os.h"
#include "device/runs.h"
#include "device/uffd.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Registers the range, so that accesses to absent pages wait (true), or lets the kernel serve them
 * (false). */
static bool watch(uintptr_t address, uint64_t bytes, bool on)
{
    struct ebb_device_range range = {address, bytes};
    return on ? ebb__uffd_register(ebb__host.uffd, range, UFFDIO_REGISTER_MODE_MISSING)
              : ebb__uffd_unregister(ebb__host.uffd, range);
}

/* True if the range at `address` of the arena may be a mapping of its own. An earlier run may stay
 * one: it need not have merged with its neighbours. */
static bool may_be_run(uintptr_t address)
{
    return ebb__runs_begins(address) || !ebb__runs_full_in_arena();
}

/* Releases frames without contents. If there are many mappings, merges them with their neighbours,
 * which costs three more changes of mappings. */
static void empty_frames(uintptr_t address, uint64_t bytes, bool has_pages)
{
    bool is_joined = ebb__runs_begins(address) && ebb__runs_many_in_staging();
    if (!is_joined || !ebb__os_map_anew(address, bytes, PROT_READ | PROT_WRITE)) {
        if (has_pages)
            ebb__os_advise(address, bytes, MADV_DONTNEED);
        return;
    }
    ebb__os_advise(address, bytes, MADV_HUGEPAGE);
    ebb__runs_note(address, false);
}

static enum ebb_device_result to_staging(uintptr_t target, uintptr_t source, uint64_t bytes,
                                         uint64_t *moved)
{
    /* Register first: an access must wait as soon as the first page is evicted. */
    bool good = !ebb__runs_full_in_staging() && watch(source, bytes, true) &&
                ebb__os_remap_pieces(target, source, bytes, moved);
    if (*moved)
        ebb__runs_note(target, true);
    /* A protection that the program has set moves along. The store needs to read and write the
     * pages, and the next block needs the mapping. */
    if (*moved && ebb__os_protect(target, *moved, PROT_READ | PROT_WRITE) != 0)
        good = false;
    return good ? EBB_DEVICE_OK : EBB_DEVICE_BUSY; /* too few mappings: the rest was not moved */
}

static enum ebb_device_result from_staging(uintptr_t target, uintptr_t source, uint64_t bytes,
                                           uint64_t *moved)
{
    if (ebb__os_remap_pieces(target, source, bytes, moved)) {
        if (may_be_run(target) || !watch(target, bytes, true))
            ebb__runs_note(target, true);
        ebb__uffd_wake(ebb__host.uffd, target, bytes);
        empty_frames(source, bytes, false);
        return EBB_DEVICE_OK;
    }
    ebb__uffd_wake(ebb__host.uffd, target, *moved);
    uint64_t copied;
    bool good =
        ebb__uffd_copy(ebb__host.uffd, target + *moved, source + *moved, bytes - *moved, &copied);
    ebb__os_advise(source + *moved, copied, MADV_DONTNEED);
    *moved += copied;
    return good ? EBB_DEVICE_OK : EBB_DEVICE_FAILED;
}

/* Merges a separate mapping with its neighbours only if mappings are scarce, as that doubles the
 * cost. */
static void release_blocks(uintptr_t address, uint64_t bytes)
{
    if (ebb__host_is_fixed(address)) {
        ebb__os_advise(address, bytes, MADV_DONTNEED);
        return;
    }
    if (ebb__runs_begins(address) && ebb__runs_full_in_arena() &&
        ebb__uffd_renew(ebb__host.uffd, address, bytes)) {
        ebb__runs_note(address, false);
        return;
    }
    watch(address, bytes, true);
    ebb__os_advise(address, bytes, MADV_DONTNEED);
}

static void remap_release(void *state, uintptr_t address, uint64_t bytes)
{
    enum ebb_host_place place = ebb__host_place(state, address);
    if (place == EBB_HOST_STAGING) {
        empty_frames(address, bytes, true);
    } else if (place == EBB_HOST_ARENA) {
        release_blocks(address, bytes);
    }
}

static enum ebb_device_result remap_fresh(void *state, uintptr_t target, uint64_t bytes)
{
    if (ebb__host_place(state, target) != EBB_HOST_ARENA || ebb__host_is_fixed(target))
        return EBB_DEVICE_OK;
    if (may_be_run(target) && watch(target, bytes, false)) {
        ebb__runs_note(target, true);
        return EBB_DEVICE_OK;
    }
    return ebb__uffd_zeros(ebb__host.uffd, target, bytes) ? EBB_DEVICE_OK : EBB_DEVICE_FAILED;
}

static enum ebb_device_result remap_move(void *state, uintptr_t target, uintptr_t source,
                                         uint64_t bytes, uint64_t *moved)
{
    enum ebb_host_place to = ebb__host_place(state, target), from = ebb__host_place(state, source);
    *moved = 0;
    if (from == EBB_HOST_ARENA && to == EBB_HOST_STAGING)
        return to_staging(target, source, bytes, moved);
    if (from == EBB_HOST_STAGING && to == EBB_HOST_ARENA)
        return from_staging(target, source, bytes, moved);
    remap_release(state, source, bytes);
    *moved = bytes;
    return remap_fresh(state, target, bytes);
}

static bool remap_fill(void *state, uintptr_t address)
{
    (void)state;
    return ebb__uffd_fill(ebb__host.uffd, address);
}

static void remap_unshare(void *state, uintptr_t address, uint64_t bytes)
{
    (void)state; /* shared pages can be moved like any other */
    (void)address;
    (void)bytes;
}

static void remap_let(void *state, uintptr_t address, uint64_t bytes)
{
    (void)state;
    ebb__uffd_unregister(ebb__host.uffd, (struct ebb_device_range){address, bytes});
}

static bool remap_renew(void *state, uintptr_t address, uint64_t bytes)
{
    (void)state;
    if (!ebb__host_is_fixed(address))
        return ebb__uffd_renew(ebb__host.uffd, address, bytes);
    if (!ebb__os_map_anew(address, bytes, PROT_READ | PROT_WRITE))
        return false;
    ebb__os_advise(address, bytes, MADV_HUGEPAGE);
    return true;
}

/* Blocks there never move, so nothing waits there. The kernel makes pages at the first touch, and
 * no move changes a mapping. */
static void remap_fix(void *state, uintptr_t address, uint64_t bytes)
{
    (void)state;
    ebb__host.fixed = (struct ebb_device_range){address, bytes};
    ebb__uffd_unregister(ebb__host.uffd, ebb__host.fixed);
}

#define OPS(name, its_kind)                                                                        \
    static const struct ebb_device_ops name = {                                                    \
        .version = EBB_DEVICE_VERSION,                                                             \
        .kind = its_kind,                                                                          \
        .calls_need_pins = true,                                                                   \
        .anew_is_cheaper = true,                                                                   \
        .move = remap_move,                                                                        \
        .fresh = remap_fresh,                                                                      \
        .release = remap_release,                                                                  \
        .fill = remap_fill,                                                                        \
        .unshare = remap_unshare,                                                                  \
        .let = remap_let,                                                                          \
        .renew = remap_renew,                                                                      \
        .fix = remap_fix,                                                                          \
        .close_holes = ebb__host_close_holes,                                                      \
    }

OPS(kernel_ops, EBB_DEVICE_UFFD_REMAP);
OPS(user_ops, EBB_DEVICE_UFFD_REMAP_USER);

enum ebb_status ebb__host_remap_open(struct ebb_device *device, struct ebb_error *error)
{
    const struct ebb_device_layout *layout = &device->layout;
    uint64_t features;
    bool kernel_faults;
    if (ebb__host_refused("remap"))
        return ebb__fail(error, EBB_ERR_UNSUPPORTED, "mremap", "refused");
    int uffd = ebb__uffd_open(0, &features, &kernel_faults);
    if (uffd < 0)
        return ebb__fail(error, EBB_ERR_UNSUPPORTED, "userfaultfd", "%s", strerror(errno));
    if (!ebb__runs_open(layout)) {
        close(uffd);
        return ebb__fail(error, EBB_ERR_MEMORY, "address space", "%s", strerror(errno));
    }
    if (!ebb__uffd_register_all(uffd, layout->arena, UFFDIO_REGISTER_MODE_MISSING)) {
        int why = errno;
        close(uffd);
        return ebb__fail(error, EBB_ERR_UNSUPPORTED, "userfaultfd", "register: %s", strerror(why));
    }
    /* Only a trial move, at a place without contents, shows whether the kernel can keep the mapping
     * of the source. */
    uintptr_t end = layout->staging.base + layout->staging.bytes;
    if (!ebb__os_remap(end - EBB_HUGE_BYTES, end - 2 * EBB_HUGE_BYTES, EBB_HUGE_BYTES)) {
        int why = errno;
        close(uffd);
        return ebb__fail(error, EBB_ERR_UNSUPPORTED, "mremap", "%s", strerror(why));
    }
    /* Moved mappings keep this setting. A child maps the range anew. */
    ebb__os_advise(layout->staging.base, layout->staging.bytes, MADV_DOFORK);
    ebb__host.uffd = uffd;
    if (ebb__host.fixed.bytes) /* in a child */
        ebb__uffd_unregister(uffd, ebb__host.fixed);
    device->ops = kernel_faults ? &kernel_ops : &user_ops;
    return EBB_OK;
}
