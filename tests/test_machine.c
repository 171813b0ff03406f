/* Machines: names, files, and a probe that leaves no file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/geometry.h"
#include "base/size.h"
#include "machine/machine.h"

#include <dirent.h>
#include <dlfcn.h>
#include <jansson.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void named_machines(void **state)
{
    (void)state;
    static const char *const names[] = {"autoswap-paper", "pcie3",  "pcie4", "pcie5", "h200",
                                        "nvlink",         "optane", "cxl",   "nvme",  "hdd"};
    struct ebb_machine machine;
    struct ebb_error error;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(ebb__machine_named(names[i], &machine, &error), EBB_OK);
        assert_string_equal(machine.name, names[i]);
        assert_true(machine.out.ns_per_byte > 0 && machine.in.ns_per_byte > 0);
    }
    assert_int_equal(ebb__machine_named("abacus", &machine, &error), EBB_ERR_ARGUMENT);
    assert_non_null(strstr(error.remedy, "pcie3"));
}

static void lane_times(void **state)
{
    (void)state;
    struct ebb_machine machine;
    assert_int_equal(ebb__machine_find("autoswap-paper", &machine, NULL), EBB_OK);
    assert_int_equal(ebb__lane_ns(&machine.out, 1000000), 75600 + 47200);
    assert_int_equal(ebb__lane_ns(&machine.in, 1000000), 82300 + 9700);
    assert_int_equal(ebb__lane_ns(&machine.in, 0), 9700);
}

static enum ebb_status read_text(const char *text, struct ebb_machine *machine,
                                 struct ebb_error *error)
{
    char path[] = "/tmp/ebb-machine-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
    close(file);
    enum ebb_status status = ebb__machine_find(path, machine, error);
    unlink(path);
    return status;
}

static void machine_files(void **state)
{
    (void)state;
    struct ebb_machine machine;
    struct ebb_error error;
    assert_int_equal(read_text("{\"schema\":\"ebb.machine/1\",\"name\":\"disk\","
                               "\"out\":{\"bytes_per_second\":2e9,\"fixed_ns\":100},"
                               "\"in\":{\"ns_per_byte\":0.25},\"duplex\":true}",
                               &machine, &error),
                     EBB_OK);
    assert_string_equal(machine.name, "disk");
    assert_true(machine.duplex);
    assert_int_equal(ebb__lane_ns(&machine.out, 1000), 600);
    assert_int_equal(ebb__lane_ns(&machine.in, 1000), 250);

    static const char *const wrong[] = {
        "",
        "[]",
        "{\"schema\":\"ebb.machine/2\"}",
        "{\"schema\":\"ebb.machine/1\",\"out\":{\"ns_per_byte\":1}}",
        "{\"schema\":\"ebb.machine/1\",\"out\":{\"ns_per_byte\":0},\"in\":{\"ns_per_byte\":1}}",
        "{\"schema\":\"ebb.machine/1\",\"out\":{\"ns_per_byte\":1,\"bytes_per_second\":1},"
        "\"in\":{\"ns_per_byte\":1}}",
        "{\"schema\":\"ebb.machine/1\",\"out\":{\"ns_per_byte\":1,\"fixed_ns\":-1},"
        "\"in\":{\"ns_per_byte\":1}}",
        "{\"schema\":\"ebb.machine/1\",\"name\":7,\"out\":{\"ns_per_byte\":1},"
        "\"in\":{\"ns_per_byte\":1}}",
        "{\"schema\":\"ebb.machine/1\",\"costs\":{\"fixed_ns\":-1},\"out\":{\"ns_per_byte\":1},"
        "\"in\":{\"ns_per_byte\":1}}",
        "{\"schema\":\"ebb.machine/1\",\"duplex\":1,\"out\":{\"ns_per_byte\":1},"
        "\"in\":{\"ns_per_byte\":1}}",
    };
    struct ebb_machine before = machine;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(read_text(wrong[i], &machine, &error), EBB_ERR_FORMAT);
        assert_memory_equal(&machine, &before, sizeof machine);
    }
    assert_int_equal(ebb__machine_find("/nowhere/at.all", &machine, &error), EBB_ERR_IO);
}

/* The costs of a file come back from its JSON, and a transfer costs their sum. */
static void costs_of_a_transfer(void **state)
{
    (void)state;
    struct ebb_machine machine, again;
    assert_int_equal(ebb__machine_find("pcie4", &machine, NULL), EBB_OK);
    assert_int_equal(ebb__machine_transfer_ns(&machine, EBB_MIB), 0);
    assert_int_equal(read_text("{\"schema\":\"ebb.machine/1\",\"out\":{\"ns_per_byte\":1},"
                               "\"in\":{\"ns_per_byte\":1},\"costs\":{\"huge_page_ns\":1000,"
                               "\"small_page_ns\":10,\"ns_per_byte\":0.5,\"fixed_ns\":7}}",
                               &machine, NULL),
                     EBB_OK);
    const uint64_t bytes = 2 * EBB_HUGE_BYTES + 3 * EBB_PAGE_BYTES - 1;
    const uint64_t expected = 2 * 1000 + 3 * 10 + (bytes + 1) / 2 + 7;
    assert_int_equal(ebb__machine_transfer_ns(&machine, bytes), expected);
    json_t *json = ebb__machine_to_json(&machine);
    assert_int_equal(ebb__machine_from_json(json, "again", &again, NULL), EBB_OK);
    json_decref(json);
    assert_int_equal(ebb__machine_transfer_ns(&again, bytes), expected);
    assert_int_equal(ebb__lane_ns(&again.out, 5), ebb__lane_ns(&machine.out, 5));
}

