/* Steps with other sizes than the script has: a smaller last batch, sequences of any length. An
 * evaluation has other sizes, too, but is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define GROUND_ARENA_BYTES ((uint64_t)4 << 30) /* a block takes 2 MiB of addresses */
#include "replay_rig.h"

#define KIB ((uint64_t)1024)

enum { LAYERS = 24, GRADIENTS = 4, WEIGHT = 0, FIRST_LAYER = 1, FIRST_GRADIENT = 1 + LAYERS };

static uint64_t layer_bytes(uint32_t layer)
{
    return (64 + 32 * (layer % 5)) * KIB;
}

static uint64_t gradient_bytes(uint32_t gradient)
{
    return (400 + 8 * gradient) * KIB; /* whatever the batch is */
}

/* The layers' outputs come and go in the order of a stack. Gradients come in between, and go at the
 * end. The weight is away from the first output to the last. `any`: outputs may have any size. */
static struct written training(bool any)
{
    struct written written = {.head = {.flags = any ? EBB_SCRIPT_BY_SHAPE : 0}};
    add_block(&written, 1, EBB_HUGE_BYTES);
    for (uint32_t i = 0; i < LAYERS; i++)
        add_block(&written, 0, layer_bytes(i));
    for (uint32_t i = 0; i < GRADIENTS; i++)
        add_block(&written, 0, gradient_bytes(i));
    for (uint32_t i = 0; i < LAYERS; i++)
        add_event(&written, EBB_EVENT_ALLOC, FIRST_LAYER + i);
    for (uint32_t i = 0; i < LAYERS; i++) {
        if (i % (LAYERS / GRADIENTS) == 0)
            add_event(&written, EBB_EVENT_ALLOC, FIRST_GRADIENT + i / (LAYERS / GRADIENTS));
        add_event(&written, EBB_EVENT_FREE, FIRST_LAYER + LAYERS - 1 - i);
    }
    for (uint32_t i = 0; i < GRADIENTS; i++)
        add_event(&written, EBB_EVENT_FREE, FIRST_GRADIENT + i);
    for (uint32_t i = 0; any && i < written.head.clock_count; i++)
        if (written.events[i].block < FIRST_GRADIENT)
            written.events[i].size_bytes = EBB_SCRIPT_ANY_SIZE;
    written.uses[written.head.use_count++] = (struct ebb_script_use){.clock = LAYERS};
    written.blocks[WEIGHT].use_count = 1;
    written.absences[written.head.absence_count++] = (struct ebb_script_absence){
        .block = WEIGHT, .out_clock = 0, .in_clock = LAYERS - 2, .due_clock = LAYERS};
    finish(&written);
    return written;
}

/* A step in which outputs have `percent` of their size. The weight leaves and is back in time,
 * however slow the lanes are. Else the replay would learn from it, and let the weight stay. */
static void step(struct stage *stage, const struct block *weight, unsigned percent)
{
    struct block *layers[LAYERS], *gradients[GRADIENTS];
    for (uint32_t i = 0; i < LAYERS; i++) {
        layers[i] = alloc(stage, layer_bytes(i) * percent / 100);
        if (stage->replay.current && weight && (i == 4 || i == LAYERS - 2))
            lanes_wait(&stage->lanes, weight, i == 4 ? BLOCK_EVICTED : BLOCK_RESIDENT);
    }
    for (uint32_t i = 0; i < LAYERS; i++) {
        if (i % (LAYERS / GRADIENTS) == 0)
            gradients[i / (LAYERS / GRADIENTS)] =
                alloc(stage, gradient_bytes(i / (LAYERS / GRADIENTS)));
        drop(stage, layers[LAYERS - 1 - i]);
    }
    for (uint32_t i = 0; i < GRADIENTS; i++)
        drop(stage, gradients[i]);
}

/* An evaluation: each output is freed as soon as the next one is there. */
static void evaluate(struct stage *stage, unsigned percent)
{
    struct block *before = NULL;
    for (uint32_t i = 0; i < LAYERS; i++) {
        struct block *made = alloc(stage, layer_bytes(i) * percent / 100);
        if (before)
            drop(stage, before);
        before = made;
    }
    drop(stage, before);
}

