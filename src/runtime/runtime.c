#include "runtime/internal.h"

#include "base/tuning.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST_OPEN ((uint32_t)1 << 20)
#define MOST_EXTENTS ((size_t)1 << 16)

static uint32_t thread_id(void)
{
    static _Thread_local uint32_t id;
    if (id == 0)
        id = (uint32_t)syscall(SYS_gettid);
    return id;
}

static void block_event(struct ebb_runtime *runtime, enum ebb_event_kind kind,
                        const struct block *block)
{
    ebb__core_event(runtime, &(struct ebb_event){.block = block->serial,
                                                 .size_bytes = block->size_bytes,
                                                 .kind = (uint8_t)kind,
                                                 .thread = thread_id()});
}

void ebb__runtime_init_sync(struct ebb_runtime *runtime)
{
    pthread_mutex_init(&runtime->core.lock, NULL);
    pthread_cond_init(&runtime->core.changed, NULL);
    pthread_cond_init(&runtime->transfer.out_work, NULL);
    pthread_cond_init(&runtime->transfer.in_work, NULL);
}

/* Everything but the workers; also where some of it could not be had. */
static void release(struct ebb_runtime *runtime)
{
    ebb__relatives_fini(runtime);
    ebb__space_fini(runtime);
    ebb__pages_fini(runtime);
    ebb__core_unmap(runtime->uses.open_blocks, MOST_OPEN * sizeof *runtime->uses.open_blocks);
    ebb__core_unmap(runtime->replay.history, HISTORY * sizeof *runtime->replay.history);
    ebb__core_unmap(runtime->copies.extent_table,
                    MOST_EXTENTS * sizeof *runtime->copies.extent_table);
    ebb__core_unmap(runtime, sizeof *runtime);
}

static enum ebb_status lack_memory(struct ebb_error *error)
{
    enum ebb_status status = ebb__fail(error, EBB_ERR_MEMORY, "the runtime's tables",
                                       "address space is lacking: %s", strerrordesc_np(ENOMEM));
    ebb__error_set_remedy(error, "raise the limit of address space (ulimit -v)");
    return status;
}

void ebb__runtime_announce(struct ebb_runtime *runtime)
{
    const struct ebb_device_layout *layout = &runtime->core.device.layout;
    struct ebb_counters *counters = runtime->core.counters;
    atomic_store(&counters->mechanism, (uint32_t)runtime->core.device.ops->kind);
    atomic_store(&counters->arena_first, layout->arena.base);
    atomic_store(&counters->arena_last, layout->page_stack.base + layout->page_stack.bytes);
    atomic_store(&counters->managing, 1);
}

static bool is_planned(const struct ebb_runtime *runtime)
{
    return runtime->replay.current != NULL;
}

static uint64_t iteration_ns(const struct ebb_runtime *runtime)
{
    return runtime->replay.current ? runtime->replay.current->script->iteration_ns : 0;
}

static bool knows(const struct ebb_runtime *runtime, const struct block *block)
{
    return runtime->replay.current && block->script_block != EBB_SCRIPT_NONE;
}

/* Timers stood meanwhile: the lane out looks at them. */
static void resumed(struct ebb_runtime *runtime)
{
    pthread_cond_signal(&runtime->transfer.out_work);
}

static void slab_parked(struct ebb_runtime *runtime, struct block *block)
{
    ebb__slab_count(runtime, block, false);
}

static const struct policy policy = {
    .is_planned = is_planned,
    .iteration_ns = iteration_ns,
    .knows = knows,
    .next_use = ebb__replay_next_use,
    .next_alloc = ebb__replay_next_alloc,
    .next_cover = ebb__replay_next_cover,
    .is_awaited = ebb__access_clock_await,
    .evicting = ebb__feedback_early,
    .was_late = ebb__feedback_late,
    .changed = ebb__clock_changed,
    .fire = ebb__timers_fire,
    .resumed = resumed,
    .make_room = ebb__room_get,
    .slab_parked = slab_parked,
    .slab_back = ebb__slab_back,
};

