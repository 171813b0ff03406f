/* Addresses alone: compares runs of the arena, planned places and slabs with plain lists of the
 * taken addresses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "part_rig.h"
#include "runtime/address/address.h"

#define ROUNDS 3000u
#define MOST 24u

struct stage {
    struct ground ground;
    struct table table;
    struct addresses addresses;
};

static const struct policy policy;

static void stage_open(struct stage *stage)
{
    memset(stage, 0, sizeof *stage);
    ground_open(&stage->ground, UINT64_MAX, &policy, NULL);
    stage->ground.core.config.part_from_bytes = 4 * EBB_HUGE_BYTES;
    assert_true(ebb__block_init(&stage->table, &stage->ground.core));
    assert_true(ebb__address_init(&stage->addresses, &stage->table));
}

static void stage_close(struct stage *stage)
{
    ebb__address_fini(&stage->addresses);
    ebb__block_fini(&stage->table);
    ground_close(&stage->ground);
}

static bool overlap(const struct block *left, const struct block *right)
{
    return left->address < right->address + right->page_bytes &&
           right->address < left->address + left->page_bytes;
}

/* No two blocks share a unit. Each block is found by all of its addresses. Released addresses are
 * given out again. */
static void blocks_have_addresses_of_their_own(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage);
    struct addresses *addresses = &stage.addresses;
    struct block *taken[MOST];
    uint32_t count = 0, refused = 0;
    uint64_t random = 3;
    for (unsigned round = 0; round < ROUNDS; round++) {
        if (count == MOST || (count && ground_random(&random, 3) == 0)) {
            uint32_t at = ground_random(&random, count);
            ebb__space_give(addresses, taken[at]);
            assert_int_equal(taken[at]->state, BLOCK_EMPTY);
            taken[at] = taken[--count];
            continue;
        }
        uint64_t bytes = ebb__whole_pages(1 + ground_random(&random, 3 * EBB_HUGE_BYTES));
        struct block *block = ebb__space_take(addresses, bytes);
        if (!block) {
            refused++;
            continue;
        }
        block->page_bytes = bytes;
        ebb__block_become(block, BLOCK_BARE);
        assert_int_equal(block->address % EBB_HUGE_BYTES, 0);
        assert_true(ebb__whole_units(bytes) <= block->run.units * EBB_HUGE_BYTES);
        for (uint32_t i = 0; i < count; i++)
            assert_false(overlap(block, taken[i]));
        assert_ptr_equal(ebb__space_find(addresses, block->address), block);
        assert_ptr_equal(ebb__space_find(addresses, block->address + bytes - 1), block);
        assert_false(ebb__placement_owns(addresses, block->address));
        assert_false(ebb__slab_owns(addresses, block->address));
        taken[count++] = block;
    }
    assert_true(refused > 0 && refused < ROUNDS / 2); /* the arena is full at times */
    assert_true(addresses->space.units_used <= addresses->space.units_total);
    assert_null(ebb__space_take(addresses, GROUND_ARENA_BYTES));
    stage_close(&stage);
}

