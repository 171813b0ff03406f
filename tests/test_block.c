/* The block table alone: states, lists, parts, copies in the store, and its content after a
 * fork. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "part_rig.h"
#include "runtime/block/block.h"

#define STATES (BLOCK_DYING + 1u)
#define UNITS 12u
#define ROUNDS 4000u

struct stage {
    struct ground ground;
    struct table table;
};

static void resumed(void *context)
{
    (void)context;
}

static const struct policy policy = {.resumed = resumed};

static void stage_open(struct stage *stage)
{
    memset(stage, 0, sizeof *stage);
    ground_open(&stage->ground, UINT64_MAX, &policy, NULL);
    assert_true(ebb__block_init(&stage->table, &stage->ground.core));
}

static void stage_close(struct stage *stage)
{
    ebb__block_fini(&stage->table);
    ground_close(&stage->ground);
}

/* The legal transitions, each with its purpose. */
static void states_follow_as_listed(void **state)
{
    (void)state;
    static const struct {
        enum block_state from, to;
    } pairs[] = {
        {BLOCK_ASLEEP, BLOCK_ASLEEP},         /* an unused entry stays unused when its block ends */
        {BLOCK_ASLEEP, BLOCK_EMPTY},          /* it gets an address */
        {BLOCK_ASLEEP, BLOCK_BARE},           /* a slab's entry gets an address */
        {BLOCK_EMPTY, BLOCK_EMPTY},           /* its address is released unused */
        {BLOCK_EMPTY, BLOCK_BARE},            /* allocated */
        {BLOCK_EMPTY, BLOCK_ASLEEP},          /* its block has ended */
        {BLOCK_CACHED, BLOCK_RESIDENT},       /* allocated together with its cached pages */
        {BLOCK_CACHED, BLOCK_EMPTY},          /* its pages are needed elsewhere */
        {BLOCK_BARE, BLOCK_RESIDENT},         /* it gets pages */
        {BLOCK_BARE, BLOCK_EMPTY},            /* freed */
        {BLOCK_BARE, BLOCK_ASLEEP},           /* joined */
        {BLOCK_RESIDENT, BLOCK_PARKED},       /* observed, or about to be evicted */
        {BLOCK_RESIDENT, BLOCK_CACHED},       /* freed; its pages are cached */
        {BLOCK_RESIDENT, BLOCK_EMPTY},        /* freed */
        {BLOCK_RESIDENT, BLOCK_ASLEEP},       /* joined */
        {BLOCK_PARKED, BLOCK_RESIDENT},       /* used */
        {BLOCK_PARKED, BLOCK_WRITING_BACK},   /* evicted */
        {BLOCK_PARKED, BLOCK_EMPTY},          /* freed */
        {BLOCK_PARKED, BLOCK_ASLEEP},         /* joined */
        {BLOCK_WRITING_BACK, BLOCK_RESIDENT}, /* used meanwhile */
        {BLOCK_WRITING_BACK, BLOCK_EVICTED},  /* written */
        {BLOCK_WRITING_BACK, BLOCK_DYING},    /* freed meanwhile */
        {BLOCK_EVICTED, BLOCK_FETCHING},      /* needed */
        {BLOCK_EVICTED, BLOCK_EMPTY},         /* freed */
        {BLOCK_FETCHING, BLOCK_RESIDENT},     /* read */
        {BLOCK_FETCHING, BLOCK_PARKED},       /* fetched, and its use is to be observed */
        {BLOCK_FETCHING, BLOCK_EVICTED},      /* the fetch is given up */
        {BLOCK_FETCHING, BLOCK_DYING},        /* freed meanwhile */
        {BLOCK_DYING, BLOCK_EMPTY},           /* the transfer is over */
    };
    for (unsigned from = 0; from < STATES; from++)
        for (unsigned to = 0; to < STATES; to++) {
            bool listed = false;
            for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
                listed |= pairs[i].from == from && pairs[i].to == to;
            if (ebb__block_may_become((enum block_state)from, (enum block_state)to) != listed)
                fail_msg("from %u to %u", from, to);
        }
}

