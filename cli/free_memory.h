/* Host memory that a run may take: what the machine and the memory cgroups of this process have. */
#ifndef EBB_CLI_FREE_MEMORY_H
#define EBB_CLI_FREE_MEMORY_H

#include <stdint.h>

/* Free bytes of the memory cgroup of this process, or of one that it lies in, whichever has least.
 * Files that the kernel can drop count as free. UINT64_MAX: no limit is known. `of` lists the
 * groups as /proc/self/cgroup does, `root` has them as /sys/fs/cgroup does. Source: the kernel's
 * documents of cgroup v1 (memory) and v2. */
uint64_t ebb__cgroup_free_bytes(const char *of, const char *root);

/* The same of this process. */
uint64_t ebb__own_cgroup_free_bytes(void);

/* The default budget of a run: 90 % of what the memory cgroup or the machine has free. At least
 * 1 MiB. UINT64_MAX: not known. */
uint64_t ebb__free_memory_budget(void);

#endif