enum ebb_status ebb__runtime_create(const struct ebb_runtime_config *config,
                                    struct ebb_runtime **created, struct ebb_error *error)
{
    struct ebb_runtime *runtime = ebb__core_memory(sizeof *runtime);
    if (!runtime)
        return lack_memory(error);
    runtime->core.config = *config;
    runtime->core.device = config->device;
    if (runtime->core.config.part_from_bytes == 0)
        runtime->core.config.part_from_bytes = ebb__tuning()->part_from_bytes;
    if (runtime->core.config.pause_ns == 0)
        runtime->core.config.pause_ns = ebb__tuning()->pause_ns;
    if (runtime->core.config.slab_reclaim_ns == 0)
        runtime->core.config.slab_reclaim_ns = ebb__tuning()->slab_look_ns;
    if (runtime->core.config.store_pause_ns == 0)
        runtime->core.config.store_pause_ns = ebb__tuning()->store_pause_ns;
    if (runtime->core.config.exchange_share == 0)
        runtime->core.config.exchange_share = (uint32_t)ebb__tuning()->exchange_divisor;
    runtime->core.policy = &policy;
    runtime->core.ledger = config->ledger;
    runtime->core.slot = config->slot ? config->slot : config->ledger->slots;
    runtime->core.ring = config->ring;
    runtime->core.counters = &config->ring->counters;
    ebb__runtime_init_sync(runtime);
    runtime->uses.open_capacity = MOST_OPEN;
    runtime->uses.open_blocks = ebb__core_memory(MOST_OPEN * sizeof *runtime->uses.open_blocks);
    runtime->replay.history = ebb__core_memory(HISTORY * sizeof *runtime->replay.history);
    runtime->copies.extent_table =
        ebb__core_memory(MOST_EXTENTS * sizeof *runtime->copies.extent_table);
    bool has_relatives =
        ebb__relatives_init(runtime); /* whatever failed before: it is undone, too */
    if (!runtime->uses.open_blocks || !runtime->replay.history || !runtime->copies.extent_table ||
        !has_relatives || !ebb__space_init(runtime) || !ebb__pages_init(runtime)) {
        release(runtime);
        return lack_memory(error);
    }
    ebb__extents_init(&runtime->copies.extents, runtime->copies.extent_table, MOST_EXTENTS,
                      UINT64_MAX);
    runtime->uses.trace = config->trace;
    if (!ebb__mover_start(runtime)) {
        enum ebb_status status = ebb__fail(error, EBB_ERR_LIMIT, "the runtime's threads",
                                           "they cannot be started: %s", strerrordesc_np(errno));
        ebb__error_set_remedy(error, "raise the limit of processes (ulimit -u, the cgroup's "
                                     "pids.max) or of address space (ulimit -v)");
        release(runtime);
        return status;
    }
    ebb__runtime_announce(runtime);
    if (runtime->uses.trace)
        ebb__core_mark(runtime, EBB_MARK_TRACE_ON, 0);
    *created = runtime;
    return EBB_OK;
}

void ebb__runtime_destroy(struct ebb_runtime *runtime)
{
    ebb__mover_stop(runtime);
    atomic_store(&runtime->core.counters->managing, 0);
    release(runtime);
}

/* Pages for a new block. */
static bool try_attach(struct ebb_runtime *runtime, struct block *block, uint64_t bytes, bool force)
{
    if (block->kind == BLOCK_STATIC)
        return ebb__placement_back(runtime, block, force);
    return force ? ebb__pages_force(runtime, block->address, bytes)
                 : ebb__pages_take(runtime, block->address, bytes);
}

/* As try_attach(), waiting for room as long as something is leaving. */
static bool attach(struct ebb_runtime *runtime, struct block *block, uint64_t bytes)
{
    if (try_attach(runtime, block, bytes, false))
        return true;
    uint64_t began = ebb__now_ns();
    struct asking asking = {0};
    bool got = false;
    struct ebb_wait *wait = ebb__waits_block(runtime, block);
    runtime->transfer.room_waits++;
    while (!(got = try_attach(runtime, block, bytes, false))) {
        if (block->kind == BLOCK_STATIC)
            bytes = ebb__placement_lacking(runtime, block);
        if (!ebb__room_make(runtime, bytes)) {
            if (ebb__room_ask_others(runtime, bytes, &asking))
                continue;
            got = try_attach(runtime, block, bytes, true);
            break;
        }
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec++;
        pthread_cond_clockwait(&runtime->core.changed, &runtime->core.lock, CLOCK_MONOTONIC,
                               &until);
    }
    runtime->transfer.room_waits--;
    ebb__wait_end(wait);
    ebb__progress_stalled(runtime, ebb__now_ns() - began);
    return got;
}

