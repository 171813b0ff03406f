#include "device/support.h"

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
    case EBB_DEVICE_FAKE:
        return "fake";
    case EBB_DEVICE_NONE:
        break;
    }
    return "none";
}

/* A mapping whose pages move away while it stays: Linux 5.7. */
static bool can_leave_mappings(void)
{
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

void ebb__host_support_look(struct ebb_host_support *support)
{
    *support = (struct ebb_host_support){.kind = EBB_DEVICE_NONE};
    uint64_t features = 0;
    int uffd = ebb__uffd_open(UFFD_FEATURE_MOVE | UFFD_FEATURE_PAGEFAULT_FLAG_WP, &features,
                              &support->kernel_faults);
    support->has_uffd = uffd >= 0;
    if (uffd >= 0)
        close(uffd);
    else
        support->uffd_errno = errno;
    support->has_move = features & UFFD_FEATURE_MOVE;
    support->has_write_protect = features & UFFD_FEATURE_PAGEFAULT_FLAG_WP;
    bool can_remap = can_leave_mappings();
    support->has_protect = can_remap && !ebb__host_refused("protect");
    if (support->has_move)
        support->kind = support->kernel_faults ? EBB_DEVICE_UFFD_MOVE : EBB_DEVICE_UFFD_MOVE_USER;
    else if (support->has_uffd && can_remap)
        support->kind = support->kernel_faults ? EBB_DEVICE_UFFD_REMAP : EBB_DEVICE_UFFD_REMAP_USER;
    else if (support->has_protect)
        support->kind = EBB_DEVICE_PROTECT;
}
