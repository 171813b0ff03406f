/* The first call of a function that is only forwarded. */
#include "door.h"

/* Called by trampolines.S. The function is called from then on without a look-up. */
void *ebb__door_look_up(size_t index) __attribute__((visibility("hidden")));
void *ebb__door_look_up(size_t index)
{
    if (ebb__door_enter()) /* this may be the program's first call */
        ebb__door_leave();
    void *function = ebb__real_or_refusal(ebb__door_names[index]);
    if (atomic_load(&ebb__door_state) != DOOR_SHUT)
        atomic_store_explicit(&ebb__door_slots[index], function, memory_order_release);
    return function;
}
