/* Two memories used in place: machines, operations, simulator, checker and policies. Small cases
 * are compared with brute force: every placement is tried. */
#include "check/tiers.h"
#include "lab/tier/mip.h"
#include "lab/tier/tier.h"
#include "samples.h"
#include "synthetic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#define GAP 1.011 /* AutoTM's solver ends at 1 % */

/* Slow enough that placement matters; no latency, no rounding. */
static struct ebb_tier_machine machine(bool duplex)
{
    struct ebb_tier_machine made = {
        .name = "test",
        .tiers = {{"fast", 0, 0.1, 0.1, 0, 1, 8}, {"slow", 0, 1.0, 3.0, 0, 1, 2}},
        .out = {1.5, 100},
        .in = {0.8, 100},
        .duplex = duplex,
        .page_bytes = 1};
    return made;
}

/* A random iteration: some persistent blocks, some that live for a while, `count` operations. */
static struct ebb_model random_model(uint64_t *state, uint32_t count, uint32_t persistent,
                                     uint32_t mortal)
{
    struct maker maker = {0};
    uint32_t first[8], last[8], total = persistent + mortal;
    uint64_t now = 0;
    for (uint32_t b = 0; b < total; b++) {
        make_block(&maker, 1000 + chance(state) % 9000);
        first[b] = b < persistent ? 0 : (uint32_t)(chance(state) % count);
        last[b] =
            b < persistent ? count - 1 : first[b] + (uint32_t)(chance(state) % (count - first[b]));
    }
    uint32_t clock = make_block(&maker, 1); /* an allocation begins each operation */
    for (uint32_t i = 0; i < count; i++) {
        now += 100;
        make_event(&maker, now, EBB_EVENT_ALLOC, i ? make_block(&maker, 1) : clock, 0);
        uint32_t one = (uint32_t)maker.blocks.count - 1;
        one = i ? one : clock;
        for (uint32_t b = persistent; b < total; b++)
            if (first[b] == i)
                make_event(&maker, now, EBB_EVENT_ALLOC, b, 0);
        for (uint32_t b = 0; b < total; b++)
            if (i >= first[b] && i <= last[b] && (i == first[b] || chance(state) % 2))
                make_event(&maker, now + 1, EBB_EVENT_ACCESS, b,
                           chance(state) % 3 ? EBB_ACCESS_READ : EBB_ACCESS_WRITE);
        make_event(&maker, now + 1, EBB_EVENT_ACCESS, one, EBB_ACCESS_WRITE);
        now += 1000 + chance(state) % 20000;
        for (uint32_t b = persistent; b < total; b++)
            if (last[b] == i)
                make_event(&maker, now, EBB_EVENT_FREE, b, 0);
        make_event(&maker, now, EBB_EVENT_FREE, one, 0);
    }
    return make_model(&maker, now + 100);
}

static struct ebb_operations operations_of(const struct ebb_model *model)
{
    struct ebb_operations operations;
    assert_int_equal(ebb__operations_make(model, &operations, NULL), EBB_OK);
    return operations;
}

static void model_release(struct ebb_model *model)
{
    ebb__model_fini(model);
}

/* ---- operations ------------------------------------------------------------------------------ */