void ebb__runtime_count_live(struct ebb_runtime *runtime, int64_t bytes)
{
    uint64_t live =
        atomic_fetch_add(&runtime->core.counters->live_bytes, (uint64_t)bytes) + (uint64_t)bytes;
    if (bytes > 0)
        ebb__ledger_raise(&runtime->core.counters->peak_live_bytes, live);
}

/* Nothing is known of it yet. */
static void make_new(struct ebb_runtime *runtime, struct block *block)
{
    block->unborn = true;
    block->use.last = runtime->uses.event_number + 1;
    block->use.touch = ++runtime->uses.touches;
    block->use.planned_evict_at = block->use.evicted_at = block->use.needed_at = 0;
    block->wait.fault_ns = 0;
    block->wait.asking.since_ns = 0;
    block->pinned_until = 0;
    block->pins = 0;
    block->script_block = EBB_SCRIPT_NONE;
    block->use.open = block->transfer.urgent = block->transfer.cancelled =
        block->transfer.given_up = block->copy.stays = false;
    block->copy.is_there = block->copy.is_hashed = false;
    block->transfer.queue = QUEUE_NONE;
    block->inherited = block->kept = false;
}

static void begin_life(struct ebb_runtime *runtime, struct block *block, size_t bytes)
{
    make_new(runtime, block);
    block->size_bytes = bytes;
    block->serial = ++runtime->next_serial;
    atomic_fetch_add(&runtime->core.counters->allocations, 1);
    ebb__runtime_count_live(runtime, (int64_t)bytes);
}

/* Pages for a new block, at once or as its parts are used; false: memory is out. */
static bool furnish(struct ebb_runtime *runtime, struct block *block)
{
    bool got;
    if (runtime->uses.trace)
        ebb__part_split(runtime, block);
    if (block->kind != BLOCK_STATIC && (runtime->uses.trace || block->run.parts > 1))
        return true;
    /* What no plan counts on in one piece need not wait until there is room for all of it. */
    if (block->kind != BLOCK_STATIC && ebb__part_is_large(runtime, block->page_bytes) &&
        block->script_block == EBB_SCRIPT_NONE) {
        got = ebb__pages_take(runtime, block->address, block->page_bytes);
        if (!got) {
            ebb__part_split(runtime, block);
            return true;
        }
    } else {
        got = attach(runtime, block, block->page_bytes);
    }
    if (got)
        ebb__block_become(block, BLOCK_RESIDENT);
    return got;
}

/* No further block can be had; said once. */
static bool device_is_full(struct ebb_runtime *runtime)
{
    const struct ebb_device_ops *ops = runtime->core.device.ops;
    if (!ops->is_full || !ops->is_full(runtime->core.device.state))
        return false;
    if (!runtime->full_said)
        ebb__core_warn(runtime,
                       "too many blocks for the mappings that this system permits: further "
                       "ones are NOT within the budget; raise vm.max_map_count");
    runtime->full_said = true;
    return true;
}

