/* The alarm: how the runtime reports its waits, even if its lock is stuck, and how the parent
 * reacts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "parent/internal.h"
#include "runtime_rig.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SECOND_NS ((uint64_t)1000000000)
#define START_NS ((uint64_t)5000 * SECOND_NS)

struct parent {
    struct ebb_parent parent;
    struct process process;
    struct ebb_waits *waits;
    unsigned told;
    char last[600];
    uint64_t now_ns;
};

static void on_told(void *context, const char *message)
{
    struct parent *parent = context;
    parent->told++;
    snprintf(parent->last, sizeof parent->last, "%s", message);
}

static struct parent *parent_open(void)
{
    struct parent *parent = must(calloc(1, sizeof *parent));
    parent->parent.options.warn = on_told;
    parent->parent.options.context = parent;
    parent->process.process_id = (int)getpid();
    parent->process.stream.ring = must(ebb__core_memory(ebb__ring_bytes(EBB_RING_EVENTS)));
    parent->waits = &parent->process.stream.ring->waits;
    parent->now_ns = START_NS;
    return parent;
}

static void parent_close(struct parent *parent)
{
    munmap(parent->process.stream.ring, ebb__ring_bytes(EBB_RING_EVENTS));
    free(parent);
}

/* Looks at the waits as often as the parent does, for `seconds`. */
static void look_for(struct parent *parent, double seconds)
{
    for (uint64_t end = parent->now_ns + (uint64_t)(seconds * 1e9); parent->now_ns < end;
         parent->now_ns += SECOND_NS / 100)
        ebb__alarm_look(&parent->parent, &parent->process, parent->now_ns);
}

static void a_fault_is_told_once(void **state)
{
    (void)state;
    struct parent *parent = parent_open();
    look_for(parent, 100);
    struct ebb_wait *wait =
        ebb__wait_begin(parent->waits->blocks, EBB_WAIT_BLOCKS, EBB_WAIT_EVICTED, 7, 41, 3 << 20);
    look_for(parent, 9);
    assert_int_equal(parent->told, 0);
    look_for(parent, 3);
    assert_int_equal(parent->told, 1);
    assert_non_null(strstr(parent->last, "block 41 (3.00 MiB)"));
    assert_non_null(strstr(parent->last, "in the store"));
    assert_non_null(strstr(parent->last, "--budget"));
    struct ebb_wait *other =
        ebb__wait_begin(parent->waits->blocks, EBB_WAIT_BLOCKS, EBB_WAIT_NEW, 8, 42, 1 << 20);
    look_for(parent, 100);
    assert_int_equal(parent->told, 1); /* it is part of the same hang */
    ebb__wait_end(wait);
    ebb__wait_end(other);
    look_for(parent, 2);
    ebb__wait_begin(parent->waits->blocks, EBB_WAIT_BLOCKS, EBB_WAIT_NEW, 9, 43, 1 << 20);
    look_for(parent, 12);
    assert_int_equal(parent->told, 2);
    assert_non_null(strstr(parent->last, "block 43"));
    parent_close(parent);
}

static void many_short_waits_are_none(void **state)
{
    (void)state;
    struct parent *parent = parent_open();
    for (uint64_t i = 0; i < 300; i++) {
        struct ebb_wait *wait = ebb__wait_begin(parent->waits->blocks, EBB_WAIT_BLOCKS,
                                                EBB_WAIT_EVICTED, 7, i + 1, 1 << 20);
        look_for(parent, 0.2);
        ebb__wait_end(wait);
    }
    assert_int_equal(parent->told, 0);
    parent_close(parent);
}

static void a_transfer_is_told_once(void **state)
{
    (void)state;
    struct parent *parent = parent_open();
    ebb__wait_begin(parent->waits->transfers, EBB_WAIT_TRANSFERS, EBB_WAIT_WRITE, 7, 41, 2 << 20);
    look_for(parent, 59);
    assert_int_equal(parent->told, 0);
    look_for(parent, 100);
    assert_int_equal(parent->told, 1);
    assert_non_null(strstr(parent->last, "block 41 (2.00 MiB) has been written to the store"));
    assert_non_null(strstr(parent->last, "--store"));
    parent_close(parent);
}

/* If the parent was stopped, it starts counting again: it does not know what the process did
 * meanwhile. */
static void a_parent_that_was_away_counts_anew(void **state)
{
    (void)state;
    struct parent *parent = parent_open();
    ebb__wait_begin(parent->waits->blocks, EBB_WAIT_BLOCKS, EBB_WAIT_EVICTED, 7, 41, 1 << 20);
    for (unsigned i = 0; i < 5; i++) {
        look_for(parent, 8);
        parent->now_ns += 30 * SECOND_NS;
    }
    assert_int_equal(parent->told, 0);
    look_for(parent, 12);
    assert_int_equal(parent->told, 1);
    parent_close(parent);
}

