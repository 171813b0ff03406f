/* The host device without userfaultfd: page protection. A fault is a SIGSEGV in the thread that
 * touches an absent page (Linux 5.7, for MREMAP_DONTUNMAP).
 *
 * To park a range, the device makes it inaccessible, then moves its pages to staging by mremap().
 * That keeps an inaccessible mapping in the arena. A fetch moves a range by mremap(), too, and all
 * of it is accessible at once. Nothing is copied, but each move changes mappings. System calls on
 * an absent page fail with EFAULT. Pages that direct I/O still writes are moved like any other. So
 * calls that take buffers must pin their blocks (calls_need_pins).
 *
 * Cached pages are released to the system. New ones appear at the first touch (anew_is_cheaper). */
#include "device/ballast.h"
#include "device/host.h"
#include "device/os.h"
#include "device/runs.h"
#include "device/uffd.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static bool map_in_arena(uintptr_t address, uint64_t bytes)
{
    while (!ebb__os_map_anew(address, bytes, PROT_READ | PROT_WRITE))
        if (errno != ENOMEM || !ebb__ballast_give())
            return false;
    ebb__runs_note(address, true);
    /* The tail is advised, too: otherwise it would be a mapping of its own. */
    if (address % EBB_HUGE_BYTES == 0 && bytes >= EBB_HUGE_BYTES)
        ebb__os_advise(address, bytes, MADV_HUGEPAGE);
    return true;
}

static bool map_in_staging(uintptr_t address, uint64_t bytes)
{
    if (bytes == 0)
        return true;
    if (!ebb__os_map_anew(address, bytes, PROT_READ | PROT_WRITE))
        return false;
    ebb__os_advise(address, bytes, MADV_DONTFORK);
    ebb__os_advise(address, bytes, MADV_HUGEPAGE);
    ebb__runs_note(address, false);
    return true;
}

static enum ebb_device_result to_staging(uintptr_t target, uintptr_t source, uint64_t bytes,
                                         uint64_t *moved)
{
    if (ebb__runs_full_in_staging() || !ebb__ballast_fill() ||
        ebb__os_protect(source, bytes, PROT_NONE) != 0)
        return EBB_DEVICE_BUSY; /* too few mappings: nothing was changed */
    bool good = ebb__os_remap_pieces(target, source, bytes, moved);
    bool readable = *moved == 0 || ebb__os_protect(target, *moved, PROT_READ | PROT_WRITE) == 0;
    ebb__os_advise(target, *moved, MADV_DONTFORK);
    ebb__runs_note(target, *moved != 0);
    if (good &&
        ebb__os_map_anew(source, bytes, PROT_NONE)) /* merges with the absent range beside it */
        ebb__runs_note(source, false);
    if (good && readable)
        return EBB_DEVICE_OK;
    ebb__os_protect(source + *moved, bytes - *moved, PROT_READ | PROT_WRITE);
    return readable ? EBB_DEVICE_BUSY : EBB_DEVICE_FAILED;
}

static enum ebb_device_result from_staging(uintptr_t target, uintptr_t source, uint64_t bytes,
                                           uint64_t *moved)
{
    *moved = 0;
    while (ebb__os_advise(source, bytes, MADV_DOFORK) != 0)
        if ((errno != ENOMEM && errno != EAGAIN) || !ebb__ballast_give())
            return EBB_DEVICE_BUSY; /* unchanged: otherwise a child would lack it */
    bool good = ebb__os_remap_pieces(target, source, bytes, moved);
    while (!good && errno == ENOMEM && ebb__ballast_give())
        good = ebb__os_remap_pieces(target, source, bytes, moved);
    bool is_crowded = !good && errno == ENOMEM; /* too few mappings: others may be freed */
    map_in_staging(source, *moved);
    if (*moved)
        ebb__runs_note(target, true);
    return good ? EBB_DEVICE_OK : is_crowded ? EBB_DEVICE_BUSY : EBB_DEVICE_FAILED;
}

static bool protect_renew(void *state, uintptr_t address, uint64_t bytes)
{
    (void)state;
    if (ebb__host_is_fixed(address))
        return map_in_arena(address, bytes);
    if (!ebb__os_map_anew(address, bytes, PROT_NONE))
        return false;
    ebb__runs_note(address, false);
    return true;
}

static void protect_release(void *state, uintptr_t address, uint64_t bytes)
{
    enum ebb_host_place place = ebb__host_place(state, address);
    bool good = true;
    if (ebb__host_is_fixed(address))
        ebb__os_advise(address, bytes, MADV_DONTNEED);
    else if (place == EBB_HOST_ARENA)
        good = protect_renew(state, address, bytes);
    else if (place == EBB_HOST_STAGING)
        good = map_in_staging(address, bytes);
    if (!good)
        ebb__os_advise(address, bytes, MADV_DONTNEED);
}

