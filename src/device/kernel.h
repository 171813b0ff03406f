/* What is known of a kernel by its version: the faults of UFFDIO_MOVE, and whether they can strike.
 *
 * Three are known, and each can stop the whole machine, so no trial can look for them. One strikes
 * huge pages that are being pinned; the others strike pages that were swapped out. Distributions mend
 * kernels without changing the number, so the number only ever proves that a kernel is sound. A kernel
 * that looks faulty is not trusted with UFFDIO_MOVE while its fault can strike; pages are then moved by
 * mremap(). EBB_TRUST_MOVE=1 in the environment says that this kernel was mended. */
#ifndef EBB_DEVICE_KERNEL_H
#define EBB_DEVICE_KERNEL_H

#include <stdbool.h>

struct ebb_kernel {
    unsigned major, minor, patch; /* of the release by kernel.org that it was made from */
};

/* From what the system says of itself: `release` and `build` by uname(), `signature` the line of
 * /proc/version_signature ("" where there is none). Ubuntu tells the upstream release in the last of
 * them, Debian of some kernels in the second. False: none of them tells. */
bool ebb__kernel_parse(const char *release, const char *build, const char *signature,
                       struct ebb_kernel *kernel);
/* Of the kernel that runs. */
bool ebb__kernel_look(struct ebb_kernel *kernel);

struct ebb_move_fault {
    const char *names;
    bool needs_swap; /* only pages that were swapped out are struck */
};

/* The worst fault of UFFDIO_MOVE that a kernel of this release may have; NULL: none. Where `kernel` is
 * NULL, or older than UFFDIO_MOVE (6.8), somebody has put it in, and may have done so early. */
const struct ebb_move_fault *ebb__kernel_move_fault(const struct ebb_kernel *kernel);
/* True where that fault can strike here, so that pages must be moved in another way. */
bool ebb__kernel_must_not_move(const struct ebb_move_fault *fault, bool may_swap, bool is_trusted);

/* True where pages of this process may be swapped out: the system has swap space, and no memory cgroup
 * above the process forbids its use. */
bool ebb__kernel_may_swap(void);
/* EBB_TRUST_MOVE is set, to anything but 0. */
bool ebb__kernel_is_trusted(void);

#endif
