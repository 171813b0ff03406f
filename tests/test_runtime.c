/* The runtime on a device of plain memory and a store that fails on demand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "runtime_program.h"

#include "base/tuning.h"
#include "synthetic.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>

/* --- allocation --- */

static void pages_are_reused(void **state)
{
    (void)state;
    struct rig *rig = rig_open(NO_BUDGET, false);
    static const size_t sizes[] = {70000, 1 << 20, 3 << 20, 4096, 2 << 20, 1};
    uint64_t after_first = 0;
    for (uint64_t round = 0; round < 1000; round++) {
        struct item items[6];
        for (size_t i = 0; i < 6; i++) {
            items[i].bytes = ebb__runtime_alloc(rig->runtime, sizes[i], 64, false);
            assert_non_null(items[i].bytes);
            assert_int_equal((uintptr_t)items[i].bytes % 4096, 0);
            assert_int_equal(ebb__runtime_usable_bytes(rig->runtime, items[i].bytes), sizes[i]);
        }
        for (size_t i = 0; i < 6; i++)
            drop(rig, &items[(i + round) % 6]);
        if (round == 0)
            after_first = held(rig);
        assert_int_equal(held(rig), after_first);
    }
    assert_int_equal(atomic_load(&rig->counters->live_bytes), 0);
    assert_int_equal(atomic_load(&rig->counters->held_bytes), held(rig));
    rig_close(rig);
}

static void callocs_are_zero(void **state)
{
    (void)state;
    struct rig *rig = rig_open((uint64_t)8 << 20, false);
    for (size_t size = 4000; size < (5u << 20); size = size * 3 + 17) {
        struct item dirty = make(rig, size, size);
        drop(rig, &dirty);
        unsigned char *clean = ebb__runtime_alloc(rig->runtime, size, 64, true);
        assert_non_null(clean);
        for (size_t i = 0; i < size; i++)
            assert_int_equal(clean[i], 0);
        assert_true(ebb__runtime_free(rig->runtime, clean));
    }
    rig_close(rig);
}

/* A block that nobody touches takes no memory, and one that gets the pages of another one has them
 * at once. */
static void fresh_pages_come_with_the_first_use(void **state)
{
    (void)state;
    struct rig *rig = rig_open(NO_BUDGET, false);
    unsigned char *bytes = ebb__runtime_alloc(rig->runtime, 1 << 20, 64, false);
    assert_non_null(bytes);
    assert_int_equal(held(rig), 0);
    ebb__runtime_fault(rig->runtime, (uintptr_t)bytes + 5000, true);
    assert_true(held(rig) >= 1 << 20);
    uint64_t before = held(rig);
    assert_true(ebb__runtime_free(rig->runtime, bytes));
    bytes = ebb__runtime_alloc(rig->runtime, 1 << 20, 64, false);
    assert_non_null(bytes);
    assert_int_equal(rig->runtime->memory.cached_bytes, 0);
    assert_int_equal(held(rig), before);
    assert_true(ebb__runtime_free(rig->runtime, bytes));
    rig_close(rig);
}

static void foreign_pointers(void **state)
{
    (void)state;
    struct rig *rig = rig_open(NO_BUDGET, false);
    int local;
    struct item item = make(rig, 100000, 1);
    assert_false(ebb__runtime_owns(rig->runtime, &local));
    assert_false(ebb__runtime_owns(rig->runtime, NULL));
    assert_true(ebb__runtime_owns(rig->runtime, item.bytes + 5));
    void *foreign[] = {NULL,
                       &local,
                       item.bytes + 1,
                       item.bytes + 4096,
                       item.bytes - 1,
                       (void *)UINTPTR_MAX,
                       item.bytes + (4 << 20)};
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        assert_false(ebb__runtime_free(rig->runtime, foreign[i]));
        assert_int_equal(ebb__runtime_usable_bytes(rig->runtime, foreign[i]), 0);
    }
    check(rig, &item);
    void *freed = item.bytes;
    drop(rig, &item);
    assert_false(ebb__runtime_free(rig->runtime, freed));
    assert_int_equal(ebb__runtime_usable_bytes(rig->runtime, freed), 0);
    assert_null(ebb__runtime_alloc(rig->runtime, 0, 64, false));
    assert_null(ebb__runtime_alloc(rig->runtime, SIZE_MAX, 64, false));
    assert_null(ebb__runtime_alloc(rig->runtime, (size_t)-4096, 64, false));
    assert_null(ebb__runtime_alloc(rig->runtime, (size_t)PTRDIFF_MAX + 1, 64, false));
    assert_null(ebb__runtime_alloc(rig->runtime, ARENA_BYTES + 1, 64, false));
    assert_null(ebb__runtime_alloc(rig->runtime, 4096, 4 << 20, false));
    rig_close(rig);
}

/* --- the budget --- */

/* Runs a random program on one rig. There are at most two accesses between events, so each
 * operation fits in the budget, which must hold. */
static void random_program(uint64_t seed, uint64_t budget, size_t block_bytes, unsigned steps)
{
    struct rig *rig = rig_open(budget, false);
    struct item items[40] = {{0}};
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    unsigned accesses = 0;
    for (unsigned step = 0; step < steps; step++) {
        struct item *item = &items[chance(&state) % 40];
        if (item->bytes && accesses < 2 && chance(&state) % 3) {
            accesses++;
            if (chance(&state) % 3)
                check(rig, item);
            else
                put(rig, item, chance(&state));
        } else if (item->bytes) {
            drop(rig, item);
            accesses = 0;
        } else {
            *item = make(rig, 1 + chance(&state) % block_bytes, chance(&state));
            accesses = 1;
        }
        assert_within_budget(rig);
    }
    for (size_t i = 0; i < 40; i++) {
        if (!items[i].bytes)
            continue;
        check(rig, &items[i]);
        drop(rig, &items[i]);
        assert_within_budget(rig);
    }
    ebb__runtime_settle(rig->runtime);
    assert_int_equal(atomic_load(&rig->counters->live_bytes), 0);
    assert_int_equal(atomic_load(&rig->counters->store_bytes), 0);
    assert_int_equal(atomic_load(&rig->counters->store_error), 0);
    assert_true(atomic_load(&rig->counters->reactive_evictions) > 0);
    assert_true(atomic_load(&rig->counters->demand_faults) > 0);
    assert_int_equal(atomic_load(&rig->lost), 0);
    rig_close(rig);
}

static void budget_holds_and_bytes_survive(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++)
        random_program(seed, (uint64_t)1 << 20, 130000, 250);
    for (uint64_t seed = 1; seed <= 4; seed++) /* huge pages and small ones */
        random_program(seed, (uint64_t)24 << 20, 5 << 20, 60);
}

static void working_set_over_budget(void **state)
{
    (void)state;
    struct rig *rig = rig_open((uint64_t)4 << 20, false);
    struct item small = make(rig, 1 << 20, 1);
    struct item large = make(rig, 9 << 20, 2);
    check(rig, &small);
    check(rig, &large);
    assert_true(over(rig) >= (uint64_t)5 << 20);
    drop(rig, &large);
    ebb__runtime_settle(rig->runtime);
    assert_true(held(rig) <= (uint64_t)4 << 20);
    check(rig, &small);
    struct item other = make(rig, 2 << 20, 3);
    check(rig, &small);
    check(rig, &other);
    assert_true(held(rig) <= (uint64_t)4 << 20);
    rig_close(rig);
}

static void late_budget(void **state)
{
    (void)state;
    struct rig *rig = rig_open(NO_BUDGET, false);
    struct item items[24];
    for (uint64_t i = 0; i < 24; i++)
        items[i] = make(rig, 1 << 20, i);
    assert_int_equal(atomic_load(&rig->ledger.in_force), 0);
    assert_true(atomic_load(&rig->ledger.learning_peak_bytes) >= (uint64_t)24 << 20);
    atomic_store(&rig->ledger.budget_bytes, (uint64_t)8 << 20);
    for (unsigned i = 0; i < 50 && !atomic_load(&rig->ledger.in_force); i++) {
        ebb__runtime_trim(rig->runtime);
        ebb__runtime_settle(rig->runtime);
    }
    assert_int_equal(atomic_load(&rig->ledger.in_force), 1);
    assert_within_budget(rig);
    for (size_t i = 0; i < 24; i++) {
        check(rig, &items[i]);
        struct item event = make(rig, 4096, i); /* an operation ends */
        drop(rig, &event);
        assert_within_budget(rig);
    }
    rig_close(rig);
}

/* --- transitions --- */

