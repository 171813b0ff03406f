/* userfaultfd for the host devices: opens it in the most capable way permitted, queries features,
 * registers ranges, reads faults.
 *
 * There are three ways to open it. The file /dev/userfaultfd (Linux 6.1) needs only its own
 * permission: no capability, no sysctl, and no system call that containers refuse. The system call
 * needs CAP_SYS_PTRACE or vm.unprivileged_userfaultfd=1. Both also report faults of system calls.
 * The same call with UFFD_USER_MODE_ONLY needs nothing, and reports only faults of the program's
 * own code.
 *
 * EBB_REFUSE in the environment disables features, so that this system can stand for older or
 * stricter ones. It is a list of names, separated by commas:
 *   node     /dev/userfaultfd
 *   call     the system call
 *   kernel   faults of system calls, so both of these
 *   move     UFFDIO_MOVE
 *   uffd     userfaultfd as a whole
 *   remap    the device without UFFDIO_MOVE
 *   protect  the device without userfaultfd
 *
 * If a feature would kill the process or works wrongly, it is refused in the same way
 * (support.c). */
#ifndef EBB_DEVICE_UFFD_H
#define EBB_DEVICE_UFFD_H

#include "device/device.h"

#include <linux/userfaultfd.h>

/* Debian 12's headers lack MOVE, so its numbers are defined here. The kernel is asked whether it
 * has it. */
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

/* True if EBB_REFUSE names `feature`, or ebb__host_refuse() has refused it. */
bool ebb__host_refused(const char *feature);
/* Forbids `feature` in this process and its forks. Not thread-safe. */
void ebb__host_refuse(const char *feature);

/* From this call on, the environment is not read any more. Its strings may lie in memory that the
 * runtime manages, which the child of a fork must not touch at first. Not thread-safe. */
void ebb__host_settle_refusals(void);

enum ebb_uffd_door {
    EBB_UFFD_CLOSED,
    EBB_UFFD_NODE, /* /dev/userfaultfd */
    EBB_UFFD_CALL,
    EBB_UFFD_USER_CALL, /* with UFFD_USER_MODE_ONLY */
};

/* Opens userfaultfd in that way only. Returns -1 and sets errno on failure. */
int ebb__uffd_enter(enum ebb_uffd_door door);
/* The way in which the last ebb__uffd_open() succeeded. */
enum ebb_uffd_door ebb__uffd_door(void);
/* The descriptor of /dev/userfaultfd, which stays open after its first use. A process may drop its
 * rights or change its root and then fork. Its child needs a userfaultfd. -1: it was not used. */
int ebb__uffd_node(void);
void ebb__uffd_close_node(void);

/* Returns a userfaultfd descriptor with a high number, so that programs that count descriptors do
 * not meet it. Its API is agreed upon with those wanted features that exist. *kernel_faults: system
 * calls wait for absent pages, too. Returns -1 and sets errno on failure. */
int ebb__uffd_open(uint64_t wanted, uint64_t *features, bool *kernel_faults);
/* mode: UFFDIO_REGISTER_MODE_*. Returns false and sets errno if the kernel refuses. */
bool ebb__uffd_register(int uffd, struct ebb_device_range range, uint64_t mode);
/* The same for a range with unmapped parts, or with program mappings that cannot be registered.
 * Skips those. Returns false and sets errno if nothing could be registered. */
bool ebb__uffd_register_all(int uffd, struct ebb_device_range range, uint64_t mode);
/* The kernel serves faults in the range after this call. Wakes all threads that wait. */
bool ebb__uffd_unregister(int uffd, struct ebb_device_range range);
/* Maps a plain, empty, registered mapping over what the program has mapped there. Returns false on
 * failure. */
bool ebb__uffd_renew(int uffd, uintptr_t address, uint64_t bytes);
/* Copies whole pages from `source` to absent pages, across all mappings there. Keeps present pages
 * and pages of the program's own mappings. *copied: bytes processed. */
bool ebb__uffd_copy(int uffd, uintptr_t target, uintptr_t source, uint64_t bytes, uint64_t *copied);
/* Maps zero pages where none are mapped. */
bool ebb__uffd_zeros(int uffd, uintptr_t target, uint64_t bytes);
void ebb__uffd_wake(int uffd, uintptr_t address, uint64_t bytes);
/* Reads up to `most` faults without blocking. Returns how many. */
size_t ebb__uffd_faults(int uffd, struct ebb_fault *faults, size_t most);
/* Maps a zero page at `address` if none is mapped. Wakes all threads that wait for it. Returns true
 * if this call mapped it. */
bool ebb__uffd_fill(int uffd, uintptr_t address);

#endif
