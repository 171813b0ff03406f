#include "runtime/internal.h"

/* Without the lock: the caller's own stack, say, is in a block that nobody can free or give away, and
 * `kept` goes from false to true once in a block's life. */
bool ebb__runtime_stays(const struct ebb_runtime *runtime, const void *pointer)
{
    uintptr_t address = (uintptr_t)pointer;
    if (ebb__placement_owns(&runtime->addresses, address))
        return true;
    const struct block *block = ebb__space_find(&runtime->addresses, address);
    return block && __atomic_load_n(&block->kept, __ATOMIC_ACQUIRE);
}
