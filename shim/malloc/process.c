/* The state of the shim in this process. */
#include "process.h"

#include "base/clock.h"

#include <sched.h>

#define MOST_HOLD_NS 200000000u /* a limit: a start takes a few ms */

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

static _Atomic unsigned forks_under_way;
static _Thread_local bool is_starting;

bool ebb__shim_begin_start(void)
{
    enum start_state expected = START_NOT_YET;
    if (!atomic_compare_exchange_strong(&ebb__shim.state, &expected, START_UNDER_WAY))
        return false;
    is_starting = atomic_load(&forks_under_way) == 0;
    if (!is_starting)
        atomic_store(&ebb__shim.state, START_NOT_YET); /* a later request starts it */
    return is_starting;
}

void ebb__shim_end_start(void)
{
    is_starting = false;
    atomic_store(&ebb__shim.state, START_OVER);
}

void ebb__shim_hold_start(void)
{
    uint64_t until_ns = ebb__now_ns() + MOST_HOLD_NS;
    atomic_fetch_add(&forks_under_way, 1);
    while (!is_starting && atomic_load(&ebb__shim.state) == START_UNDER_WAY &&
           ebb__now_ns() < until_ns)
        sched_yield();
}

void ebb__shim_let_start(bool is_child)
{
    if (is_child)
        atomic_store(&forks_under_way, 0); /* those of other threads are not here */
    else
        atomic_fetch_sub(&forks_under_way, 1);
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
