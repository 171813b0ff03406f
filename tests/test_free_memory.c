/* What the memory cgroups of a process leave free, from files like those of the kernel. */
#include "../cli/free_memory.h"

#include "base/size.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static char root[] = "/tmp/ebb-groups-XXXXXX";

static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *slash = path + sizeof root; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static uint64_t free_mib(void)
{
    char path[256];
    snprintf(path, sizeof path, "%s/self", root);
    uint64_t bytes = ebb__cgroup_free_bytes(path, root);
    return bytes == UINT64_MAX ? bytes : bytes / EBB_MIB;
}

static int begin(void **state)
{
    (void)state;
    strcpy(root + sizeof root - 7, "XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

static void no_group(void **state)
{
    (void)state;
    assert_true(free_mib() == UINT64_MAX); /* no list */
    put("self", "0::/a\n5:cpu,cpuacct:/a\n");
    assert_true(free_mib() == UINT64_MAX); /* no group */
    put("a/memory.max", "max\n");
    put("a/memory.current", "1048576\n");
    assert_true(free_mib() == UINT64_MAX);
}

static void files_can_be_dropped(void **state)
{
    (void)state;
    put("self", "0::/a\n");
    put("a/memory.max", "314572800\n"); /* 300 MiB */
    put("a/memory.current", "209715200\n");
    assert_int_equal(free_mib(), 100);
    put("a/memory.stat", "anon 1\ninactive_file 157286400\nactive_file 7\n");
    assert_int_equal(free_mib(), 250);
    put("a/memory.current", "314572800\n"); /* files fill it */
    assert_int_equal(free_mib(), 150);
    put("a/memory.stat", "anon 314572800\ninactive_file 0\n");
    assert_int_equal(free_mib(), 0);
}

static void a_group_lies_in_others(void **state)
{
    (void)state;
    put("self", "0::/slice/job/step\n");
    put("slice/job/step/memory.max", "max\n");
    put("slice/job/step/memory.current", "1048576\n");
    put("slice/job/memory.max", "104857600\n");
    put("slice/job/memory.current", "52428800\n");
    put("slice/memory.max", "209715200\n");
    put("slice/memory.current", "52428800\n");
    assert_int_equal(free_mib(), 50);
    put("slice/memory.current", "199229440\n"); /* others in the slice */
    assert_int_equal(free_mib(), 10);
}

static void the_first_version(void **state)
{
    (void)state;
    put("self", "9:name=systemd:/a\n4:memory:/a/b\n0::/a\n");
    put("memory/a/memory.limit_in_bytes", "314572800\n");
    put("memory/a/memory.usage_in_bytes", "209715200\n");
    put("memory/a/memory.stat", "inactive_file 5\ntotal_inactive_file 104857600\n");
    put("memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"); /* none */
    put("memory/a/b/memory.usage_in_bytes", "1048576\n");
    assert_int_equal(free_mib(), 200);
}

/* The list has the host's path. The container sees its own group as the root. */
static void in_a_container(void **state)
{
    (void)state;
    put("self", "4:memory:/docker/0123abcd\n");
    put("memory/memory.limit_in_bytes", "104857600\n");
    put("memory/memory.usage_in_bytes", "73400320\n");
    assert_int_equal(free_mib(), 30);
    put("self", "4:memory:/../../elsewhere\n");
    assert_int_equal(free_mib(), 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_group, begin, end),
        cmocka_unit_test_setup_teardown(files_can_be_dropped, begin, end),
        cmocka_unit_test_setup_teardown(a_group_lies_in_others, begin, end),
        cmocka_unit_test_setup_teardown(the_first_version, begin, end),
        cmocka_unit_test_setup_teardown(in_a_container, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
