#include "engine/internal.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST_OPEN ((uint32_t)1 << 20)
#define LOOKS_AN_ALLOC 8u /* at slabs, while accesses are observed: a tenth of a ms. Arbitrary */
#define MOST_EXTENTS ((size_t)1 << 16)

void *ebb__engine_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void ebb__engine_unmap(void *memory, size_t bytes)
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

void ebb__engine_event(struct ebb_engine *engine, const struct ebb_event *event)
{
    struct ebb_event stamped = *event;
    stamped.time_ns = ebb__now_ns() - engine->ring->origin_ns;
    ebb__ring_write(engine->ring, &stamped);
}

void ebb__engine_warn(struct ebb_engine *engine, const char *message)
{
    if (engine->config.warn)
        engine->config.warn(engine->config.context, message);
}

void ebb__engine_mark(struct ebb_engine *engine, enum ebb_mark mark, uint64_t value)
{
    ebb__engine_event(
        engine,
        &(struct ebb_event){.size_bytes = value, .kind = EBB_EVENT_MARK, .mark = (uint8_t)mark});
}

static void block_event(struct ebb_engine *engine, enum ebb_event_kind kind,
                        const struct block *block)
{
    ebb__engine_event(engine, &(struct ebb_event){.block = block->serial,
                                                  .size_bytes = block->size_bytes,
                                                  .kind = (uint8_t)kind,
                                                  .thread = thread_id()});
}

void ebb__engine_init_sync(struct ebb_engine *engine)
{
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->changed, NULL);
    pthread_cond_init(&engine->out_work, NULL);
    pthread_cond_init(&engine->in_work, NULL);
}

/* Everything but the workers; also where some of it could not be had. */
static void release(struct ebb_engine *engine)
{
    ebb__relatives_fini(engine);
    ebb__space_fini(engine);
    ebb__engine_unmap(engine->open_blocks, MOST_OPEN * sizeof *engine->open_blocks);
    ebb__engine_unmap(engine->history, HISTORY * sizeof *engine->history);
    ebb__engine_unmap(engine->extent_table, MOST_EXTENTS * sizeof *engine->extent_table);
    ebb__engine_unmap(engine, sizeof *engine);
}

static enum ebb_status lack_memory(struct ebb_error *error)
{
    enum ebb_status status = ebb__fail(error, EBB_ERR_MEMORY, "the engine's tables",
                                       "address space is lacking: %s", strerrordesc_np(ENOMEM));
    ebb__error_set_remedy(error, "raise the limit of address space (ulimit -v)");
    return status;
}

void ebb__engine_announce(struct ebb_engine *engine)
{
    const struct ebb_device_layout *layout = &engine->device.layout;
    struct ebb_counters *counters = engine->counters;
    atomic_store(&counters->mechanism, (uint32_t)engine->device.ops->kind);
    atomic_store(&counters->arena_first, layout->arena.base);
    atomic_store(&counters->arena_last, layout->depot.base + layout->depot.bytes);
    atomic_store(&counters->managing, 1);
}

