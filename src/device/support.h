/* What this system supports, and the names of the host devices, for summaries and diagnosis. */
#ifndef EBB_DEVICE_SUPPORT_H
#define EBB_DEVICE_SUPPORT_H

#include "device/device.h"
#include "device/kernel.h"
#include "device/uffd.h"

/* "uffd-move", "uffd-move-user", "uffd-remap", "uffd-remap-user", "protect", "fake"; "none". */
const char *ebb__device_name(enum ebb_device_kind kind);

struct ebb_host_support {
    enum ebb_device_kind kind; /* that a program started at this moment would use */
    bool has_uffd;             /* userfaultfd in any form */
    enum ebb_uffd_door door;   /* how it was opened */
    bool kernel_faults;        /* system calls wait for absent pages */
    bool has_move;             /* UFFDIO_MOVE exists and may be used */
    bool has_write_protect;
    bool has_protect; /* the device without userfaultfd */
    int uffd_errno;   /* why there is no userfaultfd */
    unsigned filters; /* seccomp filters in force */
    unsigned deaths;  /* ways to a device for which the filters kill */
    /* A possible defect of UFFDIO_MOVE in this kernel; NULL: none is known. */
    const struct ebb_move_fault *move_fault;
    bool may_swap;
    bool move_is_avoided; /* because of that defect, which can occur here */
};

/* Looks at the system without leaving traces. Refuses what must not be used: no later device in
 * this process uses it. Obeys EBB_REFUSE (device/uffd.h) and EBB_TRUST_MOVE (device/kernel.h). Not
 * thread-safe. */
void ebb__host_support_look(struct ebb_host_support *support);
/* False if the program has installed another seccomp filter since then. Such a filter may kill the
 * process for any call that the program itself does not make. */
bool ebb__host_support_holds(void);

#endif