static void test_operations_are_stretches(void **state)
{
    (void)state;
    struct maker maker = {0};
    uint32_t w = make_persistent(&maker, 100), a = make_block(&maker, 10),
             b = make_block(&maker, 20);
    make_event(&maker, 0, EBB_EVENT_ALLOC, a, 0);
    make_event(&maker, 10, EBB_EVENT_ACCESS, w, EBB_ACCESS_READ);
    make_event(&maker, 20, EBB_EVENT_ACCESS, a, EBB_ACCESS_WRITE);
    make_event(&maker, 100, EBB_EVENT_ALLOC, b, 0);
    make_event(&maker, 110, EBB_EVENT_ACCESS, a, EBB_ACCESS_READ);
    make_event(&maker, 120, EBB_EVENT_ACCESS, b, EBB_ACCESS_UNKNOWN);
    make_event(&maker, 300, EBB_EVENT_FREE, a, 0);
    make_event(&maker, 310, EBB_EVENT_ACCESS, b, EBB_ACCESS_READ);
    make_event(&maker, 400, EBB_EVENT_FREE, b, 0);
    make_event(&maker, 410, EBB_EVENT_ACCESS, w, EBB_ACCESS_WRITE);
    struct ebb_model model = make_model(&maker, 500);
    struct ebb_operations operations = operations_of(&model);
    assert_int_equal(operations.count, 4);
    const uint64_t times[] = {100, 200, 100, 100};
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(operations.items[i].ns, times[i]);
    assert_int_equal(operations.blocks[a].first, 0);
    assert_int_equal(operations.blocks[a].span, 2);
    assert_int_equal(operations.blocks[b].first, 1);
    assert_int_equal(operations.blocks[b].span, 2);
    assert_true(operations.blocks[w].persistent);
    assert_int_equal(operations.blocks[w].use_count, 2);
    assert_int_equal(ebb__block_use(&operations, w, 1)->write_bytes, 100);
    const struct ebb_use *unknown = ebb__block_use(&operations, b, 0);
    assert_int_equal(unknown->read_bytes, 20);
    assert_int_equal(unknown->write_bytes, 20);
    uint64_t peak;
    struct ebb_tier_machine of = machine(true);
    assert_int_equal(ebb__tiers_peak(&operations, &of, &peak, NULL), EBB_OK);
    assert_int_equal(peak, 130);
    ebb__operations_fini(&operations);
    model_release(&model);
}

/* ---- the simulator, by hand ------------------------------------------------------------------ */

static void test_a_copy_is_hidden_or_waited_for(void **state)
{
    (void)state;
    struct maker maker = {0};
    uint32_t w = make_persistent(&maker, 1000);
    uint32_t t[4];
    for (uint32_t i = 0; i < 4;
         i++) { /* operations of 1000 ns; w is read in the first, written in 2 */
        t[i] = make_block(&maker, 1);
        make_event(&maker, i * 1000, EBB_EVENT_ALLOC, t[i], 0);
        make_event(&maker, i * 1000 + 1, EBB_EVENT_ACCESS, t[i], EBB_ACCESS_WRITE);
        if (i == 0 || i == 2)
            make_event(&maker, i * 1000 + 2, EBB_EVENT_ACCESS, w,
                       i ? EBB_ACCESS_WRITE : EBB_ACCESS_READ);
        make_event(&maker, i * 1000 + 3, EBB_EVENT_FREE, t[i], 0);
    }
    struct ebb_model model = make_model(&maker, 4000);
    struct ebb_operations operations = operations_of(&model);
    assert_int_equal(operations.count, 5); /* the last free is one */
    struct ebb_tier_machine of = machine(true);
    struct ebb_tier_request request = {&operations, &of, 1000000, 0, NULL};
    struct ebb_tier_plan plan;
    struct ebb_tier_result result;
    /* In the slow tier it is read in 1000 ns, in an operation of 3, and written in 3000, in one of
     * 1000. */
    assert_true(ebb__tier_plan_init(&plan, &operations));
    assert_int_equal(ebb__tier_plan_close(&plan, &operations, NULL), EBB_OK);
    assert_int_equal(ebb__tiers_simulate(&request, &plan, &result, NULL), EBB_OK);
    double slow_ns = result.iteration_ns;
    assert_true(slow_ns > 6900 && slow_ns < 7100);
    assert_int_equal(result.fast_peak_bytes, 0);
    /* Fetched before its write, synchronously: 900 ns in, 1600 ns out behind it. */
    plan.stays.count = 0;
    assert_true(ebb__tier_plan_add(&plan, (struct ebb_stay){.block = w, .first = 2, .start = 2}));
    assert_true(ebb__tier_plan_add(
        &plan, (struct ebb_stay){.block = w, .first = 3, .start = 3, .tier = 1}));
    assert_int_equal(ebb__tier_plan_close(&plan, &operations, NULL), EBB_OK);
    assert_int_equal(ebb__tiers_simulate(&request, &plan, &result, NULL), EBB_OK);
    assert_true(fabs(result.synchronous_ns - 2500) < 1);
    assert_int_equal(result.fast_peak_bytes, 1000);
    /* Both copies overlap with operations that do not write it. */
    struct ebb_stay *stay = &plan.stays.items[plan.first_stay[w]];
    stay[0].start = 1;
    stay[1].first = 0;
    struct ebb_stay first = stay[0];
    stay[0] = stay[1];
    stay[1] = first;
    assert_int_equal(stay[0].start, 3);
    assert_int_equal(ebb__tiers_simulate(&request, &plan, &result, NULL), EBB_OK);
    assert_true(result.synchronous_ns < 1 && result.wait_ns < 700);
    ebb__tier_plan_fini(&plan);
    ebb__operations_fini(&operations);
    model_release(&model);
}

