/* A model is scaled to another batch size by what the new run allocates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/vec.h"
#include "model/scale.h"
#include "synthetic.h"

#include <stdlib.h>

#define KIB ((uint64_t)1 << 10)
enum { LAYERS = 20 };

typedef EBB_VEC(uint64_t) size_vec;

/* Scales to a run that has allocated these sizes. The last `living` blocks have not been freed. */
static enum ebb_status scale_living(const struct ebb_model *model, const uint64_t *sizes,
                                    size_t count, size_t living, struct ebb_model *scaled)
{
    struct ebb_watch_block *newest = calloc(count + 1, sizeof *newest);
    assert_non_null(newest);
    for (size_t i = 0; i < count; i++)
        newest[i] = (struct ebb_watch_block){1000 + i, sizes[i], i + living < count};
    enum ebb_status status =
        ebb__model_scale(model, &(struct ebb_scale_run){newest, count, NULL, 0}, scaled);
    free(newest);
    return status;
}

static enum ebb_status scale(const struct ebb_model *model, const uint64_t *sizes, size_t count,
                             struct ebb_model *scaled)
{
    return scale_living(model, sizes, count, LAYERS, scaled);
}

static struct ebb_model make_step(unsigned batch)
{
    struct maker maker = {0};
    uint32_t outputs[LAYERS], gradients[LAYERS], weight = make_persistent(&maker, 500 * KIB);
    uint64_t now = 0;
    for (unsigned i = 0; i < LAYERS; i++) {
        outputs[i] = make_block(&maker, output_of(i, batch));
        make_event(&maker, now += 1000, EBB_EVENT_ALLOC, outputs[i], 0);
        make_event(&maker, now += 1000, EBB_EVENT_ACCESS, outputs[i], EBB_ACCESS_WRITE);
        make_event(&maker, now += 1000, EBB_EVENT_ACCESS, weight, EBB_ACCESS_READ);
    }
    for (unsigned i = LAYERS; i-- > 0;) {
        gradients[i] = make_block(&maker, gradient_of(i));
        make_event(&maker, now += 1000, EBB_EVENT_ALLOC, gradients[i], 0);
        make_event(&maker, now += 1000, EBB_EVENT_ACCESS, outputs[i], EBB_ACCESS_READ);
        make_event(&maker, now += 1000, EBB_EVENT_FREE, outputs[i], 0);
    }
    for (unsigned i = 0; i < LAYERS; i++)
        make_event(&maker, now += 1000, EBB_EVENT_FREE, gradients[i], 0);
    return make_model(&maker, now + 1000);
}

static void same_sizes(const struct ebb_model *scaled, const struct ebb_model *wanted)
{
    assert_int_equal(scaled->block_count, wanted->block_count);
    assert_int_equal(scaled->tick_count, wanted->tick_count);
    for (uint32_t i = 0; i < scaled->block_count; i++)
        assert_int_equal(scaled->blocks[i].size_bytes, wanted->blocks[i].size_bytes);
}

/* What a run allocates: the weights, then steps; in the first one states as well. */
static size_vec run_of(unsigned batch, unsigned steps)
{
    size_vec sizes = {0};
    for (unsigned i = 0; i < 9; i++)
        assert_true(ebb_vec_push(&sizes, 500 * KIB + i));
    for (unsigned k = 0; k < steps; k++) {
        for (unsigned i = 0; i < LAYERS; i++)
            assert_true(ebb_vec_push(&sizes, output_of(i, batch)));
        for (unsigned i = LAYERS; i-- > 0;)
            assert_true(ebb_vec_push(&sizes, gradient_of(i)));
        for (unsigned i = 0; k == 0 && i < LAYERS; i++)
            assert_true(ebb_vec_push(&sizes, gradient_of(i) + 4096));
    }
    return sizes;
}

