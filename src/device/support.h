/* What this system supports, and what each host device is called: for summaries and diagnosis. */
#ifndef EBB_DEVICE_SUPPORT_H
#define EBB_DEVICE_SUPPORT_H

#include "device/device.h"
#include "device/kernel.h"
#include "device/uffd.h"

/* "uffd-move", "uffd-move-user", "uffd-remap", "uffd-remap-user", "protect", "fake"; "none". */
const char *ebb__device_name(enum ebb_device_kind kind);

struct ebb_host_support {
    enum ebb_device_kind kind; /* what a program started now would get */
    bool has_uffd;             /* userfaultfd in any form */
    enum ebb_uffd_door door;   /* how it was opened */
    bool kernel_faults;        /* system calls wait for absent pages */
    bool has_move;             /* UFFDIO_MOVE, and it may be used */
    bool has_write_protect;
    bool has_protect; /* the device without userfaultfd */
    int uffd_errno;   /* why not, where it has not */
    unsigned filters; /* seccomp filters in force */
    unsigned deaths;  /* ways to a device for which they kill */
    /* What may be wrong with UFFDIO_MOVE in this kernel; NULL: nothing is known. */
    const struct ebb_move_fault *move_fault;
    bool may_swap;
    bool move_is_avoided; /* for that fault: it can strike here */
};

/* Looks without leaving anything behind, and refuses what must not be used: no device is opened with
 * it in this process from here on. Heeds EBB_REFUSE (device/uffd.h) and EBB_TRUST_MOVE
 * (device/kernel.h). Not thread-safe. */
void ebb__host_support_look(struct ebb_host_support *support);
/* False where the program has put itself under another seccomp filter since then. Such a filter may
 * kill for anything that the program does not do by itself. */
bool ebb__host_support_holds(void);

#endif