/* ---- every policy on random iterations ------------------------------------------------------- */

static bool needs_cbc(const char *name)
{
    return strncmp(name, "autotm", 6) == 0;
}

static void test_every_plan_passes_the_checker(void **unused)
{
    (void)unused;
    uint64_t state = 88172645463325252ull;
    bool solver = ebb__mip_is_here();
    for (uint64_t round = 0; round < samples(12); round++) {
        struct ebb_model model = random_model(&state, 8 + (uint32_t)(chance(&state) % 12), 3, 5);
        struct ebb_operations operations = operations_of(&model);
        struct ebb_tier_machine of = machine(round % 2 != 0);
        uint64_t peak;
        of.page_bytes = round % 3 ? 1 : 4096;
        assert_int_equal(ebb__tiers_peak(&operations, &of, &peak, NULL), EBB_OK);
        size_t count;
        const struct ebb_tier_policy *policies = ebb__tier_policies(&count);
        for (size_t p = 0; p < count; p++) {
            struct ebb_tier_request request = {&operations, &of, peak * (1 + round % 4) / 5,
                                               1000000000, &model};
            struct ebb_tier_row row;
            struct ebb_error error = {0};
            if (!policies[p].make || (needs_cbc(policies[p].name) && !solver))
                continue;
            enum ebb_status status = ebb__tier_run(&policies[p], &request, &row, &error);
            if (status)
                print_error("%s: %s %s\n", policies[p].name, error.what, error.why);
            assert_int_equal(status, EBB_OK);
            assert_true(row.result.iteration_ns >= row.result.fast_ns - 1);
            assert_true(row.result.fast_peak_bytes <= request.budget_bytes);
            ebb__tier_plan_fini(&row.plan);
        }
        ebb__operations_fini(&operations);
        model_release(&model);
    }
}

/* A program that is too big for its time: the best that is known is the plan, which says so. */
static void test_a_program_that_is_too_big(void **unused)
{
    (void)unused;
    if (!ebb__mip_is_here())
        skip();
    struct ebb_model model = make_training(150, 256 * EBB_MIB, 100000000, 7);
    struct ebb_operations operations = operations_of(&model);
    struct ebb_tier_machine of = machine(1);
    struct ebb_tier_request request = {&operations, &of, 0, 1, &model};
    uint64_t peak;
    assert_int_equal(ebb__tiers_peak(&operations, &of, &peak, NULL), EBB_OK);
    request.budget_bytes = peak / 5;
    for (size_t p = 0; p < 2; p++) {
        struct ebb_tier_row row;
        const char *const policies[] = {"autotm:sync", "autotm:async"};
        assert_int_equal(ebb__tier_run(ebb__tier_policy(policies[p]), &request, &row, NULL),
                         EBB_OK); /* it passed the checker */
        assert_false(row.plan.optimal);
        assert_true(strstr(row.plan.note, "no solution in time") ||
                    strstr(row.plan.note, "time limit reached"));
        assert_int_equal(row.plan.fell_back, strstr(row.plan.note, "no solution") != NULL);
        assert_true(row.result.fast_peak_bytes <= request.budget_bytes);
        ebb__tier_plan_fini(&row.plan);
    }
    ebb__operations_fini(&operations);
    ebb__model_fini(&model);
}

