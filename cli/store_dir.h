/* Default directories of stores and plan caches. */
#ifndef EBB_CLI_STORE_DIR_H
#define EBB_CLI_STORE_DIR_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Finds the directory of the store: `given`, or the default if that is NULL. The default is the
 * first of $TMPDIR, /var/tmp, the current directory and $HOME that is on a disk, not in memory.
 * Writes its absolute path to `path`. EBB_ERR_IO if Ebb cannot create a file there. */
EBB_NODISCARD enum ebb_status ebb__store_dir_find(const char *given, char *path, size_t bytes,
                                                  struct ebb_error *error);

/* Finds all `count` places that the user gave, and writes them to `places`, one a line, for
 * ebb__store_open(). Directories are found as above. "memory" and "memory:NODE" are copied. If none
 * is given, uses the default above. Errors as above. */
EBB_NODISCARD enum ebb_status ebb__store_places_find(const char *const *given, size_t count,
                                                     char *places, size_t bytes,
                                                     struct ebb_error *error);

/* True if `path` lies in a file system that keeps its files in memory. */
bool ebb__directory_in_memory(const char *path);

/* The directory of plan caches, ${XDG_CACHE_HOME:-~/.cache}/ebb, even if it does not exist. Returns
 * false if neither variable is set. */
bool ebb__cache_dir_find(char *path, size_t bytes);

#endif
