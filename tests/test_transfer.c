/* Transfer alone: lanes write back and fetch blocks, without a program, a fault or a policy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lanes_rig.h"

#define BLOCKS 5u
#define SLOW_US 20000u

/* The questions to the test's policy, and its answers. */
struct asked {
    unsigned evicting, changed, late;
    bool is_awaited;
};

static bool is_awaited(const void *context, const struct block *block)
{
    (void)block;
    return ((const struct asked *)context)->is_awaited;
}

static void evicting(void *context, struct block *block)
{
    (void)block;
    ((struct asked *)context)->evicting++;
}

static void was_late(void *context, const struct block *block, uint64_t ns)
{
    (void)block;
    ((struct asked *)context)->late += ns > 0;
}

static void changed(void *context, const struct block *block)
{
    (void)block;
    ((struct asked *)context)->changed++;
}

static const struct policy policy = {
    .is_planned = lanes_unplanned,
    .is_awaited = is_awaited,
    .evicting = evicting,
    .was_late = was_late,
    .changed = changed,
    .fire = lanes_nothing_due,
    .resumed = lanes_resumed,
    .make_room = lanes_no_room,
};

static void start(struct lanes *lanes, struct asked *asked, bool verify)
{
    *asked = (struct asked){0};
    lanes_open(lanes, UINT64_MAX, &policy, asked, verify);
    assert_true(ebb__mover_start(&lanes->transfer));
    lanes_lock(lanes);
}

static void stop(struct lanes *lanes)
{
    lanes_settle(lanes);
    assert_int_equal(lanes->transfer.out_pending_bytes, 0);
    lanes_unlock(lanes);
    lanes_close(lanes);
}

static void what_leaves_returns_as_it_was(void **state)
{
    (void)state;
    static const uint64_t pages[BLOCKS] = {1, 300, 512, 1025, 2048};
    struct lanes lanes;
    struct asked asked;
    for (int verify = 0; verify < 2; verify++) {
        start(&lanes, &asked, verify);
        struct block *blocks[BLOCKS];
        uint64_t bytes = 0;
        for (unsigned i = 0; i < BLOCKS; i++) {
            blocks[i] = lanes_block(&lanes, pages[i] * EBB_PAGE_BYTES);
            bytes += blocks[i]->page_bytes;
            ebb__move_queue_out(&lanes.transfer, blocks[i], i % 2);
        }
        for (unsigned i = 0; i < BLOCKS; i++) {
            lanes_wait(&lanes, blocks[i], BLOCK_EVICTED);
            assert_false(ebb__fake_present(&lanes.ground.device, blocks[i]->address));
        }
        assert_int_equal(lanes.table.copies.extents.used_bytes, bytes);
        for (unsigned i = 0; i < BLOCKS; i++)
            ebb__move_queue_in(&lanes.transfer, blocks[i], i % 2);
        for (unsigned i = 0; i < BLOCKS; i++) {
            lanes_wait(&lanes, blocks[i], BLOCK_RESIDENT);
            assert_true(lanes_is_right(&lanes, blocks[i]));
        }
        lanes_settle(&lanes);
        struct ebb_counters *counters = lanes.ground.core.counters;
        assert_int_equal(atomic_load(&counters->moved_out_bytes), bytes);
        assert_int_equal(atomic_load(&counters->moved_in_bytes), bytes);
        assert_int_equal(atomic_load(&counters->out_lane_bytes), bytes);
        assert_int_equal(atomic_load(&counters->in_lane_bytes), bytes);
        assert_int_equal(lanes.table.copies.extents.used_bytes, 0);
        assert_int_equal(lanes.opened, 1);
        stop(&lanes);
    }
}

/* A thread that uses a block during its write back gets it at once. The store keeps no copy. */
static void a_use_cancels_a_write_back(void **state)
{
    (void)state;
    struct lanes lanes;
    struct asked asked;
    start(&lanes, &asked, false);
    struct block *block = lanes_block(&lanes, 4 * EBB_HUGE_BYTES);
    atomic_store(&lanes.faulty.delay_us, SLOW_US);
    ebb__move_evict(&lanes.transfer, block);
    assert_int_equal(asked.evicting, 1);
    lanes_wait(&lanes, block, BLOCK_WRITING_BACK);
    ebb__waits_fault(&lanes.table, block);
    ebb__move_call_back(&lanes.transfer, block);
    lanes_wait(&lanes, block, BLOCK_RESIDENT);
    assert_true(lanes_is_right(&lanes, block));
    assert_int_equal(asked.late, 1);
    assert_int_equal(atomic_load(&lanes.ground.core.counters->moved_out_bytes), 0);
    assert_int_equal(lanes.table.copies.extents.used_bytes, 0);
    stop(&lanes);
}

