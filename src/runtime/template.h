/* The template of a script: what it says of an iteration, for whoever follows it.
 *
 * Pure functions of a script, and the names of its persistent blocks in a process. The runtime
 * follows scripts in the host's memory, the engine in src/cuda/ in that of a device. */
#ifndef EBB_RUNTIME_TEMPLATE_H
#define EBB_RUNTIME_TEMPLATE_H

#include "runtime/script.h"

/* Are both scripts plans for the same iteration? O(clock events) */
bool ebb__template_same(const struct ebb_script *a, const struct ebb_script *b);
/* The index into the allocs of `script` of the first one of at least `size_bytes`. O(log allocs),
 * like the next. */
uint32_t ebb__template_first_alloc(const struct ebb_script *script, uint64_t size_bytes);
/* Clock positions from `position` until the next allocation of `size_bytes`. UINT32_MAX: never. */
uint32_t ebb__template_next_alloc(const struct ebb_script *script, uint32_t position,
                                  uint64_t size_bytes);
/* The position before which the static placement of `script` holds the fewest bytes. O(clock
 * events) */
uint32_t ebb__template_least_placed(const struct ebb_script *script);

/* What the persistent blocks of a script are called in a process. The owner provides the memory:
 * persistent_count of each. */
struct ebb_names {
    uint64_t *serials;   /* of each of them */
    uint32_t *by_serial; /* their indices, ordered by that */
};

/* The names as the script has them. */
void ebb__names_prepare(struct ebb_names *names, const struct ebb_script *script);
void ebb__names_rename(struct ebb_names *names, const struct ebb_script *script,
                       const struct ebb_renaming *renamings, size_t count);
/* The script's persistent block that is this one in the process. EBB_SCRIPT_NONE: none. */
uint32_t ebb__names_persistent(const struct ebb_names *names, const struct ebb_script *script,
                               uint64_t serial, uint64_t size_bytes);

#endif