static uint64_t mismatches(const struct stage *stage)
{
    return atomic_load(&stage->lanes.ground.core.counters->mismatches);
}

/* The program follows its script. */
static struct block *start_training(struct stage *stage, bool any)
{
    start(stage);
    struct block *weight = lanes_block(&stage->lanes, EBB_HUGE_BYTES);
    stage->written = training(any);
    set_script(stage, &stage->written);
    step(stage, weight, 100);
    step(stage, weight, 100);
    assert_non_null(stage->replay.current);
    assert_int_equal(stage->replay.position, 0);
    return weight;
}

static void a_smaller_batch_is_followed(void **state)
{
    (void)state;
    static const unsigned percents[] = {62, 25, 100, 50, 150, 99};
    struct stage stage;
    struct block *weight = start_training(&stage, false);
    for (size_t i = 0; i < sizeof percents / sizeof percents[0]; i++) {
        uint64_t laps = stage.replay.laps;
        step(&stage, weight, percents[i]);
        assert_non_null(stage.replay.current);
        assert_int_equal(stage.replay.laps, laps + 1);
        assert_false(ebb__sizes_doubtful(&stage.replay));
        assert_true(weight->state == BLOCK_RESIDENT && lanes_is_right(&stage.lanes, weight));
        step(&stage, weight, 100);
        assert_int_equal(stage.replay.laps, laps + 2);
    }
    assert_int_equal(mismatches(&stage), 0);
    stop(&stage);
}

/* The first allocations are in doubt, so that they can be observed. */
/* Every other layer grows with the square of the length. */
static void a_shorter_sequence_is_followed(void **state)
{
    (void)state;
    struct stage stage;
    start_training(&stage, false);
    struct block *layers[LAYERS];
    for (uint32_t i = 0; i < LAYERS; i++)
        layers[i] = alloc(&stage, layer_bytes(i) * (i % 2 ? 49 : 70) / 100);
    assert_non_null(stage.replay.current);
    assert_false(ebb__sizes_doubtful(&stage.replay));
    for (uint32_t i = LAYERS; i-- > 0;)
        drop(&stage, layers[i]);
    stop(&stage);
}

static void what_is_not_proven_is_in_doubt(void **state)
{
    (void)state;
    struct stage stage;
    start_training(&stage, false);
    struct block *blocks[LAYERS];
    assert_false(ebb__sizes_doubtful(&stage.replay));
    for (uint32_t i = 0; i < LAYERS; i++) {
        blocks[i] = alloc(&stage, layer_bytes(i) / 2);
        assert_int_equal(ebb__sizes_doubtful(&stage.replay), i < 14); /* of 28 */
    }
    for (uint32_t i = LAYERS; i-- > 0;)
        drop(&stage, blocks[i]);
    stop(&stage);
}

static void an_evaluation_is_none(void **state)
{
    (void)state;
    static const unsigned percents[] = {50, 200, 75};
    for (size_t i = 0; i < sizeof percents / sizeof percents[0]; i++) {
        struct stage stage;
        struct block *weight = start_training(&stage, false);
        struct prepared_script *script = stage.replay.current;
        evaluate(&stage, percents[i]);
        assert_null(stage.replay.current);
        assert_int_equal(mismatches(&stage), 1);
        assert_int_equal(script->left.at, 0); /* where the doubt began */
        step(&stage, weight, 100);
        step(&stage, weight, 100);
        assert_ptr_equal(stage.replay.current, script);
        stop(&stage);
    }
}

static void sizes_of_no_single_ratio_are_none(void **state)
{
    (void)state;
    struct stage stage;
    struct block *weight = start_training(&stage, false);
    struct block *first = alloc(&stage, layer_bytes(0) / 2);
    assert_non_null(stage.replay.current);
    struct block *second = alloc(&stage, layer_bytes(1) / 3);
    assert_null(stage.replay.current);
    drop(&stage, second);
    drop(&stage, first);
    static const uint64_t far[] = {KIB, 4096 * KIB}; /* too small, too large */
    for (unsigned i = 0; i < 2; i++) {
        step(&stage, weight, 100);
        step(&stage, weight, 100);
        assert_non_null(stage.replay.current);
        drop(&stage, alloc(&stage, far[i]));
        assert_null(stage.replay.current);
    }
    stop(&stage);
}