static void out_and_in(void **state)
{
    (void)state;
    struct rig *rig = rig_open((uint64_t)64 << 20, false);
    static const size_t sizes[] = {1, 4096, 100001, 2 << 20, (5 << 20) + 4097, 13 << 20};
    for (size_t i = 0; i < 6; i++) {
        struct item item = make(rig, sizes[i], i + 7);
        for (unsigned lap = 0; lap < 3; lap++) {
            evict_now(rig, &item);
            assert_false(ebb__fake_present(&rig->device, (uintptr_t)item.bytes));
            check(rig, &item);
            assert_int_equal(state_of(rig, &item), BLOCK_RESIDENT);
        }
        drop(rig, &item);
    }
    assert_int_equal(atomic_load(&rig->opened), 1);
    assert_int_equal(atomic_load(&rig->counters->moved_out_bytes),
                     atomic_load(&rig->counters->moved_in_bytes));
    assert_int_equal(atomic_load(&rig->counters->store_bytes), 0);
    rig_close(rig);
}

/* A fault was reported before its block was freed, but is served afterwards. A page that is mapped
 * then must be gone when the next block gets this address. Otherwise that block would write to it
 * without a fault, and lose the bytes when its own pages are mapped. */
static void late_faults_leave_no_page(void **state)
{
    (void)state;
    struct rig *rig = rig_open(NO_BUDGET, true);
    struct item item = make(rig, ((size_t)1 << 20), 1);
    uintptr_t address = (uintptr_t)item.bytes;
    uintptr_t behind = address + ((size_t)1 << 20); /* in the block's unit, but not in the block */
    ebb__runtime_fault(rig->runtime, behind, false);
    assert_true(ebb__fake_present(&rig->device, behind));
    struct item other =
        make(rig, ((size_t)1 << 20), 2); /* ends the operation, so the first block is observed */
    drop(rig, &item);
    ebb__runtime_fault(rig->runtime, address + EBB_PAGE_BYTES, true);
    item.bytes = ebb__runtime_alloc(rig->runtime, (size_t)2 << 20, 64, false);
    assert_int_equal((uintptr_t)item.bytes, address);
    item.size = (size_t)2 << 20;
    for (uintptr_t at = address; at < address + item.size; at += EBB_PAGE_BYTES)
        assert_false(ebb__fake_present(&rig->device, at));
    put(rig, &item, 3);
    check(rig, &item);
    check(rig, &other);
    /* The same at an address that never had a block. */
    uintptr_t beyond = rig->device.layout.arena.base + 8 * EBB_HUGE_BYTES;
    ebb__runtime_fault(rig->runtime, beyond, false);
    struct item large = {ebb__runtime_alloc(rig->runtime, 8 * EBB_HUGE_BYTES, 64, false),
                         8 * EBB_HUGE_BYTES, 4};
    assert_true((uintptr_t)large.bytes <= beyond && beyond < (uintptr_t)large.bytes + large.size);
    assert_false(ebb__fake_present(&rig->device, beyond));
    rig_close(rig);
}

static void *allocate(void *argument)
{
    struct item *item = argument;
    item->bytes = ebb__runtime_alloc(((struct rig *)item->bytes)->runtime, item->size, 64, false);
    return NULL;
}

/* The same, but the fault is served while the next block of that address has no pages yet. Only its
 * allocation maps pages. */
static void late_faults_give_no_pages(void **state)
{
    (void)state;
    const size_t size = ((size_t)3 << 20) + 65536;
    struct rig *rig = rig_open((uint64_t)5 << 20, false);
    struct item other = make(rig, size, 1);
    struct item item = {(unsigned char *)rig, size, 3};
    uintptr_t address =
        rig->device.layout.arena.base + rig->runtime->addresses.space.units_used * EBB_HUGE_BYTES;
    rig->faulty.delay_us = 20000;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, allocate, &item), 0);
    for (unsigned waits = 0, i = 0; waits == 0; i++) {
        assert_true(i < PATIENCE_MS);
        nap_us(1000);
        pthread_mutex_lock(&rig->runtime->core.lock);
        waits = rig->runtime->transfer.room_waits;
        pthread_mutex_unlock(&rig->runtime->core.lock);
    }
    ebb__runtime_fault(rig->runtime, address + EBB_HUGE_BYTES, true);
    pthread_join(thread, NULL);
    assert_int_equal((uintptr_t)item.bytes, address);
    rig->faulty.delay_us = 0;
    put(rig, &item, 3);
    for (int i = 0; i < 4; i++) {
        struct item next = make(rig, 4096, 1); /* begins another operation */
        drop(rig, &next);
        check(rig, i % 2 ? &item : &other);
    }
    assert_int_equal(atomic_load(&rig->lost), 0);
    assert_within_budget(rig);
    rig_close(rig);
}

/* Behind a block's last page, but in its last unit: that needs no page of the block, whatever its
 * state. */
static void behind_a_block_is_no_block(void **state)
{
    (void)state;
    static const enum block_state states[] = {BLOCK_BARE, BLOCK_PARKED, BLOCK_EVICTED};
    const size_t size = (size_t)1 << 20;
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        struct rig *rig = rig_open(NO_BUDGET, false);
        struct item item = {ebb__runtime_alloc(rig->runtime, size, 64, false), size, 1};
        assert_non_null(item.bytes);
        uintptr_t behind = (uintptr_t)item.bytes + size;
        if (states[i] != BLOCK_BARE)
            put(rig, &item, 1);
        if (states[i] == BLOCK_EVICTED)
            evict_now(rig, &item);
        pthread_mutex_lock(&rig->runtime->core.lock);
        if (states[i] == BLOCK_PARKED)
            assert_true(ebb__move_park(&rig->runtime->transfer, block_of(rig, &item)));
        pthread_mutex_unlock(&rig->runtime->core.lock);
        ebb__runtime_fault(rig->runtime, behind, false);
        assert_true(ebb__fake_present(&rig->device, behind));
        assert_true(ebb__runtime_await(rig->runtime, behind + EBB_PAGE_BYTES, true));
        assert_true(ebb__fake_present(&rig->device, behind + EBB_PAGE_BYTES));
        assert_int_equal(state_of(rig, &item), states[i]);
        put(rig, &item, 2);
        check(rig, &item);
        drop(rig, &item);
        rig_close(rig);
    }
}

static void free_in_every_state(void **state)
{
    (void)state;
    struct rig *rig = rig_open((uint64_t)64 << 20, false);
    for (unsigned round = 0; round < 4; round++) {
        rig->faulty.delay_us = 0;
        struct item evicted = make(rig, 9 << 20, 1), fetching = make(rig, 9 << 20, 2);
        struct item writing_back = make(rig, 9 << 20, 3), queued = make(rig, 1 << 20, 4);
        struct item stays = make(rig, 1 << 20, 5);
        evict_now(rig, &evicted);
        evict_now(rig, &fetching);
        ebb__runtime_settle(rig->runtime);
        rig->faulty.delay_us = 20000;
        send_out(rig, &writing_back);
        wait_for_state(rig, &writing_back, BLOCK_WRITING_BACK);
        send_out(rig, &queued);
        call_in(rig, &fetching, false, true);
        wait_for_state(rig, &fetching, BLOCK_FETCHING);
        drop(rig, &queued);
        drop(rig, &writing_back);
        drop(rig, &fetching);
        drop(rig, &evicted);
        ebb__runtime_settle(rig->runtime);
        check(rig, &stays);
        drop(rig, &stays);
        assert_int_equal(atomic_load(&rig->counters->live_bytes), 0);
        assert_int_equal(atomic_load(&rig->counters->store_bytes), 0);
    }
    assert_true(held(rig) <= (uint64_t)64 << 20);
    assert_int_equal(rig->runtime->transfer.out_pending_bytes, 0);
    rig_close(rig);
}

static void access_cancels_a_write_back(void **state)
{
    (void)state;
    struct rig *rig = rig_open((uint64_t)64 << 20, false);
    struct item item = make(rig, 13 << 20, 1);
    ebb__runtime_settle(rig->runtime);
    rig->faulty.delay_us = 20000;
    for (uint64_t round = 0; round < 5; round++) {
        send_out(rig, &item);
        wait_for_state(rig, &item, BLOCK_WRITING_BACK);
        if (round % 2)
            put(rig, &item, round);
        check(rig, &item);
        ebb__runtime_settle(rig->runtime);
        assert_int_equal(state_of(rig, &item), BLOCK_RESIDENT);
    }
    assert_int_equal(atomic_load(&rig->counters->moved_in_bytes), 0);
    assert_int_equal(atomic_load(&rig->counters->moved_out_bytes), 0);
    assert_int_equal(rig->runtime->transfer.out_pending_bytes, 0);
    rig_close(rig);
}

