#include "runtime/internal.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST_OPEN ((uint32_t)1 << 20)
#define LOOKS_AN_ALLOC 8u /* at slabs, while accesses are observed: a tenth of a ms. Arbitrary */
#define MOST_EXTENTS ((size_t)1 << 16)

void *ebb__runtime_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void ebb__runtime_unmap(void *memory, size_t bytes)
{
    if (memory) /* at address 0 there may be something of the program's */
        munmap(memory, bytes ? bytes : 1);
}

static uint32_t thread_id(void)
{
    static _Thread_local uint32_t id;
    if (id == 0)
        id = (uint32_t)syscall(SYS_gettid);
    return id;
}

void ebb__runtime_event(struct ebb_runtime *runtime, const struct ebb_event *event)
{
    struct ebb_event stamped = *event;
    stamped.time_ns = ebb__now_ns() - runtime->core.ring->origin_ns;
    ebb__ring_write(runtime->core.ring, &stamped);
}

void ebb__runtime_warn(struct ebb_runtime *runtime, const char *message)
{
    if (runtime->core.config.warn)
        runtime->core.config.warn(runtime->core.config.context, message);
}

void ebb__runtime_mark(struct ebb_runtime *runtime, enum ebb_mark mark, uint64_t value)
{
    ebb__runtime_event(
        runtime,
        &(struct ebb_event){.size_bytes = value, .kind = EBB_EVENT_MARK, .mark = (uint8_t)mark});
}