/* A prefetch is given up, then done again. The store keeps the copy meanwhile. */
static void a_fetch_that_is_given_up_is_done_again(void **state)
{
    (void)state;
    struct lanes lanes;
    struct asked asked;
    start(&lanes, &asked, false);
    struct block *block = lanes_block(&lanes, 8 * EBB_HUGE_BYTES);
    lanes_evict(&lanes, block);
    atomic_store(&lanes.faulty.delay_us, SLOW_US);
    ebb__move_queue_in(&lanes.transfer, block, false);
    lanes_wait(&lanes, block, BLOCK_FETCHING);
    ebb__move_give_up(&lanes.transfer, block);
    assert_int_equal(lanes.transfer.out_pending_bytes, block->page_bytes);
    while (block->transfer.end == TRANSFER_GIVEN_UP) {
        assert_true(block->copy.is_there);
        ebb__core_wait_until(&lanes.ground.core, &lanes.ground.core.changed,
                             ebb__now_ns() + SLOW_US);
    }
    assert_int_equal(lanes.transfer.out_pending_bytes, 0);
    atomic_store(&lanes.faulty.delay_us, 0);
    lanes_wait(&lanes, block, BLOCK_RESIDENT);
    assert_int_equal(atomic_load(&lanes.ground.core.counters->moved_in_bytes), block->page_bytes);
    assert_true(atomic_load(&lanes.ground.core.counters->in_lane_bytes) > block->page_bytes);
    assert_true(lanes_is_right(&lanes, block));
    stop(&lanes);
}

/* A block is freed during a transfer in either direction. Its pages, space and address become
 * free. */
static void what_is_freed_in_transfer_is_gone(void **state)
{
    (void)state;
    struct lanes lanes;
    struct asked asked;
    for (int out = 0; out < 2; out++) {
        start(&lanes, &asked, false);
        struct block *block = lanes_block(&lanes, 4 * EBB_HUGE_BYTES);
        if (!out)
            lanes_evict(&lanes, block);
        atomic_store(&lanes.faulty.delay_us, SLOW_US);
        if (out)
            ebb__move_queue_out(&lanes.transfer, block, true);
        else
            ebb__move_queue_in(&lanes.transfer, block, true);
        lanes_wait(&lanes, block, out ? BLOCK_WRITING_BACK : BLOCK_FETCHING);
        ebb__move_discard(&lanes.transfer, block);
        assert_int_equal(block->state, BLOCK_DYING);
        lanes_wait(&lanes, block, BLOCK_EMPTY);
        assert_int_equal(block->frame, 0);
        assert_int_equal(lanes.table.copies.extents.used_bytes, 0);
        assert_int_equal(ground_held(&lanes.ground), lanes.memory.frames.cached_bytes);
        stop(&lanes);
    }
}

/* An unchanged kept copy saves the write. A changed block is noticed. */
static void unchanged_copies_are_not_written_again(void **state)
{
    (void)state;
    struct lanes lanes;
    struct asked asked;
    start(&lanes, &asked, false);
    struct block *block = lanes_block(&lanes, 2 * EBB_HUGE_BYTES);
    lanes_evict(&lanes, block);
    block->copy.stays = true;
    ebb__move_queue_in(&lanes.transfer, block, true);
    lanes_wait(&lanes, block, BLOCK_RESIDENT);
    uint64_t writes = lanes.faulty.writes;
    lanes_evict(&lanes, block);
    assert_int_equal(lanes.faulty.writes, writes);
    assert_int_equal(atomic_load(&lanes.ground.core.counters->evicted_clean_bytes),
                     block->page_bytes);
    block->copy.stays = true;
    ebb__move_queue_in(&lanes.transfer, block, true);
    lanes_wait(&lanes, block, BLOCK_RESIDENT);
    assert_true(lanes_is_right(&lanes, block));
    block->serial++; /* other contents */
    lanes_fill(block);
    lanes_evict(&lanes, block);
    assert_true(lanes.faulty.writes > writes);
    assert_int_equal(asked.changed, 1);
    ebb__move_queue_in(&lanes.transfer, block, true);
    lanes_wait(&lanes, block, BLOCK_RESIDENT);
    assert_true(lanes_is_right(&lanes, block));
    stop(&lanes);
}