/* Compares the list with an array. */
static void lists_keep_their_order(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage);
    struct list list = {NO_BLOCK, NO_BLOCK};
    uint32_t order[64], count = 0;
    uint64_t random = 1;
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint32_t index = 1 + ground_random(&random, 63), at = 0;
        while (at < count && order[at] != index)
            at++;
        if (at < count) {
            ebb__list_remove(&stage.table, &list, index, LINK_QUEUE);
            memmove(&order[at], &order[at + 1], (--count - at) * sizeof *order);
        } else if (ground_random(&random, 2)) {
            ebb__list_push_front(&stage.table, &list, index, LINK_QUEUE);
            memmove(&order[1], &order[0], count++ * sizeof *order);
            order[0] = index;
        } else {
            ebb__list_push_back(&stage.table, &list, index, LINK_QUEUE);
            order[count++] = index;
        }
        uint32_t seen = 0, before = NO_BLOCK;
        for (uint32_t i = list.first; i != NO_BLOCK; i = stage.table.blocks[i].queue.next) {
            assert_int_equal(i, order[seen++]);
            assert_int_equal(stage.table.blocks[i].queue.previous, before);
            before = i;
        }
        assert_int_equal(seen, count);
        assert_int_equal(list.last, before);
    }
    stage_close(&stage);
}

/* A resident block of UNITS whole units, as the arena would give it. */
static struct block *large_block(struct stage *stage)
{
    struct table *table = &stage->table;
    uint32_t first = table->count + 1;
    table->core->config.part_from_bytes = 2 * EBB_HUGE_BYTES;
    table->count += UNITS;
    struct block *head = &table->blocks[first];
    for (uint32_t i = 0; i < UNITS; i++) {
        head[i].run.head = first;
        table->unit_block[i] = first;
    }
    head->address = table->core->device.layout.arena.base;
    head->size_bytes = head->page_bytes = UNITS * EBB_HUGE_BYTES;
    head->run.units = head->run.total_units = UNITS;
    head->run.parts = 1;
    head->script_block = 0;
    ebb__block_become(head, BLOCK_EMPTY);
    ebb__block_become(head, BLOCK_BARE);
    ebb__block_become(head, BLOCK_RESIDENT);
    return head;
}

/* The parts cover the whole block in order, and each unit knows its part. */
static void check_parts(const struct table *table, const struct block *head)
{
    uint32_t index = ebb__block_index(table, head), parts = 0, units = 0;
    uintptr_t end = head->address;
    for (; index != NO_BLOCK; index = ebb__part_next(table, index)) {
        const struct block *part = &table->blocks[index];
        assert_int_equal(part->address, end);
        assert_int_equal(part->page_bytes, part->run.units * EBB_HUGE_BYTES);
        for (uint32_t i = 0; i < part->run.units; i++)
            assert_int_equal(table->unit_block[units + i], index);
        end += part->page_bytes;
        units += part->run.units;
        parts++;
    }
    assert_int_equal(units, UNITS);
    assert_int_equal(parts, head->run.parts);
}

static void parts_are_all_of_their_block(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage);
    struct block *head = large_block(&stage);
    uint64_t random = 2;
    assert_true(ebb__part_is_whole(&stage.table, head));
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint32_t first = ground_random(&random, UNITS);
        uint32_t count = 1 + ground_random(&random, UNITS - first);
        switch (ground_random(&random, 8)) {
        case 0:
            ebb__part_split(&stage.table, head);
            assert_int_equal(head->run.parts, UNITS);
            break;
        case 1:
            assert_true(ebb__part_join(&stage.table, head));
            break;
        default:
            assert_int_equal(ebb__part_shape(&stage.table, head, first, count),
                             ebb__block_index(&stage.table, head) + first);
            assert_int_equal(head[first].run.units, count);
        }
        check_parts(&stage.table, head);
    }
    assert_int_equal(ebb__part_shape(&stage.table, head, UNITS, 1), NO_BLOCK);
    assert_int_equal(ebb__part_shape(&stage.table, head, UNITS - 1, 2), NO_BLOCK);
    stage_close(&stage);
}

/* A block that is pinned, kept, waited for or being transferred is neither split nor joined. */
static void parts_at_work_stay_as_they_are(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage);
    struct block *head = large_block(&stage);
    head->pins = 1;
    ebb__part_split(&stage.table, head);
    assert_int_equal(head->run.parts, 1);
    head->pins = 0;
    ebb__part_split(&stage.table, head);
    head[4].kept = true;
    assert_false(ebb__part_join(&stage.table, head));
    assert_int_equal(head->run.parts, 3);
    check_parts(&stage.table, head);
    head[4].kept = false;
    head[4].transfer.queue = QUEUE_OUT;
    assert_false(ebb__part_join(&stage.table, head));
    head[4].transfer.queue = QUEUE_NONE;
    assert_true(ebb__part_join(&stage.table, head));
    stage_close(&stage);
}