enum ebb_status ebb__engine_create(const struct ebb_engine_config *config,
                                   struct ebb_engine **created, struct ebb_error *error)
{
    struct ebb_engine *engine = ebb__engine_memory(sizeof *engine);
    if (!engine)
        return lack_memory(error);
    engine->config = *config;
    engine->device = config->device;
    if (engine->config.part_from_bytes == 0)
        engine->config.part_from_bytes = EBB_PART_FROM_BYTES;
    if (engine->config.pause_ns == 0)
        engine->config.pause_ns = EBB_PAUSE_NS;
    if (engine->config.cold_ns == 0)
        engine->config.cold_ns = EBB_COLD_NS;
    if (engine->config.store_pause_ns == 0)
        engine->config.store_pause_ns = EBB_STORE_PAUSE_NS;
    if (engine->config.exchange_share == 0)
        engine->config.exchange_share = EBB_EXCHANGE_SHARE;
    engine->ledger = config->ledger;
    engine->slot = config->slot ? config->slot : config->ledger->slots;
    engine->ring = config->ring;
    engine->counters = &config->ring->counters;
    ebb__engine_init_sync(engine);
    engine->open_capacity = MOST_OPEN;
    engine->open_blocks = ebb__engine_memory(MOST_OPEN * sizeof *engine->open_blocks);
    engine->history = ebb__engine_memory(HISTORY * sizeof *engine->history);
    engine->extent_table = ebb__engine_memory(MOST_EXTENTS * sizeof *engine->extent_table);
    bool has_relatives =
        ebb__relatives_init(engine); /* whatever failed before: it is undone, too */
    if (!engine->open_blocks || !engine->history || !engine->extent_table || !has_relatives ||
        !ebb__space_init(engine)) {
        release(engine);
        return lack_memory(error);
    }
    ebb__extents_init(&engine->extents, engine->extent_table, MOST_EXTENTS, UINT64_MAX);
    engine->trace = config->trace;
    if (!ebb__mover_start(engine)) {
        enum ebb_status status = ebb__fail(error, EBB_ERR_LIMIT, "the engine's threads",
                                           "they cannot be started: %s", strerrordesc_np(errno));
        ebb__error_set_remedy(error, "raise the limit of processes (ulimit -u, the cgroup's "
                                     "pids.max) or of address space (ulimit -v)");
        release(engine);
        return status;
    }
    ebb__engine_announce(engine);
    if (engine->trace)
        ebb__engine_mark(engine, EBB_MARK_TRACE_ON, 0);
    *created = engine;
    return EBB_OK;
}

void ebb__engine_destroy(struct ebb_engine *engine)
{
    ebb__mover_stop(engine);
    atomic_store(&engine->counters->managing, 0);
    release(engine);
}

/* Let victims leave until `bytes` are on their way out, or nothing more can leave. */
static void evict_until(struct ebb_engine *engine, uint64_t bytes)
{
    while (engine->out_pending_bytes < bytes && !engine->store_failed) {
        struct block *victim = ebb__victim_choose(engine);
        if (!victim)
            break;
        ebb__move_evict(engine, victim);
    }
}

/* A budget that has just been set, or that the store did not let be kept, is approached step by step,
 * then it holds. */
static void approach_budget(struct ebb_engine *engine)
{
    struct ebb_ledger *ledger = engine->ledger;
    bool in_force = atomic_load_explicit(&ledger->in_force, memory_order_relaxed);
    if (in_force && !engine->beyond)
        return;
    uint64_t budget = atomic_load(&ledger->budget_bytes);
    if (budget == UINT64_MAX)
        return;
    ebb__pages_trim(engine);
    uint64_t held = atomic_load(&ledger->held_bytes);
    if (held > budget) {
        evict_until(engine, held - budget);
        return;
    }
    engine->beyond = false;
    if (in_force)
        return;
    atomic_store(&ledger->peak_bytes, held);
    atomic_store(&ledger->in_force, 1);
}

/* Pages for a new block. */
static bool try_attach(struct ebb_engine *engine, struct block *block, uint64_t bytes, bool force)
{
    if (block->placed)
        return ebb__placed_back(engine, block, force);
    return force ? ebb__pages_force(engine, block->address, bytes)
                 : ebb__pages_take(engine, block->address, bytes);
}

/* As try_attach(), waiting for room as long as something is leaving. */
static bool attach(struct ebb_engine *engine, struct block *block, uint64_t bytes)
{
    if (try_attach(engine, block, bytes, false))
        return true;
    uint64_t began = ebb__now_ns();
    struct asking asking = {0};
    bool got = false;
    struct ebb_wait *wait = ebb__waits_block(engine, block);
    engine->room_waits++;
    while (!(got = try_attach(engine, block, bytes, false))) {
        if (block->placed)
            bytes = ebb__placed_lacking(engine, block);
        if (!ebb__mover_make_room(engine, bytes)) {
            if (ebb__mover_ask_others(engine, bytes, &asking))
                continue;
            got = try_attach(engine, block, bytes, true);
            break;
        }
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec++;
        pthread_cond_clockwait(&engine->changed, &engine->lock, CLOCK_MONOTONIC, &until);
    }
    engine->room_waits--;
    ebb__wait_end(wait);
    ebb__engine_stalled(engine, ebb__now_ns() - began);
    return got;
}

