#include "runtime/internal.h"

#include "base/tuning.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SETTLE_NS 200000u /* short beside a transfer: that the last one is over is not signalled */

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
    ebb__core_event(&runtime->core, &(struct ebb_event){.block = block->serial,
                                                        .size_bytes = block->size_bytes,
                                                        .kind = (uint8_t)kind,
                                                        .thread = thread_id()});
}

/* Frees everything except the workers, even if creation has failed half way. */
static void release(struct ebb_runtime *runtime)
{
    ebb__replay_fini(&runtime->replay);
    ebb__foresee_fini(&runtime->reclaim.foresee);
    ebb__memory_fini(&runtime->memory);
    ebb__address_fini(&runtime->addresses);
    ebb__block_fini(&runtime->table);
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

static bool init_parts(struct ebb_runtime *runtime)
{
    if (!ebb__block_init(&runtime->table, &runtime->core) ||
        !ebb__address_init(&runtime->addresses, &runtime->table) ||
        !ebb__memory_init(&runtime->memory, &runtime->addresses))
        return false;
    ebb__transfer_init(&runtime->transfer, &runtime->memory);
    ebb__reclaim_init(&runtime->reclaim, &runtime->transfer);
    return ebb__replay_init(&runtime->replay, &runtime->transfer);
}

enum ebb_status ebb__runtime_create(const struct ebb_runtime_config *config,
                                    struct ebb_runtime **created, struct ebb_error *error)
{
    struct ebb_runtime *runtime = ebb__core_memory(sizeof *runtime);
    if (!runtime)
        return lack_memory(error);
    ebb__core_init(&runtime->core, config, &ebb__runtime_policy, runtime);
    if (!init_parts(runtime)) {
        release(runtime);
        return lack_memory(error);
    }
    runtime->table.uses.trace = runtime->observing.always = config->trace;
    if (!ebb__mover_start(&runtime->transfer)) {
        enum ebb_status status = ebb__fail(error, EBB_ERR_LIMIT, "the runtime's threads",
                                           "they cannot be started: %s", strerrordesc_np(errno));
        ebb__error_set_remedy(error, "raise the limit of processes (ulimit -u, the cgroup's "
                                     "pids.max) or of address space (ulimit -v)");
        release(runtime);
        return status;
    }
    ebb__runtime_announce(runtime);
    if (runtime->table.uses.trace)
        ebb__core_mark(&runtime->core, EBB_MARK_TRACE_ON, 0);
    *created = runtime;
    return EBB_OK;
}

void ebb__runtime_destroy(struct ebb_runtime *runtime)
{
    ebb__mover_stop(&runtime->transfer);
    atomic_store(&runtime->core.counters->managing, 0);
    release(runtime);
}

/* Gives a new block its pages. */
static bool try_attach(struct ebb_runtime *runtime, struct block *block, uint64_t bytes, bool force)
{
    if (block->kind == BLOCK_STATIC)
        return ebb__placement_back(&runtime->memory, block, force);
    return force ? ebb__pages_force(&runtime->memory, block->address, bytes)
                 : ebb__pages_take(&runtime->memory, block->address, bytes);
}

/* As try_attach(), but waits while blocks are written back, or until the block is split. */
static bool attach(struct ebb_runtime *runtime, struct block *block, uint64_t bytes)
{
    if (try_attach(runtime, block, bytes, false))
        return true;
    uint64_t began = ebb__now_ns();
    struct asking asking = {0};
    bool got = false;
    struct ebb_wait *wait = ebb__waits_block(&runtime->table, block);
    runtime->transfer.room_waits++;
    while (block->run.parts <= 1 && !(got = try_attach(runtime, block, bytes, false))) {
        if (block->kind == BLOCK_STATIC)
            bytes = ebb__placement_lacking(&runtime->memory, block);
        if (!ebb__room_make(&runtime->reclaim, bytes)) {
            if (ebb__room_ask_others(&runtime->reclaim, bytes, &asking))
                continue;
            got = try_attach(runtime, block, bytes, true);
            break;
        }
        ebb__core_wait_until(&runtime->core, &runtime->core.changed, ebb__now_ns() + 1000000000);
    }
    runtime->transfer.room_waits--;
    ebb__wait_end(wait);
    ebb__progress_stalled(&runtime->core, ebb__now_ns() - began);
    return got;
}

void ebb__runtime_count_live(struct ebb_runtime *runtime, int64_t bytes)
{
    uint64_t live =
        atomic_fetch_add(&runtime->core.counters->live_bytes, (uint64_t)bytes) + (uint64_t)bytes;
    if (bytes > 0)
        ebb__ledger_raise(&runtime->core.counters->peak_live_bytes, live);
}

void ebb__runtime_mark(struct ebb_runtime *runtime, enum ebb_mark mark, uint64_t value)
{
    pthread_mutex_lock(&runtime->core.lock);
    ebb__core_mark(&runtime->core, mark, value);
    if (mark == EBB_MARK_ITERATION)
        ebb__replay_marked(&runtime->replay);
    pthread_mutex_unlock(&runtime->core.lock);
}

/* Resets the facts known of a block. */
static void make_new(struct ebb_runtime *runtime, struct block *block)
{
    block->unborn = true;
    block->use.last = runtime->table.uses.event_number + 1;
    block->use.touch = ++runtime->table.uses.touches;
    block->use.planned_evict_at = block->use.evicted_at = block->use.needed_at = 0;
    block->wait.fault_ns = block->wait.asking.since_ns = block->pinned_until = 0;
    block->pins = 0;
    block->transfer.error = 0;
    block->script_block = EBB_SCRIPT_NONE;
    block->use.open = block->transfer.urgent = block->copy.stays = false;
    block->transfer.end = TRANSFER_GOES_ON;
    block->copy.is_there = block->copy.is_hashed = false;
    block->transfer.queue = QUEUE_NONE;
    block->inherited = block->kept = false;
}

static void begin_life(struct ebb_runtime *runtime, struct block *block, size_t bytes)
{
    make_new(runtime, block);
    block->size_bytes = bytes;
    block->serial = ++runtime->table.newest_serial;
    atomic_fetch_add(&runtime->core.counters->allocations, 1);
    ebb__runtime_count_live(runtime, (int64_t)bytes);
}

/* Is the first use of a new block to be seen? That costs a fault and cleared pages. */
static bool sees_first_use(const struct ebb_runtime *runtime)
{
    return runtime->table.uses.trace && !ebb__observe_is_coarse(&runtime->transfer);
}

/* Would a new block of which no plan tells need pages that were never used? Programs allocate more
 * than they use, and such a page costs the system memory. So it comes with the first use. A large
 * block would come apart by that. */
static bool needs_fresh_pages(const struct ebb_runtime *runtime, const struct block *block)
{
    return block->kind == BLOCK_HEAP && block->script_block == EBB_SCRIPT_NONE &&
           !ebb__part_is_large(&runtime->table, block->page_bytes) &&
           ebb__pages_idle(&runtime->memory) < block->page_bytes &&
           ebb__pages_available(&runtime->memory) >= block->page_bytes;
}

/* Gives a new block its pages, at once, at its first use, or as its parts are used. False: memory
 * is exhausted. */
static bool furnish(struct ebb_runtime *runtime, struct block *block)
{
    bool got;
    if (runtime->table.uses.trace)
        ebb__part_split(&runtime->table, block);
    if (block->kind != BLOCK_STATIC &&
        (sees_first_use(runtime) || block->run.parts > 1 || needs_fresh_pages(runtime, block)))
        return true;
    /* If no plan relies on the block as a whole, it need not wait for memory for all of it. */
    if (block->kind != BLOCK_STATIC && ebb__part_is_large(&runtime->table, block->page_bytes) &&
        block->script_block == EBB_SCRIPT_NONE) {
        got = ebb__pages_take(&runtime->memory, block->address, block->page_bytes);
        if (!got) {
            ebb__part_split(&runtime->table, block);
            return true;
        }
    } else {
        got = attach(runtime, block, block->page_bytes);
        if (block->run.parts > 1)
            return true; /* it was split: each part gets its pages when it is used */
    }
    if (got)
        ebb__block_become(block, BLOCK_RESIDENT);
    return got;
}

/* Is the device unable to hold further blocks? Warns once. */
static bool device_is_full(struct ebb_runtime *runtime)
{
    const struct ebb_device_ops *ops = runtime->core.device.ops;
    if (!ops->is_full || !ops->is_full(runtime->core.device.state))
        return false;
    if (!runtime->full_said)
        ebb__core_warn(&runtime->core,
                       "too many blocks for the mappings that this system permits: further "
                       "ones are NOT within the budget; raise vm.max_map_count");
    runtime->full_said = true;
    return true;
}

/* A block's address space, with pages if cached ones are taken. NULL: there is none. */
static struct block *take_space(struct ebb_runtime *runtime, size_t bytes, size_t alignment,
                                uint64_t *page_bytes, bool *has_pages)
{
    struct block *block = ebb__replay_place(&runtime->replay, bytes, alignment);
    *has_pages = false;
    if (block)
        return block;
    *page_bytes = ebb__clock_page_bytes(&runtime->replay, bytes);
    if (!sees_first_use(runtime) && !ebb__clock_expects_parts(&runtime->replay, bytes))
        block = ebb__pages_take_cached(&runtime->memory, *page_bytes);
    *has_pages = block != NULL;
    if (block || device_is_full(runtime))
        return block;
    block = ebb__space_take(&runtime->addresses, *page_bytes);
    while (!block &&
           ebb__pages_strip_cached(&runtime->memory)) /* cached blocks hold address space, too */
        block = ebb__space_take(&runtime->addresses, *page_bytes);
    return block;
}

void *ebb__runtime_alloc(struct ebb_runtime *runtime, size_t bytes, size_t alignment, bool zeroed)
{
    /* Sizes beyond the arena are refused before any rounding, which could overflow. */
    if (bytes == 0 || bytes > runtime->core.device.layout.arena.bytes || alignment > EBB_HUGE_BYTES)
        return NULL;
    uint64_t page_bytes = ebb__whole_pages(bytes);
    struct block *block = NULL;
    bool has_pages = false;
    pthread_mutex_lock(&runtime->core.lock);
    if (!runtime->core.retired) {
        if (runtime->table.uses.trace)
            ebb__observe_close(&runtime->transfer);
        ebb__slab_step(&runtime->reclaim);
        ebb__room_approach_budget(&runtime->reclaim);
        block = take_space(runtime, bytes, alignment, &page_bytes, &has_pages);
    }
    if (!block) {
        pthread_mutex_unlock(&runtime->core.lock);
        return NULL;
    }
    block->page_bytes = page_bytes;
    begin_life(runtime, block, bytes);
    ebb__block_become(block, has_pages ? BLOCK_RESIDENT : BLOCK_BARE);
    block_event(runtime, EBB_EVENT_ALLOC, block);
    ebb__clock_end_step(&runtime->replay, EBB_EVENT_ALLOC,
                        ebb__clock_step(&runtime->replay, EBB_EVENT_ALLOC, block));
    ebb__observe_departures(runtime);
    ebb__foresee_alloc(&runtime->reclaim.foresee, &runtime->table, block);
    if (!has_pages && !furnish(runtime, block)) {
        ebb__runtime_count_live(runtime, -(int64_t)bytes);
        block_event(runtime, EBB_EVENT_FREE, block);
        ebb__move_discard(&runtime->transfer, block);
        pthread_mutex_unlock(&runtime->core.lock);
        return NULL;
    }
    block->unborn = false;
    /* A new block is used at once, almost always. */
    if (ebb__observe_is_coarse(&runtime->transfer) && block->kind == BLOCK_HEAP &&
        block->state == BLOCK_RESIDENT)
        ebb__runtime_used(runtime, block, true, false);
    ebb__reclaim_ahead(&runtime->reclaim);
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
    return (uintptr_t)pointer - base < runtime->addresses.slabs.base - base;
}

uintptr_t ebb__runtime_slabs(const struct ebb_runtime *runtime, size_t *most)
{
    *most = runtime->addresses.slabs.total;
    return runtime->addresses.slabs.base;
}

uintptr_t ebb__runtime_take_slab(struct ebb_runtime *runtime)
{
    pthread_mutex_lock(&runtime->core.lock);
    struct block *block = runtime->core.retired ? NULL : ebb__slab_take(&runtime->addresses);
    uintptr_t address = 0;
    if (block) {
        make_new(runtime, block);
        ebb__block_become(block, BLOCK_BARE);
        if (attach(runtime, block, EBB_SLAB_BYTES)) {
            ebb__block_become(block, BLOCK_RESIDENT);
            block->unborn = false;
            ebb__slab_count(&runtime->reclaim, block, true);
            address = block->address;
        } else {
            ebb__slab_give(&runtime->addresses, block);
        }
    }
    ebb__runtime_check(runtime);
    pthread_mutex_unlock(&runtime->core.lock);
    return address;
}

void ebb__runtime_give_slab(struct ebb_runtime *runtime, uintptr_t slab)
{
    pthread_mutex_lock(&runtime->core.lock);
    struct block *block = ebb__slab_find(&runtime->addresses, slab);
    if (block->state == BLOCK_RESIDENT)
        ebb__slab_count(&runtime->reclaim, block, false);
    ebb__move_discard(&runtime->transfer, block);
    ebb__runtime_check(runtime);
    pthread_mutex_unlock(&runtime->core.lock);
}

/* The live block that starts at `pointer`; NULL: none. */
static struct block *block_at(struct ebb_runtime *runtime, const void *pointer)
{
    struct block *block = ebb__space_find(&runtime->addresses, (uintptr_t)pointer);
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
    if (runtime->table.uses.trace)
        ebb__observe_close(&runtime->transfer);
    ebb__runtime_count_live(runtime, -(int64_t)block->size_bytes);
    block_event(runtime, EBB_EVENT_FREE, block);
    struct due due = ebb__clock_step(&runtime->replay, EBB_EVENT_FREE, block);
    ebb__foresee_freed(&runtime->reclaim.foresee, &runtime->table, block);
    ebb__part_join(&runtime->table, block);
    for (uint32_t i = ebb__block_index(&runtime->table, block), next; i != NO_BLOCK; i = next) {
        next = ebb__part_next(&runtime->table, i);
        ebb__in_order_gone(&runtime->reclaim.order, &runtime->table.blocks[i]);
        ebb__move_discard(&runtime->transfer, &runtime->table.blocks[i]);
    }
    ebb__clock_end_step(&runtime->replay, EBB_EVENT_FREE, due);
    ebb__room_approach_budget(&runtime->reclaim);
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

void ebb__runtime_shrink(struct ebb_runtime *runtime, uint64_t bytes)
{
    pthread_mutex_lock(&runtime->core.lock);
    if (runtime->memory.owed_bytes < bytes)
        runtime->memory.owed_bytes = bytes;
    ebb__pages_trim(&runtime->memory);
    ebb__room_evict_until(&runtime->reclaim, runtime->memory.owed_bytes);
    pthread_mutex_unlock(&runtime->core.lock);
}

void ebb__runtime_trim(struct ebb_runtime *runtime)
{
    pthread_mutex_lock(&runtime->core.lock);
    ebb__room_approach_budget(&runtime->reclaim);
    pthread_mutex_unlock(&runtime->core.lock);
}

void ebb__runtime_settle(struct ebb_runtime *runtime)
{
    pthread_mutex_lock(&runtime->core.lock);
    while (!ebb__lanes_are_idle(&runtime->transfer))
        ebb__core_wait_until(&runtime->core, &runtime->core.changed, ebb__now_ns() + SETTLE_NS);
    ebb__runtime_check(runtime);
    pthread_mutex_unlock(&runtime->core.lock);
}

enum ebb_status ebb__runtime_set_script(struct ebb_runtime *runtime,
                                        const struct ebb_script *script, uint64_t bytes)
{
    return ebb__replay_set_script(&runtime->replay, script, bytes);
}

void ebb__runtime_rename(struct ebb_runtime *runtime, const struct ebb_renaming *renamings,
                         size_t count)
{
    ebb__replay_rename(&runtime->replay, renamings, count);
}

void ebb__runtime_forget_scripts(struct ebb_runtime *runtime)
{
    ebb__replay_forget_scripts(&runtime->replay);
}

unsigned ebb__runtime_thread_count(const struct ebb_runtime *runtime)
{
    return runtime->transfer.worker_count;
}