/* If policy wants to observe a block's use, it is parked after its fetch. */
static void what_is_awaited_comes_back_parked(void **state)
{
    (void)state;
    struct lanes lanes;
    struct asked asked;
    start(&lanes, &asked, false);
    struct block *block = lanes_block(&lanes, EBB_HUGE_BYTES);
    lanes_evict(&lanes, block);
    asked.is_awaited = true;
    ebb__move_queue_in(&lanes.transfer, block, false);
    lanes_wait(&lanes, block, BLOCK_PARKED);
    assert_false(ebb__fake_present(&lanes.ground.device, block->address));
    ebb__move_unpark(&lanes.transfer, block);
    assert_true(lanes_is_right(&lanes, block));
    stop(&lanes);
}

static void states_of_the_store_follow_as_listed(void **state)
{
    (void)state;
    static const struct {
        enum store_state from, to;
    } pairs[] = {
        {STORE_CLOSED, STORE_OPENING},   /* something is to be evicted */
        {STORE_CLOSED, STORE_REFUSED},   /* there is no store */
        {STORE_OPENING, STORE_WORKS},    /* it is open */
        {STORE_OPENING, STORE_TRIED},    /* it is open, after one that failed */
        {STORE_OPENING, STORE_PUT_OFF},  /* it cannot be opened */
        {STORE_WORKS, STORE_FAILED},     /* it cannot be written */
        {STORE_FAILED, STORE_TRIED},     /* the pause is over */
        {STORE_TRIED, STORE_FAILED},     /* it still cannot be written */
        {STORE_TRIED, STORE_WORKS},      /* it can be written */
        {STORE_WORKS, STORE_CLOSED},     /* in a child, since the store belongs to the parent */
        {STORE_TRIED, STORE_CLOSED},     /* in a child */
        {STORE_FAILED, STORE_PUT_OFF},   /* in a child, after a failure */
        {STORE_PUT_OFF, STORE_CLOSED},   /* the pause is over */
        {STORE_CLOSED, STORE_TOO_DEEP},  /* in a child of many ancestors: no slot is free */
        {STORE_WORKS, STORE_TOO_DEEP},   /* in a child of many ancestors */
        {STORE_FAILED, STORE_TOO_DEEP},  /* in a child of many ancestors */
        {STORE_TRIED, STORE_TOO_DEEP},   /* in a child of many ancestors */
        {STORE_PUT_OFF, STORE_TOO_DEEP}, /* in a child of many ancestors */
        {STORE_REFUSED, STORE_TOO_DEEP}, /* in a child of many ancestors */
        {STORE_TOO_DEEP, STORE_CLOSED},  /* in a child: an ancestor's slot is free again */
    };
    for (unsigned from = 0; from <= STORE_TOO_DEEP; from++)
        for (unsigned to = 0; to <= STORE_TOO_DEEP; to++) {
            bool listed = false;
            for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
                listed |= pairs[i].from == from && pairs[i].to == to;
            if (ebb__store_may_become((enum store_state)from, (enum store_state)to) != listed)
                fail_msg("from %u to %u", from, to);
        }
}

/* If the store cannot be written, blocks stay in memory. This is reported once, and the store is
 * tried again. */
static void a_store_that_fails_is_tried_again(void **state)
{
    (void)state;
    struct lanes lanes;
    struct asked asked;
    start(&lanes, &asked, false);
    struct block *block = lanes_block(&lanes, EBB_HUGE_BYTES);
    struct store_health *store = &lanes.transfer.store;
    for (unsigned failures = 1; failures < 4; failures++) {
        lanes.faulty.write_errno = ENOSPC;
        ebb__move_queue_out(&lanes.transfer, block, true);
        lanes_settle(&lanes);
        assert_int_equal(block->state, BLOCK_RESIDENT);
        assert_int_equal(store->state, STORE_FAILED);
        assert_true(lanes_is_right(&lanes, block));
        assert_false(ebb__store_may_write(store));
        assert_int_equal(lanes.ground.warned, 1);
        assert_true(store->pause_ns == lanes.ground.core.config.store_pause_ns << (failures - 1));
        ebb__store_retry(&lanes.transfer, store->retry_ns - 1);
        assert_int_equal(store->state, STORE_FAILED);
        ebb__store_retry(&lanes.transfer, store->retry_ns);
        assert_int_equal(store->state, STORE_TRIED);
        assert_true(lanes.transfer.may_exceed);
    }
    lanes.faulty.write_errno = 0;
    lanes_evict(&lanes, block);
    assert_int_equal(store->state, STORE_WORKS);
    assert_int_equal(lanes.ground.warned, 2);
    ebb__move_queue_in(&lanes.transfer, block, true);
    lanes_wait(&lanes, block, BLOCK_RESIDENT);
    assert_true(lanes_is_right(&lanes, block));
    stop(&lanes);
}