static void another_batch(void **state)
{
    (void)state;
    static const unsigned batches[] = {3, 6, 7, 12, 31};
    for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
        struct ebb_model model = make_step(8), wanted = make_step(batches[i]), scaled;
        size_vec sizes = run_of(batches[i], 1);
        assert_int_equal(scale(&model, sizes.items, sizes.count, &scaled), EBB_OK);
        same_sizes(&scaled, &wanted);
        assert_int_equal(scaled.peak_bytes, wanted.peak_bytes);
        assert_int_equal(scaled.gap_count, wanted.gap_count);
        double ratio =
            (double)ebb__model_iteration_ns(&scaled) / (double)ebb__model_iteration_ns(&model);
        assert_true(ratio > batches[i] / 8.0 * 0.98 && ratio < batches[i] / 8.0 * 1.02);
        ebb_vec_free(&sizes);
        ebb__model_fini(&model);
        ebb__model_fini(&wanted);
        ebb__model_fini(&scaled);
    }
}

/* A block that is too small to be managed with the new batch is in the model no more. */
static void small_blocks_vanish(void **state)
{
    (void)state;
    struct ebb_model model = make_step(8), wanted = make_step(6), scaled;
    size_vec sizes = run_of(6, 1);
    for (size_t i = 9; i + 1 < sizes.count; i++) /* without the first output */
        sizes.items[i] = sizes.items[i + 1];
    assert_int_equal(scale(&model, sizes.items, sizes.count - 1, &scaled), EBB_OK);
    assert_int_equal(scaled.block_count, model.block_count - 1);
    assert_int_equal(scaled.tick_count, model.tick_count - 4); /* alloc, two uses, free */
    assert_int_equal(scaled.access_count, model.access_count - 2);
    assert_int_equal(scaled.peak_bytes, wanted.peak_bytes - output_of(0, 6));
    size_t allocs = 0;
    for (uint32_t i = 0; i < scaled.tick_count; i++) {
        const struct ebb_model_event *event = &scaled.events[i];
        const struct ebb_model_block *block = &scaled.blocks[event->block];
        assert_true(event->block < scaled.block_count);
        if (event->kind == EBB_EVENT_ALLOC) {
            assert_int_equal(block->alloc_tick, i);
            assert_int_equal((i + block->span_ticks) % scaled.tick_count, block->free_tick);
            assert_int_equal(block->size_bytes, sizes.items[9 + allocs++]);
        }
        if (event->kind == EBB_EVENT_FREE)
            assert_int_equal(block->free_tick, i);
    }
    for (uint32_t i = 0; i < scaled.block_count; i++)
        for (uint32_t k = 0; k < scaled.blocks[i].access_count; k++) {
            uint32_t tick = scaled.accesses[scaled.blocks[i].first_access + k].tick;
            assert_int_equal(scaled.events[tick].kind, EBB_EVENT_ACCESS);
            assert_int_equal(scaled.events[tick].block, i);
        }
    assert_int_equal(allocs, 2 * LAYERS - 1);
    ebb_vec_free(&sizes);
    ebb__model_fini(&model);
    ebb__model_fini(&wanted);
    ebb__model_fini(&scaled);
}

/* A header of a page does not grow with the batch. */
static void headers_stay(void **state)
{
    (void)state;
    struct ebb_model model = make_step(8), scaled;
    for (uint32_t i = 0; i < model.block_count; i++)
        model.blocks[i].size_bytes += 4096;
    assert_int_equal(ebb__model_derive(&model, NULL), EBB_OK);
    size_vec sizes = run_of(3, 1);
    for (size_t i = 0; i < sizes.count; i++)
        sizes.items[i] += 4096;
    assert_int_equal(scale(&model, sizes.items, sizes.count, &scaled), EBB_OK);
    for (unsigned i = 0; i < LAYERS; i++)
        assert_int_equal(scaled.blocks[1 + i].size_bytes, output_of(i, 3) + 4096);
    ebb_vec_free(&sizes);
    ebb__model_fini(&model);
    ebb__model_fini(&scaled);
}

