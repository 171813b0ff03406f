/* Slab reclaim: unused slabs are evicted first and fetched with their bytes; used slabs stay
 * resident. Evicted slabs stay evicted during a fork, and parent and child both read them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "runtime/slabs.h"
#include "runtime_rig.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define SLABS 96u /* 6 MiB; a parked slab takes a frame, and the rig has 112 */
#define LAP_NS ((uint64_t)20000000)

struct stage {
    struct rig *rig;
    struct item slabs[SLABS];
};

/* A budget of 22 MiB, more than a fourth of it in slabs. */
static struct stage stage_open(bool trace)
{
    struct stage stage = {.rig = rig_open(22 * MIB, trace)};
    stage.rig->runtime->core.config.slab_reclaim_ns = LAP_NS;
    for (uint32_t i = 0; i < SLABS; i++) {
        stage.slabs[i] = (struct item){.size = EBB_SLAB_BYTES, .seed = 1000 + i};
        stage.slabs[i].bytes = (unsigned char *)ebb__runtime_take_slab(stage.rig->runtime);
        assert_non_null(stage.slabs[i].bytes);
        put(stage.rig, &stage.slabs[i], 1000 + i);
    }
    return stage;
}

static void stage_close(struct stage *stage)
{
    for (uint32_t i = 0; i < SLABS; i++)
        ebb__runtime_give_slab(stage->rig->runtime, (uintptr_t)stage->slabs[i].bytes);
    assert_int_equal(atomic_load(&stage->rig->counters->small_bytes), 0);
    rig_close(stage->rig);
}

static uint64_t in_use(const struct stage *stage)
{
    return atomic_load(&stage->rig->counters->small_bytes);
}

static uint32_t count(struct stage *stage, enum block_state state)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < SLABS; i++)
        found += state_of(stage->rig, &stage->slabs[i]) == state;
    return found;
}

/* Allocates and frees more than the budget, so that reclaim always has to work. Meanwhile the first
 * `hot` slabs are used. */
static void press(struct stage *stage, uint32_t hot, unsigned rounds)
{
    for (unsigned round = 0; round < rounds; round++) {
        struct item items[9];
        for (uint64_t i = 0; i < 9; i++) {
            items[i] = make(stage->rig, (size_t)(2 * MIB + i * 4096), round * 9 + i);
            for (uint32_t slab = 0; slab < hot; slab++)
                check(stage->rig, &stage->slabs[slab]);
        }
        for (unsigned i = 0; i < 9; i++) {
            check(stage->rig, &items[i]);
            drop(stage->rig, &items[i]);
        }
        nap_us((long)(LAP_NS / 4000));
    }
}

static void what_nobody_uses_is_evicted(void **state)
{
    (void)state;
    struct stage stage = stage_open(false);
    assert_int_equal(in_use(&stage), SLABS * EBB_SLAB_BYTES);
    press(&stage, 8, 20);
    ebb__runtime_settle(stage.rig->runtime);
    /* 22 MiB hold 18.1 MiB of blocks and 6 of slabs, so at least 34 slabs must have been
     * evicted. */
    assert_in_range(count(&stage, BLOCK_EVICTED), 30, SLABS - 8);
    assert_in_range(in_use(&stage), 0, 16 * EBB_SLAB_BYTES);
    assert_within_budget(stage.rig);
    for (uint32_t i = 0; i < SLABS; i++)
        check(stage.rig, &stage.slabs[i]);
    assert_int_equal(in_use(&stage), SLABS * EBB_SLAB_BYTES);
    assert_within_budget(stage.rig);
    stage_close(&stage);
}

/* A slab that is used between two looks is parked less and less often, and never written. */
static void what_is_used_stays(void **state)
{
    (void)state;
    struct stage stage = stage_open(false);
    press(&stage, 8, 20);
    uint64_t faults = atomic_load(&stage.rig->counters->demand_faults);
    press(&stage, 8, 20);
    for (uint32_t i = 0; i < 8; i++) {
        const struct block *block = block_of(stage.rig, &stage.slabs[i]);
        assert_false(block->copy.is_there);
        assert_in_range(
            stage.rig->runtime->addresses.slabs
                .slabs[(block->address - stage.rig->runtime->addresses.slabs.base) / EBB_SLAB_BYTES]
                .doublings,
            1, 8);
    }
    /* press() may have caused evictions of its own blocks, but no slab had to be fetched. */
    assert_in_range(count(&stage, BLOCK_EVICTED), 30, SLABS - 8);
    assert_in_range(atomic_load(&stage.rig->counters->demand_faults) - faults, 0, 20u * 9u * 2u);
    stage_close(&stage);
}

