#include "engine/internal.h"

/* Without the lock: the caller's own stack, say, is in a block that nobody can free or give away, and
 * `kept` goes from false to true once in a block's life. */
bool ebb__engine_stays(const struct ebb_engine *engine, const void *pointer)
{
    uintptr_t address = (uintptr_t)pointer;
    if (ebb__placed_owns(engine, address))
        return true;
    /* Only looks: what it returns is not changed. */
    const struct block *block = ebb__space_find((struct ebb_engine *)(uintptr_t)engine, address);
    return block && __atomic_load_n(&block->kept, __ATOMIC_ACQUIRE);
}