/* One block of another size is another step: what the plan assumes of it is wrong for good. */
static void a_single_size_is_none(void **state)
{
    (void)state;
    struct stage stage;
    struct block *weight = start_training(&stage, false);
    struct block *layers[LAYERS];
    for (uint32_t i = 0; i < LAYERS; i++) {
        layers[i] = alloc(&stage, layer_bytes(i) * (i == 2 ? 150 : 100) / 100);
        assert_int_equal(mismatches(&stage), i >= 2 + 14); /* half of the script */
    }
    for (uint32_t i = LAYERS; i-- > 0;)
        drop(&stage, layers[i]);
    step(&stage, weight, 100);
    step(&stage, weight, 100);
    assert_non_null(stage.replay.current);
    stop(&stage);
}

/* A step of another batch begins with the batch. */
static void in_the_middle_of_a_step_none_begins(void **state)
{
    (void)state;
    struct stage stage;
    start_training(&stage, false);
    struct block *layers[LAYERS];
    for (uint32_t i = 0; i < LAYERS; i++) {
        layers[i] = alloc(&stage, layer_bytes(i) * (i < LAYERS / 2 ? 100 : 75) / 100);
        assert_int_equal(stage.replay.current != NULL, i < LAYERS / 2);
    }
    for (uint32_t i = LAYERS; i-- > 0;)
        drop(&stage, layers[i]);
    stop(&stage);
}

/* A script of its own for the smaller batch is followed instead. */
static void an_exact_script_comes_first(void **state)
{
    (void)state;
    struct stage stage;
    struct block *weight = start_training(&stage, false);
    struct written small = training(false);
    for (uint32_t i = FIRST_LAYER; i < FIRST_GRADIENT; i++)
        small.blocks[i].size_bytes /= 2;
    for (uint32_t i = 0; i < small.head.clock_count; i++)
        small.events[i].size_bytes = small.blocks[small.events[i].block].size_bytes;
    finish(&small);
    set_script(&stage, &small);
    step(&stage, weight, 100);
    step(&stage, weight, 100);
    struct prepared_script *large = stage.replay.current;
    assert_non_null(large);
    step(&stage, weight, 50);
    assert_non_null(stage.replay.current);
    assert_ptr_equal(stage.replay.current->script, &small.head);
    stop(&stage);
}

static void any_size_is_followed_if_the_script_says_so(void **state)
{
    (void)state;
    static const unsigned percents[] = {31, 77, 100, 190, 8, 55};
    struct stage stage;
    struct block *weight = start_training(&stage, true);
    for (size_t i = 0; i < sizeof percents / sizeof percents[0]; i++) {
        uint64_t laps = stage.replay.laps;
        step(&stage, weight, percents[i]);
        assert_int_equal(stage.replay.laps, laps + 1);
        assert_true(weight->state == BLOCK_RESIDENT && lanes_is_right(&stage.lanes, weight));
    }
    assert_int_equal(mismatches(&stage), 0);
    evaluate(&stage, 40);
    assert_null(stage.replay.current);
    step(&stage, weight, 40); /* the gradients tell the place again */
    step(&stage, weight, 60);
    assert_non_null(stage.replay.current);
    assert_int_equal(stage.replay.position, 0);
    stop(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_smaller_batch_is_followed),
        cmocka_unit_test(a_shorter_sequence_is_followed),
        cmocka_unit_test(what_is_not_proven_is_in_doubt),
        cmocka_unit_test(an_evaluation_is_none),
        cmocka_unit_test(sizes_of_no_single_ratio_are_none),
        cmocka_unit_test(a_single_size_is_none),
        cmocka_unit_test(in_the_middle_of_a_step_none_begins),
        cmocka_unit_test(an_exact_script_comes_first),
        cmocka_unit_test(any_size_is_followed_if_the_script_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
