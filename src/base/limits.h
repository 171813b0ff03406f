/* Limits that the program has set for itself (ulimit), and what Ebb needs beyond them: descriptors that are
 * out of the program's way, and shared memory, which the system counts as a file. */
#ifndef EBB_BASE_LIMITS_H
#define EBB_BASE_LIMITS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

/* Raise the limit of `resource` to at least `least` for a moment, as far as the system permits. True: it is
 * so high now. In any case followed by ebb__limit_restore(). */
bool ebb__limit_raise(int resource, uint64_t least, struct rlimit *before);
void ebb__limit_restore(int resource, const struct rlimit *before);

/* Shared memory becomes `bytes` long. The user's limit is for files; to exceed it would be SIGXFSZ. */
bool ebb__memory_file_size(int descriptor, uint64_t bytes);

/* Give `descriptor` a high number, behind all that the program can get where that is possible, and close
 * the low one, which the program expects to get next. Close-on-exec. Returns what there is now. */
int ebb__descriptor_high(int descriptor);

/* May a file of this process have `bytes`? To try would be answered with SIGXFSZ. */
bool ebb__file_may_have(uint64_t bytes);

#endif
