/* Defects of UFFDIO_MOVE by kernel version, and whether they can occur on this system.
 *
 * Three defects are known. Each can stop the whole machine, so no trial can look for them. One
 * affects huge pages that are being pinned; the others affect pages that were swapped out.
 * Distributions fix kernels without a change of the version, so a version can only prove that a
 * kernel is sound. If a kernel may have a defect that can occur here, UFFDIO_MOVE is not used.
 * mremap() then moves the pages. EBB_TRUST_MOVE=1 in the environment says that this kernel was
 * fixed. */
#ifndef EBB_DEVICE_KERNEL_H
#define EBB_DEVICE_KERNEL_H

#include <stdbool.h>

struct ebb_kernel {
    unsigned major, minor, patch; /* the kernel.org release that it is based on */
};

/* Parses what the system says of itself: `release` and `build` from uname(), `signature` from
 * /proc/version_signature ("" if absent). Ubuntu has the upstream release in `signature`, Debian in
 * `build` for some kernels. Returns false if none has it. */
bool ebb__kernel_parse(const char *release, const char *build, const char *signature,
                       struct ebb_kernel *kernel);
/* The same for the running kernel. */
bool ebb__kernel_look(struct ebb_kernel *kernel);

struct ebb_move_fault {
    const char *names;
    bool needs_swap; /* only pages that were swapped out are affected */
};

/* The worst defect of UFFDIO_MOVE that a kernel of this release may have, or NULL if none. If
 * `kernel` is NULL or older than 6.8, UFFDIO_MOVE was backported, perhaps in an early version. */
const struct ebb_move_fault *ebb__kernel_move_fault(const struct ebb_kernel *kernel);
/* True if that defect can occur here, so that pages must be moved in another way. */
bool ebb__kernel_must_not_move(const struct ebb_move_fault *fault, bool may_swap, bool is_trusted);

/* True if pages of this process may be swapped out: the system has swap space, and no memory cgroup
 * above the process forbids its use. */
bool ebb__kernel_may_swap(void);
/* True if EBB_TRUST_MOVE is set to anything but 0. */
bool ebb__kernel_is_trusted(void);

#endif
