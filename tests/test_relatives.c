/* Forked relatives share space of the store. The space is reused only after the last relative that
 * may read it has ended, in any way, or has no block there any more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "runtime_rig.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ITEMS = 4, ITEM_BYTES = 1 << 20 };

struct stage {
    struct rig *rig;
    struct item items[ITEMS];
    int go[2]; /* a byte lets a child continue */
    int at[2]; /* a byte tells that the child has come so far */
};

static struct stage stage_open(void)
{
    struct stage stage = {.rig = rig_open(NO_BUDGET, false)};
    assert_int_equal(pipe(stage.go), 0);
    assert_int_equal(pipe(stage.at), 0);
    for (uint64_t i = 0; i < ITEMS; i++) {
        stage.items[i] = make(stage.rig, ITEM_BYTES, i + 1);
        evict_now(stage.rig, &stage.items[i]);
    }
    return stage;
}

static void stage_close(struct stage *stage)
{
    for (unsigned i = 0; i < ITEMS; i++)
        drop(stage->rig, &stage->items[i]);
    for (unsigned i = 0; i < 2; i++) {
        close(stage->go[i]);
        close(stage->at[i]);
    }
    rig_close(stage->rig);
}

static void say(int pipe_end)
{
    if (write(pipe_end, "", 1) != 1)
        _exit(9);
}

static void await(int pipe_end)
{
    char byte;
    if (read(pipe_end, &byte, 1) != 1)
        _exit(9);
}

