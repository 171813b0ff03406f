#include "trace/waits.h"

#include "base/clock.h"

struct ebb_wait *ebb__wait_begin(struct ebb_wait *waits, size_t count, enum ebb_wait_kind kind,
                                 uint64_t subject, uint64_t serial, uint64_t bytes)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t nobody = 0;
        if (atomic_load_explicit(&waits[i].since_ns, memory_order_relaxed) ||
            !atomic_compare_exchange_strong(&waits[i].since_ns, &nobody, UINT64_MAX))
            continue;
        atomic_store_explicit(&waits[i].kind, (uint32_t)kind, memory_order_relaxed);
        atomic_store_explicit(&waits[i].subject, subject, memory_order_relaxed);
        atomic_store_explicit(&waits[i].serial, serial, memory_order_relaxed);
        atomic_store_explicit(&waits[i].bytes, bytes, memory_order_relaxed);
        atomic_store_explicit(&waits[i].since_ns, ebb__now_ns(), memory_order_release);
        return &waits[i];
    }
    return NULL;
}

void ebb__wait_end(struct ebb_wait *wait)
{
    if (wait)
        atomic_store_explicit(&wait->since_ns, 0, memory_order_release);
}
