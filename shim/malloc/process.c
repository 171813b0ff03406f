/* The state of the shim in this process. */
#include "process.h"

size_t ebb__shim_threshold = SIZE_MAX;

struct ebb_shim ebb__shim = {.channel = -1, .budget.life_line = -1, .store.life_line = -1};

struct ebb_runtime *ebb__shim_runtime_now(void)
{
    return atomic_load_explicit(&ebb__shim.runtime, memory_order_acquire);
}

struct ebb_slabs *ebb__shim_slabs(void)
{
    return atomic_load_explicit(&ebb__shim.slabs, memory_order_acquire);
}

struct ebb_slabs *ebb__shim_serving_slabs(void)
{
    return atomic_load_explicit(&ebb__shim.serving_slabs, memory_order_acquire);
}

void ebb__shim_tell(void *context, const char *message)
{
    (void)context;
    ebb__join_warn(ebb__shim.channel, message);
}

void ebb__shim_warn(const char *message)
{
    ebb__shim_tell(NULL, message);
}