void *ebb__runtime_alloc(struct ebb_runtime *runtime, size_t bytes, size_t alignment, bool zeroed)
{
    /* What the arena cannot hold is refused before anything is rounded up, which could overflow. */
    if (bytes == 0 || bytes > runtime->core.device.layout.arena.bytes || alignment > EBB_HUGE_BYTES)
        return NULL;
    uint64_t page_bytes = ebb__whole_pages(bytes);
    pthread_mutex_lock(&runtime->core.lock);
    if (runtime->uses.trace) {
        ebb__observe_close(runtime);
        ebb__slab_look(runtime, (uint32_t)ebb__tuning()->slab_looks_an_allocation);
    }
    ebb__room_approach_budget(runtime);
    struct block *block = ebb__replay_place(runtime, bytes, alignment);
    if (!block)
        page_bytes = ebb__clock_page_bytes(runtime, bytes);
    bool has_pages = false;
    if (!block && !runtime->uses.trace && !ebb__clock_expects_parts(runtime, bytes)) {
        block = ebb__pages_take_cached(runtime, page_bytes);
        has_pages = block != NULL;
    }
    bool is_full = !block && device_is_full(runtime);
    if (!block && !is_full)
        block = ebb__space_take(runtime, page_bytes);
    while (!block && !is_full &&
           ebb__pages_strip_cached(runtime)) /* spare blocks hold address space too */
        block = ebb__space_take(runtime, page_bytes);
    if (!block) {
        pthread_mutex_unlock(&runtime->core.lock);
        return NULL;
    }
    block->page_bytes = page_bytes;
    begin_life(runtime, block, bytes);
    ebb__block_become(block, has_pages ? BLOCK_RESIDENT : BLOCK_BARE);
    block_event(runtime, EBB_EVENT_ALLOC, block);
    ebb__clock_end_step(runtime, EBB_EVENT_ALLOC, ebb__clock_step(runtime, EBB_EVENT_ALLOC, block));
    if (!has_pages && !furnish(runtime, block)) {
        ebb__runtime_count_live(runtime, -(int64_t)bytes);
        block_event(runtime, EBB_EVENT_FREE, block);
        ebb__move_discard(runtime, block);
        pthread_mutex_unlock(&runtime->core.lock);
        return NULL;
    }
    block->unborn = false;
    void *pointer = (void *)block->address;
    ebb__runtime_check(runtime);
    pthread_mutex_unlock(&runtime->core.lock);
    if (zeroed)
        memset(pointer, 0, bytes);
    return pointer;
}

bool ebb__runtime_owns(const struct ebb_runtime *runtime, const void *pointer)
{
    uintptr_t base = runtime->core.device.layout.arena.base;
    return (uintptr_t)pointer - base < runtime->slabs.base - base;
}

uintptr_t ebb__runtime_slabs(const struct ebb_runtime *runtime, size_t *most)
{
    *most = runtime->slabs.total;
    return runtime->slabs.base;
}

uintptr_t ebb__runtime_take_slab(struct ebb_runtime *runtime)
{
    pthread_mutex_lock(&runtime->core.lock);
    struct block *block = ebb__slab_take(runtime);
    uintptr_t address = 0;
    if (block) {
        make_new(runtime, block);
        ebb__block_become(block, BLOCK_BARE);
        if (attach(runtime, block, EBB_SLAB_BYTES)) {
            ebb__block_become(block, BLOCK_RESIDENT);
            block->unborn = false;
            ebb__slab_count(runtime, block, true);
            address = block->address;
        } else {
            ebb__slab_give(runtime, block);
        }
    }
    ebb__runtime_check(runtime);
    pthread_mutex_unlock(&runtime->core.lock);
    return address;
}

void ebb__runtime_give_slab(struct ebb_runtime *runtime, uintptr_t slab)
{
    pthread_mutex_lock(&runtime->core.lock);
    struct block *block = ebb__slab_find(runtime, slab);
    if (block->state == BLOCK_RESIDENT)
        ebb__slab_count(runtime, block, false);
    ebb__move_discard(runtime, block);
    ebb__runtime_check(runtime);
    pthread_mutex_unlock(&runtime->core.lock);
}

/* The live block that starts at `pointer`; NULL: none. */
static struct block *block_at(struct ebb_runtime *runtime, const void *pointer)
{
    struct block *block = ebb__space_find(runtime, (uintptr_t)pointer);
    bool begins = block && block->address == (uintptr_t)pointer &&
                  block->run.head == ebb__block_index(&runtime->table, block);
    return begins && ebb__block_is_live(block) ? block : NULL;
}