void ebb__engine_count_live(struct ebb_engine *engine, int64_t bytes)
{
    uint64_t live =
        atomic_fetch_add(&engine->counters->live_bytes, (uint64_t)bytes) + (uint64_t)bytes;
    if (bytes > 0)
        ebb__ledger_raise(&engine->counters->peak_live_bytes, live);
}

/* Nothing is known of it yet. */
static void make_new(struct ebb_engine *engine, struct block *block)
{
    block->unborn = true;
    block->last_use = engine->event_number + 1;
    block->touch = ++engine->touches;
    block->left_at = block->evicted_at = block->needed_at = 0;
    block->fault_ns = 0;
    block->asking.since_ns = 0;
    block->pinned_until = 0;
    block->pins = 0;
    block->script_block = EBB_SCRIPT_NONE;
    block->open = block->urgent = block->cancelled = block->given_up = block->keep_copy = false;
    block->has_copy = block->hashed = false;
    block->out_queued = block->in_queued = block->inherited = block->kept = false;
}

static void begin_life(struct ebb_engine *engine, struct block *block, size_t bytes)
{
    make_new(engine, block);
    block->size_bytes = bytes;
    block->serial = ++engine->next_serial;
    atomic_fetch_add(&engine->counters->allocations, 1);
    ebb__engine_count_live(engine, (int64_t)bytes);
}

/* Pages for a new block, at once or as its parts are used; false: memory is out. */
static bool furnish(struct ebb_engine *engine, struct block *block)
{
    bool got;
    if (engine->trace)
        ebb__part_split(engine, block);
    if (!block->placed && (engine->trace || block->parts > 1))
        return true;
    /* What no plan counts on in one piece need not wait until there is room for all of it. */
    if (!block->placed && ebb__part_is_large(engine, block->page_bytes) &&
        block->script_block == EBB_SCRIPT_NONE) {
        got = ebb__pages_take(engine, block->address, block->page_bytes);
        if (!got) {
            ebb__part_split(engine, block);
            return true;
        }
    } else {
        got = attach(engine, block, block->page_bytes);
    }
    if (got)
        block->state = BLOCK_RESIDENT;
    return got;
}

/* No further block can be had; said once. */
static bool device_is_full(struct ebb_engine *engine)
{
    const struct ebb_device_ops *ops = engine->device.ops;
    if (!ops->is_full || !ops->is_full(engine->device.state))
        return false;
    if (!engine->full_said)
        ebb__engine_warn(engine,
                         "too many blocks for the mappings that this system permits: further "
                         "ones are NOT within the budget; raise vm.max_map_count");
    engine->full_said = true;
    return true;
}

