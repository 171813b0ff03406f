/* What this system supports, and what each host device is called: for summaries and diagnosis. */
#ifndef EBB_DEVICE_SUPPORT_H
#define EBB_DEVICE_SUPPORT_H

#include "device/device.h"

/* "uffd-move", "uffd-move-user", "uffd-remap", "uffd-remap-user", "protect", "fake"; "none". */
const char *ebb__device_name(enum ebb_device_kind kind);

struct ebb_host_support {
    enum ebb_device_kind kind; /* what a program started now would get */
    bool has_uffd;             /* userfaultfd in any form */
    bool kernel_faults;        /* system calls wait for absent pages */
    bool has_move;             /* UFFDIO_MOVE */
    bool has_write_protect;
    bool has_protect; /* the device without userfaultfd */
    int uffd_errno;   /* why not, where it has not */
};

/* Looks without leaving anything behind; heeds EBB_REFUSE (device/uffd.h). */
void ebb__host_support_look(struct ebb_host_support *support);

#endif
