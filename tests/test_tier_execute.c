/* Plans for two tiers, carried out in real memory. What the program reads is the same under each
 * of them, and blocks are where the plan says. */
#include "lab/tier/execute.h"
#include "lab/tier/tier.h"
#include "synthetic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <unistd.h>

#define PAGES ((uint64_t)4096)
#define SLACK_BYTES ((uint64_t)1 << 20) /* of file systems that are not in memory */

static const struct ebb_tier_machine machine = {
    .name = "test",
    .tiers = {{"fast", 0, 0.05, 0.05, 0, 64, 8}, {"slow", 0, 0.2, 0.5, 0, 64, 2}},
    .out = {0.3, 3000},
    .in = {0.2, 3000},
    .duplex = true,
    .page_bytes = 4096};

static const char *folder(void)
{
    return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}

/* Forward and backward: layers with weights and outputs, some of them smaller than a page. */
static struct ebb_model network(uint32_t layers, uint64_t seed)
{
    struct maker maker = {0};
    uint64_t state = seed | 1, now = 0;
    uint32_t weight[32], output[32];
    for (uint32_t i = 0; i < layers; i++)
        weight[i] = make_persistent(&maker, 512 + chance(&state) % (5 * PAGES) * 8);
    for (uint32_t i = 0; i < layers; i++) {
        output[i] = make_block(&maker, 600 + chance(&state) % (8 * PAGES) * 8);
        make_event(&maker, now, EBB_EVENT_ALLOC, output[i], 0);
        if (i)
            make_event(&maker, now + 1, EBB_EVENT_ACCESS, output[i - 1], EBB_ACCESS_READ);
        make_event(&maker, now + 2, EBB_EVENT_ACCESS, weight[i], EBB_ACCESS_READ);
        make_event(&maker, now + 3, EBB_EVENT_ACCESS, output[i], EBB_ACCESS_WRITE);
        now += 20000 + chance(&state) % 50000;
    }
    for (uint32_t i = layers; i-- > 0;) {
        uint32_t slope = make_block(&maker, 30 * PAGES);
        make_event(&maker, now, EBB_EVENT_ALLOC, slope, 0);
        make_event(&maker, now + 1, EBB_EVENT_ACCESS, output[i], EBB_ACCESS_READ);
        make_event(&maker, now + 2, EBB_EVENT_ACCESS, slope, EBB_ACCESS_WRITE);
        make_event(&maker, now + 3, EBB_EVENT_ACCESS, weight[i], EBB_ACCESS_UNKNOWN);
        now += 30000 + chance(&state) % 50000;
        make_event(&maker, now, EBB_EVENT_FREE, slope, 0);
        make_event(&maker, now, EBB_EVENT_FREE, output[i], 0);
    }
    return make_model(&maker, now + 1000);
}

static struct ebb_tier_execution execute(const struct ebb_tier_request *request,
                                         const struct ebb_tier_plan *plan)
{
    struct ebb_tier_execution run = {.folder = folder(), .laps = 3, .samples = true};
    struct ebb_error error = {0};
    enum ebb_status status = ebb__tier_execute(request, plan, &run, &error);
    if (status)
        print_error("%s: %s\n", error.what, error.why);
    assert_int_equal(status, EBB_OK);
    return run;
}

static void compare(const struct ebb_tier_request *request, const char *policy, uint64_t checksum)
{
    struct ebb_tier_row row;
    assert_int_equal(ebb__tier_run(ebb__tier_policy(policy), request, &row, NULL), EBB_OK);
    struct ebb_tier_execution run = execute(request, &row.plan);
    assert_true(run.checksum == checksum);
    const struct ebb_tier_samples *samples = &run.samples_taken;
    assert_true(samples->operations > 0);
    assert_int_equal(samples->fast_over, 0);
    assert_int_equal(samples->off, 0);
    assert_true(samples->peak_bytes[EBB_TIER_FAST] <= request->budget_bytes);
    assert_true(samples->peak_bytes[EBB_TIER_SLOW] <= row.result.slow_peak_bytes + SLACK_BYTES);
    if (strcmp(policy, "deeptm:-asynchronous") == 0 || strcmp(policy, "first-touch") == 0)
        assert_int_equal(samples->same, samples->operations);
    ebb__tier_plan_fini(&row.plan);
}