/* Prevents the pages of `item` from being moved, until unpin(). */
static void pin(struct rig *rig, const struct item *item)
{
    pthread_mutex_lock(&rig->runtime->core.lock);
    ebb__fake_pin(&rig->device, (uintptr_t)item->bytes, item->size, true);
    pthread_mutex_unlock(&rig->runtime->core.lock);
}

static void unpin(struct rig *rig)
{
    pthread_mutex_lock(&rig->runtime->core.lock);
    ebb__fake_pin(&rig->device, 0, 0, false);
    pthread_mutex_unlock(&rig->runtime->core.lock);
}

/* Like call_in(), unless the block is resident or being fetched. */
static void call_back(struct rig *rig, const struct item *item, bool keep_copy)
{
    pthread_mutex_lock(&rig->runtime->core.lock);
    struct block *block = block_of(rig, item);
    if (block->state == BLOCK_EVICTED && block->transfer.queue != QUEUE_IN) {
        block->copy.stays = keep_copy;
        ebb__move_queue_in(&rig->runtime->transfer, block, false);
    }
    if (block->state == BLOCK_WRITING_BACK)
        ebb__block_cancel(block);
    pthread_mutex_unlock(&rig->runtime->core.lock);
}

/* A prefetch has taken memory that the program needs first. */
static void early_prefetches_give_way(void **state)
{
    (void)state;
    for (int kept = 0; kept < 2; kept++) {
        struct rig *rig = rig_make((uint64_t)20 << 20, false, kept);
        struct item evicted = make(rig, 8 << 20, 1);
        evict_now(rig, &evicted);
        struct item pinned = make(rig, 10 << 20, 2);
        pin(rig, &pinned);
        for (uint64_t round = 0; round < 4; round++) {
            rig->faulty.delay_us = 50000;
            call_in(rig, &evicted, kept, false);
            wait_for_state(rig, &evicted, BLOCK_FETCHING);
            nap_us((long)round * 25000);
            struct item needed = make(rig, 8 << 20, 3 + round);
            assert_within_budget(rig);
            check(rig, &needed);
            rig->faulty.delay_us = 0;
            drop(rig, &needed);
            call_back(rig, &evicted, kept); /* it may have become resident, then been evicted */
            wait_for_state(rig, &evicted, BLOCK_RESIDENT);
            check(rig, &evicted);
            evict_now(rig, &evicted);
        }
        unpin(rig);
        check(rig, &evicted);
        check(rig, &pinned);
        ebb__runtime_settle(rig->runtime);
        assert_int_equal(rig->runtime->transfer.out_pending_bytes, 0);
        assert_within_budget(rig);
        rig_close(rig);
    }
}

/* A prefetch is given up. Meanwhile its block is used, or freed. */
static void early_prefetches_are_used_or_freed(void **state)
{
    (void)state;
    struct rig *rig = rig_open((uint64_t)20 << 20, false);
    struct item pinned = make(rig, 10 << 20, 2);
    pin(rig, &pinned);
    for (uint64_t round = 0; round < 6; round++) {
        struct item evicted = make(rig, 8 << 20, round);
        evict_now(rig, &evicted);
        send_out(rig, &pinned); /* marks it as not evictable */
        ebb__runtime_settle(rig->runtime);
        rig->faulty.delay_us = 30000;
        call_in(rig, &evicted, false, false);
        wait_for_state(rig, &evicted, BLOCK_FETCHING);
        pthread_mutex_lock(&rig->runtime->core.lock);
        bool room = ebb__room_make(&rig->runtime->reclaim, 8 << 20);
        bool given_up = block_of(rig, &evicted)->transfer.end == TRANSFER_GIVEN_UP;
        pthread_mutex_unlock(&rig->runtime->core.lock);
        assert_true(room && given_up);
        if (round % 2)
            check(rig, &evicted);
        drop(rig, &evicted);
        rig->faulty.delay_us = 0;
        ebb__runtime_settle(rig->runtime);
        assert_int_equal(rig->runtime->transfer.out_pending_bytes, 0);
    }
    assert_within_budget(rig);
    rig_close(rig);
}

static void pinned_stays(void **state)
{
    (void)state;
    struct rig *rig = rig_open((uint64_t)4 << 20, false);
    struct item pinned = make(rig, 1 << 20, 1);
    pin(rig, &pinned);
    send_out(rig, &pinned);
    ebb__runtime_settle(rig->runtime);
    assert_int_equal(state_of(rig, &pinned), BLOCK_RESIDENT);
    assert_int_equal(atomic_load(&rig->counters->busy_blocks), 1);
    check(rig, &pinned);
    struct item items[12];
    for (uint64_t i = 0; i < 12; i++)
        items[i] = make(rig, 700000, i);
    for (size_t i = 0; i < 12; i++) {
        check(rig, &items[i]);
        struct item event = make(rig, 4096, i);
        drop(rig, &event);
        assert_int_equal(state_of(rig, &pinned), BLOCK_RESIDENT);
    }
    assert_within_budget(rig);
    check(rig, &pinned);
    unpin(rig);
    evict_now(rig, &pinned);
    check(rig, &pinned);
    rig_close(rig);
}

static void unchanged_copies_are_evicted_free(void **state)
{
    (void)state;
    struct rig *rig = rig_open((uint64_t)64 << 20, false);
    struct item item = make(rig, 5 << 20, 1);
    evict_now(rig, &item);
    uint64_t written = atomic_load(&rig->counters->moved_out_bytes);
    for (uint64_t round = 1; round <= 3; round++) {
        call_in(rig, &item, true, true);
        wait_for_state(rig, &item, BLOCK_RESIDENT);
        check(rig, &item);
        evict_now(rig, &item);
        assert_int_equal(atomic_load(&rig->counters->evicted_clean_bytes), round * (5 << 20));
        assert_int_equal(atomic_load(&rig->counters->moved_out_bytes), written);
    }
    call_in(rig, &item, true, true);
    wait_for_state(rig, &item, BLOCK_RESIDENT);
    put(rig, &item, 2); /* modified, so it must be written again */
    evict_now(rig, &item);
    assert_int_equal(atomic_load(&rig->counters->evicted_clean_bytes), 3 * (5 << 20));
    assert_int_equal(atomic_load(&rig->counters->moved_out_bytes), 2 * written);
    check(rig, &item);
    drop(rig, &item);
    ebb__runtime_settle(rig->runtime);
    assert_int_equal(atomic_load(&rig->counters->store_bytes), 0);
    rig_close(rig);
}

/* --- a store that fails --- */

static void run_with_failing_writes(int why, uint64_t good_writes, uint64_t limit_bytes)
{
    struct rig *rig = rig_open((uint64_t)4 << 20, false);
    rig->faulty.write_errno = why;
    rig->faulty.good_writes = good_writes;
    rig->store_limit_bytes = limit_bytes;
    struct item items[16];
    for (uint64_t i = 0; i < 16; i++)
        items[i] = make(rig, 1 << 20, i);
    for (unsigned lap = 0; lap < 3; lap++)
        for (size_t i = 0; i < 16; i++)
            check(rig, &items[i]);
    ebb__runtime_settle(rig->runtime);
    assert_int_equal(atomic_load(&rig->counters->store_error), why);
    assert_int_equal(atomic_load(&rig->warned), 1);
    assert_int_equal(atomic_load(&rig->lost), 0);
    assert_true(over(rig) > 0);
    for (size_t i = 0; i < 16; i++)
        drop(rig, &items[i]);
    struct item again = make(rig, 3 << 20, 99);
    check(rig, &again);
    assert_int_equal(rig->runtime->transfer.out_pending_bytes, 0);
    rig_close(rig);
}

static void writes_that_fail(void **state)
{
    (void)state;
    for (uint64_t good = 0; good < 12; good += 3) {
        run_with_failing_writes(ENOSPC, good, UINT64_MAX);
        run_with_failing_writes(EIO, good, UINT64_MAX);
    }
}

/* Each failure sets the time until the next try. Free space is used again, and the budget holds
 * again. Each change is reported once. */
