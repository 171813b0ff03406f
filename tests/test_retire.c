/* Retirement: a process begins to use a device, and all its blocks of the host's memory come back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "runtime_rig.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

enum { BLOCKS = 12, THREADS = 3 };
#define BLOCK_BYTES ((size_t)3 << 20)
#define BUDGET_BYTES ((uint64_t)20 << 20)

static void make_all(struct rig *rig, struct item items[BLOCKS])
{
    for (uint64_t i = 0; i < BLOCKS; i++)
        items[i] = make(rig, BLOCK_BYTES, 100 + i);
    ebb__runtime_settle(rig->runtime);
}

/* Begins to write the block back, unless that is so already, or over. */
static void begin_out(struct rig *rig, const struct item *item)
{
    pthread_mutex_lock(&rig->runtime->core.lock);
    struct block *block = block_of(rig, item);
    if (block->state == BLOCK_RESIDENT && block->transfer.queue == QUEUE_NONE)
        ebb__move_queue_out(&rig->runtime->transfer, block, true);
    pthread_mutex_unlock(&rig->runtime->core.lock);
}

static void assert_is_there(struct rig *rig, struct item *item)
{
    assert_int_equal(state_of(rig, item), BLOCK_RESIDENT);
    pthread_mutex_lock(&rig->runtime->core.lock);
    assert_int_equal(missing_page(rig, item), 0);
    assert_true(is_right(item));
    assert_true(block_of(rig, item)->kept);
    pthread_mutex_unlock(&rig->runtime->core.lock);
}

/* Nothing is managed any more, and the parent is told so. */
static void assert_is_retired(struct rig *rig)
{
    assert_int_equal(held(rig), 0);
    assert_int_equal(over(rig), 0);
    assert_int_equal(atomic_load(&rig->counters->retired), 1);
    assert_int_equal(atomic_load(&rig->counters->managing), 0);
    assert_null(ebb__runtime_alloc(rig->runtime, BLOCK_BYTES, 64, false));
    assert_int_equal(ebb__runtime_take_slab(rig->runtime), 0);
}

static void everything_comes_back(void **state)
{
    (void)state;
    for (int trace = 0; trace < 2; trace++) {
        struct rig *rig = rig_open(BUDGET_BYTES, trace);
        struct item items[BLOCKS];
        make_all(rig, items);
        struct item bare = {ebb__runtime_alloc(rig->runtime, BLOCK_BYTES, 64, false), BLOCK_BYTES,
                            1};
        uintptr_t slab = ebb__runtime_take_slab(rig->runtime);
        assert_true(slab != 0);
        begin_out(rig, &items[0]);
        wait_for_state(rig, &items[0], BLOCK_EVICTED);
        rig->faulty.delay_us = 20000;
        begin_out(rig, &items[BLOCKS - 1]); /* it is being written */
        uint64_t written = atomic_load(&rig->ring->written);
        assert_true(ebb__runtime_retire(rig->runtime));
        rig->faulty.delay_us = 0;
        assert_true(atomic_load(&rig->ring->written) <= written + 2); /* marks of the end */
        written = atomic_load(&rig->ring->written);
        for (size_t i = 0; i < BLOCKS; i++)
            assert_is_there(rig, &items[i]);
        assert_int_equal(state_of(rig, &bare), BLOCK_RESIDENT);
        put(rig, &bare, 7);
        assert_is_retired(rig);
        assert_within_budget(rig);
        assert_int_equal(atomic_load(&rig->counters->held_bytes),
                         (BLOCKS + 1) * BLOCK_BYTES + EBB_SLAB_BYTES); /* nothing is cached */
        for (size_t i = 0; i < BLOCKS; i++)
            drop(rig, &items[i]);
        drop(rig, &bare);
        ebb__runtime_give_slab(rig->runtime, slab);
        assert_int_equal(atomic_load(&rig->counters->held_bytes), 0);
        assert_int_equal(atomic_load(&rig->ring->written), written); /* it tells nothing more */
        rig_close(rig);
    }
}