static enum ebb_device_result protect_fresh(void *state, uintptr_t target, uint64_t bytes)
{
    return ebb__host_place(state, target) != EBB_HOST_ARENA || ebb__host_is_fixed(target) ||
                   map_in_arena(target, bytes)
               ? EBB_DEVICE_OK
               : EBB_DEVICE_FAILED;
}

static enum ebb_device_result protect_move(void *state, uintptr_t target, uintptr_t source,
                                           uint64_t bytes, uint64_t *moved)
{
    enum ebb_host_place to = ebb__host_place(state, target), from = ebb__host_place(state, source);
    *moved = 0;
    if (from == EBB_HOST_ARENA && to == EBB_HOST_STAGING)
        return to_staging(target, source, bytes, moved);
    if (from == EBB_HOST_STAGING && to == EBB_HOST_ARENA)
        return from_staging(target, source, bytes, moved);
    if (from == EBB_HOST_PAGE_STACK && to == EBB_HOST_ARENA && !ebb__host_is_fixed(target) &&
        !map_in_arena(target, bytes))
        return EBB_DEVICE_FAILED;
    if (from != EBB_HOST_PAGE_STACK)
        protect_release(state, source, bytes);
    *moved = bytes;
    return EBB_DEVICE_OK;
}

static bool protect_fill(void *state, uintptr_t address)
{
    (void)state;
    uintptr_t page = address & ~(uintptr_t)(EBB_PAGE_BYTES - 1);
    ebb__os_protect(page, EBB_PAGE_BYTES, PROT_READ | PROT_WRITE);
    return true; /* if it was accessible all along, this errs on the side of clearing it later */
}

static void protect_unshare(void *state, uintptr_t address, uint64_t bytes)
{
    (void)state; /* shared pages can be moved like any other */
    (void)address;
    (void)bytes;
}

static bool protect_is_full(void *state)
{
    (void)state;
    return ebb__runs_full_in_arena();
}

/* Blocks there never move, so one mapping stays accessible. */
static void protect_fix(void *state, uintptr_t address, uint64_t bytes)
{
    (void)state;
    if (ebb__os_protect(address, bytes, PROT_READ | PROT_WRITE) != 0)
        return;
    ebb__os_advise(address, bytes, MADV_HUGEPAGE);
    ebb__host.fixed = (struct ebb_device_range){address, bytes};
}

static const struct ebb_device_ops protect_ops = {
    .version = EBB_DEVICE_VERSION,
    .kind = EBB_DEVICE_PROTECT,
    .calls_need_pins = true,
    .faults_are_signals = true,
    .anew_is_cheaper = true,
    .move = protect_move,
    .fresh = protect_fresh,
    .release = protect_release,
    .fill = protect_fill,
    .unshare = protect_unshare,
    .renew = protect_renew,
    .fix = protect_fix,
    .close_holes = ebb__host_close_holes,
    .is_full = protect_is_full,
};

enum ebb_status ebb__host_protect_open(struct ebb_device *device, struct ebb_error *error)
{
    const struct ebb_device_layout *layout = &device->layout;
    bool again = device->ops == &protect_ops; /* in a child: the arena is unchanged */
    if (ebb__host_refused("protect"))
        return ebb__fail(error, EBB_ERR_UNSUPPORTED, "mprotect", "refused");
    if (!ebb__runs_open(layout))
        return ebb__fail(error, EBB_ERR_MEMORY, "address space", "%s", strerror(errno));
    if (!again) {
        /* Only a trial move shows whether the kernel can keep the mapping of the source. */
        uint64_t moved = 0;
        if (!map_in_arena(layout->arena.base, EBB_HUGE_BYTES) ||
            !ebb__os_remap_pieces(layout->staging.base, layout->arena.base, EBB_HUGE_BYTES, &moved))
            return ebb__fail(error, EBB_ERR_UNSUPPORTED, "mremap", "%s", strerror(errno));
        if (!ebb__os_map_anew(layout->arena.base, layout->arena.bytes, PROT_NONE))
            return ebb__fail(error, EBB_ERR_UNSUPPORTED, "mmap", "%s", strerror(errno));
    }
    if (!map_in_staging(layout->staging.base, layout->staging.bytes))
        return ebb__fail(error, EBB_ERR_UNSUPPORTED, "mmap", "%s", strerror(errno));
    ebb__host.uffd = -1;
    device->ops = &protect_ops;
    return EBB_OK;
}
