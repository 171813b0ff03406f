/* The plan cache: profiles of programs as files `<program>-<key>.profile` of one folder. The key
 * identifies the program and its arguments. A run with new arguments may use the profile of other
 * ones, as a guess.
 *
 * A file is written atomically. A file that is damaged, of another owner, version or program is
 * ignored. If the files exceed the cap together, the least recently used are deleted. Nothing here
 * is needed: every failure means "no profile". The folder is the only shared state. Any number of
 * processes may use it at once. */
#ifndef EBB_PARENT_CACHE_H
#define EBB_PARENT_CACHE_H

#include "parent/profile.h"

#include <stdbool.h>

/* The key of the program that process `process_id` runs. It is a hash of its executable, arguments,
 * working directory, `threshold_bytes`, and Ebb's version. In key->program it has fewer
 * arguments: up to the first that names a file, or follows -c or -m. Without such an argument it
 * has the name of the program only. Returns false if /proc does not tell. */
bool ebb__cache_key(int process_id, uint64_t threshold_bytes, struct ebb_profile_key *key);

/* Loads the profile under `key` in `directory`, and marks it as used. EBB_ERR_IO if there is none.
 * Other errors as of ebb__profile_decode(). On failure *profile is empty. */
EBB_NODISCARD enum ebb_status ebb__cache_load(const char *directory, struct ebb_profile_key key,
                                              struct ebb_profile *profile, struct ebb_error *error);
/* Loads the newest profile of the same program with other arguments. As above otherwise. */
EBB_NODISCARD enum ebb_status ebb__cache_load_other(const char *directory,
                                                    struct ebb_profile_key key,
                                                    struct ebb_profile *profile,
                                                    struct ebb_error *error);
/* Writes it, and creates the folder and its parent if they do not exist. Then deletes files down to
 * `most_bytes`. On EBB_ERR_IO or EBB_ERR_MEMORY the file is unchanged. */
EBB_NODISCARD enum ebb_status ebb__cache_store(const char *directory, struct ebb_profile_key key,
                                               const struct ebb_profile *profile,
                                               uint64_t most_bytes, struct ebb_error *error);
/* Deletes the profile under `key`. */
void ebb__cache_remove(const char *directory, struct ebb_profile_key key);

#endif
