/* Pins: the blocks in a call's buffers are fetched and pinned until the call returns. This concerns
 * devices whose system calls cannot wait for an absent page (calls_need_pins). Blocks that the
 * kernel may read without a time limit stay resident until they are freed. */
#include "calls.h"
#include "guard.h"

#include <errno.h>
#include <stdatomic.h>

static _Atomic bool pinning;

/* Returns the runtime if `buffer` is in a block, or NULL if nothing needs to be pinned. Under a
 * guard and around a fork the runtime may be locked. The calls are then the shim's own, whose
 * buffers are on a stack, which is resident. */
static inline struct ebb_runtime *runtime_of(const void *buffer)
{
    struct ebb_runtime *runtime = ebb__shim_runtime_now();
    bool is_theirs = runtime && ebb__runtime_owns(runtime, buffer) && !ebb__guard_is_entered();
    return is_theirs ? runtime : NULL;
}

static inline struct ebb_runtime *runtime_for(const void *buffer)
{
    return atomic_load_explicit(&pinning, memory_order_relaxed) ? runtime_of(buffer) : NULL;
}

static void pin(struct ebb_runtime *runtime, const void *buffer, size_t bytes)
{
    struct ebb_guard guard;
    ebb__guard_enter(&guard);
    ebb__runtime_pin(runtime, buffer, bytes);
    ebb__guard_leave(&guard);
}

static void unpin(struct ebb_runtime *runtime, const void *buffer, size_t bytes)
{
    struct ebb_guard guard;
    ebb__guard_enter(&guard);
    ebb__runtime_unpin(runtime, buffer, bytes);
    ebb__guard_leave(&guard);
}

bool ebb__calls_have_blocks(const struct ebb_buffers *buffers)
{
    if (!atomic_load_explicit(&pinning, memory_order_relaxed) || !buffers->vector)
        return false;
    for (size_t i = 0; i < buffers->count; i++)
        if (runtime_for(buffers->vector[i].iov_base))
            return true;
    return false;
}

void ebb__calls_pin(const struct ebb_buffers *buffers)
{
    for (size_t i = 0; i < buffers->count; i++) {
        struct ebb_runtime *runtime = runtime_for(buffers->vector[i].iov_base);
        if (runtime)
            pin(runtime, buffers->vector[i].iov_base, buffers->vector[i].iov_len);
    }
}

void ebb__calls_unpin(void *argument)
{
    const struct ebb_buffers *buffers = argument;
    for (size_t i = 0; i < buffers->count; i++) {
        struct ebb_runtime *runtime = runtime_for(buffers->vector[i].iov_base);
        if (runtime)
            unpin(runtime, buffers->vector[i].iov_base, buffers->vector[i].iov_len);
    }
}

bool ebb__shim_may_wait_in(const void *address)
{
    return runtime_for(address) != NULL;
}

static void keep(struct ebb_runtime *runtime, const void *address, size_t bytes)
{
    if (!runtime)
        return;
    int saved = errno;
    struct ebb_guard guard;
    ebb__guard_enter(&guard);
    ebb__runtime_keep(runtime, address, bytes);
    ebb__guard_leave(&guard);
    errno = saved;
}

void ebb__shim_wait_in(const void *address, size_t bytes)
{
    keep(runtime_for(address), address, bytes);
}

void ebb__shim_keep_for_kernel(const void *address, size_t bytes)
{
    keep(runtime_of(address), address, bytes);
}

void ebb__shim_pin_buffers(bool on)
{
    atomic_store(&pinning, on);
}

bool ebb__shim_is_buffer_of_libc(const void *caller)
{
    return atomic_load_explicit(&pinning, memory_order_relaxed) && ebb__shim_is_in_libc(caller);
}
