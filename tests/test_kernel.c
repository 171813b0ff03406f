/* Which kernels are trusted with UFFDIO_MOVE, by the version strings of distributions' kernels. */
#include "device/kernel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum trust { NEVER, WITHOUT_SWAP, ALWAYS };

static const struct {
    const char *release, *build, *signature;
    unsigned major, minor, patch;
    enum trust trust;
} systems[] = {
    /* kernel.org's own numbers */
    {"6.8.0", "#1 SMP", "", 6, 8, 0, NEVER},
    {"6.8.7-arch1-1", "#1 SMP", "", 6, 8, 7, NEVER},
    {"6.8.8-300.fc40.x86_64", "#1 SMP", "", 6, 8, 8, WITHOUT_SWAP},
    {"6.9.0", "#1 SMP", "", 6, 9, 0, WITHOUT_SWAP},
    {"6.11.11-300.fc41.x86_64", "#1 SMP", "", 6, 11, 11, WITHOUT_SWAP},
    {"6.12.19", "#1 SMP", "", 6, 12, 19, WITHOUT_SWAP},
    {"6.12.36", "#1 SMP", "", 6, 12, 36, WITHOUT_SWAP},
    {"6.12.37", "#1 SMP", "", 6, 12, 37, ALWAYS},
    {"6.12.40-64.114.amzn2023.x86_64", "#1 SMP", "", 6, 12, 40, ALWAYS},
    {"6.13.7", "#1 SMP", "", 6, 13, 7, WITHOUT_SWAP},
    {"6.13.12", "#1 SMP", "", 6, 13, 12, WITHOUT_SWAP},
    {"6.14.11-300.fc42.x86_64", "#1 SMP", "", 6, 14, 11, WITHOUT_SWAP},
    {"6.15.4-arch2-1", "#1 SMP", "", 6, 15, 4, WITHOUT_SWAP},
    {"6.15.5", "#1 SMP", "", 6, 15, 5, ALWAYS},
    {"6.16.0", "#1 SMP", "", 6, 16, 0, ALWAYS},
    {"6.18.44-fc-v669", "#1 SMP PREEMPT_DYNAMIC @0", "", 6, 18, 44, ALWAYS},
    {"7.0.0-rc1", "#1 SMP", "", 7, 0, 0, ALWAYS},
    /* Debian once had the number in the build only. Ubuntu has it in the signature only. */
    {"6.12.43+deb13-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.43-1 (2025-08-27)", "", 6, 12, 43,
     ALWAYS},
    {"6.12.9-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.9-1 (2025-01-10)", "", 6, 12, 9,
     WITHOUT_SWAP},
    {"6.1.0-44-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.164-1 (2026-03-09)", "", 6, 1, 164,
     WITHOUT_SWAP},
    {"6.8.0-31-generic", "#31-Ubuntu SMP PREEMPT_DYNAMIC", "Ubuntu 6.8.0-31.31-generic 6.8.1", 6, 8,
     1, NEVER},
    {"6.8.0-60-generic", "#63-Ubuntu SMP PREEMPT_DYNAMIC", "Ubuntu 6.8.0-60.63-generic 6.8.12", 6,
     8, 12, WITHOUT_SWAP},
    {"6.8.0-60-generic", "#63-Ubuntu SMP PREEMPT_DYNAMIC", "", 6, 8, 0, NEVER},
    {"6.8.12-9-pve", "#1 SMP PREEMPT_DYNAMIC PMX 6.8.12-9", "", 6, 8, 12, WITHOUT_SWAP},
    /* Their third number does not tell which bugs are fixed. */
    {"6.12.0-55.9.1.el10_0.x86_64", "#1 SMP PREEMPT_DYNAMIC", "", 6, 12, 0, WITHOUT_SWAP},
    {"5.14.0-570.12.1.el9_6.x86_64", "#1 SMP PREEMPT_DYNAMIC", "", 5, 14, 0, WITHOUT_SWAP},
    {"6.6.87.2-microsoft-standard-WSL2", "#1 SMP PREEMPT_DYNAMIC", "", 6, 6, 87, WITHOUT_SWAP},
    {"6.12", "#1 SMP", "nothing to read", 6, 12, 0, WITHOUT_SWAP},
};

static void test_systems(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof systems / sizeof systems[0]; i++) {
        struct ebb_kernel kernel = {0};
        assert_true(
            ebb__kernel_parse(systems[i].release, systems[i].build, systems[i].signature, &kernel));
        assert_int_equal(kernel.major, systems[i].major);
        assert_int_equal(kernel.minor, systems[i].minor);
        assert_int_equal(kernel.patch, systems[i].patch);
        const struct ebb_move_fault *fault = ebb__kernel_move_fault(&kernel);
        enum trust trust = ebb__kernel_must_not_move(fault, false, false)  ? NEVER
                           : ebb__kernel_must_not_move(fault, true, false) ? WITHOUT_SWAP
                                                                           : ALWAYS;
        if (trust != systems[i].trust)
            fail_msg("%s: %d instead of %d", systems[i].release, trust, systems[i].trust);
        assert_false(ebb__kernel_must_not_move(fault, true, true));
    }
}

static void test_unknown(void **state)
{
    (void)state;
    struct ebb_kernel kernel;
    assert_false(ebb__kernel_parse("custom", "#1", "", &kernel));
    assert_false(ebb__kernel_parse("", "", "", &kernel));
    const struct ebb_move_fault *fault = ebb__kernel_move_fault(NULL);
    assert_true(ebb__kernel_must_not_move(fault, true, false));
    assert_false(ebb__kernel_must_not_move(fault, false, false));
    assert_true(ebb__kernel_look(&kernel));
    assert_true(kernel.major >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_systems),
        cmocka_unit_test(test_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
