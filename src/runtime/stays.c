#include "runtime/internal.h"

/* No lock is needed. The block cannot be freed meanwhile: it holds the caller's own stack, for
 * example. `kept` changes only once in a block's life, from false to true. */
bool ebb__runtime_stays(const struct ebb_runtime *runtime, const void *pointer)
{
    uintptr_t address = (uintptr_t)pointer;
    if (ebb__placement_owns(&runtime->addresses, address))
        return true;
    const struct block *block = ebb__space_find(&runtime->addresses, address);
    return block && __atomic_load_n(&block->kept, __ATOMIC_ACQUIRE);
}
