/* The process begins to use a device: the library for devices, if that is preloaded as well, calls
 * this library by the names below. The budget is the device's from then on. */
#include "guard.h"
#include "process.h"

#include <errno.h>
#include <sched.h>

/* The socket to the parent of the run, on which this process has said hello; -1: none. */
__attribute__((visibility("default"))) int ebb_malloc_channel(void);
/* Steps back: all blocks of this process come back, and are not managed any more. New ones come
 * from the next allocator. Returns when that is done. Thread-safe; further calls do nothing. */
__attribute__((visibility("default"))) void ebb_malloc_retire(void);

int ebb_malloc_channel(void)
{
    return ebb__shim.channel;
}

/* No runtime starts from now on. If one starts in another thread, waits for it. */
static void retire_start(void)
{
    for (;;) {
        enum start_state state = atomic_load(&ebb__shim.state);
        if (state == START_UNDER_WAY)
            sched_yield();
        else if (atomic_compare_exchange_strong(&ebb__shim.state, &state, START_RETIRED))
            return;
    }
}

void ebb_malloc_retire(void)
{
    int saved = errno;
    if (!ebb__guard_is_entered()) {
        retire_start(); /* also before this library's own constructor: join.c tells it then */
        atomic_store_explicit(&ebb__shim.serving_slabs, NULL, memory_order_release);
        struct ebb_runtime *runtime = ebb__shim_runtime_now();
        bool all_back = true;
        if (runtime) {
            struct ebb_guard guard;
            ebb__guard_enter(&guard);
            all_back = ebb__runtime_retire(runtime);
            ebb__guard_leave(&guard);
        }
        if (ebb__shim.ring)
            atomic_store(&ebb__shim.ring->counters.retired, 1);
        if (all_back) {
            ebb__shim_pin_buffers(false);
            ebb__shim_allow_async();
        }
    }
    errno = saved;
}