static void without_a_store_nothing_leaves(void **state)
{
    (void)state;
    struct lanes lanes;
    struct asked asked;
    for (int refuses = 0; refuses < 2; refuses++) {
        start(&lanes, &asked, false);
        lanes.store_refuses = true;
        if (!refuses)
            lanes.ground.core.config.open_store = NULL;
        struct block *block = lanes_block(&lanes, EBB_HUGE_BYTES);
        ebb__move_queue_out(&lanes.transfer, block, true);
        lanes_settle(&lanes);
        assert_int_equal(block->state, BLOCK_RESIDENT);
        assert_int_equal(block->transfer.queue, QUEUE_NONE);
        assert_int_equal(lanes.transfer.store.state, refuses ? STORE_PUT_OFF : STORE_REFUSED);
        assert_int_equal(lanes.opened, refuses);
        stop(&lanes);
    }
}

/* A store that cannot be opened is opened later. This is reported once. */
static void a_store_that_does_not_open_is_opened_later(void **state)
{
    (void)state;
    struct lanes lanes;
    struct asked asked;
    start(&lanes, &asked, false);
    lanes.store_refuses = true;
    struct store_health *store = &lanes.transfer.store;
    struct block *block = lanes_block(&lanes, EBB_HUGE_BYTES);
    for (unsigned failures = 1; failures < 4; failures++) {
        ebb__move_queue_out(&lanes.transfer, block, true);
        lanes_settle(&lanes);
        assert_int_equal(block->state, BLOCK_RESIDENT);
        assert_int_equal(store->state, STORE_PUT_OFF);
        assert_false(ebb__store_may_write(store));
        assert_int_equal(lanes.opened, failures);
        assert_int_equal(lanes.ground.warned, 1);
        assert_true(store->pause_ns == lanes.ground.core.config.store_pause_ns << (failures - 1));
        ebb__store_retry(&lanes.transfer, store->retry_ns - 1);
        assert_int_equal(store->state, STORE_PUT_OFF);
        ebb__store_retry(&lanes.transfer, store->retry_ns);
        assert_int_equal(store->state, STORE_CLOSED);
    }
    lanes.store_refuses = false;
    lanes_evict(&lanes, block);
    assert_int_equal(store->state, STORE_WORKS);
    assert_int_equal(lanes.ground.warned, 2);
    ebb__move_queue_in(&lanes.transfer, block, true);
    lanes_wait(&lanes, block, BLOCK_RESIDENT);
    assert_true(lanes_is_right(&lanes, block));
    stop(&lanes);
}

/* The only copy cannot be read. Threads that wait for the block are told, and it stays evicted. */
static void a_lost_copy_is_said(void **state)
{
    (void)state;
    struct lanes lanes;
    struct asked asked;
    start(&lanes, &asked, false);
    struct block *block = lanes_block(&lanes, EBB_HUGE_BYTES);
    lanes_evict(&lanes, block);
    lanes.faulty.read_errno = EIO;
    ebb__move_queue_in(&lanes.transfer, block, false);
    lanes_settle(&lanes);
    assert_int_equal(block->state, BLOCK_EVICTED);
    assert_int_equal(lanes.ground.lost, 0); /* nobody has used it */
    ebb__waits_fault(&lanes.table, block);
    ebb__move_call_back(&lanes.transfer, block);
    lanes_settle(&lanes);
    assert_int_equal(block->state, BLOCK_EVICTED);
    assert_int_equal(lanes.ground.lost, 1);
    stop(&lanes);
}

/* Before a fork, transfers end, parked blocks become resident, and workers start nothing new. */
static void a_fork_finds_all_at_rest(void **state)
{
    (void)state;
    struct lanes lanes;
    struct asked asked;
    start(&lanes, &asked, false);
    struct block *evicted = lanes_block(&lanes, EBB_HUGE_BYTES);
    struct block *parked = lanes_block(&lanes, EBB_HUGE_BYTES);
    struct block *queued = lanes_block(&lanes, EBB_HUGE_BYTES);
    lanes_evict(&lanes, evicted);
    assert_true(ebb__move_park(&lanes.transfer, parked));
    assert_true(ebb__transfer_before_fork(&lanes.transfer));
    assert_int_equal(parked->state, BLOCK_RESIDENT);
    ebb__move_queue_out(&lanes.transfer, queued, true);
    ebb__move_queue_in(&lanes.transfer, evicted, true);
    lanes_unlock(&lanes);
    usleep(SLOW_US);
    lanes_lock(&lanes);
    assert_int_equal(queued->transfer.queue, QUEUE_OUT);
    assert_int_equal(evicted->transfer.queue, QUEUE_IN);
    ebb__transfer_after_fork(&lanes.transfer);
    lanes_wait(&lanes, queued, BLOCK_EVICTED);
    lanes_wait(&lanes, evicted, BLOCK_RESIDENT);
    stop(&lanes);
}