/* Inserts two sizes behind the `nth` output. */
static void insert(size_vec *sizes, size_t nth, uint64_t first, uint64_t second)
{
    assert_true(ebb_vec_push(sizes, 0) && ebb_vec_push(sizes, 0));
    size_t at = 9 + nth + 1;
    for (size_t i = sizes->count; i-- > at + 2;)
        sizes->items[i] = sizes->items[i - 2];
    sizes->items[at] = first;
    sizes->items[at + 1] = second;
}

/* Blocks that are managed with the larger batch only live as the ones before them. */
static void large_blocks_appear(void **state)
{
    (void)state;
    struct ebb_model model = make_step(8), wanted = make_step(12), scaled;
    size_vec sizes = run_of(12, 1);
    insert(&sizes, 11, 330 * KIB, 340 * KIB);
    insert(&sizes, 5, 350 * KIB, 360 * KIB);
    assert_int_equal(scale(&model, sizes.items, sizes.count, &scaled), EBB_OK);
    assert_int_equal(scaled.block_count, model.block_count + 4);
    static const uint64_t of[] = {6, 6, 12, 12}, kib[] = {350, 360, 330, 340};
    for (uint32_t i = 0; i < 4; i++) {
        const struct ebb_model_block *twin = &scaled.blocks[model.block_count + i];
        const struct ebb_model_block *like = &scaled.blocks[of[i]];
        assert_int_equal(twin->size_bytes, kib[i] * KIB);
        assert_int_equal(twin->alloc_tick, like->alloc_tick + 1 + i % 2);
        assert_int_equal(twin->free_tick, like->free_tick + 1 + i % 2);
        assert_int_equal(twin->span_ticks, like->span_ticks);
        assert_int_equal(twin->access_count, like->access_count);
    }
    size_t at = 9;
    for (uint32_t i = 0; i < scaled.tick_count; i++)
        if (scaled.events[i].kind == EBB_EVENT_ALLOC)
            assert_int_equal(scaled.blocks[scaled.events[i].block].size_bytes, sizes.items[at++]);
    assert_int_equal(scaled.peak_bytes, wanted.peak_bytes + 1380 * KIB);
    assert_int_equal(scaled.clock_count, model.clock_count + 8);
    ebb_vec_free(&sizes);
    ebb__model_fini(&model);
    ebb__model_fini(&wanted);
    ebb__model_fini(&scaled);
}

/* The same batch, another program, half of a step, nothing at all. */
static void what_is_no_other_batch(void **state)
{
    (void)state;
    struct ebb_model model = make_step(8), scaled;
    size_vec same = run_of(8, 2), other = run_of(6, 2), half = run_of(6, 1);
    assert_int_equal(scale(&model, same.items, same.count, &scaled), EBB_INFEASIBLE);
    for (size_t i = 9; i < same.count; i++) /* one size that has not come, and is another's ratio */
        same.items[i] = same.items[i] == output_of(3, 8) ? output_of(3, 9) : same.items[i];
    assert_int_equal(scale(&model, same.items, same.count, &scaled), EBB_INFEASIBLE);
    uint64_t seed = 3;
    for (size_t i = 0; i < other.count; i++)
        other.items[i] = other.items[i] / 2 + chance(&seed) % other.items[i];
    assert_int_equal(scale(&model, other.items, other.count, &scaled), EBB_INFEASIBLE);
    assert_int_equal(scale(&model, half.items, 9 + LAYERS, &scaled), EBB_INFEASIBLE);
    assert_int_equal(scale(&model, half.items, 9 + LAYERS + LAYERS / 2, &scaled), EBB_INFEASIBLE);
    assert_int_equal(scale(&model, NULL, 0, &scaled), EBB_INFEASIBLE);
    ebb_vec_free(&same);
    ebb_vec_free(&other);
    ebb_vec_free(&half);
    ebb__model_fini(&model);
}