/* Simulates and checks what `tier_at` says: bit i of a block's number is its tier in operation i.
 * Every change is synchronous. Returns infinity if it does not fit. */
static double placement_ns(const struct ebb_tier_request *request, const uint32_t *bits)
{
    const struct ebb_operations *operations = request->operations;
    struct ebb_tier_plan plan;
    struct ebb_tier_result result;
    assert_true(ebb__tier_plan_init(&plan, operations));
    for (uint32_t b = 0; b < operations->block_count; b++) {
        const struct ebb_operation_block *block = &operations->blocks[b];
        uint32_t birth = ebb__tier_birth(operations, b);
        for (uint32_t age = 0; age < block->span; age++) {
            uint32_t at = (birth + age) % operations->count;
            struct ebb_stay stay = {
                .block = b, .first = at, .start = at, .tier = bits[b] >> at & 1};
            assert_true(ebb__tier_plan_add(&plan, stay));
        }
    }
    assert_int_equal(ebb__tier_plan_close(&plan, operations, NULL), EBB_OK);
    assert_int_equal(ebb__tiers_simulate(request, &plan, &result, NULL), EBB_OK);
    struct ebb_tier_claim claim = {0, result.fast_peak_bytes, result.slow_peak_bytes,
                                   result.iteration_ns};
    struct ebb_error error = {0};
    enum ebb_status status = ebb__check_tiers(operations, request->machine, &plan, &claim, &error);
    if (status)
        print_error("%s: %s\n", error.what, error.why);
    assert_int_equal(status, EBB_OK);
    ebb__tier_plan_fini(&plan);
    return result.fast_peak_bytes <= request->budget_bytes ? result.iteration_ns : INFINITY;
}

/* The best of all placements: blocks that keep their tier, or any. Only the first `free_blocks`
 * can be fast; the others are one byte. */
static double brute_force(const struct ebb_tier_request *request, uint32_t free_blocks, bool moves)
{
    uint32_t count = request->operations->count, bits[64];
    uint32_t each = moves ? count : 1;
    double best = INFINITY;
    for (uint32_t choice = 0; choice < 1u << (each * free_blocks); choice++) {
        for (uint32_t b = 0; b < request->operations->block_count; b++) {
            uint32_t of = choice >> b * each & ((1u << each) - 1);
            bits[b] = b < free_blocks ? moves ? of : of ? UINT32_MAX : 0 : 0;
        }
        best = fmin(best, placement_ns(request, bits));
    }
    return best;
}

static double policy_ns(const struct ebb_tier_request *request, const char *name, bool *fragmented)
{
    struct ebb_tier_row row;
    struct ebb_error error = {0};
    enum ebb_status status = ebb__tier_run(ebb__tier_policy(name), request, &row, &error);
    if (status)
        print_error("%s: %s: %s\n", name, error.what, error.why);
    assert_int_equal(status, EBB_OK);
    *fragmented = strstr(row.plan.note, "fragmented") != NULL;
    ebb__tier_plan_fini(&row.plan);
    return row.result.iteration_ns;
}

/* One byte a block that is not free: they fit beside. */
#define BESIDE 64

static void test_autotm_static_is_optimal(void **unused)
{
    (void)unused;
    uint64_t state = 42;
    uint32_t compared = 0;
    if (!ebb__mip_is_here())
        skip();
    for (int round = 0; round < 25; round++) {
        struct ebb_model model = random_model(&state, 5, 3, 4);
        struct ebb_operations operations = operations_of(&model);
        struct ebb_tier_machine of = machine(round % 2);
        struct ebb_tier_request request = {&operations, &of, 4000 + chance(&state) % 20000, 0,
                                           NULL};
        bool fragmented;
        double best = brute_force(&request, 7, false);
        double found = policy_ns(&request, "autotm:static", &fragmented);
        assert_true(found >= best - BESIDE);
        if (!fragmented) {
            assert_true(found <= GAP * best + BESIDE);
            compared++;
        }
        ebb__operations_fini(&operations);
        model_release(&model);
    }
    assert_true(compared > 12);
}