static void store_that_recovers(void **state)
{
    (void)state;
    const uint64_t budget = (uint64_t)4 << 20;
    struct rig *rig = rig_open(budget, false);
    rig->runtime->core.config.store_pause_ns = 1;
    rig->faulty.write_errno = ENOSPC;
    rig->faulty.good_writes = 3;
    struct item items[16];
    for (uint64_t i = 0; i < 16; i++)
        items[i] = make(rig, 1 << 20, i);
    uint64_t pause_ns = rig->runtime->transfer.store.pause_ns;
    assert_true(pause_ns > 1 && pause_ns <= ebb__tuning()->store_most_pauses);
    assert_true(held(rig) > budget);
    assert_int_equal(atomic_load(&rig->warned), 1);
    rig->faulty.write_errno = 0; /* space was freed */
    for (unsigned lap = 0; lap < 3; lap++) {
        for (size_t i = 0; i < 16; i++)
            check(rig, &items[i]);
        drop(rig, &items[0]);
        items[0] = make(rig, 1 << 20, lap);
    }
    ebb__runtime_settle(rig->runtime);
    assert_true(held(rig) <= budget);
    assert_int_equal(atomic_load(&rig->warned), 2);
    assert_int_equal(atomic_load(&rig->lost), 0);
    assert_int_equal(atomic_load(&rig->counters->store_error), ENOSPC);
    rig->faulty.write_errno = EIO;
    rig->faulty.good_writes = 0;
    for (size_t i = 0; i < 16; i++)
        check(rig, &items[i]);
    assert_int_equal(atomic_load(&rig->warned), 2);
    for (size_t i = 0; i < 16; i++)
        drop(rig, &items[i]);
    rig_close(rig);
}

static void store_limit(void **state)
{
    (void)state;
    struct rig *rig = rig_open((uint64_t)4 << 20, false);
    rig->store_limit_bytes = (uint64_t)3 << 20;
    struct item items[16];
    for (uint64_t i = 0; i < 16; i++)
        items[i] = make(rig, 1 << 20, i);
    for (size_t i = 0; i < 16; i++)
        check(rig, &items[i]);
    ebb__runtime_settle(rig->runtime);
    assert_int_equal(atomic_load(&rig->counters->store_error), EDQUOT);
    assert_int_equal(atomic_load(&rig->warned), 1);
    assert_true(atomic_load(&rig->counters->store_peak_bytes) <= (uint64_t)3 << 20);
    rig_close(rig);
}

static void store_that_does_not_open(void **state)
{
    (void)state;
    struct rig *rig = rig_open((uint64_t)2 << 20, false);
    rig->store_refuses = true;
    struct item items[8];
    for (uint64_t i = 0; i < 8; i++)
        items[i] = make(rig, 1 << 20, i);
    for (size_t i = 0; i < 8; i++)
        check(rig, &items[i]);
    assert_int_equal(atomic_load(&rig->opened), 1);
    assert_int_equal(atomic_load(&rig->warned), 1);
    assert_int_equal(atomic_load(&rig->counters->store_error), EIO);
    assert_true(over(rig) >= (uint64_t)6 << 20);
    rig_close(rig);
}

/* A write back that failed says nothing of the bytes, and nothing of a later block. */
static void writes_that_failed_lose_nothing(void **state)
{
    (void)state;
    struct rig *rig = rig_open(NO_BUDGET, true);
    struct item item = make(rig, 1 << 20, 1);
    unsigned char *bytes = item.bytes;
    uint64_t time_ns;
    rig->faulty.write_errno = ENOSPC;
    send_out(rig, &item);
    ebb__runtime_settle(rig->runtime);
    assert_int_equal(block_of(rig, &item)->transfer.error, ENOSPC);
    pthread_mutex_lock(&rig->runtime->core.lock);
    assert_true(block_of(rig, &item)->state == BLOCK_PARKED ||
                ebb__move_park(&rig->runtime->transfer, block_of(rig, &item)));
    pthread_mutex_unlock(&rig->runtime->core.lock);
    assert_true(ebb__runtime_acquire(rig->runtime, item.bytes, false, &time_ns));
    ebb__runtime_release(rig->runtime, item.bytes, &time_ns);
    check(rig, &item);
    drop(rig, &item);
    pthread_mutex_lock(&rig->runtime->core.lock);
    while (ebb__pages_strip_cached(&rig->runtime->memory))
        continue;
    pthread_mutex_unlock(&rig->runtime->core.lock);
    item = (struct item){ebb__runtime_alloc(rig->runtime, 1 << 20, 64, false), 1 << 20, 2};
    assert_ptr_equal(item.bytes, bytes);
    assert_int_equal(state_of(rig, &item), BLOCK_BARE);
    assert_int_equal(block_of(rig, &item)->transfer.error, 0);
    assert_true(ebb__runtime_acquire(rig->runtime, item.bytes, true, &time_ns));
    ebb__runtime_release(rig->runtime, item.bytes, &time_ns);
    drop(rig, &item);
    rig_close(rig);
}

static void reads_that_fail(void **state)
{
    (void)state;
    struct rig *rig = rig_open((uint64_t)32 << 20, false);
    struct item lost = make(rig, 5 << 20, 1), fine = make(rig, 1 << 20, 2);
    evict_now(rig, &lost);
    ebb__runtime_settle(rig->runtime);
    uint64_t held_before = held(rig);
    rig->faulty.read_errno = EIO;
    assert_int_equal(take_turn(rig, &lost, false, 100), TURN_NEVER);
    ebb__runtime_settle(rig->runtime);
    assert_true(atomic_load(&rig->lost) > 0);
    assert_int_equal(state_of(rig, &lost), BLOCK_EVICTED);
    assert_int_equal(atomic_load(&rig->counters->store_error), EIO);
    assert_true(held(rig) <= held_before + (7 << 20));
    check(rig, &fine);
    rig->faulty.read_errno = 0; /* the device works again */
    check(rig, &lost);
    drop(rig, &lost);
    drop(rig, &fine);
    rig_close(rig);
}

/* If a prefetch fails, nothing is lost as long as nobody uses the block. */
static void early_reads_that_fail(void **state)
{
    (void)state;
    struct rig *rig = rig_open((uint64_t)32 << 20, false);
    struct item item = make(rig, 5 << 20, 1);
    evict_now(rig, &item);
    ebb__runtime_settle(rig->runtime);
    rig->faulty.read_errno = EIO;
    pthread_mutex_lock(&rig->runtime->core.lock);
    ebb__move_queue_in(&rig->runtime->transfer, block_of(rig, &item), false);
    pthread_mutex_unlock(&rig->runtime->core.lock);
    ebb__runtime_settle(rig->runtime);
    assert_int_equal(atomic_load(&rig->counters->store_error), EIO);
    assert_int_equal(state_of(rig, &item), BLOCK_EVICTED);
    assert_int_equal(atomic_load(&rig->lost), 0);
    rig->faulty.read_errno = 0;
    check(rig, &item);
    assert_int_equal(atomic_load(&rig->lost), 0);
    drop(rig, &item);
    rig_close(rig);
}

/* A block that a system call uses is not evicted. Afterwards it may be. */
static void pinned_for_a_call(void **state)
{
    (void)state;
    struct rig *rig = rig_open((uint64_t)32 << 20, false);
    struct item item = make(rig, 5 << 20, 1);
    assert_false(ebb__runtime_pin(rig->runtime, item.bytes + (11 << 19), 10));
    assert_true(ebb__runtime_pin(rig->runtime, item.bytes, UINT64_MAX));
    assert_true(ebb__runtime_pin(rig->runtime, item.bytes + 4096, 1));
    for (unsigned pins = 2; pins > 0; pins--) {
        pthread_mutex_lock(&rig->runtime->core.lock);
        assert_int_equal(block_of(rig, &item)->pins, pins);
        assert_false(ebb__move_park(&rig->runtime->transfer, block_of(rig, &item)));
        pthread_mutex_unlock(&rig->runtime->core.lock);
        check(rig, &item);
        if (pins == 2)
            ebb__runtime_unpin(rig->runtime, item.bytes + 4096, 1);
        else
            ebb__runtime_unpin(rig->runtime, item.bytes, UINT64_MAX);
    }
    evict_now(rig, &item);
    ebb__runtime_settle(rig->runtime);
    assert_int_equal(state_of(rig, &item), BLOCK_EVICTED);
    check(rig, &item);
    drop(rig, &item);
    rig_close(rig);
}

static void verify_sees_a_changed_byte(void **state)
{
    (void)state;
    struct rig *rig = rig_make((uint64_t)32 << 20, false, true);
    struct item item = make(rig, 5 << 20, 1);
    for (unsigned lap = 0; lap < 3; lap++) {
        evict_now(rig, &item);
        check(rig, &item);
    }
    assert_int_equal(atomic_load(&rig->lost), 0);
    evict_now(rig, &item);
    ebb__runtime_settle(rig->runtime);
    pthread_mutex_lock(&rig->runtime->core.lock);
    unsigned char *byte = rig->faulty.memory + block_of(rig, &item)->copy.offset + (5 << 20) - 1;
    pthread_mutex_unlock(&rig->runtime->core.lock);
    *byte ^= 4;
    assert_int_equal(take_turn(rig, &item, false, 100), TURN_NEVER);
    ebb__runtime_settle(rig->runtime);
    assert_true(atomic_load(&rig->lost) > 0);
    assert_int_equal(state_of(rig, &item), BLOCK_EVICTED);
    drop(rig, &item);
    rig_close(rig);
}

