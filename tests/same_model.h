/* Two models are equal in everything that planning reads. Include it after cmocka. */
#ifndef EBB_TESTS_SAME_MODEL_H
#define EBB_TESTS_SAME_MODEL_H

#include "model/model.h"

static inline void assert_same_block(const struct ebb_model *a, const struct ebb_model *b,
                                     uint32_t index)
{
    const struct ebb_model_block *one = &a->blocks[index], *other = &b->blocks[index];
    assert_int_equal(one->serial, other->serial);
    assert_int_equal(one->size_bytes, other->size_bytes);
    assert_int_equal(one->allocated_bytes, other->allocated_bytes);
    assert_int_equal(one->part_first, other->part_first);
    assert_int_equal(one->part_count, other->part_count);
    assert_int_equal(one->alloc_tick, other->alloc_tick);
    assert_int_equal(one->free_tick, other->free_tick);
    assert_int_equal(one->span_ticks, other->span_ticks);
    assert_int_equal(one->first_access, other->first_access);
    assert_int_equal(one->access_count, other->access_count);
    for (uint32_t i = 0; i < one->access_count; i++) {
        const struct ebb_model_access *use = &a->accesses[one->first_access + i];
        const struct ebb_model_access *others = &b->accesses[other->first_access + i];
        assert_int_equal(use->tick, others->tick);
        assert_int_equal(use->access, others->access);
        assert_int_equal(use->held, others->held);
    }
}

static inline void assert_same_model(const struct ebb_model *a, const struct ebb_model *b)
{
    assert_int_equal(a->tick_count, b->tick_count);
    assert_int_equal(a->clock_count, b->clock_count);
    assert_int_equal(a->block_count, b->block_count);
    assert_int_equal(a->access_count, b->access_count);
    assert_int_equal(a->gap_count, b->gap_count);
    assert_int_equal(a->mark_count, b->mark_count);
    assert_int_equal(a->peak_bytes, b->peak_bytes);
    assert_int_equal(a->peak_tick, b->peak_tick);
    assert_int_equal(a->has_accesses, b->has_accesses);
    assert_int_equal(a->unordered, b->unordered);
    assert_int_equal(a->slack_bytes, b->slack_bytes);
    assert_memory_equal(a->events, b->events, a->tick_count * sizeof *a->events);
    assert_memory_equal(a->time_ns, b->time_ns, (a->tick_count + 1) * sizeof *a->time_ns);
    assert_memory_equal(a->load_bytes, b->load_bytes, a->tick_count * sizeof *a->load_bytes);
    for (uint32_t i = 0; i < a->block_count; i++)
        assert_same_block(a, b, i);
    for (uint32_t i = 0; i < a->gap_count; i++) {
        assert_int_equal(a->gaps[i].block, b->gaps[i].block);
        assert_int_equal(a->gaps[i].from_tick, b->gaps[i].from_tick);
        assert_int_equal(a->gaps[i].to_tick, b->gaps[i].to_tick);
        assert_int_equal(a->gaps[i].ends_in_free, b->gaps[i].ends_in_free);
        assert_int_equal(a->gaps[i].from_ns, b->gaps[i].from_ns);
        assert_int_equal(a->gaps[i].length_ns, b->gaps[i].length_ns);
    }
    if (a->mark_count)
        assert_memory_equal(a->marks, b->marks, a->mark_count * sizeof *a->marks);
}

#endif
