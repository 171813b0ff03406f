/* What `ebb top` and `ebb doctor` print, byte for byte, for runs and findings that are made up:
 * tests/golden/top.txt and doctor.txt. After a change that is meant:
 *
 *     EBB_BLESS=1 EBB_SOURCE_DIR=. build/dev/tests/test_live_texts
 *
 * writes them anew. Look at the difference. test_top.py and test_doctor.py look at real ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../cli/doctor.h"
#include "../cli/top.h"

#include "base/size.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COLUMNS 100
#define MOST_BYTES 8192

/* Compares with a golden file, or writes it. */
static void check(const char *name, char *text)
{
    const char *source = getenv("EBB_SOURCE_DIR");
    char path[512], golden[MOST_BYTES];
    snprintf(path, sizeof path, "%s/tests/golden/%s.txt", source ? source : ".", name);
    bool blesses = getenv("EBB_BLESS");
    FILE *file = fopen(path, blesses ? "we" : "re");
    assert_non_null(file);
    if (blesses)
        fputs(text, file);
    else {
        golden[fread(golden, 1, sizeof golden - 1, file)] = 0;
        assert_string_equal(text, golden);
    }
    assert_int_equal(fclose(file), 0);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        assert_true(strlen(line) <= COLUMNS);
}

static struct ebb_status_packet packet(int id, const char *command, const char *mode)
{
    struct ebb_status_packet made = {.process_id = id,
                                     .now_ns = UINT64_C(95000000000),
                                     .started_ns = UINT64_C(5000000000),
                                     .budget_bytes = 6 * EBB_GIB,
                                     .in_force = 1,
                                     .processes = 1,
                                     .figures = {.held_bytes = 5 * EBB_GIB,
                                                 .peak_bytes = 6 * EBB_GIB - EBB_MIB,
                                                 .out_bytes = 40 * EBB_GIB,
                                                 .in_bytes = 39 * EBB_GIB,
                                                 .stall_ns = 1250000000,
                                                 .demand_faults = 17,
                                                 .iterations = 120,
                                                 .planned = 112,
                                                 .last_iteration_ns = 734000000},
                                     .device_kind = EBB_DEVICE_UFFD_MOVE};
    snprintf(made.command, sizeof made.command, "%s", command);
    snprintf(made.policy, sizeof made.policy, "ebb");
    snprintf(made.mode, sizeof made.mode, "%s", mode);
    return made;
}

static void print_top(const struct ebb_top *top, int columns, char *text)
{
    FILE *out = fmemopen(text, MOST_BYTES, "w");
    assert_non_null(out);
    ebb__top_text(top, columns, out);
    assert_int_equal(fclose(out), 0);
}

/* A run at work, one beyond its budget, one without any and with a command that is no plain text,
 * and runs of others. */
static void test_top(void **state)
{
    (void)state;
    static struct ebb_top top;
    static char text[MOST_BYTES];
    top = (struct ebb_top){.count = 3, .hidden = 2};
    top.runs[0].now = packet(4711, "python3 train.py --batch 64", "planned");
    top.runs[0].rates = (struct ebb_top_rates){.known = true,
                                               .out_bps = 1.5 * (double)EBB_GIB,
                                               .in_bps = 512.0 * (double)EBB_MIB,
                                               .out_busy = 0.62,
                                               .in_busy = 0.25,
                                               .stall = 0.031};
    top.runs[1].now = packet(4712,
                             "./a-command-that-is-longer-than-a-line-of-a-terminal "
                             "--with-options --and-more-options --and-more-options",
                             "observing");
    top.runs[1].now.figures.held_bytes = 7 * EBB_GIB;
    top.runs[1].now.figures.over_bytes = EBB_GIB;
    top.runs[2].now = packet(4713, "echo \x1b[31mred\n", "relearning");
    top.runs[2].now.budget_bytes = UINT64_MAX;
    top.runs[2].now.figures.last_iteration_ns = 0;
    print_top(&top, COLUMNS, text);
    assert_null(strchr(text, '\x1b'));
    check("top", text);
}

static void test_top_without_runs(void **state)
{
    (void)state;
    static struct ebb_top top;
    static char text[MOST_BYTES];
    top = (struct ebb_top){0};
    print_top(&top, COLUMNS, text);
    assert_string_equal(text, "no program runs under Ebb\n");
    top.hidden = 1;
    print_top(&top, COLUMNS, text);
    assert_string_equal(text, "no program runs under Ebb that you may see\n"
                              "runs of other users, of another version of Ebb, or busy: 1\n");
}

/* Lines that fit, lines that are folded, a word longer than a line, and every verdict. */
static void test_doctor(void **state)
{
    (void)state;
    static struct ebb_doctor report;
    static char text[MOST_BYTES];
    report = (struct ebb_doctor){0};
    ebb__doctor_add(&report, "kernel", EBB_DOCTOR_OK, "unused", "Linux %s on x86_64", "6.12.0");
    ebb__doctor_add(&report, "userfaultfd", EBB_DOCTOR_FAIL,
                    "as root: sysctl vm.unprivileged_userfaultfd=1, or give the user access to "
                    "/dev/userfaultfd with chmod, once after each start of the machine",
                    "not permitted, so faults cannot be served, and the pages of a program cannot "
                    "leave before a thread has stopped that uses them");
    ebb__doctor_add(&report, "store", EBB_DOCTOR_WARN, "give --store DIR on a faster disk",
                    "/%0*d, 3.20 GiB free", 120, 7);
    ebb__doctor_add(&report, "lanes", EBB_DOCTOR_OK, "", "1.30 GB/s out, 1.36 GB/s in");
    assert_int_equal(report.worst, EBB_DOCTOR_FAIL);
    fflush(stdout);
    FILE *file = tmpfile();
    int saved = dup(STDOUT_FILENO);
    assert_true(file && saved >= 0 && dup2(fileno(file), STDOUT_FILENO) >= 0);
    int failed = ebb__doctor_text(&report);
    fflush(stdout);
    assert_true(dup2(saved, STDOUT_FILENO) >= 0);
    close(saved);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    assert_int_equal(failed, 0);
    check("doctor", text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_top),
        cmocka_unit_test(test_top_without_runs),
        cmocka_unit_test(test_doctor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