static void test_synchronous_plans_against_brute_force(void **unused)
{
    (void)unused;
    uint64_t state = 7;
    uint32_t compared = 0, reached = 0, rounds = 8;
    bool solver = ebb__mip_is_here();
    for (uint32_t round = 0; round < rounds; round++) {
        struct ebb_model model = random_model(&state, 4, 1, 2);
        struct ebb_operations operations = operations_of(&model);
        struct ebb_tier_machine of = machine(round % 2);
        struct ebb_tier_request request = {&operations, &of, 3000 + chance(&state) % 12000, 0,
                                           NULL};
        bool fragmented;
        double best = brute_force(&request, 3, true);
        double ours = policy_ns(&request, "deeptm:-asynchronous", &fragmented);
        assert_true(ours >= best - BESIDE); /* brute force knows all synchronous plans */
        reached += ours <= 1.001 * best + BESIDE;
        if (solver) {
            double found = policy_ns(&request, "autotm:sync", &fragmented);
            assert_true(found >= best - BESIDE);
            if (!fragmented) {
                assert_true(found <= GAP * best + BESIDE);
                compared++;
            }
        }
        ebb__operations_fini(&operations);
        model_release(&model);
    }
    assert_true(!solver || compared > rounds / 2);
    assert_true(reached >= rounds - 1);
}

/* ---- the checker finds what is damaged ------------------------------------------------------- */

static void test_damage_is_found(void **unused)
{
    (void)unused;
    uint64_t state = 12345;
    struct ebb_model model = random_model(&state, 14, 3, 5);
    struct ebb_operations operations = operations_of(&model);
    struct ebb_tier_machine of = machine(true);
    struct ebb_tier_request request = {&operations, &of, 15000, 1000000000, NULL};
    struct ebb_tier_row row;
    assert_int_equal(ebb__tier_run(ebb__tier_policy("deeptm"), &request, &row, NULL), EBB_OK);
    struct ebb_tier_claim claim = {request.budget_bytes, row.result.fast_peak_bytes,
                                   row.result.slow_peak_bytes, row.result.iteration_ns};
    struct ebb_tier_claim wrong = claim;
#define ACCEPTED(claim) (ebb__check_tiers(&operations, &of, &row.plan, (claim), NULL) == EBB_OK)
    assert_true(ACCEPTED(&claim));
    wrong.budget_bytes = claim.fast_peak_bytes - 1;
    assert_false(ACCEPTED(&wrong));
    wrong = claim, wrong.fast_peak_bytes--;
    assert_false(ACCEPTED(&wrong));
    wrong = claim, wrong.slow_peak_bytes--;
    assert_false(ACCEPTED(&wrong));
    wrong = claim, wrong.iteration_ns += 100;
    assert_false(ACCEPTED(&wrong));
    uint32_t moved = 0;
    for (size_t i = 0; i < row.plan.stays.count; i++) {
        struct ebb_stay kept = row.plan.stays.items[i];
        uint32_t b = kept.block;
        bool used = operations.blocks[b].use_count > 0 && operations.blocks[b].size_bytes > 1;
        uint32_t stays = row.plan.first_stay[b + 1] - row.plan.first_stay[b];
        if (stays > 1) {
            row.plan.stays.items[i].tier ^= 1; /* two stays in one tier */
            assert_false(ACCEPTED(&claim));
            row.plan.stays.items[i] = kept;
            row.plan.stays.items[i].drops ^= 1;
            assert_false(ACCEPTED(&claim));
            row.plan.stays.items[i] = kept;
            moved++;
        }
        if (used && stays > 1) {
            row.plan.stays.items[i].first = operations.count;
            assert_false(ACCEPTED(&claim));
            row.plan.stays.items[i] = kept;
            row.plan.stays.items[i].block = operations.block_count;
            assert_false(ACCEPTED(&claim));
            row.plan.stays.items[i] = kept;
        }
    }
    assert_true(moved > 2); /* the case has copies */
    assert_true(ACCEPTED(&claim));
    ebb__tier_plan_fini(&row.plan);
    ebb__operations_fini(&operations);
    model_release(&model);
}

/* ---- machines -------------------------------------------------------------------------------- */