/* While accesses are observed, slabs are looked at, too, so that the first plan knows which are in
 * use. This causes no events, and no evictions while there is memory. */
static void observing_tells_what_is_used(void **state)
{
    (void)state;
    struct stage stage = stage_open(true);
    for (unsigned round = 0; round < 3; round++) {
        nap_us((long)(2 * LAP_NS / 1000));
        for (unsigned i = 0; i < SLABS / 8 + 1; i++) {
            struct item item = make(stage.rig, 20000, i);
            check(stage.rig, &stage.slabs[0]);
            drop(stage.rig, &item);
        }
    }
    assert_int_equal(count(&stage, BLOCK_PARKED), SLABS - 1);
    assert_int_equal(in_use(&stage), EBB_SLAB_BYTES);
    assert_int_equal(atomic_load(&stage.rig->counters->moved_out_bytes), 0);
    ebb__runtime_set_trace(stage.rig->runtime, EBB_OBSERVE_NEVER, 0);
    assert_int_equal(count(&stage, BLOCK_PARKED), SLABS - 1);
    struct ebb_event event;
    while (ebb__ring_read(stage.rig->ring, &event, 1))
        assert_true(event.kind == EBB_EVENT_MARK || event.size_bytes == 20000);
    stage_close(&stage);
}

/* The child of a fork lacks these pages on a real device. */
static void release_private(struct rig *rig)
{
    const struct ebb_device *device = &rig->device;
    const struct ebb_device_layout *layout = &device->layout;
    device->ops->release(device->state, layout->staging.base, layout->staging.bytes);
    device->ops->release(device->state, layout->page_stack.base, layout->page_stack.bytes);
}

/* A fork fetches nothing. The child has each slab as it was, from its parent's store, although the
 * parent changes it meanwhile. */
static void a_fork_fetches_no_slab(void **state)
{
    (void)state;
    if (!has_threads_after_fork())
        skip();
    struct stage stage = stage_open(false);
    press(&stage, 0, 20);
    ebb__runtime_settle(stage.rig->runtime);
    uint32_t evicted = count(&stage, BLOCK_EVICTED);
    uint64_t moved_in_bytes = atomic_load(&stage.rig->counters->moved_in_bytes);
    assert_in_range(evicted, 30, SLABS);
    int go[2];
    assert_int_equal(pipe(go), 0);
    ebb__runtime_before_fork(stage.rig->runtime); /* holds the lock */
    uint32_t still = 0;
    for (uint32_t i = 0; i < SLABS; i++)
        still += block_of(stage.rig, &stage.slabs[i])->state == BLOCK_EVICTED;
    assert_in_range(still, evicted, SLABS);
    assert_int_equal(atomic_load(&stage.rig->counters->moved_in_bytes), moved_in_bytes);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        alarm(60); /* it does not outlive a test that fails */
        release_private(stage.rig);
        atomic_store(&stage.rig->ledger.held_bytes, 0); /* its ledger and store are copies here:
                                                           it has room, and evicts nothing */
        if (ebb__runtime_after_fork_child(stage.rig->runtime, &stage.rig->ledger,
                                          stage.rig->ring) != EBB_OK ||
            read(go[0], &byte, 1) != 1)
            _exit(2);
        for (uint32_t i = 0; i < SLABS; i++)
            if (take_turn(stage.rig, &stage.slabs[i], false, PATIENCE_MS) != TURN_RIGHT)
                _exit(1);
        for (uint32_t i = 0; i < SLABS; i++)
            ebb__runtime_give_slab(stage.rig->runtime, (uintptr_t)stage.slabs[i].bytes);
        _exit(0);
    }
    ebb__runtime_after_fork_parent(stage.rig->runtime);
    for (uint32_t i = 0; i < SLABS; i++)
        put(stage.rig, &stage.slabs[i], 7000 + i);
    press(&stage, 0, 20); /* they are evicted again, to other places of the store */
    assert_in_range(count(&stage, BLOCK_EVICTED), 30, SLABS);
    assert_int_equal(write(go[1], "", 1), 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_within_budget(stage.rig);
    for (uint32_t i = 0; i < SLABS; i++)
        check(stage.rig, &stage.slabs[i]);
    close(go[0]);
    close(go[1]);
    stage_close(&stage);
}

