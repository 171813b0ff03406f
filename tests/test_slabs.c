/* Small blocks: sizes, addresses, the figures of ledger and counters, threads, and a tight
 * budget. */
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

static struct ebb_slabs *slabs_on(struct rig *rig)
{
    struct ebb_slabs *slabs;
    assert_int_equal(ebb__slabs_create(rig->runtime, &slabs), EBB_OK);
    return slabs;
}

static void close_both(struct rig *rig, struct ebb_slabs *slabs)
{
    ebb__slabs_destroy(slabs);
    rig_close(rig);
}

static uint64_t live(struct rig *rig)
{
    return atomic_load(&rig->counters->live_bytes);
}

static uint64_t small(struct rig *rig)
{
    return atomic_load(&rig->counters->small_bytes);
}

static void every_size_fits_closely(void **state)
{
    (void)state;
    struct rig *rig = rig_open(NO_BUDGET, false);
    struct ebb_slabs *slabs = slabs_on(rig);
    size_t before = 0;
    for (size_t bytes = EBB_SMALL_LEAST_BYTES; bytes <= EBB_SMALL_MOST_BYTES; bytes++) {
        void *object = ebb__slabs_alloc(slabs, bytes, 16);
        assert_non_null(object);
        size_t usable = ebb__slabs_usable_bytes(slabs, object);
        assert_true(usable >= bytes && usable >= before);
        assert_true(bytes <= 1024 ? usable < bytes + 64 : usable * 8 < bytes * 9 + 8);
        assert_int_equal((uintptr_t)object % 64, 0);
        assert_int_equal(live(rig), usable);
        assert_true(ebb__slabs_free(slabs, object));
        before = usable;
    }
    assert_null(ebb__slabs_alloc(slabs, EBB_SMALL_LEAST_BYTES - 1, 1));
    assert_null(ebb__slabs_alloc(slabs, EBB_SMALL_MOST_BYTES + 1, 1));
    assert_int_equal(live(rig), 0);
    close_both(rig, slabs);
}

static void alignments(void **state)
{
    (void)state;
    struct rig *rig = rig_open(NO_BUDGET, false);
    struct ebb_slabs *slabs = slabs_on(rig);
    for (size_t alignment = 1; alignment <= EBB_SMALL_MOST_BYTES; alignment *= 2)
        for (size_t bytes = 300; bytes < 9000; bytes = bytes * 5 / 3)
            for (unsigned i = 0; i < 9; i++) {
                void *object = ebb__slabs_alloc(slabs, bytes, alignment);
                assert_non_null(object);
                assert_int_equal((uintptr_t)object % alignment, 0);
            }
    /* No object in a slab is aligned to more than the largest class. */
    assert_null(ebb__slabs_alloc(slabs, 300, 2 * EBB_SMALL_MOST_BYTES));
    close_both(rig, slabs);
}

static void wrong_pointers(void **state)
{
    (void)state;
    struct rig *rig = rig_open(NO_BUDGET, false);
    struct ebb_slabs *slabs = slabs_on(rig);
    int local;
    char *object = ebb__slabs_alloc(slabs, 1000, 1);
    assert_true(ebb__slabs_own(slabs, object));
    assert_false(ebb__slabs_own(slabs, &local));
    assert_false(ebb__slabs_own(slabs, NULL));
    assert_false(ebb__slabs_free(slabs, object + 64));
    assert_false(ebb__slabs_free(slabs, object + (1 << 20)));
    assert_int_equal(ebb__slabs_usable_bytes(slabs, object + 1), 0);
    assert_true(ebb__slabs_free(slabs, object));
    assert_false(ebb__slabs_free(slabs, object)); /* freed twice */
    assert_int_equal(live(rig), 0);
    close_both(rig, slabs);
}

#define OBJECTS 3000u

/* A random program. Every object keeps the bytes written to it. */
static void objects_do_not_overlap(void **state)
{
    (void)state;
    struct rig *rig = rig_open(NO_BUDGET, false);
    struct ebb_slabs *slabs = slabs_on(rig);
    static struct item items[OBJECTS];
    memset(items, 0, sizeof items);
    uint64_t random = 7;
    for (unsigned step = 0; step < 60000; step++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        struct item *item = &items[(random >> 33) % OBJECTS];
        if (item->bytes) {
            assert_true(is_right(item));
            assert_true(ebb__slabs_free(slabs, item->bytes));
            item->bytes = NULL;
            continue;
        }
        unsigned power = 8 + (unsigned)(random >> 20) % 6;
        item->size = ((size_t)1 << power) + (random >> 40) % ((size_t)1 << power);
        item->seed = step;
        item->bytes = ebb__slabs_alloc(slabs, item->size, 1);
        assert_non_null(item->bytes);
        fill(item);
    }
    /* The memory held for slabs is little more than the memory used. */
    assert_true(live(rig) > 4 * MIB);
    assert_in_range(small(rig), live(rig), live(rig) * 5 / 4 + 4 * MIB);
    assert_in_range(small(rig), 0, held(rig));
    for (unsigned i = 0; i < OBJECTS; i++)
        if (items[i].bytes) {
            assert_true(is_right(&items[i]));
            assert_true(ebb__slabs_free(slabs, items[i].bytes));
        }
    assert_int_equal(live(rig), 0);
    assert_in_range(small(rig), 0, MIB); /* some empty slabs are kept */
    close_both(rig, slabs);
}