void *ebb__engine_alloc(struct ebb_engine *engine, size_t bytes, size_t alignment, bool zeroed)
{
    /* What the arena cannot hold is refused before anything is rounded up, which could overflow. */
    if (bytes == 0 || bytes > engine->device.layout.arena.bytes || alignment > EBB_HUGE_BYTES)
        return NULL;
    uint64_t page_bytes = ebb__whole_pages(bytes);
    pthread_mutex_lock(&engine->lock);
    if (engine->trace) {
        ebb__clock_close_operation(engine);
        ebb__cold_look(engine, LOOKS_AN_ALLOC);
    }
    approach_budget(engine);
    struct block *block = ebb__placed_take(engine, bytes, alignment);
    if (!block)
        page_bytes = ebb__clock_page_bytes(engine, bytes);
    bool has_pages = false;
    if (!block && !engine->trace && !ebb__clock_expects_parts(engine, bytes)) {
        block = ebb__pages_spare(engine, page_bytes);
        has_pages = block != NULL;
    }
    bool is_full = !block && device_is_full(engine);
    if (!block && !is_full)
        block = ebb__space_take(engine, page_bytes);
    while (!block && !is_full &&
           ebb__pages_strip_spare(engine)) /* spare blocks hold address space too */
        block = ebb__space_take(engine, page_bytes);
    if (!block) {
        pthread_mutex_unlock(&engine->lock);
        return NULL;
    }
    block->page_bytes = page_bytes;
    begin_life(engine, block, bytes);
    block->state = has_pages ? BLOCK_RESIDENT : BLOCK_BARE;
    block_event(engine, EBB_EVENT_ALLOC, block);
    ebb__clock_end_step(engine, EBB_EVENT_ALLOC, ebb__clock_step(engine, EBB_EVENT_ALLOC, block));
    if (!has_pages && !furnish(engine, block)) {
        ebb__engine_count_live(engine, -(int64_t)bytes);
        block_event(engine, EBB_EVENT_FREE, block);
        ebb__move_discard(engine, block);
        pthread_mutex_unlock(&engine->lock);
        return NULL;
    }
    block->unborn = false;
    void *pointer = (void *)block->address;
    pthread_mutex_unlock(&engine->lock);
    if (zeroed)
        memset(pointer, 0, bytes);
    return pointer;
}

bool ebb__engine_owns(const struct ebb_engine *engine, const void *pointer)
{
    uintptr_t base = engine->device.layout.arena.base;
    return (uintptr_t)pointer - base < engine->cold.base - base;
}

uintptr_t ebb__engine_slabs(const struct ebb_engine *engine, size_t *most)
{
    *most = engine->cold.total;
    return engine->cold.base;
}

uintptr_t ebb__engine_take_slab(struct ebb_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    struct block *block = ebb__cold_take(engine);
    uintptr_t address = 0;
    if (block) {
        make_new(engine, block);
        block->state = BLOCK_BARE;
        if (attach(engine, block, EBB_SLAB_BYTES)) {
            block->state = BLOCK_RESIDENT;
            block->unborn = false;
            ebb__cold_count(engine, block, true);
            address = block->address;
        } else {
            ebb__cold_give(engine, block);
        }
    }
    pthread_mutex_unlock(&engine->lock);
    return address;
}

void ebb__engine_give_slab(struct ebb_engine *engine, uintptr_t slab)
{
    pthread_mutex_lock(&engine->lock);
    struct block *block = ebb__cold_find(engine, slab);
    if (block->state == BLOCK_RESIDENT)
        ebb__cold_count(engine, block, false);
    ebb__move_discard(engine, block);
    pthread_mutex_unlock(&engine->lock);
}

/* The live block that starts at `pointer`; NULL: none. */
static struct block *block_at(struct ebb_engine *engine, const void *pointer)
{
    struct block *block = ebb__space_find(engine, (uintptr_t)pointer);
    bool begins = block && block->address == (uintptr_t)pointer &&
                  block->head == ebb__block_index(engine, block);
    return begins && ebb__block_is_live(block) ? block : NULL;
}

bool ebb__engine_free(struct ebb_engine *engine, void *pointer)
{
    pthread_mutex_lock(&engine->lock);
    struct block *block = block_at(engine, pointer);
    if (!block) {
        pthread_mutex_unlock(&engine->lock);
        return false;
    }
    if (engine->trace)
        ebb__clock_close_operation(engine);
    ebb__engine_count_live(engine, -(int64_t)block->size_bytes);
    block_event(engine, EBB_EVENT_FREE, block);
    struct due due = ebb__clock_step(engine, EBB_EVENT_FREE, block);
    ebb__part_join(engine, block);
    for (uint32_t i = ebb__block_index(engine, block), next; i != NO_BLOCK; i = next) {
        next = ebb__part_next(engine, i);
        ebb__move_discard(engine, &engine->blocks[i]);
    }
    ebb__clock_end_step(engine, EBB_EVENT_FREE, due);
    approach_budget(engine);
    pthread_mutex_unlock(&engine->lock);
    return true;
}