static void a_full_table_says_no_more(void **state)
{
    (void)state;
    struct parent *parent = parent_open();
    struct ebb_wait *last = NULL;
    for (uint64_t i = 0; i < EBB_WAIT_BLOCKS; i++) {
        last = ebb__wait_begin(parent->waits->blocks, EBB_WAIT_BLOCKS, EBB_WAIT_EVICTED, i, i, 1);
        assert_non_null(last);
    }
    assert_null(
        ebb__wait_begin(parent->waits->blocks, EBB_WAIT_BLOCKS, EBB_WAIT_EVICTED, 99, 99, 1));
    ebb__wait_end(NULL);
    ebb__wait_end(&parent->waits->blocks[3]);
    assert_ptr_equal(
        ebb__wait_begin(parent->waits->blocks, EBB_WAIT_BLOCKS, EBB_WAIT_EVICTED, 99, 99, 1),
        &parent->waits->blocks[3]);
    parent_close(parent);
}

struct faulting {
    struct rig *rig;
    uintptr_t address;
};

static void *report_fault(void *argument)
{
    struct faulting *faulting = argument;
    ebb__runtime_fault(faulting->rig->runtime, faulting->address, false);
    return NULL;
}

static unsigned waits_in(const struct ebb_wait *waits, size_t count)
{
    unsigned waiting = 0;
    for (size_t i = 0; i < count; i++)
        waiting += atomic_load(&waits[i].since_ns) != 0;
    return waiting;
}

/* Copies a wait that a thread has begun and not ended. */
static void copy_wait(struct ebb_wait *to, const struct ebb_wait *from)
{
    atomic_store(&to->subject, atomic_load(&from->subject));
    atomic_store(&to->serial, atomic_load(&from->serial));
    atomic_store(&to->bytes, atomic_load(&from->bytes));
    atomic_store(&to->kind, atomic_load(&from->kind));
    atomic_store(&to->since_ns, atomic_load(&from->since_ns));
}

static void a_fault_that_finds_the_lock_taken(void **state)
{
    (void)state;
    struct rig *rig = rig_open(NO_BUDGET, false);
    const struct ebb_waits *waits = &rig->ring->waits;
    void *block = ebb__runtime_alloc(rig->runtime, 1 << 20, 1, false);
    struct faulting faulting = {rig, (uintptr_t)block + 5000};
    pthread_mutex_lock(&rig->runtime->core.lock);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, report_fault, &faulting), 0);
    for (unsigned ms = 0; waits_in(waits->answers, EBB_WAIT_ANSWERS) == 0; ms++) {
        assert_true(ms < PATIENCE_MS);
        nap_us(1000);
    }
    nap_us(1000);
    assert_int_equal(atomic_load(&waits->answers[0].subject), faulting.address);
    struct parent *parent = parent_open();
    copy_wait(&parent->waits->answers[0], &waits->answers[0]);
    look_for(parent, 11);
    assert_int_equal(parent->told, 1);
    assert_non_null(strstr(parent->last, "runtime is held up"));
    parent_close(parent);
    pthread_mutex_unlock(&rig->runtime->core.lock);
    pthread_join(thread, NULL);
    assert_int_equal(waits_in(waits->answers, EBB_WAIT_ANSWERS), 0);
    ebb__runtime_free(rig->runtime, block);
    rig_close(rig);
}

static void *use(void *argument)
{
    check(((struct faulting *)argument)->rig,
          (struct item *)((struct faulting *)argument)->address);
    return NULL;
}

/* A slow read shows the wait for the block and its transfer. Afterwards no entry remains. */
static void a_read_that_takes_long(void **state)
{
    (void)state;
    struct rig *rig = rig_open(6 << 20, false);
    const struct ebb_waits *waits = &rig->ring->waits;
    struct item items[4];
    for (uint64_t i = 0; i < 4; i++)
        items[i] = make(rig, 2 << 20, i + 1);
    ebb__runtime_settle(rig->runtime);
    atomic_store(&rig->faulty.delay_us, 300000);
    struct faulting faulting = {rig, (uintptr_t)&items[0]};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, use, &faulting), 0);
    bool waited = false, transferred = false;
    for (unsigned ms = 0; ms < PATIENCE_MS && !(waited && transferred); ms++) {
        waited |= waits_in(waits->blocks, EBB_WAIT_BLOCKS) == 1 &&
                  atomic_load(&waits->blocks[0].serial) == 1;
        transferred |= waits_in(waits->transfers, EBB_WAIT_TRANSFERS) > 0;
        nap_us(1000);
    }
    assert_true(waited && transferred);
    pthread_join(thread, NULL);
    atomic_store(&rig->faulty.delay_us, 0);
    for (uint64_t i = 0; i < 4; i++) {
        check(rig, &items[i]);
        drop(rig, &items[i]);
    }
    ebb__runtime_settle(rig->runtime);
    assert_int_equal(waits_in(waits->answers, EBB_WAIT_ANSWERS), 0);
    assert_int_equal(waits_in(waits->blocks, EBB_WAIT_BLOCKS), 0);
    assert_int_equal(waits_in(waits->transfers, EBB_WAIT_TRANSFERS), 0);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_is_told_once),
        cmocka_unit_test(many_short_waits_are_none),
        cmocka_unit_test(a_transfer_is_told_once),
        cmocka_unit_test(a_parent_that_was_away_counts_anew),
        cmocka_unit_test(a_full_table_says_no_more),
        cmocka_unit_test(a_fault_that_finds_the_lock_taken),
        cmocka_unit_test(a_read_that_takes_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