bool ebb__runtime_free(struct ebb_runtime *runtime, void *pointer)
{
    pthread_mutex_lock(&runtime->core.lock);
    struct block *block = block_at(runtime, pointer);
    if (!block) {
        pthread_mutex_unlock(&runtime->core.lock);
        return false;
    }
    if (runtime->uses.trace)
        ebb__observe_close(runtime);
    ebb__runtime_count_live(runtime, -(int64_t)block->size_bytes);
    block_event(runtime, EBB_EVENT_FREE, block);
    struct due due = ebb__clock_step(runtime, EBB_EVENT_FREE, block);
    ebb__part_join(runtime, block);
    for (uint32_t i = ebb__block_index(&runtime->table, block), next; i != NO_BLOCK; i = next) {
        next = ebb__part_next(runtime, i);
        ebb__move_discard(runtime, &runtime->table.blocks[i]);
    }
    ebb__clock_end_step(runtime, EBB_EVENT_FREE, due);
    ebb__room_approach_budget(runtime);
    ebb__runtime_check(runtime);
    pthread_mutex_unlock(&runtime->core.lock);
    return true;
}

size_t ebb__runtime_usable_bytes(struct ebb_runtime *runtime, const void *pointer)
{
    pthread_mutex_lock(&runtime->core.lock);
    struct block *block = block_at(runtime, pointer);
    size_t bytes = block ? (size_t)block->size_bytes : 0;
    pthread_mutex_unlock(&runtime->core.lock);
    return bytes;
}

void ebb__runtime_set_trace(struct ebb_runtime *runtime, bool on)
{
    pthread_mutex_lock(&runtime->core.lock);
    if (runtime->uses.trace != on) {
        if (!on)
            for (uint32_t i = 0; i < runtime->uses.open_count; i++)
                runtime->table.blocks[runtime->uses.open_blocks[i]].use.open = false;
        runtime->uses.open_count = 0;
        runtime->uses.trace = on;
        for (uint32_t i = 1; i <= runtime->table.count; i++) {
            struct block *block = &runtime->table.blocks[i];
            if (block->kind == BLOCK_SLAB)
                continue;
            if (on && ebb__block_is_live(block) && block->run.head == i)
                ebb__part_split(runtime, block);
            if (on && block->state == BLOCK_RESIDENT && block->transfer.queue != QUEUE_OUT &&
                block->kind != BLOCK_STATIC)
                ebb__move_park(runtime, block);
            else if (!on && block->state == BLOCK_PARKED && block->transfer.queue != QUEUE_OUT)
                ebb__move_unpark(runtime, block);
        }
        for (uint32_t i = 1; !on && i <= runtime->table.count; i++)
            if (ebb__block_is_live(&runtime->table.blocks[i]) &&
                runtime->table.blocks[i].run.parts > 1)
                ebb__part_join(runtime, &runtime->table.blocks[i]);
        if (on) {
            runtime->uses.blind_until = runtime->uses.event_number + runtime->placement.clocks;
            ebb__observe_note(runtime);
        } else if (runtime->uses.blind_until) {
            runtime->uses.blind_until = 0; /* nothing has been said of it */
        } else {
            ebb__core_mark(runtime, EBB_MARK_TRACE_OFF, 0);
        }
        ebb__access_clock_arm(runtime);
    }
    ebb__runtime_check(runtime);
    pthread_mutex_unlock(&runtime->core.lock);
}

void ebb__runtime_shrink(struct ebb_runtime *runtime, uint64_t bytes)
{
    pthread_mutex_lock(&runtime->core.lock);
    if (runtime->memory.owed_bytes < bytes)
        runtime->memory.owed_bytes = bytes;
    ebb__pages_trim(runtime);
    ebb__room_evict_until(runtime, runtime->memory.owed_bytes);
    pthread_mutex_unlock(&runtime->core.lock);
}

void ebb__runtime_trim(struct ebb_runtime *runtime)
{
    pthread_mutex_lock(&runtime->core.lock);
    ebb__room_approach_budget(runtime);
    pthread_mutex_unlock(&runtime->core.lock);
}

void ebb__runtime_settle(struct ebb_runtime *runtime)
{
    pthread_mutex_lock(&runtime->core.lock);
    while (runtime->transfer.out_queue.first != NO_BLOCK ||
           runtime->transfer.out_current != NO_BLOCK || runtime->transfer.in_current != NO_BLOCK ||
           runtime->transfer.transfers || runtime->transfer.in_queue.first != NO_BLOCK) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += 5000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_clockwait(&runtime->core.changed, &runtime->core.lock, CLOCK_MONOTONIC,
                               &until);
    }
    ebb__runtime_check(runtime);
    pthread_mutex_unlock(&runtime->core.lock);
}
