/* Where absent blocks and plan caches go when nobody says. */
#ifndef EBB_CLI_STORE_DIR_H
#define EBB_CLI_STORE_DIR_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The directory given by the user, or (given == NULL) the first disk-backed one of $TMPDIR,
 * /var/tmp, the current directory and $HOME: never a file system in memory. Absolute, into `path`.
 * EBB_ERR_IO where it cannot hold a file of ours. */
EBB_NODISCARD enum ebb_status ebb__store_dir_find(const char *given, char *path, size_t bytes,
                                                  struct ebb_error *error);

/* All the places that the user gave, `count` of them, one a line into `places`, as ebb__store_open()
 * takes them: directories as above, and "memory" or "memory:NODE" as they are. None given: as above.
 * Errors as above. */
EBB_NODISCARD enum ebb_status ebb__store_places_find(const char *const *given, size_t count,
                                                     char *places, size_t bytes,
                                                     struct ebb_error *error);

/* Does `path` lie in a file system that keeps its files in memory? */
bool ebb__directory_in_memory(const char *path);

/* What the memory cgroup of this process leaves free; UINT64_MAX: no limit known. */
uint64_t ebb__cgroup_free_bytes(void);

/* Memory that a run may take when no budget is given: 90 % of what the memory cgroup or the
 * machine has free. */
uint64_t ebb__free_memory_budget(void);

/* Where plan caches go: ${XDG_CACHE_HOME:-~/.cache}/ebb, whether it is there or not. False where
 * neither is known. */
bool ebb__cache_dir_find(char *path, size_t bytes);

#endif
