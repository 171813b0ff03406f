/* Resource limits that the program has set for itself (ulimit), and how Ebb exceeds them for its
 * own needs. Its descriptors have numbers that the program does not get. Its shared memory counts
 * as a file for the system. */
#ifndef EBB_BASE_LIMITS_H
#define EBB_BASE_LIMITS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

/* Raises the limit of `resource` temporarily to at least `least`, as far as the system permits.
 * Returns true if the limit is then high enough. The caller must call ebb__limit_restore() in any
 * case. */
bool ebb__limit_raise(int resource, uint64_t least, struct rlimit *before);
void ebb__limit_restore(int resource, const struct rlimit *before);

/* Sets the size of shared memory to `bytes`. The user's file size limit is lifted meanwhile, to
 * avoid SIGXFSZ. */
bool ebb__memory_file_size(int descriptor, uint64_t bytes);

/* Gives `descriptor` a high number, above all that the program can get if possible. Closes the low
 * number, which the program expects to get next. Close-on-exec. Returns the resulting
 * descriptor. */
int ebb__descriptor_high(int descriptor);

/* True if the file size limit of this process permits a file of `bytes`. An attempt beyond it would
 * raise SIGXFSZ. */
bool ebb__file_may_have(uint64_t bytes);

#endif
