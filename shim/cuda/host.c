/* The library for host memory (shim/malloc) in the same process, if it is preloaded as well.
 *
 * It manages the process's memory until the process begins to use a device. The budget is the
 * device's then, and no page may move under it. A process begins with its first context: before
 * that no device can access its memory. Engines ask once more, for contexts that come in a way that
 * is not hooked. So does the registration of memory, which needs no engine. */
#include "door.h"

/* Of shim/malloc/retire.c; NULL: it is not here. */
extern void ebb_malloc_retire(void) __attribute__((weak));

void ebb__door_use_device(void)
{
    if (ebb_malloc_retire)
        ebb_malloc_retire();
}