/* A step of an optimizer: a temporary block for each layer, then outputs and gradients. */
static struct ebb_model make_rotated(unsigned batch)
{
    struct maker maker = {0};
    uint32_t outputs[LAYERS], weight = make_persistent(&maker, 500 * KIB);
    uint64_t now = 0;
    for (unsigned i = 0; i < LAYERS; i++) {
        uint32_t temporary = make_block(&maker, gradient_of(i));
        make_event(&maker, now += 1000, EBB_EVENT_ALLOC, temporary, 0);
        make_event(&maker, now += 1000, EBB_EVENT_ACCESS, weight, EBB_ACCESS_WRITE);
        make_event(&maker, now += 1000, EBB_EVENT_FREE, temporary, 0);
    }
    for (unsigned i = 0; i < LAYERS; i++) {
        outputs[i] = make_block(&maker, output_of(i, batch));
        make_event(&maker, now += 1000, EBB_EVENT_ALLOC, outputs[i], 0);
        make_event(&maker, now += 1000, EBB_EVENT_ACCESS, outputs[i], EBB_ACCESS_WRITE);
    }
    for (unsigned i = LAYERS; i-- > 0;) {
        uint32_t gradient = make_block(&maker, gradient_of(i));
        make_event(&maker, now += 1000, EBB_EVENT_ALLOC, gradient, 0);
        make_event(&maker, now += 1000, EBB_EVENT_ACCESS, outputs[i], EBB_ACCESS_READ);
        make_event(&maker, now += 1000, EBB_EVENT_FREE, outputs[i], 0);
        make_event(&maker, now += 1000, EBB_EVENT_FREE, gradient, 0);
    }
    return make_model(&maker, now + 1000);
}

typedef EBB_VEC(struct ebb_watch_block) block_vec;

static void allocate(block_vec *run, uint64_t size_bytes, bool freed)
{
    assert_true(ebb_vec_push(run, ((struct ebb_watch_block){1 + run->count, size_bytes, freed})));
}

static void forward(block_vec *run, unsigned batch)
{
    for (unsigned i = 0; i < LAYERS; i++)
        allocate(run, output_of(i, batch), true);
}

/* Outputs and gradients. If `extra_bytes` is not 0, one more block behind the fourth gradient. */
static void pass(block_vec *run, unsigned batch, bool keeps, uint64_t extra_bytes)
{
    forward(run, batch);
    for (unsigned i = LAYERS; i-- > 0;) {
        allocate(run, gradient_of(i), !keeps);
        if (extra_bytes && i == LAYERS - 4)
            allocate(run, extra_bytes, true);
    }
}

static void optimize(block_vec *run)
{
    for (unsigned i = 0; i < LAYERS; i++)
        allocate(run, gradient_of(i), true);
}

/* The first step of a run: it keeps the gradients, and makes states before it optimizes. */
static block_vec first_step(unsigned batch, uint64_t extra_bytes)
{
    block_vec run = {0};
    for (unsigned i = 0; i < 9; i++)
        allocate(&run, 500 * KIB + i, false);
    for (unsigned i = 0; i < 7; i++) /* what a program does at its start */
        allocate(&run, gradient_of(i) - KIB, true);
    pass(&run, batch, true, extra_bytes);
    for (unsigned i = 0; i < 2 * LAYERS; i++)
        allocate(&run, gradient_of(i / 2), false);
    optimize(&run);
    return run;
}

static enum ebb_status scale_run(const struct ebb_model *model, const block_vec *run,
                                 struct ebb_model *scaled)
{
    return ebb__model_scale(model, &(struct ebb_scale_run){run->items, run->count, NULL, 0},
                            scaled);
}

/* The model begins with what comes last in the first step. States have the sizes of temporary
 * blocks. Some allocations of the second step do not matter. */
static void cycle_begins_anywhere(void **state)
{
    (void)state;
    struct ebb_model model = make_rotated(8), wanted = make_rotated(6), scaled;
    for (unsigned more = 0; more < LAYERS; more++) {
        block_vec run = first_step(6, 0);
        for (unsigned i = 0; i < more; i++)
            allocate(&run, output_of(i, 6), i + 3 < more);
        assert_int_equal(scale_run(&model, &run, &scaled), EBB_OK);
        same_sizes(&scaled, &wanted);
        ebb__model_fini(&scaled);
        ebb_vec_free(&run);
    }
    ebb__model_fini(&model);
    ebb__model_fini(&wanted);
}