size_t ebb__engine_usable_bytes(struct ebb_engine *engine, const void *pointer)
{
    pthread_mutex_lock(&engine->lock);
    struct block *block = block_at(engine, pointer);
    size_t bytes = block ? (size_t)block->size_bytes : 0;
    pthread_mutex_unlock(&engine->lock);
    return bytes;
}

static void note_access(struct ebb_engine *engine, struct block *block, bool write, bool absent)
{
    bool demand = absent && !engine->trace;
    if (demand)
        atomic_fetch_add(&engine->counters->demand_faults, 1);
    if (demand || (engine->trace && !block->open)) {
        const struct block *head = &engine->blocks[block->head];
        struct ebb_event event = {
            .block = block->serial,
            .size_bytes = head->size_bytes,
            .kind = EBB_EVENT_ACCESS,
            .access = write ? EBB_ACCESS_WRITE : EBB_ACCESS_READ,
            .flags = demand ? EBB_EVENT_DEMAND : 0,
        };
        if (ebb__part_is_large(engine, ebb__whole_pages(head->size_bytes))) {
            /* One event for each unit of the part; where it was absent, one for all of it. */
            uint64_t first = block->address - head->address;
            event.flags |= EBB_EVENT_PART;
            for (uint64_t unit = demand ? block->units : 1; unit <= block->units; unit++) {
                uint64_t end = first + unit * EBB_PART_BYTES;
                event.size_bytes = end < head->size_bytes ? end : head->size_bytes;
                ebb__engine_event(engine, &event);
            }
        } else {
            ebb__engine_event(engine, &event);
        }
    }
    ebb__move_touch(engine, block);
}

static void fault_in_block(struct ebb_engine *engine, struct block *block, uintptr_t address,
                           bool write)
{
    if (block->fault_ns == 0) {
        ebb__feedback_missed(engine, block);
        ebb__clock_seen(engine, block);
    }
    switch (block->state) {
    case BLOCK_PARKED: /* about to leave, or a guard, or observed */
        note_access(engine, block, write, block->out_queued);
        ebb__move_unpark(engine, block);
        ebb__guards_touched(engine, block, false);
        break;
    case BLOCK_BARE:
        /* The program does not know its address yet: a fault that was reported before the block that
         * was here was freed. */
        if (engine->blocks[block->head].unborn)
            break;
        note_access(engine, block, write, false);
        if (block->in_queued)
            break; /* a worker is on it: two must not give it pages */
        if (ebb__pages_take(engine, block->address, block->page_bytes)) {
            block->state = BLOCK_RESIDENT;
        } else {
            ebb__timers_fault(engine, block);
            ebb__move_queue_in(engine, block, true);
        }
        break;
    case BLOCK_LEAVING:
    case BLOCK_AWAY:
    case BLOCK_COMING:
        if (block->fault_ns == 0) {
            note_access(engine, block, write, true);
            ebb__timers_fault(engine, block);
            ebb__guards_touched(engine, block, true);
        }
        ebb__move_call_back(engine, block);
        break;
    default: /* RESIDENT: come back meanwhile, or the program itself dropped the page; or freed */
        ebb__space_fill(engine, block, address);
        break;
    }
}

/* What a plan has made one part, and no plan counts on any more, need not fit as a whole. */
static struct block *part_to_bring(struct ebb_engine *engine, struct block *block,
                                   uintptr_t address)
{
    bool is_known = engine->playing && block->script_block != EBB_SCRIPT_NONE;
    struct block *head = &engine->blocks[block->head];
    if (is_known || head->unborn || (block->state != BLOCK_BARE && block->state != BLOCK_AWAY) ||
        ebb__pages_available(engine) >= block->page_bytes)
        return block;
    ebb__part_split(engine, head);
    return ebb__space_find(engine, address);
}

/* The block that the thread may have to wait for; NULL: for none. */
static struct block *look_at_fault(struct ebb_engine *engine, uintptr_t address, bool write)
{
    if (ebb__placed_owns(engine, address)) {
        ebb__placed_fill(engine, address);
        return NULL;
    }
    struct block *block = ebb__space_find(engine, address);
    if (block && block->slab) {
        ebb__cold_fault(engine, block, address);
        return block;
    }
    if (block)
        block = part_to_bring(engine, block, address);
    if (block)
        fault_in_block(engine, block, address, write);
    else
        ebb__space_fill(engine, NULL, address);
    return block;
}