static size_t entries_in(const char *path)
{
    size_t count = 0;
    DIR *directory = opendir(path);
    assert_non_null(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

static void probe_measures(void **state)
{
    (void)state;
    char path[] = "/var/tmp/ebb-probe-XXXXXX";
    assert_non_null(mkdtemp(path));
    struct ebb_machine machine;
    struct ebb_error error;
    enum ebb_status status = ebb__machine_probe(path, 32 * EBB_MIB, &machine, &error);
    size_t entries = entries_in(path);
    rmdir(path);
    if (status != EBB_OK)
        fail_msg("no probe: %s", error.why);
    assert_int_equal(entries, 2); /* . and .. */
    assert_string_equal(machine.name, "host");
    assert_true(machine.out.ns_per_byte > 0.001 && machine.out.ns_per_byte < 1000);
    assert_true(machine.in.ns_per_byte > 0.001 && machine.in.ns_per_byte < 1000);
    assert_true(machine.out.fixed_ns > 0 && machine.in.fixed_ns > 0);
    assert_true(machine.costs.ns_per_byte > 0 && machine.costs.huge_page_ns > 0);
    print_message("out %.2f GB/s + %llu us, in %.2f GB/s + %llu us, %s\n",
                  1 / machine.out.ns_per_byte, (unsigned long long)machine.out.fixed_ns / 1000,
                  1 / machine.in.ns_per_byte, (unsigned long long)machine.in.fixed_ns / 1000,
                  machine.duplex ? "at once" : "sharing bandwidth");
}

/* ---- threads that start late, as on a machine with other work -------------------------------- */

static long late_ms;

struct late {
    void *(*run)(void *);
    void *argument;
};

static void *run_late(void *late)
{
    struct late run = *(struct late *)late;
    struct timespec nap = {.tv_sec = late_ms / 1000, .tv_nsec = late_ms % 1000 * 1000000};
    free(late);
    nanosleep(&nap, NULL);
    return run.run(run.argument);
}

int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes,
                   void *(*run)(void *), void *restrict argument)
{
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
    struct late *late = malloc(sizeof *late);
    if (!next || !late)
        abort();
    *late = (struct late){run, argument};
    return next(thread, attributes, run_late, late);
}

/* The phases of the probe are over before its threads run. Their rate is still that of a disk. */
static void probe_on_a_busy_machine(void **state)
{
    (void)state;
    char path[] = "/var/tmp/ebb-probe-XXXXXX";
    assert_non_null(mkdtemp(path));
    struct ebb_machine machine;
    struct ebb_error error;
    late_ms = 200;
    enum ebb_status status = ebb__machine_probe(path, 32 * EBB_MIB, &machine, &error);
    late_ms = 0;
    assert_int_equal(rmdir(path), 0);
    if (status)
        fail_msg("no probe: %s", error.why);
    assert_true(machine.out.ns_per_byte < 1000); /* 1 MB/s */
    assert_true(machine.in.ns_per_byte < 1000);
}

static void probe_of_nothing(void **state)
{
    (void)state;
    struct ebb_machine machine;
    struct ebb_error error;
    assert_int_equal(ebb__machine_probe("/nowhere/at/all", EBB_MIB, &machine, &error), EBB_ERR_IO);
    assert_string_equal(error.what, "/nowhere/at/all");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_machines),          cmocka_unit_test(lane_times),
        cmocka_unit_test(machine_files),           cmocka_unit_test(costs_of_a_transfer),
        cmocka_unit_test(probe_measures),          cmocka_unit_test(probe_of_nothing),
        cmocka_unit_test(probe_on_a_busy_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
