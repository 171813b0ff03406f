/* The ledger: the bytes of a process are subtracted after its end, at whatever point it was
 * killed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "runtime/ledger.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BUDGET_BYTES ((uint64_t)1 << 30)

static struct ebb_ledger *ledger;
static int file = -1;

static int open_ledger(void **state)
{
    (void)state;
    file = memfd_create("ledger", MFD_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, sizeof *ledger), 0);
    ledger = mmap(NULL, sizeof *ledger, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_true(ledger != MAP_FAILED);
    ledger->slot_count = EBB_LEDGER_SLOTS;
    atomic_store(&ledger->budget_bytes, BUDGET_BYTES);
    return 0;
}

static int close_ledger(void **state)
{
    (void)state;
    munmap(ledger, sizeof *ledger);
    close(file);
    return 0;
}

static void nap_us(long us)
{
    const struct timespec nap = {0, us * 1000};
    nanosleep(&nap, NULL);
}

static uint64_t held(void)
{
    return atomic_load(&ledger->held_bytes);
}

/* Runs `what` in a process of its own, then kills it. The process has ended when this returns. */
static void in_a_process(void (*what)(struct ebb_ledger_slot *slot))
{
    pid_t child = fork();
    if (child == 0) {
        struct ebb_ledger_slot *slot;
        if (ebb__ledger_enter(ledger, file, &slot) < 0)
            _exit(1);
        what(slot);
        kill(getpid(), SIGKILL);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

static void holds(struct ebb_ledger_slot *slot)
{
    if (!ebb__ledger_reserve(ledger, slot, 5000))
        _exit(1);
    ebb__ledger_force(ledger, slot, 2000);
    ebb__ledger_release(ledger, slot, 1000);
}

static void begins(struct ebb_ledger_slot *slot)
{
    holds(slot);
    ebb__ledger_begin(slot);
}

static void has_entered(struct ebb_ledger_slot *slot)
{
    begins(slot);
    atomic_fetch_add(&ledger->held_bytes, 300);
}

static void has_released(struct ebb_ledger_slot *slot)
{
    begins(slot);
    atomic_fetch_sub(&ledger->held_bytes, 300);
}

static void has_noted(struct ebb_ledger_slot *slot)
{
    has_entered(slot);
    atomic_fetch_add(&slot->held_bytes, 300);
}

static void what_the_dead_held_is_taken_out(void **state)
{
    (void)state;
    void (*const deaths[])(struct ebb_ledger_slot *) = {holds, begins, has_entered, has_released,
                                                        has_noted};
    struct ebb_ledger_slot *ours;
    int line = ebb__ledger_enter(ledger, file, &ours);
    assert_true(line >= 0);
    assert_ptr_equal(ours, &ledger->slots[1]);
    assert_true(ebb__ledger_reserve(ledger, ours, 700));
    for (size_t i = 0; i < sizeof deaths / sizeof deaths[0]; i++) {
        in_a_process(deaths[i]);
        assert_true(held() >= 6000);
        assert_int_equal(ebb__ledger_reap(ledger, file), 1);
        assert_int_equal(held(), 700);
        assert_int_equal(ebb__ledger_reap(ledger, file), 0);
    }
    assert_int_equal(atomic_load(&ledger->slots_used), 3); /* all used the same slot in turn */
    ebb__ledger_release(ledger, ours, 700);
    close(line);
    assert_int_equal(ebb__ledger_reap(ledger, file), 1);
    assert_int_equal(held(), 0);
}

/* If a process is stopped while it changes the total, other processes' bytes are still subtracted
 * later. */
static void the_living_are_waited_for(void **state)
{
    (void)state;
    struct ebb_ledger_slot *ours;
    int line = ebb__ledger_enter(ledger, file, &ours);
    in_a_process(has_entered);
    ebb__ledger_begin(ours);
    atomic_fetch_add(&ledger->held_bytes, 50);
    assert_int_equal(ebb__ledger_reap(ledger, file), 1);
    assert_int_equal(held(), 6000 + 300 + 50);
    ebb__ledger_end(ours, 50);
    assert_int_equal(ebb__ledger_reap(ledger, file), 0);
    assert_int_equal(held(), 50);
    close(line);
    ebb__ledger_reap(ledger, file);
    assert_int_equal(held(), 0);
}

/* A child has its own life line, so parent and child may end in any order. */
static void children_have_lines_of_their_own(void **state)
{
    (void)state;
    int go[2], at[2];
    char byte;
    assert_int_equal(pipe(go), 0);
    assert_int_equal(pipe(at), 0);
    pid_t child = fork();
    if (child == 0) {
        struct ebb_ledger_slot *slot;
        int line = ebb__ledger_enter(ledger, file, &slot);
        if (line < 0 || !ebb__ledger_reserve(ledger, slot, 100))
            _exit(1);
        if (fork() == 0) {
            alarm(60);
            int own = ebb__ledger_enter(ledger, line, &slot);
            close(line);
            if (own < 0 || !ebb__ledger_reserve(ledger, slot, 30) || write(at[1], "", 1) != 1)
                _exit(1);
            _exit(read(go[0], &byte, 1) != 1);
        }
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(read(at[0], &byte, 1), 1);
    assert_int_equal(ebb__ledger_reap(ledger, file), 1);
    assert_int_equal(held(), 30);
    assert_int_equal(write(go[1], "", 1), 1);
    for (unsigned i = 0; held() && i < 10000; i++) {
        ebb__ledger_reap(ledger, file);
        nap_us(1000);
    }
    assert_int_equal(held(), 0);
    for (unsigned i = 0; i < 2; i++) {
        close(go[i]);
        close(at[i]);
    }
}

/* Processes are killed at any instant, while others go on. */
static void any_instant_will_do(void **state)
{
    (void)state;
    enum { CHILDREN = 6, ROUNDS = 200 };
    pid_t children[CHILDREN] = {0};
    srandom(1);
    for (unsigned round = 0; round < ROUNDS + CHILDREN; round++) {
        pid_t *child = &children[round % CHILDREN];
        if (*child) {
            kill(*child, SIGKILL);
            assert_int_equal(waitpid(*child, NULL, 0), *child);
        }
        ebb__ledger_reap(ledger, file);
        *child = round < ROUNDS ? fork() : 0;
        if (round < ROUNDS && *child == 0) {
            struct ebb_ledger_slot *slot;
            alarm(60);
            if (ebb__ledger_enter(ledger, file, &slot) < 0)
                _exit(1);
            for (uint64_t i = 1;; i++) {
                if (ebb__ledger_reserve(ledger, slot, i % 7 + 1) && i % 3)
                    ebb__ledger_release(ledger, slot, i % 7 + 1);
            }
        }
        nap_us(random() % 1000);
    }
    for (unsigned i = 0; held() && i < 100; i++)
        ebb__ledger_reap(ledger, file);
    assert_int_equal(held(), 0);
    for (uint32_t i = 0; i < atomic_load(&ledger->slots_used); i++)
        assert_int_equal(atomic_load(&ledger->slots[i].state), EBB_LEDGER_FREE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_the_dead_held_is_taken_out, open_ledger, close_ledger),
        cmocka_unit_test_setup_teardown(the_living_are_waited_for, open_ledger, close_ledger),
        cmocka_unit_test_setup_teardown(children_have_lines_of_their_own, open_ledger,
                                        close_ledger),
        cmocka_unit_test_setup_teardown(any_instant_will_do, open_ledger, close_ledger),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
