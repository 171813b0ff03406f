/* The persistent blocks of a profile are found in a run that has begun in another way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "parent/internal.h"
#include "synthetic.h"

#include <string.h>

#define KIB ((uint64_t)1 << 10)

static void allocate(struct process *process, uint64_t serial, uint64_t size_bytes)
{
    struct ebb_event event = {
        .kind = EBB_EVENT_ALLOC, .block = serial, .size_bytes = size_bytes, .time_ns = serial};
    assert_int_equal(ebb__watch_push(process->stream.watch, &event), EBB_OK);
}

/* Persistent blocks of `sizes`, with serials from 1, and nothing else. */
static struct ebb_model model_of(const uint64_t *sizes, uint32_t count)
{
    struct ebb_model model = {.block_count = count};
    model.blocks = must(calloc(count, sizeof *model.blocks));
    for (uint32_t i = 0; i < count; i++)
        model.blocks[i] = (struct ebb_model_block){.serial = i + 1,
                                                   .size_bytes = sizes[i],
                                                   .alloc_tick = EBB_TICK_NONE,
                                                   .free_tick = EBB_TICK_NONE};
    return model;
}

static const uint64_t weights[] = {300 * KIB, 700 * KIB, 300 * KIB, 900 * KIB, 500 * KIB};
enum { WEIGHTS = sizeof weights / sizeof weights[0] };

static void the_same_names_hold(void **state)
{
    (void)state;
    struct process process = {0};
    struct ebb_model model = model_of(weights, WEIGHTS);
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &process.stream.watch), EBB_OK);
    for (uint64_t i = 0; i < WEIGHTS; i++) {
        assert_false(ebb__names_hold(&process, &model));
        allocate(&process, i + 1, weights[i]);
    }
    assert_true(ebb__names_hold(&process, &model));
    assert_true(ebb__names_find(&process, &model, NULL, NULL));
    for (uint64_t i = 0; i < WEIGHTS; i++)
        assert_int_equal(model.blocks[i].serial, i + 1);
    ebb__watch_destroy(process.stream.watch);
    ebb__model_fini(&model);
}

/* A checkpoint before them, other blocks between them, one of them in its size. */
static void others_come_between(void **state)
{
    (void)state;
    struct process process = {0};
    struct ebb_model model = model_of(weights, WEIGHTS);
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &process.stream.watch), EBB_OK);
    allocate(&process, 1, 900 * KIB);
    allocate(&process, 2, 4000 * KIB);
    uint64_t serial = 2, expected[WEIGHTS];
    for (uint64_t i = 0; i < WEIGHTS; i++) {
        assert_false(ebb__names_find(&process, &model, NULL, NULL));
        allocate(&process, ++serial, weights[i]);
        expected[i] = serial;
        allocate(&process, ++serial, (1000 + i) * KIB);
    }
    assert_false(ebb__names_hold(&process, &model));
    struct ebb_renaming *renamings;
    size_t count;
    assert_true(ebb__names_find(&process, &model, &renamings, &count));
    for (uint64_t i = 0; i < WEIGHTS; i++) {
        assert_int_equal(model.blocks[i].serial, expected[i]);
        assert_int_equal(ebb__renamed(renamings, count, i + 1), expected[i]);
    }
    assert_int_equal(count, WEIGHTS); /* all have changed */
    assert_int_equal(ebb__renamed(renamings, count, 1000), 1000);
    free(renamings);
    assert_true(ebb__names_hold(&process, &model));
    ebb__watch_destroy(process.stream.watch);
    ebb__model_fini(&model);
}

/* Parts of one block have one name. */
static void parts_share_a_name(void **state)
{
    (void)state;
    struct process process = {0};
    uint64_t sizes[] = {300 * KIB, 2048 * KIB, 2048 * KIB, 500 * KIB};
    struct ebb_model model = model_of(sizes, 4);
    for (uint32_t i = 1; i < 3; i++) {
        model.blocks[i].serial = 2;
        model.blocks[i].part_first = i - 1;
        model.blocks[i].part_count = 1;
        model.blocks[i].allocated_bytes = 4096 * KIB;
    }
    model.blocks[3].serial = 3;
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &process.stream.watch), EBB_OK);
    allocate(&process, 1, 5000 * KIB);
    allocate(&process, 2, 300 * KIB);
    allocate(&process, 3, 4096 * KIB);
    allocate(&process, 4, 500 * KIB);
    assert_true(ebb__names_find(&process, &model, NULL, NULL));
    const uint64_t expected[] = {2, 3, 3, 4};
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(model.blocks[i].serial, expected[i]);
    ebb__watch_destroy(process.stream.watch);
    ebb__model_fini(&model);
}

/* A twentieth of the bytes may be missing, not more; then nothing is renamed. */
static void what_lacks_much_is_another_program(void **state)
{
    (void)state;
    for (unsigned lacking = 0; lacking < 2; lacking++) {
        struct process process = {0};
        uint64_t sizes[] = {100 * KIB, 4000 * KIB, lacking ? 300 * KIB : 200 * KIB};
        struct ebb_model model = model_of(sizes, 3);
        assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &process.stream.watch), EBB_OK);
        allocate(&process, 7, 100 * KIB);
        allocate(&process, 8, 4000 * KIB);
        assert_int_equal(ebb__names_find(&process, &model, NULL, NULL), !lacking);
        assert_int_equal(model.blocks[0].serial, lacking ? 1 : 7);
        uint64_t size_bytes;
        assert_int_equal(
            ebb__watch_is_live(process.stream.watch, model.blocks[2].serial, &size_bytes), 0);
        ebb__watch_destroy(process.stream.watch);
        ebb__model_fini(&model);
    }
}

/* The last state is made after most were found. */
static void what_comes_later_is_found(void **state)
{
    (void)state;
    struct process process = {0};
    uint64_t sizes[] = {100 * KIB, 4000 * KIB, 200 * KIB};
    struct ebb_model model = model_of(sizes, 3);
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &process.stream.watch), EBB_OK);
    allocate(&process, 7, 100 * KIB);
    allocate(&process, 8, 4000 * KIB);
    assert_true(ebb__names_lack(&process, &model));
    assert_true(ebb__names_find(&process, &model, NULL, NULL));
    assert_true(ebb__names_hold(&process, &model));
    assert_true(ebb__names_lack(&process, &model));
    allocate(&process, 9, 200 * KIB);
    struct ebb_renaming *renamings;
    size_t count;
    assert_true(ebb__names_find(&process, &model, &renamings, &count));
    assert_int_equal(count, 1);
    assert_int_equal(renamings[0].to, 9);
    assert_int_equal(model.blocks[2].serial, 9);
    assert_false(ebb__names_lack(&process, &model));
    free(renamings);
    ebb__watch_destroy(process.stream.watch);
    ebb__model_fini(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_names_hold),
        cmocka_unit_test(what_comes_later_is_found),
        cmocka_unit_test(others_come_between),
        cmocka_unit_test(parts_share_a_name),
        cmocka_unit_test(what_lacks_much_is_another_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