static void others_starve(void **state)
{
    (void)state;
    struct rig *rig = rig_open((uint64_t)32 << 20, false);
    struct item items[20];
    for (uint64_t i = 0; i < 20; i++)
        items[i] = make(rig, 1 << 20, i);
    ebb__runtime_shrink(rig->runtime, (uint64_t)8 << 20);
    ebb__runtime_settle(rig->runtime);
    assert_true(held(rig) <= (uint64_t)12 << 20);
    for (size_t i = 0; i < 20; i++)
        check(rig, &items[i]);
    assert_within_budget(rig);
    rig_close(rig);
}

/* --- tracing --- */

/* All of them have these flags. */
static unsigned accesses_of(struct rig *rig, uint8_t flags, enum ebb_access_kind *kind)
{
    struct ebb_event events[64];
    unsigned seen = 0;
    for (size_t count; (count = ebb__ring_read(rig->ring, events, 64)) > 0;)
        for (size_t i = 0; i < count; i++)
            if (events[i].kind == EBB_EVENT_ACCESS) {
                seen++;
                *kind = (enum ebb_access_kind)events[i].access;
                assert_int_equal(events[i].flags, flags);
            }
    return seen;
}

static unsigned accesses_seen(struct rig *rig, enum ebb_access_kind *kind)
{
    return accesses_of(rig, 0, kind);
}

/* What is on its way when it is used is late. What nobody has called is only absent. */
static void late_returns_are_told_apart(void **state)
{
    (void)state;
    struct rig *rig = rig_open((uint64_t)20 << 20, false);
    struct item items[2];
    enum ebb_access_kind kind;
    for (uint64_t i = 0; i < 2; i++) {
        items[i] = make(rig, 4 << 20, i);
        evict_now(rig, &items[i]);
    }
    ebb__runtime_settle(rig->runtime);
    rig->faulty.delay_us = 50000;
    for (int i = 0; i < 2; i++) {
        if (i == 1)
            call_in(rig, &items[i], false, false);
        check(rig, &items[i]);
        uint8_t flags = i == 1 ? EBB_EVENT_DEMAND | EBB_EVENT_LATE : EBB_EVENT_DEMAND;
        assert_int_equal(accesses_of(rig, flags, &kind), 1);
    }
    assert_int_equal(atomic_load(&rig->counters->demand_faults), 2);
    rig_close(rig);
}

static void trace_sees_each_use_once(void **state)
{
    (void)state;
    struct rig *rig = rig_open(NO_BUDGET, true);
    enum ebb_access_kind kind = EBB_ACCESS_UNKNOWN;
    struct item item = make(rig, 300000, 1), other = {0};
    assert_int_equal(accesses_seen(rig, &kind), 1); /* its first access, a write */
    assert_int_equal(kind, EBB_ACCESS_WRITE);
    for (unsigned round = 0; round < 20; round++) {
        if (other.bytes)
            drop(rig, &other);
        else
            other = make(rig, 50000, 2), (void)accesses_seen(rig, &kind);
        assert_int_equal(state_of(rig, &item), BLOCK_PARKED);
        bool write = round % 3 == 0;
        if (write)
            put(rig, &item, round);
        else
            check(rig, &item);
        check(rig, &item);
        check(rig, &item);
        assert_int_equal(accesses_seen(rig, &kind), 1);
        assert_int_equal(kind, write ? EBB_ACCESS_WRITE : EBB_ACCESS_READ);
    }
    assert_int_equal(atomic_load(&rig->counters->demand_faults), 0);
    struct item untouched = {ebb__runtime_alloc(rig->runtime, 9000, 64, false), 9000, 3};
    assert_int_equal(state_of(rig, &untouched), BLOCK_BARE);
    ebb__runtime_set_trace(rig->runtime, EBB_OBSERVE_NEVER, 0);
    assert_int_equal(state_of(rig, &item), BLOCK_RESIDENT);
    check(rig, &item);
    put(rig, &untouched, 3);
    check(rig, &untouched);
    ebb__runtime_set_trace(rig->runtime, EBB_OBSERVE_ALWAYS, 0);
    assert_int_equal(state_of(rig, &item), BLOCK_PARKED);
    check(rig, &item);
    check(rig, &untouched);
    drop(rig, &untouched);
    drop(rig, &item);
    ebb__runtime_set_trace(rig->runtime, EBB_OBSERVE_NEVER, 0);
    rig_close(rig);
}

/* Within a budget, uses that follow another one of the block closely are not observed. The last of
 * them is told when the block is observed again. */
static void trace_leaves_out_what_follows_closely(void **state)
{
    (void)state;
    struct rig *rig = rig_open((uint64_t)64 << 20, true); /* blocks stay open for 2 MiB of others */
    enum ebb_access_kind kind = EBB_ACCESS_UNKNOWN;
    struct item items[24], first = make(rig, 1 << 20, 1);
    assert_int_equal(state_of(rig, &first), BLOCK_RESIDENT);
    assert_int_equal(accesses_seen(rig, &kind), 1); /* at its allocation */
    assert_int_equal(kind, EBB_ACCESS_WRITE);
    items[0] = make(rig, 1 << 20, 2);
    assert_int_equal(accesses_seen(rig, &kind), 1);
    check(rig, &first);
    assert_int_equal(accesses_seen(rig, &kind), 0);
    items[1] = make(rig, 1 << 20, 3);
    items[2] = make(rig, 1 << 20, 4);
    assert_int_equal(state_of(rig, &first), BLOCK_PARKED);
    assert_int_equal(accesses_seen(rig, &kind),
                     3); /* two new ones, and the last use of the first */
    check(rig, &first);
    check(rig, &first);
    assert_int_equal(accesses_seen(rig, &kind), 1);
    assert_int_equal(kind, EBB_ACCESS_READ);

    /* All of them, if the parent asks for that. */
    ebb__runtime_set_trace(rig->runtime, EBB_OBSERVE_EXACTLY, 0);
    (void)accesses_seen(rig, &kind);
    for (unsigned i = 3; i < 24; i++) {
        items[i] = make(rig, 50000, 5);
        assert_int_equal(accesses_seen(rig, &kind), 1);
        assert_int_equal(state_of(rig, &first), BLOCK_PARKED);
        check(rig, &first);
        assert_int_equal(accesses_seen(rig, &kind), 1);
    }
    for (unsigned i = 0; i < 24; i++) {
        check(rig, &items[i]);
        drop(rig, &items[i]);
    }
    drop(rig, &first);
    assert_within_budget(rig);
    rig_close(rig);
}

/* What was used in an operation that ends with a pause was not used in the next one. */
static void a_pause_ends_the_uses_before_it(void **state)
{
    (void)state;
    struct rig *rig = rig_open((uint64_t)64 << 20, true); /* blocks stay open for 2 MiB of others */
    rig->runtime->core.config.pause_ns = 400000000;
    enum ebb_access_kind kind = EBB_ACCESS_UNKNOWN;
    struct item items[5];
    for (unsigned i = 0; i < 5; i++)
        items[i] = make(rig, 1 << 20, i);
    assert_int_equal(state_of(rig, &items[0]), BLOCK_PARKED);
    assert_int_equal(state_of(rig, &items[1]), BLOCK_PARKED);
    (void)accesses_seen(rig, &kind);
    check(rig, &items[0]);
    assert_int_equal(accesses_seen(rig, &kind), 1);
    nanosleep(&(struct timespec){.tv_nsec = 600000000}, NULL);
    check(rig, &items[1]);
    for (unsigned i = 2; i < 5; i++)
        assert_int_equal(state_of(rig, &items[i]), BLOCK_PARKED);
    /* This use, and the last ones of two that were open when the last was allocated. */
    assert_int_equal(accesses_seen(rig, &kind), 3);
    for (unsigned i = 0; i < 5; i++)
        drop(rig, &items[i]);
    rig_close(rig);
}

static void trace_within_budget(void **state)
{
    (void)state;
    struct rig *rig = rig_open((uint64_t)2 << 20, true);
    struct item items[30];
    for (uint64_t i = 0; i < 30; i++)
        items[i] = make(rig, 150000, i);
    for (size_t lap = 0; lap < 3; lap++)
        for (size_t i = 0; i < 30; i++) {
            check(rig, &items[i]);
            drop(rig, &items[i]);
            items[i] = make(rig, 150000, i + lap);
            assert_within_budget(rig);
        }
    assert_true(atomic_load(&rig->counters->moved_out_bytes) > 0);
    ebb__runtime_set_trace(rig->runtime, EBB_OBSERVE_NEVER, 0);
    for (size_t i = 0; i < 30; i++) {
        check(rig, &items[i]);
        drop(rig, &items[i]);
    }
    assert_within_budget(rig);
    rig_close(rig);
}