/* Observing again copies what a child shares, so it waits for the last fork of a row. */
static void what_was_observed_is_observed_again(void **state)
{
    (void)state;
    struct lanes lanes;
    struct asked asked;
    start(&lanes, &asked, false);
    struct block *observed = lanes_block(&lanes, EBB_HUGE_BYTES);
    lanes.table.uses.trace = true;
    assert_true(ebb__move_park(&lanes.transfer, observed));
    for (unsigned fork = 0; fork < 3; fork++) {
        uint64_t moves = atomic_load(&lanes.ground.core.counters->page_moves);
        ebb__transfer_before_fork(&lanes.transfer);
        ebb__transfer_after_fork(&lanes.transfer);
        assert_int_equal(observed->state, BLOCK_RESIDENT);
        assert_int_equal(ebb__observe_forked(&lanes.transfer, lanes.transfer.observe_ns - 1),
                         lanes.transfer.observe_ns);
        assert_int_equal(atomic_load(&lanes.ground.core.counters->page_moves),
                         fork ? moves : moves + 1);
    }
    lanes_wait(&lanes, observed, BLOCK_PARKED);
    ebb__move_unpark(&lanes.transfer, observed);
    assert_true(lanes_is_right(&lanes, observed));
    stop(&lanes);
}

/* The child reads what its parent has written, and writes to a store of its own. */
static void a_child_has_a_store_of_its_own(void **state)
{
    (void)state;
    struct lanes lanes;
    struct asked asked;
    start(&lanes, &asked, false);
    struct block *evicted = lanes_block(&lanes, EBB_HUGE_BYTES);
    struct block *resident = lanes_block(&lanes, EBB_HUGE_BYTES);
    lanes_evict(&lanes, evicted);
    lanes_unlock(&lanes);
    ebb__mover_stop(&lanes.transfer); /* a child has no workers */
    lanes_lock(&lanes);
    struct ebb_ring *ring = ground_ring();
    ebb__block_before_fork(&lanes.table, ebb__transfer_before_fork(&lanes.transfer));
    /* A child makes the lock anew. ThreadSanitizer does not know that of one that is held. */
    lanes_unlock(&lanes);
    ebb__core_forked(&lanes.ground.core, &lanes.ground.ledger, ring);
    ebb__block_forked(&lanes.table, ebb__store_is_open(&lanes.transfer.store));
    ebb__memory_forked(&lanes.memory);
    ebb__transfer_forked(&lanes.transfer);
    assert_int_equal(lanes.transfer.store.state, STORE_CLOSED);
    assert_false(ebb__relatives_wrote(&lanes.table.copies, evicted));
    assert_true(ebb__mover_start(&lanes.transfer));
    lanes_lock(&lanes);
    ebb__move_queue_in(&lanes.transfer, evicted, true);
    lanes_wait(&lanes, evicted, BLOCK_RESIDENT);
    assert_true(lanes_is_right(&lanes, evicted));
    lanes_evict(&lanes, resident);
    assert_int_equal(lanes.opened, 2);
    assert_true(ebb__relatives_wrote(&lanes.table.copies, resident));
    stop(&lanes);
    free(ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_leaves_returns_as_it_was),
        cmocka_unit_test(a_use_cancels_a_write_back),
        cmocka_unit_test(a_fetch_that_is_given_up_is_done_again),
        cmocka_unit_test(what_is_freed_in_transfer_is_gone),
        cmocka_unit_test(unchanged_copies_are_not_written_again),
        cmocka_unit_test(what_is_awaited_comes_back_parked),
        cmocka_unit_test(states_of_the_store_follow_as_listed),
        cmocka_unit_test(a_store_that_fails_is_tried_again),
        cmocka_unit_test(without_a_store_nothing_leaves),
        cmocka_unit_test(a_store_that_does_not_open_is_opened_later),
        cmocka_unit_test(a_lost_copy_is_said),
        cmocka_unit_test(a_fork_finds_all_at_rest),
        cmocka_unit_test(what_was_observed_is_observed_again),
        cmocka_unit_test(a_child_has_a_store_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