/* The batch makes a library take another way, with one more block of any size. It was freed. */
static void another_way(void **state)
{
    (void)state;
    struct ebb_model model = make_rotated(8), scaled;
    block_vec run = first_step(12, 777 * KIB);
    assert_int_equal(scale_run(&model, &run, &scaled), EBB_OK);
    assert_int_equal(scaled.block_count, model.block_count + 1);
    size_t allocs = 0, at = 0;
    for (uint32_t i = 0; i < scaled.tick_count; i++) {
        uint32_t block = scaled.events[i].block;
        allocs += scaled.events[i].kind == EBB_EVENT_ALLOC;
        if (scaled.events[i].kind == EBB_EVENT_ALLOC &&
            scaled.blocks[block].size_bytes == 777 * KIB)
            at = allocs;
    }
    assert_int_equal(allocs, 3 * LAYERS + 1);
    assert_int_equal(at, 2 * LAYERS + 5); /* behind the fourth gradient */
    ebb__model_fini(&model);
    ebb__model_fini(&scaled);
    ebb_vec_free(&run);
}

/* Something else between two steps, an evaluation, is in no iteration. */
static void evaluation_is_left_out(void **state)
{
    (void)state;
    struct ebb_model model = make_rotated(8), wanted = make_rotated(7), scaled;
    for (unsigned steps = 2; steps < 4; steps++) {
        block_vec run = {0};
        pass(&run, 7, false, 0);
        optimize(&run);
        for (unsigned i = 0; i < LAYERS / 2; i++)
            allocate(&run, output_of(i, 7), true);
        for (unsigned i = 0; i < steps; i++) {
            pass(&run, 7, false, 0);
            optimize(&run);
        }
        assert_int_equal(scale_run(&model, &run, &scaled), EBB_OK);
        same_sizes(&scaled, &wanted);
        ebb__model_fini(&scaled);
        ebb_vec_free(&run);
    }
    ebb__model_fini(&model);
    ebb__model_fini(&wanted);
}

/* What is there in each iteration may depend on the batch, too: the data. */
static void data_are_scaled(void **state)
{
    (void)state;
    struct ebb_model model = make_rotated(8), scaled;
    uint64_t serial = model.blocks[0].serial;
    block_vec run = first_step(6, 0);
    const struct {
        uint64_t serial, size_bytes, wanted;
    } live[] = {{serial, 375 * KIB, 375 * KIB},
                {serial, 500 * KIB, 500 * KIB},
                {serial, 440 * KIB, 500 * KIB},
                {serial + 1, 375 * KIB, 375 * KIB}, /* the program has begun otherwise */
                {serial + 99, 375 * KIB, 500 * KIB}};
    for (size_t i = 0; i < sizeof live / sizeof live[0]; i++) {
        struct ebb_watch_block blocks[] = {{live[i].serial, live[i].size_bytes, false},
                                           {live[i].serial + 5, 9 * KIB, false}};
        struct ebb_scale_run of = {run.items, run.count, blocks, 2};
        assert_int_equal(ebb__model_scale(&model, &of, &scaled), EBB_OK);
        assert_int_equal(scaled.blocks[0].size_bytes, live[i].wanted);
        ebb__model_fini(&scaled);
    }
    ebb__model_fini(&model);
    ebb_vec_free(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_batch),
        cmocka_unit_test(small_blocks_vanish),
        cmocka_unit_test(headers_stay),
        cmocka_unit_test(large_blocks_appear),
        cmocka_unit_test(what_is_no_other_batch),
        cmocka_unit_test(cycle_begins_anywhere),
        cmocka_unit_test(another_way),
        cmocka_unit_test(evaluation_is_left_out),
        cmocka_unit_test(data_are_scaled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