/* --- scripts --- */

static void script_is_replayed(void **state)
{
    (void)state;
    struct ebb_model model = make_training(8, (uint64_t)24 << 20, 60000000, 3);
    uint64_t peak = model.peak_bytes;
    struct rig *rig = rig_open(NO_BUDGET, false);
    struct program program;
    program_init(&program, rig, model);
    struct ebb_script *script = script_for(&program.model, peak * 6 / 10);
    assert_int_equal(ebb__runtime_set_script(rig->runtime, script, script->bytes), EBB_OK);
    program_lap(&program, rig, true, UINT32_MAX); /* replay begins */
    assert_int_equal(atomic_load(&rig->counters->resyncs), 1);
    atomic_store(&rig->ledger.budget_bytes, peak * 8 / 10);
    program_lap(&program, rig, true, UINT32_MAX); /* and the budget is reached */
    program_lap(&program, rig, true, UINT32_MAX);
    uint64_t moved = atomic_load(&rig->counters->moved_in_bytes);
    program_settles(&program, rig, 5);
    assert_true(atomic_load(&rig->counters->moved_in_bytes) > moved);
    assert_int_equal(atomic_load(&rig->counters->mismatches), 0);
    assert_int_equal(atomic_load(&rig->counters->resyncs), 1);
    assert_int_equal(atomic_load(&rig->ledger.in_force), 1);
    assert_within_budget(rig);

    program_lap(&program, rig, true, program.model.tick_count / 2);
    assert_int_equal(atomic_load(&rig->counters->mismatches), 1);
    program_lap(&program, rig, true, UINT32_MAX);
    assert_int_equal(atomic_load(&rig->counters->resyncs), 2);
    program_settles(&program, rig, 3);
    assert_int_equal(atomic_load(&rig->counters->mismatches), 1);

    /* The disk is slow for a while. Prefetches that start earlier because of it return to their
     * times. */
    ebb__runtime_settle(rig->runtime);
    rig->faulty.delay_us = 20000;
    program_lap(&program, rig, true, UINT32_MAX);
    program_lap(&program, rig, true, UINT32_MAX);
    ebb__runtime_settle(rig->runtime);
    rig->faulty.delay_us = 0;
    program_settles(&program, rig, 3);
    assert_within_budget(rig);
    program_fini(&program);
    rig_close(rig);
    free(script);
}

/* Accesses are observed where the program is in none of its scripts, or for as long as is
 * wanted. */
static void departures_are_observed(void **state)
{
    (void)state;
    struct rig *rig = rig_open(NO_BUDGET, false);
    struct program program;
    program_init(&program, rig, make_training(8, (uint64_t)8 << 20, 60000000, 3));
    struct ebb_script *script = script_for(&program.model, program.model.peak_bytes);
    ebb__runtime_set_trace(rig->runtime, EBB_OBSERVE_DEPARTURES, 0);
    struct item item = make(rig, 9000, 1), second;
    enum ebb_access_kind kind;
    assert_int_equal(state_of(rig, &item), BLOCK_RESIDENT); /* no script is known */
    assert_int_equal(ebb__runtime_set_script(rig->runtime, script, script->bytes), EBB_OK);
    program_lap(&program, rig, false, UINT32_MAX);
    program_lap(&program, rig, false, UINT32_MAX);
    assert_int_equal(state_of(rig, &item), BLOCK_RESIDENT);
    (void)accesses_seen(rig, &kind);
    for (unsigned wanted = 0; wanted <= 1000; wanted += 1000) {
        ebb__runtime_set_trace(rig->runtime, EBB_OBSERVE_DEPARTURES, wanted);
        second = make(rig, 7777, 2);
        (void)accesses_seen(rig, &kind);
        assert_int_equal(state_of(rig, &item), BLOCK_PARKED);
        check(rig, &item);
        assert_int_equal(accesses_seen(rig, &kind), 1);
        drop(rig, &second);
        program_lap(&program, rig, false, UINT32_MAX); /* it is followed again */
        program_lap(&program, rig, false, UINT32_MAX);
        assert_int_equal(state_of(rig, &item), wanted ? BLOCK_PARKED : BLOCK_RESIDENT);
    }
    ebb__runtime_set_trace(rig->runtime, EBB_OBSERVE_NEVER, 0);
    assert_int_equal(state_of(rig, &item), BLOCK_RESIDENT);
    drop(rig, &item);
    program_fini(&program);
    rig_close(rig);
    free(script);
}

/* In one operation, the program repeatedly uses blocks that the template has in another one only.
 * They must not be evicted first because of that. */
static void uses_beside_the_script(void **state)
{
    (void)state;
    enum { KNOWN = 6, OTHERS = 3, ROUNDS = 50 };
    const uint64_t bytes = (uint64_t)1 << 20;
    struct maker maker = {0};
    uint32_t others[OTHERS], known[KNOWN];
    for (unsigned i = 0; i < OTHERS; i++)
        others[i] = make_persistent(&maker, bytes);
    for (unsigned i = 0; i < KNOWN; i++)
        known[i] = make_persistent(&maker, bytes);
    uint32_t first = make_block(&maker, 12288), second = make_block(&maker, 20480);
    make_event(&maker, 0, EBB_EVENT_ALLOC, first, EBB_ACCESS_UNKNOWN);
    for (unsigned i = 0; i < OTHERS; i++)
        make_event(&maker, 1000000 * i, EBB_EVENT_ACCESS, others[i], EBB_ACCESS_READ);
    make_event(&maker, 5000000, EBB_EVENT_FREE, first, EBB_ACCESS_UNKNOWN);
    make_event(&maker, 6000000, EBB_EVENT_ALLOC, second, EBB_ACCESS_UNKNOWN);
    for (unsigned i = 0; i < KNOWN; i++)
        make_event(&maker, 7000000 + 1000000 * i, EBB_EVENT_ACCESS, known[i], EBB_ACCESS_READ);
    make_event(&maker, 19000000, EBB_EVENT_FREE, second, EBB_ACCESS_UNKNOWN);
    struct rig *rig = rig_open(NO_BUDGET, false);
    struct program program;
    program_init(&program, rig, make_model(&maker, 20000000));
    struct ebb_script *script = script_for(&program.model, program.model.peak_bytes);
    assert_int_equal(ebb__runtime_set_script(rig->runtime, script, script->bytes), EBB_OK);
    program_lap(&program, rig, false, UINT32_MAX);
    program_lap(&program, rig, false, UINT32_MAX);
    assert_int_equal(atomic_load(&rig->counters->resyncs), 1);

    struct item *items = program.items;
    items[first] = make(rig, 12288, 1);
    atomic_store(&rig->ledger.budget_bytes, (KNOWN + OTHERS - 1) * bytes);
    drop(rig, &items[first]);
    items[second] = make(rig, 20480, 2);
    for (unsigned i = 0; i < ROUNDS * OTHERS; i++)
        check(rig, &items[others[i % OTHERS]]);
    assert_in_range(atomic_load(&rig->counters->demand_faults), 1, 2 * (KNOWN + OTHERS));
    drop(rig, &items[second]);
    assert_int_equal(atomic_load(&rig->counters->mismatches), 0);
    program_lap(&program, rig, false, UINT32_MAX);
    assert_within_budget(rig);
    program_fini(&program);
    rig_close(rig);
    free(script);
}

/* True if no absence of the current script starts its fetch more than `most_ns` before the script's
 * time. */
static bool returns_as_planned(const struct rig *rig, uint64_t most_ns)
{
    const struct prepared_script *current = rig->runtime->replay.current;
    const struct ebb_script_event *events = ebb__script_events(current->script);
    const struct ebb_script_absence *absences = ebb__script_absences(current->script);
    for (uint32_t i = 0; i < current->script->absence_count; i++) {
        uint32_t planned = absences[i].in_clock, now = current->in_clock[i];
        if (planned != EBB_SCRIPT_NONE && events[now].time_ns + current->in_delay_ns[i] + most_ns <
                                              events[planned].time_ns + absences[i].in_delay_ns)
            return false;
    }
    return true;
}

/* The weights get memory only when a block is freed, and are used at once. The plan expects that
 * wait. So their fetch must not evict other blocks, and must not start earlier in later iterations.
 * On a slow disk, earlier starts are tried, but fail for lack of memory. */
