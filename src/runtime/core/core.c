/* Shared by all parts of the runtime: memory from the system, events, messages. */
#include "runtime/core/core.h"

#include "base/tuning.h"

#include <errno.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static void init_sync(struct core *core)
{
    pthread_mutex_init(&core->lock, NULL);
    pthread_cond_init(&core->changed, NULL);
}

static uint64_t or_usual(uint64_t value, uint64_t usual)
{
    return value ? value : usual;
}

void ebb__core_init(struct core *core, const struct ebb_runtime_config *config,
                    const struct policy *policy, void *context)
{
    struct ebb_runtime_config *own = &core->config;
    *own = *config;
    own->part_from_bytes = or_usual(own->part_from_bytes, ebb__tuning()->part_from_bytes);
    own->pause_ns = or_usual(own->pause_ns, ebb__tuning()->pause_ns);
    own->slab_reclaim_ns = or_usual(own->slab_reclaim_ns, ebb__tuning()->slab_look_ns);
    own->store_pause_ns = or_usual(own->store_pause_ns, ebb__tuning()->store_pause_ns);
    own->exchange_share = (uint32_t)or_usual(own->exchange_share, ebb__tuning()->exchange_divisor);
    core->device = config->device;
    core->policy = policy;
    core->policy_context = context;
    core->ledger = config->ledger;
    core->slot = config->slot ? config->slot : config->ledger->slots;
    core->ring = config->ring;
    core->counters = &config->ring->counters;
    init_sync(core);
}

void ebb__core_forked(struct core *core, struct ebb_ledger *ledger, struct ebb_ring *ring)
{
    init_sync(core);
    core->ledger = ledger;
    core->ring = ring;
    core->counters = &ring->counters;
    core->config.process_id = (uint32_t)getpid();
    core->forked = true;
    core->held = 0;
    core->observed_ns = 0;
    atomic_store(&core->counters->held_bytes, 0); /* all pages are inherited */
}

void *ebb__core_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void ebb__core_unmap(void *memory, size_t bytes)
{
    if (memory) /* NULL is skipped: the program may have mapped address 0 */
        munmap(memory, bytes ? bytes : 1);
}

void ebb__core_event(struct core *core, const struct ebb_event *event)
{
    if (core->retired)
        return;
    if (event->kind != EBB_EVENT_MARK)
        ebb__progress_tell_observed(core);
    struct ebb_event stamped = *event;
    stamped.time_ns = ebb__now_ns() - core->ring->origin_ns;
    ebb__ring_write(core->ring, &stamped);
}

void ebb__core_warn(struct core *core, const char *message)
{
    if (core->config.warn)
        core->config.warn(core->config.context, message);
}

void ebb__core_mark(struct core *core, enum ebb_mark mark, uint64_t value)
{
    ebb__core_event(core, &(struct ebb_event){
                              .size_bytes = value, .kind = EBB_EVENT_MARK, .mark = (uint8_t)mark});
}

bool ebb__core_wait_until(struct core *core, pthread_cond_t *condition, uint64_t ns)
{
    struct timespec until = {.tv_sec = (time_t)(ns / 1000000000),
                             .tv_nsec = (long)(ns % 1000000000)};
    return pthread_cond_clockwait(condition, &core->lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT;
}
