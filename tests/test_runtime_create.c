/* Creating a runtime without enough address space or threads: it fails with a reason and frees
 * everything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "runtime_rig.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* libc caches the stacks of ended threads, up to 40 MiB. */
#define STACKS_BYTES ((uint64_t)6 << 20)
#define SLACK_BYTES ((uint64_t)1 << 20) /* libc's heap; less than the runtime's larger tables */

static uint64_t address_space(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    return pages * 4096;
}

static unsigned threads(void)
{
    char line[200];
    unsigned count = 0;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "Threads: %u", &count) == 1)
            break;
    fclose(file);
    return count;
}

struct stage {
    struct ebb_runtime_config config;
    struct ebb_ledger ledger;
};

static void set_stage(struct stage *stage)
{
    struct ebb_ring *ring = must(ebb__core_memory(ebb__ring_bytes(EBB_RING_EVENTS)));
    ebb__ring_init(ring, EBB_RING_EVENTS, ebb__now_ns());
    stage->ledger = (struct ebb_ledger){.magic = EBB_LEDGER_MAGIC, .budget_bytes = NO_BUDGET};
    stage->config = (struct ebb_runtime_config){.ledger = &stage->ledger, .ring = ring};
    assert_int_equal(ebb__fake_create(ARENA_BYTES, &stage->config.device), EBB_OK);
}

static void limit(int resource, uint64_t most)
{
    struct rlimit now;
    assert_int_equal(getrlimit((__rlimit_resource_t)resource, &now), 0);
    now.rlim_cur = most;
    assert_int_equal(setrlimit((__rlimit_resource_t)resource, &now), 0);
}

/* Tries ever more address space, until it is enough. */
static void address_space_is_lacking(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    print_message("skipped: needs address space\n");
    return;
#endif
    static struct stage stage;
    set_stage(&stage);
    unsigned tables = 0;
    for (uint64_t more = (uint64_t)1 << 16;; more += more / 16) {
        struct ebb_runtime *runtime = NULL;
        struct ebb_error error = {0};
        uint64_t before = address_space();
        limit(RLIMIT_AS, before + more);
        enum ebb_status status = ebb__runtime_create(&stage.config, &runtime, &error);
        limit(RLIMIT_AS, RLIM_INFINITY);
        if (status == EBB_OK) {
            ebb__runtime_destroy(runtime);
            break;
        }
        assert_true(more < (uint64_t)8 << 30);
        assert_true(address_space() <= before + SLACK_BYTES);
        assert_int_equal(threads(), 1);
        assert_true(error.why[0] && error.what[0] && error.remedy[0]);
        tables += status == EBB_ERR_MEMORY && strstr(error.what, "tables");
    }
    assert_true(tables > 20);
}

static void threads_are_lacking(void **state)
{
    (void)state;
    if (geteuid() != 0 || !has_threads_after_fork())
        return; /* other processes of this user would count */
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static struct stage stage;
        set_stage(&stage);
        if (setgid(65534) || setuid(54321)) /* a user with this process alone */
            _exit(2);
        limit(RLIMIT_NPROC, 4);
        struct ebb_runtime *runtime = NULL;
        struct ebb_error error = {0};
        uint64_t before = address_space();
        enum ebb_status status = ebb__runtime_create(&stage.config, &runtime, &error);
        _exit(status == EBB_ERR_LIMIT && strstr(error.what, "threads") && threads() == 1 &&
                      address_space() <= before + STACKS_BYTES
                  ? 0
                  : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_are_lacking),
        cmocka_unit_test(address_space_is_lacking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
