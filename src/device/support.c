#include "device/support.h"

#include "device/trial.h"
#include "device/uffd.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

const char *ebb__device_name(enum ebb_device_kind kind)
{
    switch (kind) {
    case EBB_DEVICE_UFFD_MOVE:
        return "uffd-move";
    case EBB_DEVICE_UFFD_MOVE_USER:
        return "uffd-move-user";
    case EBB_DEVICE_UFFD_REMAP:
        return "uffd-remap";
    case EBB_DEVICE_UFFD_REMAP_USER:
        return "uffd-remap-user";
    case EBB_DEVICE_PROTECT:
        return "protect";
    case EBB_DEVICE_CUDA:
        return "cuda";
    case EBB_DEVICE_FAKE:
        return "fake";
    case EBB_DEVICE_NONE:
        break;
    }
    return "none";
}

/* True if mremap() can move pages and keep the mapping: Linux 5.7. */
static bool can_leave_mappings(void)
{
    if (ebb__host_refused("remap") && ebb__host_refused("protect"))
        return false; /* a seccomp filter may kill for it */
    char *memory = mmap(NULL, 2 * EBB_PAGE_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    bool good = mremap(memory, EBB_PAGE_BYTES, EBB_PAGE_BYTES,
                       MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
                       memory + EBB_PAGE_BYTES) != MAP_FAILED;
    munmap(memory, 2 * EBB_PAGE_BYTES);
    return good;
}

static unsigned filters_seen;

static void refuse_what_harms(struct ebb_host_support *support)
{
    struct ebb_kernel kernel;
    filters_seen = support->filters = ebb__trial_filters();
    support->move_fault = ebb__kernel_move_fault(ebb__kernel_look(&kernel) ? &kernel : NULL);
    support->may_swap = ebb__kernel_may_swap();
    support->move_is_avoided =
        ebb__kernel_must_not_move(support->move_fault, support->may_swap, ebb__kernel_is_trusted());
    if (support->move_is_avoided)
        ebb__host_refuse("move"); /* before the trial, which would move a page */
    if (support->filters)
        support->deaths = ebb__trial_run().deaths;
}

bool ebb__host_support_holds(void)
{
    return ebb__trial_filters() == filters_seen;
}

void ebb__host_support_look(struct ebb_host_support *support)
{
    *support = (struct ebb_host_support){.kind = EBB_DEVICE_NONE};
    refuse_what_harms(support);
    uint64_t features = 0;
    int uffd = ebb__uffd_open(UFFD_FEATURE_MOVE | UFFD_FEATURE_PAGEFAULT_FLAG_WP, &features,
                              &support->kernel_faults);
    support->has_uffd = uffd >= 0;
    support->uffd_errno = uffd >= 0 ? 0 : errno;
    support->door = ebb__uffd_door();
    if (uffd >= 0)
        close(uffd);
    ebb__uffd_close_node();
    support->has_move = features & UFFD_FEATURE_MOVE;
    support->has_write_protect = features & UFFD_FEATURE_PAGEFAULT_FLAG_WP;
    bool can_leave = can_leave_mappings();
    bool can_remap = can_leave && !ebb__host_refused("remap");
    support->has_protect = can_leave && !ebb__host_refused("protect");
    if (support->has_move)
        support->kind = support->kernel_faults ? EBB_DEVICE_UFFD_MOVE : EBB_DEVICE_UFFD_MOVE_USER;
    else if (support->has_uffd && can_remap)
        support->kind = support->kernel_faults ? EBB_DEVICE_UFFD_REMAP : EBB_DEVICE_UFFD_REMAP_USER;
    else if (support->has_protect)
        support->kind = EBB_DEVICE_PROTECT;
}