static void waits_that_are_planned(void **state)
{
    (void)state;
    enum { LAPS = 5, TRIES = 100 };
    static const unsigned delays_us[] = {1000, 16000};
    const uint64_t bytes = (uint64_t)8 << 20;
    for (unsigned disk = 0; disk < sizeof delays_us / sizeof *delays_us; disk++) {
        struct maker maker = {0};
        uint32_t weights = make_persistent(&maker, bytes),
                 others = make_persistent(&maker, bytes / 4);
        uint32_t first = make_block(&maker, bytes), second = make_block(&maker, 12288);
        make_event(&maker, 0, EBB_EVENT_ALLOC, first, EBB_ACCESS_UNKNOWN);
        make_event(&maker, 1000000, EBB_EVENT_ACCESS, first, EBB_ACCESS_WRITE);
        make_event(&maker, 2000000, EBB_EVENT_ACCESS, others, EBB_ACCESS_READ);
        make_event(&maker, 30000000, EBB_EVENT_FREE, first, EBB_ACCESS_UNKNOWN);
        make_event(&maker, 30100000, EBB_EVENT_ACCESS, weights, EBB_ACCESS_WRITE);
        make_event(&maker, 32000000, EBB_EVENT_ALLOC, second, EBB_ACCESS_UNKNOWN);
        make_event(&maker, 33000000, EBB_EVENT_ACCESS, others, EBB_ACCESS_READ);
        make_event(&maker, 58000000, EBB_EVENT_FREE, second, EBB_ACCESS_UNKNOWN);
        struct rig *rig = rig_open(NO_BUDGET, false);
        rig->faulty.delay_us = delays_us[disk];
        struct program program;
        program_init(&program, rig, make_model(&maker, 60000000));
        uint64_t budget = bytes + bytes / 2;
        struct ebb_script *script = script_for(&program.model, budget);
        uint64_t planned_ns = 0;
        for (uint32_t i = 0; i < script->absence_count; i++)
            planned_ns += ebb__script_absences(script)[i].stall_ns;
        assert_in_range(planned_ns, 3000000, 5000000);
        assert_int_equal(ebb__runtime_set_script(rig->runtime, script, script->bytes), EBB_OK);
        program_lap(&program, rig, true, UINT32_MAX);
        atomic_store(&rig->ledger.budget_bytes, budget);
        uint64_t stalled = atomic_load(&rig->counters->stall_ns);
        for (unsigned tries = 0, good = 0; good < LAPS; tries++) {
            uint64_t evictions = atomic_load(&rig->counters->reactive_evictions);
            program_lap(&program, rig, true, UINT32_MAX);
            bool quiet = atomic_load(&rig->counters->reactive_evictions) == evictions;
            good = quiet && returns_as_planned(rig, 10000000) ? good + 1 : 0;
            assert_true(tries < TRIES);
        }
        assert_true(atomic_load(&rig->counters->stall_ns) - stalled >= LAPS * 1000000);
        assert_int_equal(atomic_load(&rig->counters->mismatches), 0);
        assert_within_budget(rig);
        program_fini(&program);
        rig_close(rig);
        free(script);
    }
}

/* A script of an earlier run is in force before the first iteration. The initialisation allocates
 * exactly like an iteration. Only serials tell them apart. */
static void script_from_before(void **state)
{
    (void)state;
    for (unsigned by_serial = 0; by_serial < 2; by_serial++) {
        struct ebb_model model = make_training(8, (uint64_t)2 << 20, 20000000, 3);
        struct rig *rig = rig_open(NO_BUDGET, false);
        struct program program;
        program_init(&program, rig, model);
        struct ebb_script *script = script_for(&program.model, model.peak_bytes * 6 / 10);
        uint32_t persistent = script->persistent_count;
        assert_true(persistent > 0);
        script->first_serial = by_serial ? persistent + 2 * script->alloc_count + 1 : 0;
        assert_int_equal(ebb__runtime_set_script(rig->runtime, script, script->bytes), EBB_OK);
        for (unsigned lap = 0; lap < 2; lap++)
            program_lap(&program, rig, false, UINT32_MAX);
        assert_int_equal(atomic_load(&rig->counters->resyncs), !by_serial);
        for (unsigned lap = 0; lap < 100 && atomic_load(&rig->counters->moved_out_bytes) == 0;
             lap++)
            program_lap(&program, rig, true, UINT32_MAX);
        assert_int_equal(atomic_load(&rig->counters->resyncs), 1);
        assert_true(atomic_load(&rig->counters->moved_out_bytes) > 0);

        /* No script is in force after all were forgotten. */
        ebb__runtime_forget_scripts(rig->runtime);
        ebb__runtime_settle(rig->runtime);
        uint64_t moved = atomic_load(&rig->counters->moved_out_bytes);
        for (unsigned lap = 0; lap < 2; lap++)
            program_lap(&program, rig, false, UINT32_MAX);
        assert_int_equal(atomic_load(&rig->counters->resyncs), 1);
        assert_int_equal(atomic_load(&rig->counters->moved_out_bytes), moved);
        program_fini(&program);
        rig_close(rig);
        free(script);
    }
}

/* A persistent block is left alone if its serial belongs to a block of another size. */
static void script_of_other_blocks(void **state)
{
    (void)state;
    for (unsigned other = 0; other < 2; other++) {
        struct ebb_model model = make_training(8, (uint64_t)2 << 20, 20000000, 3);
        struct rig *rig = rig_open(NO_BUDGET, false);
        struct program program;
        program_init(&program, rig, model);
        struct ebb_script *script = script_for(&program.model, model.peak_bytes * 6 / 10);
        /* Only persistent blocks are to be evicted. */
        struct ebb_script_absence *absences = (void *)((char *)script + script->absences_offset);
        struct ebb_script_block *blocks = (void *)((char *)script + script->blocks_offset);
        for (uint32_t i = 0; i < script->absence_count; i++)
            absences[i].block %= script->persistent_count;
        for (uint32_t i = 0; i < script->persistent_count; i++)
            blocks[i].size_bytes += other * 4096;
        assert_int_equal(ebb__runtime_set_script(rig->runtime, script, script->bytes), EBB_OK);
        for (unsigned lap = 0; lap < (other ? 3 : 100); lap++)
            if (lap < 3 || atomic_load(&rig->counters->moved_out_bytes) == 0)
                program_lap(&program, rig, true, UINT32_MAX);
        ebb__runtime_settle(rig->runtime);
        assert_int_equal(atomic_load(&rig->counters->resyncs), 1);
        assert_int_equal(atomic_load(&rig->counters->moved_out_bytes) > 0, !other);
        program_fini(&program);
        rig_close(rig);
        free(script);
    }
}

static void malformed_scripts(void **state)
{
    (void)state;
    struct ebb_model model = make_training(3, (uint64_t)2 << 20, 10000000, 5);
    uint64_t budget = model.peak_bytes * 7 / 10, bytes, refused = 0, accepted = 0;
    struct rig *rig = rig_open(NO_BUDGET, false);
    struct program program;
    program_init(&program, rig, model);
    struct ebb_script *script = script_for(&program.model, budget);
    bytes = script->bytes;
    assert_true(ebb__script_valid(script, bytes));
    /* The script is truncated anywhere. Its memory is exactly that long. */
    for (uint64_t cut = 0; cut < bytes; cut++) {
        struct ebb_script *copy = must(malloc(cut ? cut : 1));
        memcpy(copy, script, cut);
        assert_int_equal(ebb__runtime_set_script(rig->runtime, copy, cut), EBB_ERR_FORMAT);
        free(copy);
    }
    /* Each byte is changed. If the result is a valid script, the program runs on some of them. */
    uint64_t chances = 11;
    EBB_VEC(void *) copies = {0};
    atomic_store(&rig->ledger.budget_bytes, model.peak_bytes);
    for (uint64_t at = 0; at < bytes; at++) {
        static const unsigned char flips[] = {0xff, 0x01, 0x80};
        for (size_t f = 0; f < sizeof flips; f++) {
            unsigned char *copy = must(malloc(bytes));
            memcpy(copy, script, bytes);
            copy[at] ^= flips[f];
            const struct ebb_script *changed = (const void *)copy;
            bool valid = ebb__script_valid(changed, bytes);
            refused += !valid;
            accepted += valid;
            if (!valid || chance(&chances) % (bytes / 60) != 0) {
                if (!valid)
                    assert_int_equal(ebb__runtime_set_script(rig->runtime, changed, bytes),
                                     EBB_ERR_FORMAT);
                free(copy);
                continue;
            }
            assert_true(ebb_vec_push(&copies, (void *)copy));
            assert_int_equal(ebb__runtime_set_script(rig->runtime, changed, bytes), EBB_OK);
            for (unsigned lap = 0; lap < 3; lap++)
                program_lap(&program, rig, false, UINT32_MAX);
        }
    }
    assert_true(refused > 0 && accepted > 0 && copies.count > 0);
    assert_int_equal(atomic_load(&rig->lost), 0);
    program_fini(&program);
    rig_close(rig);
    for (size_t i = 0; i < copies.count; i++)
        free(copies.items[i]);
    ebb_vec_free(&copies);
    free(script);
}