static void the_last_part_buries_the_block(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage);
    struct block *head = large_block(&stage);
    ebb__part_split(&stage.table, head);
    for (uint32_t i = 0; i < UNITS; i++) {
        ebb__block_become(&head[i], BLOCK_EMPTY);
        assert_int_equal(ebb__part_bury(&stage.table, &head[i]), i == UNITS - 1);
    }
    assert_int_equal(head->run.units, UNITS);
    for (uint32_t i = 1; i < UNITS; i++)
        assert_int_equal(head[i].state, BLOCK_ASLEEP);
    stage_close(&stage);
}

/* A dropped copy frees its space at once. The parts of a block divide its copy among them. */
static void copies_give_their_space_back(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage);
    struct table *table = &stage.table;
    struct block *head = large_block(&stage);
    assert_true(ebb__extents_take(&table->copies.extents, head->page_bytes, &head->copy.offset));
    head->copy.is_there = true;
    head->copy.store = (uint8_t)table->copies.current;
    ebb__part_split(table, head);
    for (uint32_t i = 0; i < UNITS; i++) {
        assert_int_equal(table->copies.extents.used_bytes, (UNITS - i) * EBB_HUGE_BYTES);
        assert_int_equal(head[i].copy.offset, head->copy.offset + i * EBB_HUGE_BYTES);
        ebb__copy_drop(table, &head[i]);
        ebb__copy_drop(table, &head[i]);
    }
    assert_int_equal(table->copies.extents.used_bytes, 0);
    stage_close(&stage);
}

/* A fault holds the program's clock until it is served, and is counted once. */
static void a_fault_is_waited_for_once(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage);
    struct block *head = large_block(&stage);
    assert_int_equal(ebb__waits_fault_over(&stage.table, head), 0);
    ebb__waits_fault(&stage.table, head);
    assert_int_equal(stage.ground.core.held, 1);
    assert_true(ebb__waits_fault_over(&stage.table, head) > 0);
    assert_int_equal(stage.ground.core.held, 0);
    assert_int_equal(ebb__waits_fault_over(&stage.table, head), 0);
    stage_close(&stage);
}

/* After a fork, the child has what was in memory. It has no transfers, and its store is empty. */
static void a_child_has_what_was_in_memory(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage);
    struct table *table = &stage.table;
    struct block *head = large_block(&stage), *evicted = head + 3;
    struct ebb_ring *ring = ground_ring();
    uint64_t offset;
    ebb__part_split(table, head);
    ebb__block_become(evicted, BLOCK_PARKED);
    ebb__block_become(evicted, BLOCK_WRITING_BACK);
    ebb__block_become(evicted, BLOCK_EVICTED);
    assert_true(ebb__extents_take(&table->copies.extents, EBB_HUGE_BYTES, &offset));
    head[5].transfer.queue = QUEUE_OUT;
    head[5].transfer.urgent = true;
    head[5].pins = 2;
    table->uses.trace = true;
    ebb__block_before_fork(table, false);
    ebb__core_forked(&stage.ground.core, &stage.ground.ledger, ring);
    ebb__block_forked(table, false);
    for (uint32_t i = 0; i < UNITS; i++)
        assert_int_equal(head[i].inherited, &head[i] != evicted);
    assert_int_equal(head[5].transfer.queue, QUEUE_NONE);
    assert_false(head[5].transfer.urgent);
    assert_int_equal(head[5].pins, 0);
    assert_false(table->uses.trace);
    assert_int_equal(table->copies.extents.used_bytes, 0);
    assert_int_equal(atomic_load(&ring->counters.live_bytes), UNITS * EBB_HUGE_BYTES);
    stage_close(&stage);
    free(ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_follow_as_listed),
        cmocka_unit_test(lists_keep_their_order),
        cmocka_unit_test(parts_are_all_of_their_block),
        cmocka_unit_test(parts_at_work_stay_as_they_are),
        cmocka_unit_test(the_last_part_buries_the_block),
        cmocka_unit_test(copies_give_their_space_back),
        cmocka_unit_test(a_fault_is_waited_for_once),
        cmocka_unit_test(a_child_has_what_was_in_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