static void test_results_and_residency(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 7; seed++) {
        struct ebb_model model = network(6 + (uint32_t)seed, seed * 77);
        struct ebb_operations operations;
        uint64_t peak;
        assert_int_equal(ebb__operations_make(&model, &operations, NULL), EBB_OK);
        assert_int_equal(ebb__tiers_peak(&operations, &machine, &peak, NULL), EBB_OK);
        struct ebb_tier_request request = {&operations, &machine, peak, 200000000, &model};
        struct ebb_tier_plan slow;
        assert_true(ebb__tier_plan_init(&slow, &operations));
        assert_int_equal(ebb__tier_plan_close(&slow, &operations, NULL), EBB_OK);
        struct ebb_tier_execution reference = execute(&request, &slow);
        assert_int_equal(reference.samples_taken.peak_bytes[EBB_TIER_FAST], 0);
        assert_true(reference.samples_taken.peak_bytes[EBB_TIER_SLOW] >= peak);
        assert_true(reference.checksum != 0);
        request.budget_bytes = peak * seed / 8;
        static const char *const policies[] = {"deeptm:-aggregation", "deeptm:-asynchronous",
                                               "sentinel", "first-touch", "ebb"};
        for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++)
            compare(&request, policies[p], reference.checksum);
        ebb__tier_plan_fini(&slow);
        ebb__operations_fini(&operations);
        ebb__model_fini(&model);
    }
}

/* The test above sees a copy that is missing: other bytes are read then. */
static void test_a_wrong_plan_reads_other_bytes(void **state)
{
    (void)state;
    struct ebb_model model = network(8, 5);
    struct ebb_operations operations;
    assert_int_equal(ebb__operations_make(&model, &operations, NULL), EBB_OK);
    struct ebb_tier_request request = {&operations, &machine, UINT64_MAX / 2, 0, &model};
    struct ebb_tier_plan plan;
    assert_true(ebb__tier_plan_init(&plan, &operations));
    uint32_t written = 8; /* the first output: born fast, leaves behind its write */
    assert_true(ebb__tier_plan_add(&plan, (struct ebb_stay){.block = written}));
    assert_true(ebb__tier_plan_add(
        &plan, (struct ebb_stay){.block = written, .first = 1, .start = 1, .tier = 1}));
    assert_int_equal(ebb__tier_plan_close(&plan, &operations, NULL), EBB_OK);
    uint64_t right = execute(&request, &plan).checksum;
    struct ebb_stay *stay = &plan.stays.items[plan.first_stay[written] + 1];
    assert_false(stay->drops);
    stay->drops = true; /* nothing is copied */
    assert_true(execute(&request, &plan).checksum != right);
    ebb__tier_plan_fini(&plan);
    ebb__operations_fini(&operations);
    ebb__model_fini(&model);
}

static void test_a_folder_that_is_not_there(void **state)
{
    (void)state;
    struct ebb_model model = network(3, 9);
    struct ebb_operations operations;
    assert_int_equal(ebb__operations_make(&model, &operations, NULL), EBB_OK);
    struct ebb_tier_request request = {&operations, &machine, 0, 0, &model};
    struct ebb_tier_plan plan;
    struct ebb_tier_execution run = {.folder = "/no/such/folder", .laps = 1};
    struct ebb_error error = {0};
    assert_true(ebb__tier_plan_init(&plan, &operations));
    assert_int_equal(ebb__tier_plan_close(&plan, &operations, NULL), EBB_OK);
    assert_int_equal(ebb__tier_execute(&request, &plan, &run, &error), EBB_ERR_IO);
    ebb__tier_plan_fini(&plan);
    ebb__operations_fini(&operations);
    ebb__model_fini(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results_and_residency),
        cmocka_unit_test(test_a_wrong_plan_reads_other_bytes),
        cmocka_unit_test(test_a_folder_that_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
