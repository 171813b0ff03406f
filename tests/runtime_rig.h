/* The runtime for its tests, on a device of plain memory and a store that fails on demand.
 *
 * take_turn() models an access of the program. It holds the runtime's lock, so that no worker moves
 * the block meanwhile. If all pages of the block are present, it reads or writes. If a page is
 * missing, it reports a fault and tries again, like a faulting thread. Include it after cmocka. */
#ifndef EBB_TESTS_RUNTIME_RIG_H
#define EBB_TESTS_RUNTIME_RIG_H

#include "runtime/internal.h"
#include "synthetic.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define STORE_BYTES ((uint64_t)256 << 20)
#define ARENA_BYTES                                                                                \
    ((uint64_t)224 << 20) /* 1/8 of it is for slabs, 1/4 of the rest for static placement */
#define NO_BUDGET UINT64_MAX
#define PATIENCE_MS 20000u

/* False under ThreadSanitizer: it starts no threads in a forked child of a threaded program. */
static inline bool has_threads_after_fork(void)
{
#if defined(__SANITIZE_THREAD__)
    print_message("skipped: needs threads after fork\n");
    return false;
#else
    return true;
#endif
}

struct rig {
    struct ebb_device device;
    struct ebb_ledger ledger;
    struct ebb_ring *ring;
    struct ebb_counters *counters;
    struct ebb_runtime *runtime;
    struct ebb_faulty_store faulty;
    uint64_t store_limit_bytes;
    bool store_refuses;
    atomic_bool compresses; /* the store does, if this is set before it is opened */
    _Atomic uint64_t saved_bytes;
    _Atomic unsigned opened, warned, lost;
};

/* A block from the program's view. `seed` determines its bytes. */
struct item {
    unsigned char *bytes;
    size_t size;
    uint64_t seed;
};

static inline enum ebb_status open_store(void *context, struct ebb_store *store,
                                         struct ebb_error *error)
{
    struct rig *rig = context;
    atomic_fetch_add(&rig->opened, 1);
    if (rig->store_refuses)
        return ebb__fail(error, EBB_ERR_IO, "store", "refused");
    ebb__store_faulty_open(&rig->faulty, rig->store_limit_bytes, store);
    return rig->compresses ? ebb__store_compress(store, &rig->compresses, &rig->saved_bytes)
                           : EBB_OK;
}

static inline void on_warn(void *context, const char *message)
{
    struct rig *rig = context;
    (void)message;
    atomic_fetch_add(&rig->warned, 1);
}

static inline void on_lost(void *context, const char *message)
{
    struct rig *rig = context;
    (void)message;
    atomic_fetch_add(&rig->lost, 1);
}

/* Blocks of at least `part_from_bytes` have parts. An operation without events ends after
 * `pause_ns`. 0 means the runtime's own number. A failed store is not tried again; see the
 * runtime's config.store_pause_ns. */
static inline struct rig *rig_make_with(uint64_t budget_bytes, bool trace, bool verify,
                                        uint64_t part_from_bytes, uint64_t pause_ns)
{
    struct rig *rig = must(calloc(1, sizeof *rig));
    rig->store_limit_bytes = UINT64_MAX;
    rig->faulty.bytes = STORE_BYTES;
    rig->faulty.memory = must(ebb__core_memory(STORE_BYTES));
    rig->ring = must(ebb__core_memory(ebb__ring_bytes(EBB_RING_EVENTS)));
    ebb__ring_init(rig->ring, EBB_RING_EVENTS, ebb__now_ns());
    rig->counters = &rig->ring->counters;
    atomic_store(&rig->ring->parent_gone, 1); /* nobody drains the ring: do not wait if full */
    rig->ledger.magic = EBB_LEDGER_MAGIC;
    atomic_store(&rig->ledger.budget_bytes, budget_bytes);
    assert_int_equal(ebb__fake_create(ARENA_BYTES, &rig->device), EBB_OK);
    struct ebb_runtime_config config = {.device = rig->device,
                                        .ledger = &rig->ledger,
                                        .ring = rig->ring,
                                        .trace = trace,
                                        .verify = verify,
                                        .part_from_bytes = part_from_bytes,
                                        .pause_ns = pause_ns,
                                        .store_pause_ns = UINT64_MAX / 128,
                                        .open_store = open_store,
                                        .warn = on_warn,
                                        .lost = on_lost,
                                        .context = rig};
    assert_int_equal(ebb__runtime_create(&config, &rig->runtime, NULL), EBB_OK);
    return rig;
}

static inline struct rig *rig_make(uint64_t budget_bytes, bool trace, bool verify)
{
    return rig_make_with(budget_bytes, trace, verify, 0, UINT64_MAX);
}

static inline struct rig *rig_open(uint64_t budget_bytes, bool trace)
{
    return rig_make(budget_bytes, trace, false);
}

static inline void rig_close(struct rig *rig)
{
    ebb__runtime_settle(rig->runtime);
    ebb__runtime_destroy(rig->runtime);
    ebb__fake_destroy(&rig->device);
    munmap(rig->faulty.memory, STORE_BYTES);
    munmap(rig->ring, ebb__ring_bytes(EBB_RING_EVENTS));
    free(rig);
}

static inline void nap_us(long us)
{
    const struct timespec nap = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&nap, NULL);
}

static inline uint64_t held(struct rig *rig)
{
    return atomic_load(&rig->ledger.held_bytes);
}

static inline uint64_t over(struct rig *rig)
{
    return atomic_load(&rig->ledger.over_bytes);
}

