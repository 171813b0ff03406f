/* What all parts of the runtime share: memory from the system, events, messages. */
#include "runtime/internal.h"

#include <errno.h>
#include <sys/mman.h>
#include <time.h>

void *ebb__core_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void ebb__core_unmap(void *memory, size_t bytes)
{
    if (memory) /* at address 0 there may be something of the program's */
        munmap(memory, bytes ? bytes : 1);
}

void ebb__core_event(struct ebb_runtime *runtime, const struct ebb_event *event)
{
    struct ebb_event stamped = *event;
    stamped.time_ns = ebb__now_ns() - runtime->core.ring->origin_ns;
    ebb__ring_write(runtime->core.ring, &stamped);
}

void ebb__core_warn(struct ebb_runtime *runtime, const char *message)
{
    if (runtime->core.config.warn)
        runtime->core.config.warn(runtime->core.config.context, message);
}

void ebb__core_mark(struct ebb_runtime *runtime, enum ebb_mark mark, uint64_t value)
{
    ebb__core_event(
        runtime,
        &(struct ebb_event){.size_bytes = value, .kind = EBB_EVENT_MARK, .mark = (uint8_t)mark});
}

bool ebb__core_wait_until(struct ebb_runtime *runtime, pthread_cond_t *condition, uint64_t ns)
{
    struct timespec until = {.tv_sec = (time_t)(ns / 1000000000),
                             .tv_nsec = (long)(ns % 1000000000)};
    return pthread_cond_clockwait(condition, &runtime->core.lock, CLOCK_MONOTONIC, &until) !=
           ETIMEDOUT;
}