/* --- threads --- */

struct walker {
    struct rig *rig;
    uint64_t seed;
    unsigned wrong, never;
};

static void *walk(void *argument)
{
    struct walker *walker = argument;
    struct rig *rig = walker->rig;
    struct item items[12] = {{0}};
    uint64_t state = walker->seed * 0x9e3779b97f4a7c15u + 1;
    for (unsigned step = 0; step < 500; step++) {
        struct item *item = &items[chance(&state) % 12];
        enum turn turn = TURN_RIGHT;
        if (!item->bytes) {
            item->size = 1 + chance(&state) % 90000;
            item->seed = chance(&state);
            item->bytes = ebb__runtime_alloc(rig->runtime, item->size, 64, false);
            if (item->bytes)
                turn = take_turn(rig, item, true, PATIENCE_MS);
            else
                walker->wrong++;
        } else if (chance(&state) % 3 == 0) {
            walker->wrong += !ebb__runtime_free(rig->runtime, item->bytes);
            item->bytes = NULL;
        } else {
            turn = take_turn(rig, item, false, PATIENCE_MS);
            if (turn == TURN_RIGHT && chance(&state) % 2) {
                item->seed = chance(&state);
                turn = take_turn(rig, item, true, PATIENCE_MS);
            }
        }
        walker->wrong += turn == TURN_WRONG;
        walker->never += turn == TURN_NEVER;
        if (turn == TURN_NEVER)
            break;
    }
    for (size_t i = 0; i < 12; i++)
        if (items[i].bytes) {
            walker->wrong += take_turn(rig, &items[i], false, PATIENCE_MS) != TURN_RIGHT;
            walker->wrong += !ebb__runtime_free(rig->runtime, items[i].bytes);
        }
    return NULL;
}

static void threads_share_a_tiny_budget(void **state)
{
    (void)state;
    struct rig *rig = rig_open((uint64_t)500 << 10, false);
    rig->faulty.delay_us = 50;
    struct walker walkers[3];
    pthread_t threads[3];
    for (uint64_t i = 0; i < 3; i++) {
        walkers[i] = (struct walker){rig, i + 1, 0, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, walk, &walkers[i]), 0);
    }
    for (unsigned i = 0; i < 200; i++) {
        ebb__runtime_trim(rig->runtime);
        nap_us(1000);
    }
    for (size_t i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(walkers[i].wrong, 0);
        assert_int_equal(walkers[i].never, 0);
    }
    ebb__runtime_settle(rig->runtime);
    assert_int_equal(atomic_load(&rig->counters->live_bytes), 0);
    assert_int_equal(atomic_load(&rig->counters->store_bytes), 0);
    assert_true(atomic_load(&rig->counters->moved_in_bytes) > 0);
    assert_int_equal(atomic_load(&rig->lost), 0);
    rig_close(rig);
}

static _Atomic uint64_t fresh_bytes;
static const struct ebb_device_ops *counted_ops;

static enum ebb_device_result count_fresh(void *device, uintptr_t target, uint64_t bytes)
{
    fresh_bytes += bytes;
    return counted_ops->fresh(device, target, bytes);
}

/* Many small blocks and a few large ones in turn. *made: the bytes of pages made in iterations 0
 * and 1. `fragmented`: the units of the arena in each iteration. */
static void alternate(struct rig *rig, uint64_t *made, uint64_t fragmented[8])
{
    struct ebb_device_ops ops = *rig->runtime->core.device.ops;
    counted_ops = rig->runtime->core.device.ops;
    ops.fresh = count_fresh;
    rig->runtime->core.device.ops = &ops;
    fresh_bytes = 0;
    for (uint64_t lap = 0; lap < 8; lap++) {
        struct item small[13], large[3];
        for (uint64_t i = 0; i < 13; i++)
            small[i] = make(rig, (uint64_t)1 << 20, 100 * lap + i);
        for (uint64_t i = 0; i < 13; i++) {
            check(rig, &small[i]);
            drop(rig, &small[i]);
        }
        for (uint64_t i = 0; i < 3; i++)
            large[i] = make(rig, (uint64_t)4 << 20, 100 * lap + i + 50);
        for (uint64_t unit = 0; unit < ARENA_BYTES / EBB_HUGE_BYTES; unit++)
            fragmented[lap] += rig->runtime->memory.fragmented[unit];
        for (uint64_t i = 0; i < 3; i++) {
            check(rig, &large[i]);
            drop(rig, &large[i]);
        }
        if (lap == 1)
            *made = fresh_bytes;
    }
    assert_within_budget(rig);
    rig->runtime->core.device.ops = counted_ops;
}

/* Units are split and assembled. Once the budget is full, no more pages are made. Fragmented units
 * are split first. */
static void pages_are_not_exchanged(void **state)
{
    (void)state;
    struct rig *rig = rig_open((uint64_t)16 << 20, false);
    uint64_t made = 0, fragmented[8] = {0};
    rig->runtime->core.config.exchange_share = UINT32_MAX; /* no time is spent on exchanges */
    alternate(rig, &made, fragmented);
    assert_int_equal(fresh_bytes, made);
    assert_true(fragmented[7] > 0);
    assert_int_equal(fragmented[7], fragmented[1]);
    rig_close(rig);
}

/* If there is time for exchanges, no unit stays fragmented: no new ones, and none from before. */
static void pages_are_exchanged_in_time(void **state)
{
    (void)state;
    struct rig *rig = rig_open((uint64_t)16 << 20, false);
    uint64_t made = 0, fragmented[8] = {0};
    rig->runtime->core.config.exchange_share = UINT32_MAX;
    alternate(rig, &made, fragmented);
    assert_true(fragmented[7] > 0);
    rig->runtime->core.config.exchange_share = 1; /* all of the time */
    memset(fragmented, 0, sizeof fragmented);
    alternate(rig, &made, fragmented);
    for (uint64_t lap = 0; lap < 8; lap++)
        assert_int_equal(fragmented[lap], 0);
    assert_true(fresh_bytes > made);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_reused),
        cmocka_unit_test(pages_are_not_exchanged),
        cmocka_unit_test(pages_are_exchanged_in_time),
        cmocka_unit_test(callocs_are_zero),
        cmocka_unit_test(fresh_pages_come_with_the_first_use),
        cmocka_unit_test(foreign_pointers),
        cmocka_unit_test(budget_holds_and_bytes_survive),
        cmocka_unit_test(working_set_over_budget),
        cmocka_unit_test(late_budget),
        cmocka_unit_test(out_and_in),
        cmocka_unit_test(free_in_every_state),
        cmocka_unit_test(late_faults_leave_no_page),
        cmocka_unit_test(late_faults_give_no_pages),
        cmocka_unit_test(behind_a_block_is_no_block),
        cmocka_unit_test(access_cancels_a_write_back),
        cmocka_unit_test(early_prefetches_give_way),
        cmocka_unit_test(early_prefetches_are_used_or_freed),
        cmocka_unit_test(pinned_stays),
        cmocka_unit_test(unchanged_copies_are_evicted_free),
        cmocka_unit_test(writes_that_fail),
        cmocka_unit_test(store_that_recovers),
        cmocka_unit_test(store_limit),
        cmocka_unit_test(store_that_does_not_open),
        cmocka_unit_test(writes_that_failed_lose_nothing),
        cmocka_unit_test(reads_that_fail),
        cmocka_unit_test(early_reads_that_fail),
        cmocka_unit_test(pinned_for_a_call),
        cmocka_unit_test(verify_sees_a_changed_byte),
        cmocka_unit_test(others_starve),
        cmocka_unit_test(late_returns_are_told_apart),
        cmocka_unit_test(trace_sees_each_use_once),
        cmocka_unit_test(trace_leaves_out_what_follows_closely),
        cmocka_unit_test(a_pause_ends_the_uses_before_it),
        cmocka_unit_test(trace_within_budget),
        cmocka_unit_test(script_is_replayed),
        cmocka_unit_test(departures_are_observed),
        cmocka_unit_test(uses_beside_the_script),
        cmocka_unit_test(waits_that_are_planned),
        cmocka_unit_test(script_from_before),
        cmocka_unit_test(script_of_other_blocks),
        cmocka_unit_test(malformed_scripts),
        cmocka_unit_test(threads_share_a_tiny_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