static void block_event(struct ebb_runtime *runtime, enum ebb_event_kind kind,
                        const struct block *block)
{
    ebb__runtime_event(runtime, &(struct ebb_event){.block = block->serial,
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
    ebb__runtime_unmap(runtime->uses.open_blocks, MOST_OPEN * sizeof *runtime->uses.open_blocks);
    ebb__runtime_unmap(runtime->replay.history, HISTORY * sizeof *runtime->replay.history);
    ebb__runtime_unmap(runtime->copies.extent_table,
                       MOST_EXTENTS * sizeof *runtime->copies.extent_table);
    ebb__runtime_unmap(runtime, sizeof *runtime);
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
    atomic_store(&counters->arena_last, layout->depot.base + layout->depot.bytes);
    atomic_store(&counters->managing, 1);
}

enum ebb_status ebb__runtime_create(const struct ebb_runtime_config *config,
                                    struct ebb_runtime **created, struct ebb_error *error)
{
    struct ebb_runtime *runtime = ebb__runtime_memory(sizeof *runtime);
    if (!runtime)
        return lack_memory(error);
    runtime->core.config = *config;
    runtime->core.device = config->device;
    if (runtime->core.config.part_from_bytes == 0)
        runtime->core.config.part_from_bytes = EBB_PART_FROM_BYTES;
    if (runtime->core.config.pause_ns == 0)
        runtime->core.config.pause_ns = EBB_PAUSE_NS;
    if (runtime->core.config.cold_ns == 0)
        runtime->core.config.cold_ns = EBB_COLD_NS;
    if (runtime->core.config.store_pause_ns == 0)
        runtime->core.config.store_pause_ns = EBB_STORE_PAUSE_NS;
    if (runtime->core.config.exchange_share == 0)
        runtime->core.config.exchange_share = EBB_EXCHANGE_SHARE;
    runtime->core.ledger = config->ledger;
    runtime->core.slot = config->slot ? config->slot : config->ledger->slots;
    runtime->core.ring = config->ring;
    runtime->core.counters = &config->ring->counters;
    ebb__runtime_init_sync(runtime);
    runtime->uses.open_capacity = MOST_OPEN;
    runtime->uses.open_blocks = ebb__runtime_memory(MOST_OPEN * sizeof *runtime->uses.open_blocks);
    runtime->replay.history = ebb__runtime_memory(HISTORY * sizeof *runtime->replay.history);
    runtime->copies.extent_table =
        ebb__runtime_memory(MOST_EXTENTS * sizeof *runtime->copies.extent_table);
    bool has_relatives =
        ebb__relatives_init(runtime); /* whatever failed before: it is undone, too */
    if (!runtime->uses.open_blocks || !runtime->replay.history || !runtime->copies.extent_table ||
        !has_relatives || !ebb__space_init(runtime)) {
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
        ebb__runtime_mark(runtime, EBB_MARK_TRACE_ON, 0);
    *created = runtime;
    return EBB_OK;
}

void ebb__runtime_destroy(struct ebb_runtime *runtime)
{
    ebb__mover_stop(runtime);
    atomic_store(&runtime->core.counters->managing, 0);
    release(runtime);
}

/* Let victims leave until `bytes` are on their way out, or nothing more can leave. */
static void evict_until(struct ebb_runtime *runtime, uint64_t bytes)
{
    while (runtime->transfer.out_pending_bytes < bytes && !runtime->store.failed) {
        struct block *victim = ebb__victim_choose(runtime);
        if (!victim)
            break;
        ebb__move_evict(runtime, victim);
    }
}

/* A budget that has just been set, or that the store did not let be kept, is approached step by step,
 * then it holds. */
static void approach_budget(struct ebb_runtime *runtime)
{
    struct ebb_ledger *ledger = runtime->core.ledger;
    bool in_force = atomic_load_explicit(&ledger->in_force, memory_order_relaxed);
    if (in_force && !runtime->beyond)
        return;
    uint64_t budget = atomic_load(&ledger->budget_bytes);
    if (budget == UINT64_MAX)
        return;
    ebb__pages_trim(runtime);
    uint64_t held = atomic_load(&ledger->held_bytes);
    if (held > budget) {
        evict_until(runtime, held - budget);
        return;
    }
    runtime->beyond = false;
    if (in_force)
        return;
    atomic_store(&ledger->peak_bytes, held);
    atomic_store(&ledger->in_force, 1);
}

/* Pages for a new block. */
static bool try_attach(struct ebb_runtime *runtime, struct block *block, uint64_t bytes, bool force)
{
    if (block->kind == BLOCK_PLACED)
        return ebb__placed_back(runtime, block, force);
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
        if (block->kind == BLOCK_PLACED)
            bytes = ebb__placed_lacking(runtime, block);
        if (!ebb__mover_make_room(runtime, bytes)) {
            if (ebb__mover_ask_others(runtime, bytes, &asking))
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
    ebb__runtime_stalled(runtime, ebb__now_ns() - began);
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
    block->use.left_at = block->use.evicted_at = block->use.needed_at = 0;
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
    if (block->kind != BLOCK_PLACED && (runtime->uses.trace || block->run.parts > 1))
        return true;
    /* What no plan counts on in one piece need not wait until there is room for all of it. */
    if (block->kind != BLOCK_PLACED && ebb__part_is_large(runtime, block->page_bytes) &&
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
        block->state = BLOCK_RESIDENT;
    return got;
}

/* No further block can be had; said once. */
static bool device_is_full(struct ebb_runtime *runtime)
{
    const struct ebb_device_ops *ops = runtime->core.device.ops;
    if (!ops->is_full || !ops->is_full(runtime->core.device.state))
        return false;
    if (!runtime->full_said)
        ebb__runtime_warn(runtime,
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
        ebb__clock_close_operation(runtime);
        ebb__cold_look(runtime, LOOKS_AN_ALLOC);
    }
    approach_budget(runtime);
    struct block *block = ebb__placed_take(runtime, bytes, alignment);
    if (!block)
        page_bytes = ebb__clock_page_bytes(runtime, bytes);
    bool has_pages = false;
    if (!block && !runtime->uses.trace && !ebb__clock_expects_parts(runtime, bytes)) {
        block = ebb__pages_spare(runtime, page_bytes);
        has_pages = block != NULL;
    }
    bool is_full = !block && device_is_full(runtime);
    if (!block && !is_full)
        block = ebb__space_take(runtime, page_bytes);
    while (!block && !is_full &&
           ebb__pages_strip_spare(runtime)) /* spare blocks hold address space too */
        block = ebb__space_take(runtime, page_bytes);
    if (!block) {
        pthread_mutex_unlock(&runtime->core.lock);
        return NULL;
    }
    block->page_bytes = page_bytes;
    begin_life(runtime, block, bytes);
    block->state = has_pages ? BLOCK_RESIDENT : BLOCK_BARE;
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
    pthread_mutex_unlock(&runtime->core.lock);
    if (zeroed)
        memset(pointer, 0, bytes);
    return pointer;
}

bool ebb__runtime_owns(const struct ebb_runtime *runtime, const void *pointer)
{
    uintptr_t base = runtime->core.device.layout.arena.base;
    return (uintptr_t)pointer - base < runtime->cold.base - base;
}

uintptr_t ebb__runtime_slabs(const struct ebb_runtime *runtime, size_t *most)
{
    *most = runtime->cold.total;
    return runtime->cold.base;
}

uintptr_t ebb__runtime_take_slab(struct ebb_runtime *runtime)
{
    pthread_mutex_lock(&runtime->core.lock);
    struct block *block = ebb__cold_take(runtime);
    uintptr_t address = 0;
    if (block) {
        make_new(runtime, block);
        block->state = BLOCK_BARE;
        if (attach(runtime, block, EBB_SLAB_BYTES)) {
            block->state = BLOCK_RESIDENT;
            block->unborn = false;
            ebb__cold_count(runtime, block, true);
            address = block->address;
        } else {
            ebb__cold_give(runtime, block);
        }
    }
    pthread_mutex_unlock(&runtime->core.lock);
    return address;
}

void ebb__runtime_give_slab(struct ebb_runtime *runtime, uintptr_t slab)
{
    pthread_mutex_lock(&runtime->core.lock);
    struct block *block = ebb__cold_find(runtime, slab);
    if (block->state == BLOCK_RESIDENT)
        ebb__cold_count(runtime, block, false);
    ebb__move_discard(runtime, block);
    pthread_mutex_unlock(&runtime->core.lock);
}

/* The live block that starts at `pointer`; NULL: none. */
static struct block *block_at(struct ebb_runtime *runtime, const void *pointer)
{
    struct block *block = ebb__space_find(runtime, (uintptr_t)pointer);
    bool begins = block && block->address == (uintptr_t)pointer &&
                  block->run.head == ebb__block_index(runtime, block);
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
        ebb__clock_close_operation(runtime);
    ebb__runtime_count_live(runtime, -(int64_t)block->size_bytes);
    block_event(runtime, EBB_EVENT_FREE, block);
    struct due due = ebb__clock_step(runtime, EBB_EVENT_FREE, block);
    ebb__part_join(runtime, block);
    for (uint32_t i = ebb__block_index(runtime, block), next; i != NO_BLOCK; i = next) {
        next = ebb__part_next(runtime, i);
        ebb__move_discard(runtime, &runtime->table.blocks[i]);
    }
    ebb__clock_end_step(runtime, EBB_EVENT_FREE, due);
    approach_budget(runtime);
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

static void note_access(struct ebb_runtime *runtime, struct block *block, bool write, bool absent)
{
    bool demand = absent && !runtime->uses.trace;
    if (demand)
        atomic_fetch_add(&runtime->core.counters->demand_faults, 1);
    if (demand || (runtime->uses.trace && !block->use.open)) {
        const struct block *head = &runtime->table.blocks[block->run.head];
        struct ebb_event event = {
            .block = block->serial,
            .size_bytes = head->size_bytes,
            .kind = EBB_EVENT_ACCESS,
            .access = write ? EBB_ACCESS_WRITE : EBB_ACCESS_READ,
            .flags = demand ? EBB_EVENT_DEMAND : 0,
        };
        if (ebb__part_is_large(runtime, ebb__whole_pages(head->size_bytes))) {
            /* One event for each unit of the part; where it was absent, one for all of it. */
            uint64_t first = block->address - head->address;
            event.flags |= EBB_EVENT_PART;
            for (uint64_t unit = demand ? block->run.units : 1; unit <= block->run.units; unit++) {
                uint64_t end = first + unit * EBB_PART_BYTES;
                event.size_bytes = end < head->size_bytes ? end : head->size_bytes;
                ebb__runtime_event(runtime, &event);
            }
        } else {
            ebb__runtime_event(runtime, &event);
        }
    }
    ebb__move_touch(runtime, block);
}

static void fault_in_block(struct ebb_runtime *runtime, struct block *block, uintptr_t address,
                           bool write)
{
    if (block->wait.fault_ns == 0) {
        ebb__feedback_missed(runtime, block);
        ebb__clock_seen(runtime, block);
    }
    switch (block->state) {
    case BLOCK_PARKED: /* about to leave, or a guard, or observed */
        note_access(runtime, block, write, block->transfer.queue == QUEUE_OUT);
        ebb__move_unpark(runtime, block);
        ebb__guards_touched(runtime, block, false);
        break;
    case BLOCK_BARE:
        /* The program does not know its address yet: a fault that was reported before the block that
         * was here was freed. */
        if (runtime->table.blocks[block->run.head].unborn)
            break;
        note_access(runtime, block, write, false);
        if (block->transfer.queue == QUEUE_IN)
            break; /* a worker is on it: two must not give it pages */
        if (ebb__pages_take(runtime, block->address, block->page_bytes)) {
            block->state = BLOCK_RESIDENT;
        } else {
            ebb__timers_fault(runtime, block);
            ebb__move_queue_in(runtime, block, true);
        }
        break;
    case BLOCK_LEAVING:
    case BLOCK_AWAY:
    case BLOCK_COMING:
        if (block->wait.fault_ns == 0) {
            note_access(runtime, block, write, true);
            ebb__timers_fault(runtime, block);
            ebb__guards_touched(runtime, block, true);
        }
        ebb__move_call_back(runtime, block);
        break;
    default: /* RESIDENT: come back meanwhile, or the program itself dropped the page; or freed */
        ebb__space_fill(runtime, block, address);
        break;
    }
}

/* What a plan has made one part, and no plan counts on any more, need not fit as a whole. */
static struct block *part_to_bring(struct ebb_runtime *runtime, struct block *block,
                                   uintptr_t address)
{
    bool is_known = runtime->replay.playing && block->script_block != EBB_SCRIPT_NONE;
    struct block *head = &runtime->table.blocks[block->run.head];
    if (is_known || head->unborn || (block->state != BLOCK_BARE && block->state != BLOCK_AWAY) ||
        ebb__pages_available(runtime) >= block->page_bytes)
        return block;
    ebb__part_split(runtime, head);
    return ebb__space_find(runtime, address);
}

/* The block that the thread may have to wait for; NULL: for none. */
static struct block *look_at_fault(struct ebb_runtime *runtime, uintptr_t address, bool write)
{
    if (ebb__placed_owns(runtime, address)) {
        ebb__placed_fill(runtime, address);
        return NULL;
    }
    struct block *block = ebb__space_find(runtime, address);
    if (block && block->kind == BLOCK_SLAB) {
        ebb__cold_fault(runtime, block, address);
        return block;
    }
    if (block)
        block = part_to_bring(runtime, block, address);
    if (block)
        fault_in_block(runtime, block, address, write);
    else
        ebb__space_fill(runtime, NULL, address);
    return block;
}

/* Uses of small objects tell nothing of operations. */
static void note_pause(struct ebb_runtime *runtime, uintptr_t address)
{
    if (!ebb__cold_owns(runtime, address) && ebb__clock_pause(runtime))
        approach_budget(runtime);
}

void ebb__runtime_fault(struct ebb_runtime *runtime, uintptr_t address, bool write)
{
    struct ebb_wait *wait = ebb__waits_enter(runtime, address);
    pthread_mutex_lock(&runtime->core.lock);
    note_pause(runtime, address);
    look_at_fault(runtime, address, write);
    pthread_mutex_unlock(&runtime->core.lock);
    ebb__wait_end(wait);
}

bool ebb__runtime_await(struct ebb_runtime *runtime, uintptr_t address, bool write)
{
    struct ebb_wait *wait = ebb__waits_enter(runtime, address);
    pthread_mutex_lock(&runtime->core.lock);
    const struct block *block = ebb__keep_live_at(runtime, address);
    bool waits = !block || !block->kept || block->state != BLOCK_RESIDENT;
    if (waits)
        note_pause(runtime, address);
    while (waits) {
        block = look_at_fault(runtime, address, write);
        ebb__wait_end(wait); /* from here the block's own is seen */
        wait = NULL;
        if (!block || block->state == BLOCK_RESIDENT || !ebb__block_is_live(block))
            break;
        pthread_cond_wait(&runtime->core.changed, &runtime->core.lock);
    }
    pthread_mutex_unlock(&runtime->core.lock);
    ebb__wait_end(wait);
    return waits;
}

/* Are these plans for the same iteration? */
static bool same_template(const struct ebb_script *a, const struct ebb_script *b)
{
    if (a->clock_count != b->clock_count || a->alloc_count != b->alloc_count)
        return false;
    const struct ebb_script_event *left = ebb__script_events(a), *right = ebb__script_events(b);
    for (uint32_t i = 0; i < a->clock_count; i++)
        if (left[i].kind != right[i].kind || left[i].size_bytes != right[i].size_bytes)
            return false;
    return true;
}

/* Put it among the scripts, where it replaces one of the same iteration, or the oldest once there are too
 * many; what plays stops. */
static struct performance *install(struct ebb_runtime *runtime,
                                   const struct performance *performance)
{
    runtime->replay.playing = NULL;
    runtime->replay.script_sets++;
    uint32_t replaced = 0;
    while (replaced < runtime->replay.script_count &&
           !same_template(runtime->replay.scripts[replaced].script, performance->script))
        replaced++;
    if (replaced == runtime->replay.script_count && replaced == MAX_SCRIPTS)
        replaced = 0;
    if (replaced < runtime->replay.script_count) {
        munmap(runtime->replay.scripts[replaced].tables,
               runtime->replay.scripts[replaced].table_bytes);
        memmove(&runtime->replay.scripts[replaced], &runtime->replay.scripts[replaced + 1],
                (runtime->replay.script_count - replaced - 1) * sizeof runtime->replay.scripts[0]);
        runtime->replay.script_count--;
    }
    runtime->replay.scripts[runtime->replay.script_count++] = *performance;
    runtime->pool.clocks = performance->script->clock_count;
    return &runtime->replay.scripts[runtime->replay.script_count - 1];
}

static void forget_awaited(struct ebb_runtime *runtime)
{
    if (runtime->replay.awaited.script)
        munmap(runtime->replay.awaited.tables, runtime->replay.awaited.table_bytes);
    runtime->replay.awaited.script = NULL;
    runtime->replay.awaited_due = false;
}

void ebb__runtime_take_over(struct ebb_runtime *runtime)
{
    struct performance awaited = runtime->replay.awaited;
    bool plays = runtime->replay.playing != NULL;
    uint32_t clocks = awaited.script->clock_count;
    runtime->replay.awaited.script = NULL;
    runtime->replay.awaited_due = false;
    struct performance *installed = install(runtime, &awaited);
    if (plays)
        ebb__clock_start(runtime, installed, (runtime->replay.position + clocks - 1) % clocks);
}

/* What lies at planned addresses cannot make way for what the next plan puts elsewhere: it takes over
 * from one of the same iteration where the least of that is there. */
static bool defer(struct ebb_runtime *runtime, const struct performance *performance)
{
    const struct performance *playing = runtime->replay.playing;
    if (!playing || playing->woven.passed || performance->script->alloc_count == 0 ||
        !same_template(playing->script, performance->script))
        return false;
    runtime->replay.awaited = *performance;
    runtime->replay.awaited_at = ebb__placed_least(playing->script);
    if (runtime->pool.load_bytes == 0)
        ebb__runtime_take_over(runtime);
    return true;
}

enum ebb_status ebb__runtime_set_script(struct ebb_runtime *runtime,
                                        const struct ebb_script *script, uint64_t bytes)
{
    struct performance performance = {0};
    if (!ebb__script_valid(script, bytes))
        return EBB_ERR_FORMAT;
    if (!ebb__clock_prepare(runtime, &performance, script))
        return EBB_ERR_MEMORY;
    pthread_mutex_lock(&runtime->core.lock);
    if (runtime->replay.awaited.script && !same_template(runtime->replay.awaited.script, script))
        ebb__runtime_take_over(runtime);
    forget_awaited(runtime);
    if (!defer(runtime, &performance)) {
        struct performance *installed = install(runtime, &performance);
        if (script->alloc_count == 0) {
            ebb__clock_start(runtime, installed, script->clock_count - 1);
            ebb__guards_arm(runtime);
        }
    }
    pthread_mutex_unlock(&runtime->core.lock);
    return EBB_OK;
}

void ebb__runtime_forget_scripts(struct ebb_runtime *runtime)
{
    pthread_mutex_lock(&runtime->core.lock);
    if (runtime->replay.playing)
        ebb__runtime_mark(runtime, EBB_MARK_PLAN_OFF, runtime->replay.position);
    runtime->replay.playing = NULL;
    runtime->replay.script_sets++;
    forget_awaited(runtime);
    while (runtime->replay.script_count) {
        struct performance *last = &runtime->replay.scripts[--runtime->replay.script_count];
        munmap(last->tables, last->table_bytes);
    }
    pthread_mutex_unlock(&runtime->core.lock);
}

void ebb__runtime_note_trace(struct ebb_runtime *runtime)
{
    if (runtime->pool.load_bytes && runtime->uses.event_number < runtime->uses.blind_until)
        return;
    runtime->uses.blind_until = 0;
    ebb__runtime_mark(runtime, EBB_MARK_TRACE_ON, 0);
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
                block->kind != BLOCK_PLACED)
                ebb__move_park(runtime, block);
            else if (!on && block->state == BLOCK_PARKED && block->transfer.queue != QUEUE_OUT)
                ebb__move_unpark(runtime, block);
        }
        for (uint32_t i = 1; !on && i <= runtime->table.count; i++)
            if (ebb__block_is_live(&runtime->table.blocks[i]) &&
                runtime->table.blocks[i].run.parts > 1)
                ebb__part_join(runtime, &runtime->table.blocks[i]);
        if (on) {
            runtime->uses.blind_until = runtime->uses.event_number + runtime->pool.clocks;
            ebb__runtime_note_trace(runtime);
        } else if (runtime->uses.blind_until) {
            runtime->uses.blind_until = 0; /* nothing has been said of it */
        } else {
            ebb__runtime_mark(runtime, EBB_MARK_TRACE_OFF, 0);
        }
        ebb__guards_arm(runtime);
    }
    pthread_mutex_unlock(&runtime->core.lock);
}

void ebb__runtime_shrink(struct ebb_runtime *runtime, uint64_t bytes)
{
    pthread_mutex_lock(&runtime->core.lock);
    if (runtime->memory.owed_bytes < bytes)
        runtime->memory.owed_bytes = bytes;
    ebb__pages_trim(runtime);
    evict_until(runtime, runtime->memory.owed_bytes);
    pthread_mutex_unlock(&runtime->core.lock);
}

void ebb__runtime_trim(struct ebb_runtime *runtime)
{
    pthread_mutex_lock(&runtime->core.lock);
    approach_budget(runtime);
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
    pthread_mutex_unlock(&runtime->core.lock);
}
