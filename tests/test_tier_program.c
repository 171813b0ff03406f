/* Programs that compute on two tiers while plans move their blocks: results are those of plain
 * memory, and both tiers hold what the plan says. */
#include "lab/tier/mip.h"
#include "lab/tier/program.h"
#include "lab/tier/tier.h"
#include "samples.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#define BLOCKS 28
#define OPERATIONS 60
#define OPERANDS 4
#define ITERATIONS 9

/* A machine file: a slow tier that copies are worth for, whichever processor runs the test. */
static const char machine_text[] =
    "{\"schema\": \"ebb.machine/1\", \"name\": \"test\", \"tiers\": ["
    "{\"read\": \"100GB/s\", \"write\": \"100GB/s\", \"price_per_gib\": 8},"
    "{\"read\": \"1GB/s\", \"write\": \"500MB/s\", \"price_per_gib\": 2}],"
    "\"out\": {\"bytes_per_second\": \"2GB/s\"}, \"in\": {\"bytes_per_second\": \"3GB/s\"}}";

struct operation {
    struct ebb_tier_program_use uses[OPERANDS];
    uint32_t count;
};

struct scene {
    size_t words[BLOCKS];
    bool persistent[BLOCKS];
    struct operation operations[OPERATIONS];
    char machine[64];
};

static uint64_t chance(uint64_t *state)
{
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static const char *folder(void)
{
    return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}

/* Each operation reads some blocks and writes its last one. A block is written before it is read,
 * unless it is persistent. Each block is used. */
static struct scene scene_make(uint64_t seed)
{
    struct scene scene = {0};
    bool written[BLOCKS] = {false};
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (uint32_t b = 0; b < BLOCKS; b++) {
        scene.persistent[b] = b < BLOCKS / 4;
        scene.words[b] = 8 + chance(&state) % (b % 3 ? 12000 : 300);
    }
    for (uint32_t i = 0; i < OPERATIONS; i++) {
        struct operation *operation = &scene.operations[i];
        uint32_t target = i < BLOCKS ? i : (uint32_t)(chance(&state) % BLOCKS);
        for (uint32_t u = 0; u + 1 < OPERANDS; u++) {
            uint32_t b = (uint32_t)(chance(&state) % BLOCKS);
            bool taken = b == target || !(scene.persistent[b] || written[b]);
            for (uint32_t before = 0; before < operation->count; before++)
                taken = taken || operation->uses[before].block == b;
            if (!taken)
                operation->uses[operation->count++] =
                    (struct ebb_tier_program_use){.block = b, .reads = true};
        }
        operation->uses[operation->count++] = (struct ebb_tier_program_use){
            .block = target,
            .reads = scene.persistent[target] || (written[target] && chance(&state) % 2),
            .writes = i < BLOCKS || chance(&state) % 3 != 0};
        written[target] = true;
    }
    snprintf(scene.machine, sizeof scene.machine, "%s/ebb-machine-%d.json", folder(), getpid());
    FILE *file = fopen(scene.machine, "w");
    assert_non_null(file);
    fputs(machine_text, file);
    fclose(file);
    return scene;
}

/* All words of the last block depend on all words of the others, and of its own if it is read. */
static uint64_t compute(const struct scene *scene, const struct operation *operation,
                        uint64_t *const *at, uint64_t sum)
{
    for (uint32_t u = 0; u < operation->count; u++) {
        uint32_t b = operation->uses[u].block;
        for (size_t i = 0; operation->uses[u].reads && i < scene->words[b]; i++)
            sum = (sum ^ at[u][i]) * 0x9e3779b97f4a7c15u + i;
    }
    const struct ebb_tier_program_use *last = &operation->uses[operation->count - 1];
    for (size_t i = 0; last->writes && i < scene->words[last->block]; i++)
        at[operation->count - 1][i] = sum + i;
    return sum;
}

static uint64_t plain_run(const struct scene *scene)
{
    uint64_t *memory[BLOCKS], *at[OPERANDS], sum = 0;
    for (uint32_t b = 0; b < BLOCKS; b++)
        memory[b] = calloc(scene->words[b], sizeof **memory);
    for (uint32_t i = 0; i < ITERATIONS * OPERATIONS; i++) {
        const struct operation *operation = &scene->operations[i % OPERATIONS];
        for (uint32_t u = 0; u < operation->count; u++)
            at[u] = memory[operation->uses[u].block];
        sum = compute(scene, operation, at, sum);
    }
    for (uint32_t b = 0; b < BLOCKS; b++)
        free(memory[b]);
    return sum;
}

static enum ebb_status tiers_make(const struct scene *scene, const char *policy, const char *place,
                                  double share, struct ebb_tier_program **program,
                                  struct ebb_error *error)
{
    struct ebb_tier_program_options options = {.policy = policy,
                                               .machine = scene->machine,
                                               .place = place,
                                               .share = share,
                                               .time_limit_ns = 300000000};
    enum ebb_status status = ebb__tier_program_create(&options, program, error);
    if (status)
        return status;
    for (uint32_t b = 0; b < BLOCKS; b++)
        assert_int_equal(ebb__tier_program_block(*program, scene->words[b] * sizeof(uint64_t),
                                                 scene->persistent[b]),
                         b);
    for (uint32_t i = 0; !status && i < OPERATIONS; i++)
        status = ebb__tier_program_operation(*program, scene->operations[i].uses,
                                             scene->operations[i].count, error);
    return status ? status : ebb__tier_program_start(*program, error);
}

static enum ebb_status tiers_run(const struct scene *scene, struct ebb_tier_program *program,
                                 uint64_t *sum, struct ebb_error *error)
{
    for (uint32_t i = 0; i < ITERATIONS * OPERATIONS; i++) {
        const struct operation *operation = &scene->operations[i % OPERATIONS];
        uint64_t *at[OPERANDS];
        enum ebb_status status = ebb__tier_program_before(program, i % OPERATIONS, error);
        if (status)
            return status;
        for (uint32_t u = 0; u < operation->count; u++)
            at[u] = ebb__tier_program_at(program, operation->uses[u].block);
        *sum = compute(scene, operation, at, *sum);
        ebb__tier_program_after(program, i % OPERATIONS);
    }
    return EBB_OK;
}

static uint64_t compare(const struct scene *scene, const char *policy, const char *place,
                        double share, uint64_t expected)
{
    struct ebb_tier_program *program = NULL;
    struct ebb_tier_program_figures figures;
    struct ebb_error error = {0};
    uint64_t sum = 0;
    enum ebb_status status = tiers_make(scene, policy, place, share, &program, &error);
    if (!status)
        status = tiers_run(scene, program, &sum, &error);
    if (status)
        print_error("%s, %s: %s: %s\n", policy, place, error.what, error.why);
    assert_int_equal(status, EBB_OK);
    assert_true(sum == expected);
    ebb__tier_program_figures(program, &figures);
    assert_string_equal(figures.policy, policy);
    assert_int_equal(figures.planned_iterations, ITERATIONS - EBB_TIER_PROFILED);
    assert_int_equal(figures.sampled_operations, 2 * OPERATIONS);
    assert_int_equal(figures.timed_iterations, ITERATIONS - EBB_TIER_PROFILED - 2);
    assert_int_equal(figures.off_operations, 0);
    assert_true(figures.fast_bytes <= figures.budget_bytes);
    assert_true(figures.planned_fast_bytes <= figures.budget_bytes);
    ebb__tier_program_destroy(program);
    return figures.moved_in_bytes;
}

static bool has_solver(const char *policy)
{
    return strncmp(policy, "autotm", 6) != 0 || ebb__mip_is_here();
}

static void test_results_and_residency(void **state)
{
    (void)state;
    static const char *const policies[] = {"deeptm",      "deeptm:-asynchronous", "autotm:static",
                                           "autotm:sync", "autotm:async",         "sentinel",
                                           "ebb",         "first-touch"};
    uint64_t moved = 0;
    for (uint64_t seed = 1; seed < samples(6); seed++) {
        struct scene scene = scene_make(seed);
        uint64_t expected = plain_run(&scene);
        for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++)
            if (has_solver(policies[p]))
                moved += compare(&scene, policies[p], p % 2 ? folder() : "memory",
                                 seed % 2 ? 0.5 : 0.2, expected);
        compare(&scene, "deeptm", "memory:0", 0.3, expected);
        compare(&scene, "deeptm", folder(), 1, expected);
        compare(&scene, "sentinel", folder(), 1e-6, expected);
        unlink(scene.machine);
    }
    assert_true(moved > 0);
}