static void nothing_is_evicted_to_a_store_that_fails(void **state)
{
    (void)state;
    struct stage stage = stage_open(false);
    stage.rig->faulty.write_errno = EIO;
    press(&stage, 0, 10);
    assert_int_equal(count(&stage, BLOCK_EVICTED), 0);
    for (uint32_t i = 0; i < SLABS; i++)
        check(stage.rig, &stage.slabs[i]);
    stage_close(&stage);
}

/* A garbage collector reads everything, although not all of it fits beside the pinned memory. */
static void a_walk_over_all(void **state)
{
    (void)state;
    struct stage stage = stage_open(false);
    struct item stays = make(stage.rig, (size_t)(19 * MIB), 1);
    assert_true(ebb__runtime_pin(stage.rig->runtime, stays.bytes, stays.size));
    for (unsigned walk = 0; walk < 3; walk++)
        for (uint32_t i = 0; i < SLABS; i++)
            check(stage.rig, &stage.slabs[i]);
    check(stage.rig, &stays);
    assert_in_range(count(&stage, BLOCK_EVICTED), 30, SLABS);
    assert_within_budget(stage.rig);
    ebb__runtime_unpin(stage.rig->runtime, stays.bytes, stays.size);
    drop(stage.rig, &stays);
    stage_close(&stage);
}

/* An instruction may need two slabs. If all slabs are in use, the last ones fetched stay. */
static void what_has_just_arrived_stays(void **state)
{
    (void)state;
    struct stage stage = stage_open(false);
    struct ebb_runtime *runtime = stage.rig->runtime;
    struct block *block;
    uint32_t left = 0;
    pthread_mutex_lock(&runtime->core.lock);
    while ((block = ebb__slab_oldest(&runtime->reclaim))) {
        assert_ptr_equal(block, block_of(stage.rig, &stage.slabs[left])); /* oldest first */
        ebb__move_queue_out(&runtime->transfer, block, false);
        left++;
    }
    pthread_mutex_unlock(&runtime->core.lock);
    assert_int_equal(left, SLABS - 8);
    ebb__runtime_settle(runtime);
    stage_close(&stage);
}

/* Slabs are released in any state. A slab that is taken next is a new one. */
static void given_back_in_any_state(void **state)
{
    (void)state;
    struct stage stage = stage_open(false);
    press(&stage, 4, 20);
    uint64_t store = atomic_load(&stage.rig->counters->store_bytes);
    assert_true(store > 0);
    for (uint32_t i = 0; i < SLABS; i++)
        ebb__runtime_give_slab(stage.rig->runtime, (uintptr_t)stage.slabs[i].bytes);
    ebb__runtime_settle(stage.rig->runtime);
    assert_int_equal(atomic_load(&stage.rig->counters->store_bytes), 0);
    for (uint32_t i = 0; i < SLABS; i++) {
        stage.slabs[i].bytes = (unsigned char *)ebb__runtime_take_slab(stage.rig->runtime);
        assert_non_null(stage.slabs[i].bytes);
        put(stage.rig, &stage.slabs[i], 5000 + i);
    }
    press(&stage, 4, 20);
    for (uint32_t i = 0; i < SLABS; i++)
        check(stage.rig, &stage.slabs[i]);
    stage_close(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_nobody_uses_is_evicted),
        cmocka_unit_test(what_is_used_stays),
        cmocka_unit_test(observing_tells_what_is_used),
        cmocka_unit_test(a_fork_fetches_no_slab),
        cmocka_unit_test(nothing_is_evicted_to_a_store_that_fails),
        cmocka_unit_test(a_walk_over_all),
        cmocka_unit_test(what_has_just_arrived_stays),
        cmocka_unit_test(given_back_in_any_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
