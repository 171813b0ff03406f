/* Coarse models: as many events as permitted, the same peak and time, no less load at any time, and
 * blocks that a planner accepts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/coarse.h"

#include "base/vec.h"

#include <string.h>

enum { LAYERS = 500, MIB = 1 << 20 };

struct trace {
    EBB_VEC(struct ebb_event) events;
    uint64_t serial, now_ns;
};

static uint64_t put(struct trace *trace, enum ebb_event_kind kind, uint64_t block, uint64_t bytes)
{
    struct ebb_event event = {.time_ns = trace->now_ns += 1000,
                              .block = block,
                              .size_bytes = bytes,
                              .kind = (uint8_t)kind,
                              .access = kind == EBB_EVENT_ACCESS ? EBB_ACCESS_WRITE : 0};
    assert_true(ebb_vec_push(&trace->events, event));
    return block;
}

static void short_lived(struct trace *trace, uint64_t bytes)
{
    uint64_t block = put(trace, EBB_EVENT_ALLOC, ++trace->serial, bytes);
    put(trace, EBB_EVENT_ACCESS, block, bytes);
    put(trace, EBB_EVENT_FREE, block, bytes);
}

/* One training iteration: outputs kept from forward to backward, weights, and scratch. */
static void iteration(struct trace *trace, const uint64_t *weights)
{
    uint64_t outputs[LAYERS];
    for (size_t l = 0; l < LAYERS; l++) {
        outputs[l] = put(trace, EBB_EVENT_ALLOC, ++trace->serial, MIB + l * 4096);
        put(trace, EBB_EVENT_ACCESS, weights[l], MIB);
        put(trace, EBB_EVENT_ACCESS, outputs[l], MIB + l * 4096);
        short_lived(trace, 3 * MIB + l);
    }
    for (size_t l = LAYERS; l-- > 0;) {
        put(trace, EBB_EVENT_ACCESS, outputs[l], MIB + l * 4096);
        put(trace, EBB_EVENT_ACCESS, weights[l], MIB);
        short_lived(trace, 5 * MIB + l);
        put(trace, EBB_EVENT_FREE, outputs[l], MIB + l * 4096);
    }
}

static struct ebb_model fine(void)
{
    struct trace trace = {0};
    uint64_t weights[LAYERS];
    struct ebb_model model;
    for (size_t l = 0; l < LAYERS; l++)
        weights[l] = put(&trace, EBB_EVENT_ALLOC, ++trace.serial, MIB);
    size_t first = trace.events.count;
    iteration(&trace, weights);
    size_t period = trace.events.count - first;
    iteration(&trace, weights);
    struct ebb_event_span span = {trace.events.items, trace.events.count};
    assert_int_equal(ebb__model_build(span, first, period, &model, NULL), EBB_OK);
    ebb_vec_free(&trace.events);
    return model;
}

static uint64_t load_at(const struct ebb_model *model, uint64_t ns)
{
    uint32_t tick = 0;
    while (tick + 1 < model->tick_count && model->time_ns[tick + 1] <= ns)
        tick++;
    return model->load_bytes[tick];
}

static void check_blocks(const struct ebb_model *model)
{
    for (uint32_t i = 0; i < model->block_count; i++) {
        const struct ebb_model_block *block = &model->blocks[i];
        if (block->alloc_tick != EBB_TICK_NONE) {
            assert_int_equal(model->events[block->alloc_tick].kind, EBB_EVENT_ALLOC);
            assert_int_equal(model->events[block->free_tick].kind, EBB_EVENT_FREE);
            assert_int_equal(model->events[block->free_tick].block, i);
            assert_int_equal((block->alloc_tick + block->span_ticks) % model->tick_count,
                             block->free_tick);
        }
        for (uint32_t a = 0; a < block->access_count; a++) {
            const struct ebb_model_access *access = &model->accesses[block->first_access + a];
            assert_int_equal(model->events[access->tick].kind, EBB_EVENT_ACCESS);
            assert_int_equal(model->events[access->tick].block, i);
        }
    }
}

static void test_peak_time_and_load(void **state)
{
    (void)state;
    struct ebb_model model = fine(), coarse;
    static const uint32_t most[] = {1000, 200, 40, 16};
    for (size_t i = 0; i < sizeof most / sizeof most[0]; i++) {
        assert_int_equal(ebb__model_coarsen(&model, most[i], &coarse, NULL), EBB_OK);
        assert_true(coarse.tick_count <= most[i] && coarse.tick_count > most[i] / 16);
        assert_int_equal(ebb__model_iteration_ns(&coarse), ebb__model_iteration_ns(&model));
        assert_true(coarse.peak_bytes >= model.peak_bytes);
        if (most[i] >= 200) /* a slice is short against the iteration */
            assert_true(coarse.peak_bytes - model.peak_bytes <= model.peak_bytes / 20);
        assert_true(coarse.has_accesses && coarse.gap_count > 0);
        for (uint32_t tick = 1; tick <= coarse.tick_count; tick++)
            assert_true(coarse.time_ns[tick] >= coarse.time_ns[tick - 1]);
        check_blocks(&coarse);
        ebb__model_fini(&coarse);
    }
    ebb__model_fini(&model);
}

/* Each byte of the original is in the coarse model, and lives as long or longer. */
static void test_bytes_are_kept(void **state)
{
    (void)state;
    struct ebb_model model = fine(), coarse;
    assert_int_equal(ebb__model_coarsen(&model, 1000, &coarse, NULL), EBB_OK);
    uint64_t persistent[2] = {0}, ns = ebb__model_iteration_ns(&model);
    for (uint32_t i = 0; i < model.block_count; i++)
        persistent[0] +=
            model.blocks[i].alloc_tick == EBB_TICK_NONE ? model.blocks[i].size_bytes : 0;
    for (uint32_t i = 0; i < coarse.block_count; i++)
        persistent[1] +=
            coarse.blocks[i].alloc_tick == EBB_TICK_NONE ? coarse.blocks[i].size_bytes : 0;
    assert_int_equal(persistent[0], persistent[1]);
    /* The middle of the iteration, where every output is live; its start, where none is. */
    assert_true(load_at(&coarse, ns / 2) >= (uint64_t)LAYERS * 2 * MIB);
    assert_true(load_at(&coarse, ns / 100) < (uint64_t)LAYERS * 2 * MIB);
    ebb__model_fini(&coarse);
    ebb__model_fini(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peak_time_and_load),
        cmocka_unit_test(test_bytes_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
