/* The plan cache: profiles of programs in files of one folder, `<key>.profile`, found again by what
 * the program is. A file appears whole or not at all; what is damaged, of another owner, of another
 * version or of another program is as good as none. Where the files together exceed the cap, those
 * that were used longest ago go. Nothing here is needed: every failure means "no profile". No shared
 * state but the folder, which any number of processes may use at once. */
#ifndef EBB_PARENT_CACHE_H
#define EBB_PARENT_CACHE_H

#include "parent/profile.h"

#include <stdbool.h>

/* Key of the program that process `process_id` runs now: its executable, arguments and working
 * directory, `threshold_bytes` and Ebb's version. False where /proc does not tell. */
bool ebb__cache_key(int process_id, uint64_t threshold_bytes, struct ebb_profile_key *key);

/* The profile under `key` in `directory`, and mark it as used. EBB_ERR_IO where there is none; else
 * as of ebb__profile_decode(). On failure *profile is empty. */
EBB_NODISCARD enum ebb_status ebb__cache_load(const char *directory, struct ebb_profile_key key,
                                              struct ebb_profile *profile, struct ebb_error *error);
/* Write it, making the folder and its parent where they lack, then keep to `most_bytes`. EBB_ERR_IO,
 * EBB_ERR_MEMORY; the file is then as it was. */
EBB_NODISCARD enum ebb_status ebb__cache_store(const char *directory, struct ebb_profile_key key,
                                               const struct ebb_profile *profile,
                                               uint64_t most_bytes, struct ebb_error *error);
/* Forget what is under `key`. */
void ebb__cache_remove(const char *directory, struct ebb_profile_key key);

#endif