static void blocks_make_room(void **state)
{
    (void)state;
    struct rig *rig = rig_open(16 * MIB, false);
    struct ebb_slabs *slabs = slabs_on(rig);
    struct item blocks[3];
    for (uint64_t i = 0; i < 3; i++)
        blocks[i] = make(rig, (size_t)(5 * MIB), i + 1);
    void *objects[600];
    for (unsigned i = 0; i < 600; i++) {
        objects[i] = ebb__slabs_alloc(slabs, 16 << 10, 1); /* 9.4 MiB in all */
        assert_non_null(objects[i]);
    }
    assert_within_budget(rig);
    assert_true(atomic_load(&rig->counters->moved_out_bytes) > 0);
    for (unsigned i = 0; i < 600; i++)
        assert_true(ebb__slabs_free(slabs, objects[i]));
    for (unsigned i = 0; i < 3; i++)
        check(rig, &blocks[i]);
    assert_within_budget(rig);
    close_both(rig, slabs);
}

struct worker {
    struct ebb_slabs *slabs;
    uint64_t seed;
    _Atomic(struct item *) *box;
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    for (uint64_t i = 0; i < 20000; i++) {
        size_t bytes = 256 + (worker->seed * 977 + i * 131) % 3000;
        struct item *item = ebb__slabs_alloc(worker->slabs, bytes, 1);
        if (!item)
            return "no memory";
        *item = (struct item){(unsigned char *)(item + 1), bytes - sizeof *item, i};
        fill(item);
        /* A block is freed by the thread that finds it. */
        struct item *other = atomic_exchange(&worker->box[i % 64], item);
        if (other && (!is_right(other) || !ebb__slabs_free(worker->slabs, other)))
            return "an object was overwritten";
    }
    return NULL;
}

static void threads_pass_objects_on(void **state)
{
    (void)state;
    struct rig *rig = rig_open(NO_BUDGET, false);
    struct ebb_slabs *slabs = slabs_on(rig);
    static _Atomic(struct item *) box[64];
    pthread_t threads[4];
    struct worker workers[4];
    for (unsigned i = 0; i < 4; i++) {
        workers[i] = (struct worker){slabs, i, box};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        void *complaint;
        pthread_join(threads[i], &complaint);
        if (complaint)
            fail_msg("%s", (const char *)complaint);
    }
    for (unsigned i = 0; i < 64; i++)
        if (box[i])
            assert_true(ebb__slabs_free(slabs, box[i]));
    assert_int_equal(live(rig), 0);
    close_both(rig, slabs);
}

/* The child counts its own slabs. Freeing inherited ones changes no ledger. */
static void a_child_counts_its_own(void **state)
{
    (void)state;
    if (!has_threads_after_fork())
        skip();
    struct rig *rig = rig_open(NO_BUDGET, false);
    struct ebb_slabs *slabs = slabs_on(rig);
    void *objects[100];
    for (unsigned i = 0; i < 100; i++)
        objects[i] = ebb__slabs_alloc(slabs, 16 << 10, 1);
    uint64_t before = held(rig), in_use = live(rig);
    ebb__slabs_before_fork(slabs);
    ebb__runtime_before_fork(rig->runtime);
    pid_t child = fork();
    if (child == 0) {
        if (ebb__slabs_after_fork_child(slabs) != in_use)
            _exit(1);
        if (ebb__runtime_after_fork_child(rig->runtime, &rig->ledger, rig->ring) != EBB_OK)
            _exit(6);
        for (unsigned i = 0; i < 100; i++)
            if (!ebb__slabs_free(slabs, objects[i]))
                _exit(2);
        if (held(rig) != before)
            _exit(3);
        for (unsigned i = 0; i < 100; i++)
            if (!ebb__slabs_alloc(slabs, 16 << 10, 1))
                _exit(4);
        _exit(held(rig) > before ? 0 : 5);
    }
    ebb__runtime_after_fork_parent(rig->runtime);
    ebb__slabs_after_fork_parent(slabs);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (unsigned i = 0; i < 100; i++)
        assert_true(ebb__slabs_free(slabs, objects[i]));
    assert_true(small(rig) < before);
    close_both(rig, slabs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_fits_closely), cmocka_unit_test(alignments),
        cmocka_unit_test(wrong_pointers),          cmocka_unit_test(objects_do_not_overlap),
        cmocka_unit_test(blocks_make_room),        cmocka_unit_test(threads_pass_objects_on),
        cmocka_unit_test(a_child_counts_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