static inline void assert_within_budget(struct rig *rig)
{
    uint64_t budget = atomic_load(&rig->ledger.budget_bytes);
    uint64_t peak = atomic_load(&rig->ledger.peak_bytes);
    if (peak > budget || held(rig) > budget || over(rig))
        fail_msg("peak %llu, held %llu, over %llu, budget %llu", (unsigned long long)peak,
                 (unsigned long long)held(rig), (unsigned long long)over(rig),
                 (unsigned long long)budget);
}

/* --- contents --- */

static inline uint64_t word_of(uint64_t seed, size_t i)
{
    return (seed * 0x9e3779b97f4a7c15u) ^ (i * 0xd1342543de82ef95u + seed);
}

static inline void fill(struct item *item)
{
    size_t words = item->size / 8;
    for (size_t i = 0; i < words; i++)
        ((uint64_t *)(void *)item->bytes)[i] = word_of(item->seed, i);
    for (size_t i = words * 8; i < item->size; i++)
        item->bytes[i] = (unsigned char)(item->seed + i);
}

static inline bool is_right(const struct item *item)
{
    size_t words = item->size / 8;
    for (size_t i = 0; i < words; i++)
        if (((const uint64_t *)(const void *)item->bytes)[i] != word_of(item->seed, i))
            return false;
    for (size_t i = words * 8; i < item->size; i++)
        if (item->bytes[i] != (unsigned char)(item->seed + i))
            return false;
    return true;
}

/* The first missing page of the item; 0: none is missing. Call it with the runtime's lock held. */
static inline uintptr_t missing_page(struct rig *rig, const struct item *item)
{
    uintptr_t first = (uintptr_t)item->bytes;
    for (uintptr_t at = first; at < first + item->size; at += EBB_PAGE_BYTES)
        if (!ebb__fake_present(&rig->device, at))
            return at;
    return 0;
}

enum turn { TURN_RIGHT, TURN_WRONG, TURN_NEVER };

/* Reads and checks the item, or writes it from its seed. TURN_NEVER: it was not fetched in time. */
static inline enum turn take_turn(struct rig *rig, struct item *item, bool write,
                                  unsigned patience_ms)
{
    uint64_t until = ebb__now_ns() + (uint64_t)patience_ms * 1000000u;
    for (;;) {
        pthread_mutex_lock(&rig->runtime->core.lock);
        uintptr_t missing = missing_page(rig, item);
        if (!missing) {
            enum turn turn = TURN_RIGHT;
            if (write)
                fill(item);
            else
                turn = is_right(item) ? TURN_RIGHT : TURN_WRONG;
            pthread_mutex_unlock(&rig->runtime->core.lock);
            return turn;
        }
        pthread_mutex_unlock(&rig->runtime->core.lock);
        if (ebb__now_ns() > until)
            return TURN_NEVER;
        ebb__runtime_fault(rig->runtime, missing, write);
        nap_us(30);
    }
}

static inline void check(struct rig *rig, struct item *item)
{
    assert_int_equal(take_turn(rig, item, false, PATIENCE_MS), TURN_RIGHT);
}

static inline void put(struct rig *rig, struct item *item, uint64_t seed)
{
    item->seed = seed;
    assert_int_equal(take_turn(rig, item, true, PATIENCE_MS), TURN_RIGHT);
}

static inline struct item make(struct rig *rig, size_t size, uint64_t seed)
{
    struct item item = {ebb__runtime_alloc(rig->runtime, size, 64, false), size, seed};
    assert_non_null(item.bytes);
    put(rig, &item, seed);
    return item;
}

static inline void drop(struct rig *rig, struct item *item)
{
    assert_true(ebb__runtime_free(rig->runtime, item->bytes));
    item->bytes = NULL;
}

/* --- inspecting and driving the runtime --- */

static inline struct block *block_of(struct rig *rig, const struct item *item)
{
    return ebb__space_find(&rig->runtime->addresses, (uintptr_t)item->bytes);
}

static inline enum block_state state_of(struct rig *rig, const struct item *item)
{
    pthread_mutex_lock(&rig->runtime->core.lock);
    enum block_state state = block_of(rig, item)->state;
    pthread_mutex_unlock(&rig->runtime->core.lock);
    return state;
}

static inline void send_out(struct rig *rig, const struct item *item)
{
    pthread_mutex_lock(&rig->runtime->core.lock);
    ebb__move_queue_out(&rig->runtime->transfer, block_of(rig, item), true);
    pthread_mutex_unlock(&rig->runtime->core.lock);
}

/* If `urgent`, a thread waits for the block; else it is a prefetch of the plan. */
static inline void call_in(struct rig *rig, const struct item *item, bool keep_copy, bool urgent)
{
    pthread_mutex_lock(&rig->runtime->core.lock);
    block_of(rig, item)->copy.stays = keep_copy;
    ebb__move_queue_in(&rig->runtime->transfer, block_of(rig, item), urgent);
    pthread_mutex_unlock(&rig->runtime->core.lock);
}

static inline void wait_for_state(struct rig *rig, const struct item *item, enum block_state state)
{
    for (unsigned i = 0; state_of(rig, item) != state; i++) {
        if (i > PATIENCE_MS * 10)
            fail_msg("block never came into state %d, is in %d", state, state_of(rig, item));
        nap_us(100);
    }
}

static inline void evict_now(struct rig *rig, const struct item *item)
{
    send_out(rig, item);
    wait_for_state(rig, item, BLOCK_EVICTED);
}

#endif