#define TIER(read, write, more)                                                                    \
    "{\"read\": " read ", \"write\": " write ", \"price_per_gib\": 3" more "}"
#define FILE_OF(fast, slow)                                                                        \
    "{\"schema\": \"ebb.machine/1\", \"tiers\": [" fast slow                                       \
    "], \"out\": {\"bytes_per_second\": \"2GB/s\"}, \"in\": {\"bytes_per_second\": 1e9}}"

static enum ebb_status machine_read(const char *text, struct ebb_tier_machine *made,
                                    struct ebb_error *error)
{
    return ebb__tiers_read_memory(text, strlen(text), "m.json", made, error);
}

static void test_machines_are_read(void **unused)
{
    (void)unused;
    struct ebb_tier_machine made = {.name = "untouched"};
    struct ebb_error error;
    assert_int_equal(
        machine_read(FILE_OF(TIER("\"100GB/s\"", "5e10", ", \"latency\": \"80ns\""),
                             ", " TIER("\"10GiB/s\"", "\"5GB/s\"",
                                       ", \"line\": 256, "
                                       "\"capacity\": \"4GiB\", \"latency\": \"0.3us\"")),
                     &made, &error),
        EBB_OK);
    assert_true(fabs(made.tiers[0].read_ns_per_byte - 0.01) < 1e-9);
    assert_true(fabs(made.tiers[1].latency_ns - 300) < 1e-9);
    assert_int_equal(made.tiers[1].capacity_bytes, 4 * EBB_GIB);
    assert_int_equal(made.tiers[1].line_bytes, 256);
    assert_true(fabs(made.out.ns_per_byte - 0.5) < 1e-9);
    static const struct {
        const char *text, *says;
    } bad[] = {
        {FILE_OF(TIER("1e9", "1e9", ""), ""), "array of 2 tiers"},
        {FILE_OF(TIER("0", "1e9", ""), ", " TIER("1e9", "1e9", "")), "must be above 0"},
        {FILE_OF(TIER("1e9", "1e9", ""), ", " TIER("1e9", "\"0GB/s\"", "")), "must be above 0"},
        {FILE_OF(TIER("1e9", "1e9", ""), ", " TIER("1e9", "\"3 furlongs\"", "")), "unknown unit"},
        {FILE_OF("{\"read\": 1, \"write\": 1, \"price_per_gib\": -2}", ", " TIER("1e9", "1e9", "")),
         "from 0 to"},
        {FILE_OF("{\"read\": 1}", ", " TIER("1e9", "1e9", "")), "no member 'write'"},
        {FILE_OF(TIER("1e9", "1e9", ""), ", 7"), "no object"},
        {FILE_OF(TIER("1e9", "1e9", ", \"line\": 0"), ", " TIER("1e9", "1e9", "")), "line must"},
        {"{\"schema\": \"ebb.machine/1\"}", "array of 2 tiers"},
        {"[]", "schema"},
        {"{", "line 1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ebb_tier_machine before = made;
        assert_int_equal(machine_read(bad[i].text, &made, &error), EBB_ERR_FORMAT);
        if (!strstr(error.why, bad[i].says))
            fail_msg("'%s' does not say '%s'", error.why, bad[i].says);
        assert_memory_equal(&before, &made, sizeof made);
    }
    assert_int_equal(ebb__tiers_find("no-such", &made, &error), EBB_ERR_ARGUMENT);
    assert_int_equal(ebb__tiers_find("./no-such.json", &made, &error), EBB_ERR_IO);
    assert_int_equal(ebb__tiers_find("optane", &made, &error), EBB_OK);
    assert_int_equal(ebb__tiers_find("cxl", &made, &error), EBB_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations_are_stretches),
        cmocka_unit_test(test_a_copy_is_hidden_or_waited_for),
        cmocka_unit_test(test_every_plan_passes_the_checker),
        cmocka_unit_test(test_a_program_that_is_too_big),
        cmocka_unit_test(test_autotm_static_is_optimal),
        cmocka_unit_test(test_synchronous_plans_against_brute_force),
        cmocka_unit_test(test_damage_is_found),
        cmocka_unit_test(test_machines_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