/* Uses of small objects tell nothing of operations. */
static void note_pause(struct ebb_engine *engine, uintptr_t address)
{
    if (!ebb__cold_owns(engine, address) && ebb__clock_pause(engine))
        approach_budget(engine);
}

void ebb__engine_fault(struct ebb_engine *engine, uintptr_t address, bool write)
{
    struct ebb_wait *wait = ebb__waits_enter(engine, address);
    pthread_mutex_lock(&engine->lock);
    note_pause(engine, address);
    look_at_fault(engine, address, write);
    pthread_mutex_unlock(&engine->lock);
    ebb__wait_end(wait);
}

bool ebb__engine_await(struct ebb_engine *engine, uintptr_t address, bool write)
{
    struct ebb_wait *wait = ebb__waits_enter(engine, address);
    pthread_mutex_lock(&engine->lock);
    const struct block *block = ebb__keep_live_at(engine, address);
    bool waits = !block || !block->kept || block->state != BLOCK_RESIDENT;
    if (waits)
        note_pause(engine, address);
    while (waits) {
        block = look_at_fault(engine, address, write);
        ebb__wait_end(wait); /* from here the block's own is seen */
        wait = NULL;
        if (!block || block->state == BLOCK_RESIDENT || !ebb__block_is_live(block))
            break;
        pthread_cond_wait(&engine->changed, &engine->lock);
    }
    pthread_mutex_unlock(&engine->lock);
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
static struct performance *install(struct ebb_engine *engine, const struct performance *performance)
{
    engine->playing = NULL;
    engine->script_sets++;
    uint32_t replaced = 0;
    while (replaced < engine->script_count &&
           !same_template(engine->scripts[replaced].script, performance->script))
        replaced++;
    if (replaced == engine->script_count && replaced == MAX_SCRIPTS)
        replaced = 0;
    if (replaced < engine->script_count) {
        munmap(engine->scripts[replaced].tables, engine->scripts[replaced].table_bytes);
        memmove(&engine->scripts[replaced], &engine->scripts[replaced + 1],
                (engine->script_count - replaced - 1) * sizeof engine->scripts[0]);
        engine->script_count--;
    }
    engine->scripts[engine->script_count++] = *performance;
    engine->pool.clocks = performance->script->clock_count;
    return &engine->scripts[engine->script_count - 1];
}

static void forget_awaited(struct ebb_engine *engine)
{
    if (engine->awaited.script)
        munmap(engine->awaited.tables, engine->awaited.table_bytes);
    engine->awaited.script = NULL;
    engine->awaited_due = false;
}

void ebb__engine_take_over(struct ebb_engine *engine)
{
    struct performance awaited = engine->awaited;
    bool plays = engine->playing != NULL;
    uint32_t clocks = awaited.script->clock_count;
    engine->awaited.script = NULL;
    engine->awaited_due = false;
    struct performance *installed = install(engine, &awaited);
    if (plays)
        ebb__clock_start(engine, installed, (engine->position + clocks - 1) % clocks);
}

/* What lies at planned addresses cannot make way for what the next plan puts elsewhere: it takes over
 * from one of the same iteration where the least of that is there. */
static bool defer(struct ebb_engine *engine, const struct performance *performance)
{
    const struct performance *playing = engine->playing;
    if (!playing || playing->woven.passed || performance->script->alloc_count == 0 ||
        !same_template(playing->script, performance->script))
        return false;
    engine->awaited = *performance;
    engine->awaited_at = ebb__placed_least(playing->script);
    if (engine->pool.load_bytes == 0)
        ebb__engine_take_over(engine);
    return true;
}

enum ebb_status ebb__engine_set_script(struct ebb_engine *engine, const struct ebb_script *script,
                                       uint64_t bytes)
{
    struct performance performance = {0};
    if (!ebb__script_valid(script, bytes))
        return EBB_ERR_FORMAT;
    if (!ebb__clock_prepare(engine, &performance, script))
        return EBB_ERR_MEMORY;
    pthread_mutex_lock(&engine->lock);
    if (engine->awaited.script && !same_template(engine->awaited.script, script))
        ebb__engine_take_over(engine);
    forget_awaited(engine);
    if (!defer(engine, &performance)) {
        struct performance *installed = install(engine, &performance);
        if (script->alloc_count == 0) {
            ebb__clock_start(engine, installed, script->clock_count - 1);
            ebb__guards_arm(engine);
        }
    }
    pthread_mutex_unlock(&engine->lock);
    return EBB_OK;
}

void ebb__engine_forget_scripts(struct ebb_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    if (engine->playing)
        ebb__engine_mark(engine, EBB_MARK_PLAN_OFF, engine->position);
    engine->playing = NULL;
    engine->script_sets++;
    forget_awaited(engine);
    while (engine->script_count) {
        struct performance *last = &engine->scripts[--engine->script_count];
        munmap(last->tables, last->table_bytes);
    }
    pthread_mutex_unlock(&engine->lock);
}

void ebb__engine_note_trace(struct ebb_engine *engine)
{
    if (engine->pool.load_bytes && engine->event_number < engine->blind_until)
        return;
    engine->blind_until = 0;
    ebb__engine_mark(engine, EBB_MARK_TRACE_ON, 0);
}

void ebb__engine_set_trace(struct ebb_engine *engine, bool on)
{
    pthread_mutex_lock(&engine->lock);
    if (engine->trace != on) {
        if (!on)
            for (uint32_t i = 0; i < engine->open_count; i++)
                engine->blocks[engine->open_blocks[i]].open = false;
        engine->open_count = 0;
        engine->trace = on;
        for (uint32_t i = 1; i <= engine->block_count; i++) {
            struct block *block = &engine->blocks[i];
            if (block->slab)
                continue;
            if (on && ebb__block_is_live(block) && block->head == i)
                ebb__part_split(engine, block);
            if (on && block->state == BLOCK_RESIDENT && !block->out_queued && !block->placed)
                ebb__move_park(engine, block);
            else if (!on && block->state == BLOCK_PARKED && !block->out_queued)
                ebb__move_unpark(engine, block);
        }
        for (uint32_t i = 1; !on && i <= engine->block_count; i++)
            if (ebb__block_is_live(&engine->blocks[i]) && engine->blocks[i].parts > 1)
                ebb__part_join(engine, &engine->blocks[i]);
        if (on) {
            engine->blind_until = engine->event_number + engine->pool.clocks;
            ebb__engine_note_trace(engine);
        } else if (engine->blind_until) {
            engine->blind_until = 0; /* nothing has been said of it */
        } else {
            ebb__engine_mark(engine, EBB_MARK_TRACE_OFF, 0);
        }
        ebb__guards_arm(engine);
    }
    pthread_mutex_unlock(&engine->lock);
}

void ebb__engine_shrink(struct ebb_engine *engine, uint64_t bytes)
{
    pthread_mutex_lock(&engine->lock);
    if (engine->owed_bytes < bytes)
        engine->owed_bytes = bytes;
    ebb__pages_trim(engine);
    evict_until(engine, engine->owed_bytes);
    pthread_mutex_unlock(&engine->lock);
}

void ebb__engine_trim(struct ebb_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    approach_budget(engine);
    pthread_mutex_unlock(&engine->lock);
}

void ebb__engine_settle(struct ebb_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    while (engine->out_queue.first != NO_BLOCK || engine->out_current != NO_BLOCK ||
           engine->in_current != NO_BLOCK || engine->transfers ||
           engine->in_queue.first != NO_BLOCK) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += 5000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_clockwait(&engine->changed, &engine->lock, CLOCK_MONOTONIC, &until);
    }
    pthread_mutex_unlock(&engine->lock);
}
