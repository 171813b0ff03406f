/* A profile has all that planning reads of a model. The models of recorded programs give the same
 * scripts before and after, and so does one of announced uses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/analyse.h"
#include "own_folder.h"
#include "parent/profile.h"
#include "plan/request/request.h"
#include "same_model.h"
#include "synthetic.h"
#include "trace/file.h"

#include <stdio.h>

static const struct ebb_machine machine = {
    "host",
    {0.4, 75000},
    {0.6, 120000},
    false,
    {.huge_page_ns = 90000, .small_page_ns = 650, .ns_per_byte = 0.02, .fixed_ns = 5000}};

/* The script for this share of the peak. NULL: no plan is feasible. */
static struct ebb_script *script_of(const struct ebb_model *model, const struct ebb_machine *lanes,
                                    uint64_t percent)
{
    struct ebb_plan_terms terms =
        ebb__plan_terms(ebb__plan_policy("ebb"), model, lanes, model->peak_bytes / 100 * percent);
    terms.effort_steps = 200000; /* the same on each machine */
    terms.time_limit_ns = 0;
    struct ebb_planned planned;
    struct ebb_script *script = NULL;
    struct ebb_error error;
    if (ebb__planned_make(&terms, &planned, &error) != EBB_OK)
        fail_msg("%s: %s", error.what, error.why);
    if (planned.plan.feasible)
        assert_int_equal(ebb__planned_script(&planned, &script, NULL), EBB_OK);
    ebb__planned_fini(&planned);
    return script;
}

/* Takes the model, writes and reads it, and compares it and the scripts of several budgets. Returns
 * the number of absences in these. */
static size_t pass_through(struct ebb_model *model)
{
    struct ebb_profile profile = {.machine = machine}, read;
    struct ebb_profile_key key = {.words = {1, 2}};
    uint8_t *bytes;
    size_t size, absences = 0;
    struct ebb_error error = {0};
    ebb__profile_add(&profile, model, 7);
    assert_int_equal(ebb__profile_encode(&profile, key, &bytes, &size), EBB_OK);
    if (ebb__profile_decode(bytes, size, key, "x", &read, &error) != EBB_OK)
        fail_msg("%s", error.why);
    const struct ebb_model *before = &profile.iterations[0].model;
    const struct ebb_model *after = &read.iterations[0].model;
    assert_same_model(before, after);
    assert_memory_equal(&profile.machine.costs, &read.machine.costs, sizeof machine.costs);
    for (uint64_t percent = 50; percent <= 90; percent += 10) {
        struct ebb_script *own = script_of(before, &profile.machine, percent);
        struct ebb_script *others = script_of(after, &read.machine, percent);
        assert_int_equal(own != NULL, others != NULL);
        if (own) {
            assert_int_equal(own->bytes, others->bytes);
            assert_memory_equal(own, others, own->bytes);
            absences += own->absence_count;
        }
        free(own);
        free(others);
    }
    free(bytes);
    ebb__profile_fini(&profile);
    ebb__profile_fini(&read);
    return absences;
}

/* Runs a shell command. False: it failed. */
static bool runs(const char *command)
{
    return system(command) == 0; /* NOLINT(cert-env33-c): the command is that of the test */
}

static void check_recorded(const char *command)
{
    const char *bin = getenv("EBB_BIN_DIR");
    char path[PATH_MAX], line[3 * PATH_MAX];
    snprintf(path, sizeof path, "%s/run.ebbt", folder);
    snprintf(line, sizeof line, "'%s/ebb' record -q -o '%s' -- %s > '%s/out'", bin, path, command,
             folder);
    if (!runs(line))
        fail_msg("failed: %s", line);
    struct ebb_trace trace;
    struct ebb_analysis analysis;
    struct ebb_error error;
    if (ebb__trace_read(path, &trace, &error) != EBB_OK)
        fail_msg("%s: %s", error.what, error.why);
    struct ebb_event_span span = {trace.events, trace.count};
    assert_int_equal(ebb__analyse(span, &analysis, &error), EBB_OK);
    assert_true(analysis.has_model && analysis.model.has_accesses);
    assert_true(pass_through(&analysis.model) > 0);
    ebb__analysis_fini(&analysis);
    ebb__trace_fini(&trace);
}

static void check_program(const char *name, const char *arguments)
{
    const char *source = getenv("EBB_SOURCE_DIR");
    if (!source || !getenv("EBB_BIN_DIR"))
        skip();
    char line[3 * PATH_MAX];
    snprintf(line, sizeof line, "cc -O2 -pthread -o '%s/%s' '%s/tests/programs/%s.c'", folder, name,
             source, name);
    assert_true(runs(line));
    snprintf(line, sizeof line, "'%s/%s' %s", folder, name, arguments);
    check_recorded(line);
}

static void plans_of_cycle_stay(void **state)
{
    (void)state;
    check_program("cycle", "--iterations 10");
}

static void plans_of_unordered_stay(void **state)
{
    (void)state;
    check_program("unordered", "--iterations 24");
}

static void plans_of_squeezenet_stay(void **state)
{
    (void)state;
    const char *source = getenv("EBB_SOURCE_DIR");
    if (!source || !getenv("EBB_BIN_DIR") ||
        !runs("/usr/bin/python3 -c 'import importlib.util, sys; sys.exit(not "
              "importlib.util.find_spec(\"torchvision\"))'"))
        skip();
    char line[2 * PATH_MAX];
    snprintf(line, sizeof line,
             "/usr/bin/python3 '%s/examples/torch_train.py' --model squeezenet1_1 --batch 8 "
             "--size 64 --iterations 8",
             source);
    check_recorded(line);
}

/* A block that is held between two uses has no gap there. */
static void held_blocks_stay_held(void **state)
{
    (void)state;
    struct ebb_model model = make_training(12, (uint64_t)64 << 20, 900000000, 5);
    uint32_t gaps = model.gap_count, held = 0;
    for (uint32_t i = 0; i < model.block_count; i++)
        for (uint32_t k = 1; k < model.blocks[i].access_count; k += 2, held++)
            model.accesses[model.blocks[i].first_access + k].held = true;
    assert_int_equal(ebb__model_derive(&model, NULL), EBB_OK);
    assert_true(held > 0);
    assert_int_equal(model.gap_count, gaps - held);
    assert_true(pass_through(&model) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(held_blocks_stay_held),
        cmocka_unit_test(plans_of_cycle_stay),
        cmocka_unit_test(plans_of_unordered_stay),
        cmocka_unit_test(plans_of_squeezenet_stay),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