static void end_well(pid_t child)
{
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Forks like the shim. A child that gets no runtime ends. */
static pid_t fork_runtime(struct rig *rig)
{
    ebb__runtime_before_fork(rig->runtime);
    pid_t child = fork();
    if (child) {
        ebb__runtime_after_fork_parent(rig->runtime);
        return child;
    }
    alarm(60); /* it ends even if the test fails */
    if (ebb__runtime_after_fork_child(rig->runtime, &rig->ledger, rig->ring) != EBB_OK)
        _exit(8);
    return 0;
}

/* Fetches all items, writes them and evicts them again. Returns the bytes used in the store. */
static uint64_t turn_over(struct stage *stage, uint64_t seed)
{
    nap_us(3000); /* locks are looked at only so often */
    for (unsigned i = 0; i < ITEMS; i++) {
        put(stage->rig, &stage->items[i], seed + i);
        evict_now(stage->rig, &stage->items[i]);
    }
    return stage->rig->runtime->table.copies.extents.used_bytes;
}

/* Frees shared space as if the store were full. Locks are looked at less often if that has taken
 * long. So it is tried until `wanted` bytes are used. Returns how many are. */
static uint64_t look(struct stage *stage, uint64_t wanted)
{
    uint64_t bytes = 0;
    for (unsigned tries = 0; tries < 1000 && bytes != wanted; tries++) {
        nap_us(3000);
        pthread_mutex_lock(&stage->rig->runtime->core.lock);
        ebb__relatives_look(&stage->rig->runtime->table, STORE_BYTES);
        bytes = stage->rig->runtime->table.copies.extents.used_bytes;
        pthread_mutex_unlock(&stage->rig->runtime->core.lock);
    }
    return bytes;
}

static bool all_right(struct stage *stage)
{
    for (unsigned i = 0; i < ITEMS; i++)
        if (take_turn(stage->rig, &stage->items[i], false, PATIENCE_MS) != TURN_RIGHT)
            return false;
    return true;
}

static void a_killed_child_gives_its_share_back(void **state)
{
    (void)state;
    if (!has_threads_after_fork())
        skip();
    struct stage stage = stage_open();
    pid_t child = fork_runtime(stage.rig);
    if (child == 0) {
        say(stage.at[1]);
        for (;;)
            pause();
    }
    await(stage.at[0]);
    assert_int_equal(turn_over(&stage, 10), 2 * ITEMS * ITEM_BYTES);
    assert_int_equal(turn_over(&stage, 20), 2 * ITEMS * ITEM_BYTES);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(turn_over(&stage, 30), 2 * ITEMS * ITEM_BYTES);
    assert_int_equal(stage.rig->runtime->table.copies.extents.end_bytes, 2 * ITEMS * ITEM_BYTES);
    assert_int_equal(look(&stage, ITEMS * ITEM_BYTES), ITEMS * ITEM_BYTES);
    assert_true(all_right(&stage));
    stage_close(&stage);
}

/* A child that lives on but has fetched all of its blocks. */
static void a_child_that_has_all_gives_its_share_back(void **state)
{
    (void)state;
    if (!has_threads_after_fork())
        skip();
    struct stage stage = stage_open();
    pid_t child = fork_runtime(stage.rig);
    if (child == 0) {
        await(stage.go[0]);
        if (!all_right(&stage))
            _exit(1);
        say(stage.at[1]);
        await(stage.go[0]);
        _exit(0);
    }
    assert_int_equal(turn_over(&stage, 10), 2 * ITEMS * ITEM_BYTES);
    say(stage.go[1]);
    await(stage.at[0]);
    assert_int_equal(look(&stage, ITEMS * ITEM_BYTES), ITEMS * ITEM_BYTES);
    assert_int_equal(turn_over(&stage, 20), ITEMS * ITEM_BYTES);
    say(stage.go[1]);
    end_well(child);
    stage_close(&stage);
}

/* The child ends at once. Its own child reads what the first process has written. */
static void a_grandchild_keeps_it(void **state)
{
    (void)state;
    if (!has_threads_after_fork())
        skip();
    struct stage stage = stage_open();
    pid_t child = fork_runtime(stage.rig);
    if (child == 0) {
        if (fork_runtime(stage.rig) == 0) {
            await(stage.go[0]);
            bool right = all_right(&stage);
            if (right)
                say(stage.at[1]);
            _exit(right ? 0 : 1);
        }
        _exit(0);
    }
    end_well(child);
    for (uint64_t seed = 10; seed < 50; seed += 10)
        assert_int_equal(turn_over(&stage, seed), 2 * ITEMS * ITEM_BYTES);
    assert_int_equal(stage.rig->runtime->table.copies.relatives.living_count, 1);
    say(stage.go[1]);
    await(stage.at[0]);
    assert_int_equal(look(&stage, ITEMS * ITEM_BYTES), ITEMS * ITEM_BYTES);
    stage_close(&stage);
}

/* Resident blocks have no copy that is worth keeping at a fork. So a child without absent blocks
 * shares no space. */
static void nothing_is_shared_without_absent_blocks(void **state)
{
    (void)state;
    if (!has_threads_after_fork())
        skip();
    struct stage stage = stage_open();
    for (unsigned i = 0; i < ITEMS; i++) {
        call_in(stage.rig, &stage.items[i], true, true);
        wait_for_state(stage.rig, &stage.items[i], BLOCK_RESIDENT);
    }
    assert_int_equal(stage.rig->runtime->table.copies.extents.used_bytes, ITEMS * ITEM_BYTES);
    pid_t child = fork_runtime(stage.rig);
    if (child == 0) {
        await(stage.go[0]);
        _exit(0);
    }
    assert_int_equal(stage.rig->runtime->table.copies.extents.used_bytes, 0);
    assert_int_equal(stage.rig->runtime->table.copies.relatives.newest, 0);
    assert_int_equal(turn_over(&stage, 10), ITEMS * ITEM_BYTES);
    say(stage.go[1]);
    end_well(child);
    stage_close(&stage);
}

/* Forks nest deeper than there are slots for stores. This is reported, and every byte is right. */
static void nests_until_it_says_so(void **state)
{
    (void)state;
    if (!has_threads_after_fork())
        skip();
    struct stage stage = stage_open();
    pid_t child = fork_runtime(stage.rig);
    if (child == 0) {
        struct ebb_runtime *runtime = stage.rig->runtime;
        pthread_mutex_lock(&runtime->core.lock);
        for (unsigned i = 0; i < MAX_STORES; i++) /* as if each belonged to an ancestor */
            if (runtime->table.copies.copies[i] == 0) {
                runtime->table.copies.stores[i] = runtime->table.copies.stores[0];
                runtime->table.copies.copies[i] = 1;
            }
        pthread_mutex_unlock(&runtime->core.lock);
        pid_t grandchild = fork_runtime(stage.rig);
        if (grandchild == 0)
            _exit(atomic_load(&stage.rig->warned) == 1 &&
                          runtime->transfer.store.state == STORE_TOO_DEEP && all_right(&stage)
                      ? 0
                      : 1);
        int status = 1;
        waitpid(grandchild, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 7);
    }
    end_well(child);
    stage_close(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_child_gives_its_share_back),
        cmocka_unit_test(a_child_that_has_all_gives_its_share_back),
        cmocka_unit_test(a_grandchild_keeps_it),
        cmocka_unit_test(nothing_is_shared_without_absent_blocks),
        cmocka_unit_test(nests_until_it_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