/* Messages of the parent that were on their way have no effect. */
static void orders_are_not_obeyed(void **state)
{
    (void)state;
    struct rig *rig = rig_open(BUDGET_BYTES, true);
    struct item items[BLOCKS];
    make_all(rig, items);
    assert_true(ebb__runtime_retire(rig->runtime));
    assert_false(rig->runtime->table.uses.trace);
    ebb__runtime_set_trace(rig->runtime, EBB_OBSERVE_ALWAYS, 0);
    assert_false(rig->runtime->table.uses.trace);
    atomic_store(&rig->ledger.budget_bytes, 1);
    ebb__runtime_trim(rig->runtime);
    ebb__runtime_shrink(rig->runtime, BUDGET_BYTES);
    ebb__runtime_settle(rig->runtime);
    for (size_t i = 0; i < BLOCKS; i++)
        assert_is_there(rig, &items[i]);
    rig_close(rig);
}

/* An access to such a block must wait, or end the process, and never read zeros. */
static void a_block_that_cannot_be_read(void **state)
{
    (void)state;
    struct rig *rig = rig_open(BUDGET_BYTES, false);
    struct item items[BLOCKS];
    make_all(rig, items);
    for (size_t i = 1; i < BLOCKS; i++) /* the others fit */
        drop(rig, &items[i]);
    begin_out(rig, &items[0]);
    wait_for_state(rig, &items[0], BLOCK_EVICTED);
    rig->faulty.good_reads = rig->faulty.reads;
    rig->faulty.read_errno = EIO;
    assert_false(ebb__runtime_retire(rig->runtime));
    assert_int_equal(state_of(rig, &items[0]), BLOCK_EVICTED);
    assert_int_equal(rig->lost, 0); /* nobody has needed it */
    assert_is_retired(rig);
    rig->faulty.read_errno = 0;
    check(rig, &items[0]);
    assert_false(ebb__runtime_retire(rig->runtime)); /* no further call does anything */
    rig_close(rig);
}

/* ---- beside threads that work ---------------------------------------------------------------- */

struct worker {
    struct rig *rig;
    uint64_t seed;
    unsigned blocks;
    bool is_right;
};

/* Until nothing is managed. */
static void *work(void *argument)
{
    struct worker *worker = argument;
    worker->is_right = true;
    for (uint64_t i = 0;; i++) {
        struct item item = {NULL, (1 + i % 5) << 19, worker->seed + i};
        item.bytes = ebb__runtime_alloc(worker->rig->runtime, item.size, 64, false);
        if (!item.bytes)
            return NULL;
        for (int turn = 0; turn < 3; turn++)
            worker->is_right &= take_turn(worker->rig, &item, turn == 0, PATIENCE_MS) == TURN_RIGHT;
        worker->is_right &= ebb__runtime_free(worker->rig->runtime, item.bytes);
        worker->blocks++;
    }
}

static void *retire(void *argument)
{
    struct rig *rig = argument;
    return ebb__runtime_retire(rig->runtime) && !held(rig) ? rig : NULL;
}

static void threads_work_meanwhile(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 20; round++) {
        struct rig *rig = rig_open((uint64_t)8 << 20, round % 2);
        struct item items[BLOCKS];
        make_all(rig, items);
        struct worker workers[THREADS];
        pthread_t threads[THREADS], retiring[2];
        for (size_t i = 0; i < THREADS; i++) {
            workers[i] = (struct worker){.rig = rig, .seed = 1000 * (i + 1)};
            assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
        }
        nap_us((long)round * 1000);
        for (size_t i = 0; i < 2; i++) /* the second waits for the first */
            assert_int_equal(pthread_create(&retiring[i], NULL, retire, rig), 0);
        for (size_t i = 0; i < 2; i++) {
            void *result;
            pthread_join(retiring[i], &result);
            assert_ptr_equal(result, rig);
        }
        for (size_t i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            assert_true(workers[i].is_right);
        }
        for (size_t i = 0; i < BLOCKS; i++)
            assert_is_there(rig, &items[i]);
        assert_is_retired(rig);
        rig_close(rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_comes_back),
        cmocka_unit_test(orders_are_not_obeyed),
        cmocka_unit_test(a_block_that_cannot_be_read),
        cmocka_unit_test(threads_work_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