static void refused(const struct scene *scene, const char *policy, const char *place,
                    enum ebb_status expected, const char *what)
{
    struct ebb_tier_program *program = NULL;
    struct ebb_error error = {0};
    enum ebb_status status = tiers_make(scene, policy, place, 0.5, &program, &error);
    assert_int_equal(status, expected);
    assert_string_equal(error.what, what);
    assert_true(error.why[0] != 0);
    ebb__tier_program_destroy(program);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    struct scene scene = scene_make(3);
    refused(&scene, "none", folder(), EBB_ERR_ARGUMENT, "none");
    refused(&scene, "hardware-cache", folder(), EBB_ERR_ARGUMENT, "hardware-cache");
    refused(&scene, "deeptm", "/no/such/folder", EBB_ERR_IO, "/no/such/folder");
    refused(&scene, "deeptm", scene.machine, EBB_ERR_IO, scene.machine); /* no folder */
    refused(&scene, "deeptm", "memory:1000", EBB_ERR_IO, "memory:1000");
    refused(&scene, "deeptm", "memory:-1", EBB_ERR_IO, "memory:-1");
    refused(&scene, "deeptm", "memory:x", EBB_ERR_IO, "memory:x");
    scene.operations[7].uses[0] = scene.operations[7].uses[1];
    scene.operations[7].count = 2;
    refused(&scene, "deeptm", folder(), EBB_ERR_ARGUMENT, "tiers");
    unlink(scene.machine);
    refused(&scene, "deeptm", folder(), EBB_ERR_IO, scene.machine);
}

/* Storing to a page that a full file system cannot give would end the process. */
static void test_a_full_slow_tier(void **state)
{
    (void)state;
    char place[] = "/tmp/ebb-tier-XXXXXX";
    struct scene scene = scene_make(4);
    struct ebb_tier_program *program = NULL;
    struct ebb_error error = {0};
    uint64_t sum = 0;
    assert_non_null(mkdtemp(place));
    if (mount("none", place, "tmpfs", 0, "size=400k") != 0) {
        rmdir(place);
        unlink(scene.machine);
        skip();
    }
    enum ebb_status status = tiers_make(&scene, "deeptm", place, 0.5, &program, &error);
    if (!status)
        status = tiers_run(&scene, program, &sum, &error);
    ebb__tier_program_destroy(program);
    umount(place);
    rmdir(place);
    unlink(scene.machine);
    assert_int_equal(status, EBB_ERR_IO);
    assert_string_equal(error.what, place);
    assert_non_null(strstr(error.why, "No space left"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results_and_residency),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_a_full_slow_tier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
