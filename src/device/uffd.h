/* userfaultfd, as the host devices use it: opened in the most capable way that is permitted, its
 * features looked at, ranges registered, faults read.
 *
 * There are three doors. /dev/userfaultfd (Linux 6.1) needs permission for that file and nothing else:
 * no capability, no sysctl, and no system call that containers refuse. The system call needs
 * CAP_SYS_PTRACE or vm.unprivileged_userfaultfd=1. Both give faults of system calls, too. The same
 * call with UFFD_USER_MODE_ONLY needs nothing, and gives faults of the program's own code only.
 *
 * EBB_REFUSE in the environment takes features away, so that older or stricter systems can be tried
 * on this one: a list of `node` (/dev/userfaultfd), `call` (the system call), `kernel` (faults of
 * system calls, so both of these), `move` (UFFDIO_MOVE), `uffd` (all of it), `remap` (the device
 * without UFFDIO_MOVE), `protect` (the device without userfaultfd), separated by commas. What the system itself would answer with death, or does
 * wrong, is refused in the same way (support.c). */
#ifndef EBB_DEVICE_UFFD_H
#define EBB_DEVICE_UFFD_H

#include "device/device.h"

#include <linux/userfaultfd.h>

/* Debian 12's headers do not know MOVE: its numbers are defined here, the kernel is asked. */
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

/* True where EBB_REFUSE names `feature`, or it was refused by ebb__host_refuse(). */
bool ebb__host_refused(const char *feature);
/* Never use `feature` in this process, nor in its forks. Not thread-safe. */
void ebb__host_refuse(const char *feature);

enum ebb_uffd_door {
    EBB_UFFD_CLOSED,
    EBB_UFFD_NODE, /* /dev/userfaultfd */
    EBB_UFFD_CALL,
    EBB_UFFD_USER_CALL, /* with UFFD_USER_MODE_ONLY */
};

/* Through that door only; -1 and errno: it is closed. */
int ebb__uffd_enter(enum ebb_uffd_door door);
/* Through which door the last ebb__uffd_open() has come. */
enum ebb_uffd_door ebb__uffd_door(void);
/* /dev/userfaultfd stays open once it was used: a process that gives its rights away, or changes its
 * root, forks all the same, and its child needs a userfaultfd. -1: it was not. */
int ebb__uffd_node(void);
void ebb__uffd_close_node(void);

/* A descriptor with a high number, out of the way of programs that count them, and its API agreed
 * upon with the features that are wanted and there. *kernel_faults: system calls that meet an absent
 * page wait too. -1 and errno: none is to be had. */
int ebb__uffd_open(uint64_t wanted, uint64_t *features, bool *kernel_faults);
/* mode: UFFDIO_REGISTER_MODE_*. False and errno where the kernel refuses. */
bool ebb__uffd_register(int uffd, struct ebb_device_range range, uint64_t mode);
/* The same where the program may have put mappings into the range that cannot be registered, or none:
 * those are left out. False and errno where nothing could be registered. */
bool ebb__uffd_register_all(int uffd, struct ebb_device_range range, uint64_t mode);
/* From here on the kernel serves the range by itself; wakes whoever waits. */
bool ebb__uffd_unregister(int uffd, struct ebb_device_range range);
/* A plain, empty, registered mapping, whatever the program has put there. False: none was to be had. */
bool ebb__uffd_renew(int uffd, uintptr_t address, uint64_t bytes);
/* Copy whole pages from `source` to where nothing is, whatever mappings are there; pages that are there
 * already and pages of the program's own mappings are left as they are. *copied: how far it came. */
bool ebb__uffd_copy(int uffd, uintptr_t target, uintptr_t source, uint64_t bytes, uint64_t *copied);
/* Zero pages where nothing is. */
bool ebb__uffd_zeros(int uffd, uintptr_t target, uint64_t bytes);
void ebb__uffd_wake(int uffd, uintptr_t address, uint64_t bytes);
/* Up to `most` faults, without blocking. */
size_t ebb__uffd_faults(int uffd, struct ebb_fault *faults, size_t most);
/* A zero page at `address` unless one is there; wakes whoever waits. True: it was put there. */
bool ebb__uffd_fill(int uffd, uintptr_t address);

#endif
