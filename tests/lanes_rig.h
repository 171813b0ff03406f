/* The runtime's parts up to transfer, with running lanes. The device is plain memory, the store
 * fails on demand, and the test provides the policy. No program causes faults: a test evicts and
 * fetches explicitly, like a device with explicit acquire and release. Include it after cmocka. */
#ifndef EBB_TESTS_LANES_RIG_H
#define EBB_TESTS_LANES_RIG_H

#include "part_rig.h"
#include "runtime/transfer/transfer.h"

#include <errno.h>
#include <unistd.h>

#define LANES_STORE_BYTES ((uint64_t)128 << 20)
#define LANES_PATIENCE_NS ((uint64_t)20000000000)

struct lanes {
    struct ground ground;
    struct table table;
    struct addresses addresses;
    struct memory memory;
    struct transfer transfer;
    struct ebb_faulty_store faulty;
    bool store_refuses;
    unsigned opened;
};

/* A policy without a script: nothing is planned or due, and nothing can be evicted. */
static inline bool lanes_unplanned(const void *context)
{
    (void)context;
    return false;
}

static inline uint64_t lanes_nothing_due(void *context)
{
    (void)context;
    return 0;
}

static inline void lanes_resumed(void *context)
{
    (void)context;
}

static inline bool lanes_no_room(void *context, uint64_t bytes, struct asking *asking)
{
    (void)context;
    (void)bytes;
    (void)asking;
    return false;
}

static inline enum ebb_status lanes_open_store(void *context, struct ebb_store *store,
                                               struct ebb_error *error)
{
    struct lanes *lanes = context; /* the rig begins with its ground */
    (void)error;
    lanes->opened++;
    if (lanes->store_refuses)
        return EBB_ERR_IO;
    ebb__store_faulty_open(&lanes->faulty, UINT64_MAX, store);
    return EBB_OK;
}

/* If `verify`, each fetched block is compared with the written one. Does not start the lanes. */
static inline void lanes_open(struct lanes *lanes, uint64_t budget_bytes,
                              const struct policy *policy, void *context, bool verify)
{
    memset(lanes, 0, sizeof *lanes);
    ground_open(&lanes->ground, budget_bytes, policy, context);
    lanes->ground.core.config.open_store = lanes_open_store;
    lanes->ground.core.config.verify = verify;
    lanes->faulty.bytes = LANES_STORE_BYTES;
    lanes->faulty.memory = ebb__core_memory(LANES_STORE_BYTES);
    assert_non_null(lanes->faulty.memory);
    assert_true(ebb__block_init(&lanes->table, &lanes->ground.core));
    assert_true(ebb__address_init(&lanes->addresses, &lanes->table));
    assert_true(ebb__memory_init(&lanes->memory, &lanes->addresses));
    ebb__transfer_init(&lanes->transfer, &lanes->memory);
}

static inline void lanes_close(struct lanes *lanes)
{
    ebb__mover_stop(&lanes->transfer);
    ebb__memory_fini(&lanes->memory);
    ebb__address_fini(&lanes->addresses);
    ebb__block_fini(&lanes->table);
    ebb__core_unmap(lanes->faulty.memory, LANES_STORE_BYTES);
    ground_close(&lanes->ground);
}

static inline void lanes_lock(struct lanes *lanes)
{
    pthread_mutex_lock(&lanes->ground.core.lock);
}

static inline void lanes_unlock(struct lanes *lanes)
{
    pthread_mutex_unlock(&lanes->ground.core.lock);
}

/* Call all functions below with the lock held. */

static inline uint64_t lanes_word(const struct block *block, uint64_t at)
{
    return (block->serial * 0x9e3779b97f4a7c15u) ^ (at * 0xd1342543de82ef95u);
}

static inline void lanes_fill(struct block *block)
{
    for (uint64_t at = 0; at < block->page_bytes; at += 512)
        *(uint64_t *)(block->address + at) = lanes_word(block, at);
}

static inline bool lanes_is_right(const struct lanes *lanes, const struct block *block)
{
    for (uint64_t at = 0; at < block->page_bytes; at += 512)
        if (!ebb__fake_present(&lanes->ground.device, block->address + at) ||
            *(const uint64_t *)(block->address + at) != lanes_word(block, at))
            return false;
    return true;
}

/* Makes a resident, filled block of `bytes`. */
static inline struct block *lanes_block(struct lanes *lanes, uint64_t bytes)
{
    struct block *block = ebb__space_take(&lanes->addresses, bytes);
    assert_non_null(block);
    block->page_bytes = block->size_bytes = bytes;
    block->serial = ++lanes->table.newest_serial;
    block->script_block = UINT32_MAX;
    ebb__block_become(block, BLOCK_BARE);
    assert_true(ebb__pages_take(&lanes->memory, block->address, bytes));
    ebb__block_become(block, BLOCK_RESIDENT);
    lanes_fill(block);
    return block;
}

static inline void lanes_wait(struct lanes *lanes, const struct block *block,
                              enum block_state state)
{
    uint64_t until = ebb__now_ns() + LANES_PATIENCE_NS;
    while (block->state != state) {
        if (ebb__now_ns() > until)
            fail_msg("a block never came into state %d, is in %d", state, block->state);
        ebb__core_wait_until(&lanes->ground.core, &lanes->ground.core.changed,
                             ebb__now_ns() + 1000000);
    }
}

static inline void lanes_settle(struct lanes *lanes)
{
    uint64_t until = ebb__now_ns() + LANES_PATIENCE_NS;
    while (!ebb__lanes_are_idle(&lanes->transfer)) {
        assert_true(ebb__now_ns() < until);
        ebb__core_wait_until(&lanes->ground.core, &lanes->ground.core.changed,
                             ebb__now_ns() + 1000000);
    }
}

static inline void lanes_evict(struct lanes *lanes, struct block *block)
{
    ebb__move_queue_out(&lanes->transfer, block, true);
    lanes_wait(lanes, block, BLOCK_EVICTED);
}

#endif