/* A place is taken by one block at a time, counted in pages. */
static void places_are_taken_once(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage);
    struct addresses *addresses = &stage.addresses;
    struct placement *placement = &addresses->placement;
    struct block *taken[MOST];
    uint32_t count = 0, refused = 0;
    uint64_t random = 4, load = 0;
    uint32_t pages = (uint32_t)(placement->units_total * (EBB_HUGE_BYTES / EBB_PAGE_BYTES));
    for (unsigned round = 0; round < ROUNDS; round++) {
        if (count == MOST || (count && ground_random(&random, 3) == 0)) {
            uint32_t at = ground_random(&random, count);
            load -= taken[at]->size_bytes;
            ebb__space_give(addresses, taken[at]);
            taken[at] = taken[--count];
        } else {
            uint32_t page = ground_random(&random, pages);
            size_t bytes = 1 + ground_random(&random, (pages - page) * (uint32_t)EBB_PAGE_BYTES);
            uint64_t place = page * EBB_PAGE_BYTES;
            struct block asked = {.address = placement->base + place,
                                  .page_bytes = ebb__whole_pages(bytes)};
            bool is_free = true;
            for (uint32_t i = 0; i < count; i++)
                is_free &= !overlap(&asked, taken[i]);
            struct block *block = ebb__placement_take(addresses, place, bytes, EBB_PAGE_BYTES);
            assert_int_equal(block != NULL, is_free);
            refused += !block;
            if (block) {
                assert_ptr_equal(ebb__space_find(addresses, asked.address), block);
                assert_ptr_equal(
                    ebb__placement_covering(addresses, asked.address + asked.page_bytes - 1),
                    block);
                ebb__block_become(block, BLOCK_BARE);
                taken[count++] = block;
                load += bytes;
            }
        }
        assert_int_equal(placement->load_bytes, load);
    }
    assert_true(refused > 0 && refused < ROUNDS);
    while (count)
        ebb__space_give(addresses, taken[--count]);
    for (uint32_t unit = 0; unit < placement->units_total; unit++)
        assert_int_equal(placement->users[unit], 0);
    assert_null(ebb__placement_take(addresses, EBB_PAGE_BYTES, 1, 2 * EBB_PAGE_BYTES));
    stage_close(&stage);
}

/* Slabs lie in their own range, one after the other, until the range is full. */
static void slabs_lie_in_their_range(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage);
    struct addresses *addresses = &stage.addresses;
    const struct slab_space *space = &addresses->slabs;
    for (uint32_t i = 0; i < space->total; i++) {
        struct block *slab = ebb__slab_take(addresses);
        assert_non_null(slab);
        ebb__block_become(slab, BLOCK_BARE);
        assert_int_equal(slab->address, space->base + i * EBB_SLAB_BYTES);
        assert_int_equal(slab->kind, BLOCK_SLAB);
        assert_ptr_equal(ebb__space_find(addresses, slab->address + EBB_SLAB_BYTES - 1), slab);
        assert_true(ebb__slab_owns(addresses, slab->address));
    }
    assert_null(ebb__slab_take(addresses));
    struct block *third = ebb__slab_find(addresses, space->base + 2 * EBB_SLAB_BYTES);
    ebb__space_give(addresses, third);
    assert_int_equal(space->taken, space->total - 1);
    assert_ptr_equal(ebb__slab_take(addresses), third);
    stage_close(&stage);
}

/* A block does not get a stray page that was mapped at its address before it was allocated. */
static void pages_of_nobody_make_way(void **state)
{
    (void)state;
    struct stage stage;
    stage_open(&stage);
    struct addresses *addresses = &stage.addresses;
    uintptr_t base = stage.ground.device.layout.arena.base;
    ebb__space_fill(addresses, NULL, base + EBB_PAGE_BYTES);
    assert_true(ebb__fake_present(&stage.ground.device, base + EBB_PAGE_BYTES));
    struct block *block = ebb__space_take(addresses, EBB_HUGE_BYTES);
    assert_int_equal(block->address, base);
    assert_false(ebb__fake_present(&stage.ground.device, base + EBB_PAGE_BYTES));
    block->page_bytes = EBB_PAGE_BYTES;
    ebb__block_become(block, BLOCK_BARE);
    ebb__space_fill(addresses, block, base + 2 * EBB_PAGE_BYTES); /* past its end */
    ebb__space_give(addresses, block);
    assert_ptr_equal(ebb__space_take(addresses, EBB_HUGE_BYTES), block);
    assert_false(ebb__fake_present(&stage.ground.device, base + 2 * EBB_PAGE_BYTES));
    stage_close(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_have_addresses_of_their_own),
        cmocka_unit_test(places_are_taken_once),
        cmocka_unit_test(slabs_lie_in_their_range),
        cmocka_unit_test(pages_of_nobody_make_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
